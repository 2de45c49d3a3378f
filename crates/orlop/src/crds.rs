//! `orlop crds`: the CustomResourceDefinitions, ready for `kubectl apply -f -`.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use clap::ValueEnum;

/// Print the CustomResourceDefinitions that the kubevirt.io API consists of.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How to print them: YAML documents, or one JSON list.
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
