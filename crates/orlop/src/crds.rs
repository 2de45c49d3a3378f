//! `orlop crds`: the CustomResourceDefinitions, ready for `kubectl apply -f -`.

use std::io::{ErrorKind, Write};

use anyhow::Context as _;
use clap::ValueEnum;

/// Print the CustomResourceDefinitions of the kubevirt.io API.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Output format: YAML documents, or one JSON list.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml, env = "ORLOP_CRDS_OUTPUT")]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { output } = arguments;
    let definitions = api::crd::all().context("generate the CRDs")?;
    let text = match output {
        Format::Yaml => {
            let documents: Result<Vec<String>, _> = definitions.iter().map(api::crd::to_yaml).collect();
            documents.context("print the CRDs")?.join("---\n")
        }
        Format::Json => {
            let list = k8s_openapi::List { items: definitions, ..Default::default() };
            serde_json::to_string(&list).context("print the CRDs")? + "\n"
        }
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough: `orlop crds | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(output: Format) -> String {
        let mut out = Vec::new();
        run(&Arguments { output }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn yaml_is_what_is_checked_in() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        files.sort();
        let printed = printed(Format::Yaml);
        let mut documents: Vec<&str> =
            printed.split_inclusive("---\n").map(|text| text.trim_end_matches("---\n")).collect();
        documents.sort_unstable();
        assert_eq!(documents, files);
    }

    #[test]
    fn json_is_one_list_that_kubectl_takes() {
        let list: serde_json::Value = serde_json::from_str(&printed(Format::Json)).unwrap();
        assert_eq!(list["kind"], "CustomResourceDefinitionList");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(20));
    }
}
