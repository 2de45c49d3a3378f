//! `orlop import`: a disk from a web server or a registry, as a DataVolume that VMs can use.

use std::io::Write;

use anyhow::Context as _;
use api::conditions::{self, ConditionStatus};
use api::data_volume::{DataVolume, DataVolumePhase as Phase, DataVolumeStatus};
use api::quantity::Amount;
use serde_json::{Value, json};

use crate::copies::{Waiting, create, follow, with_client};
use crate::progress::{Progress, percent};
use crate::target::Target;

/// Import a disk from a web server or a registry.
#[derive(clap::Args)]
#[group(id = "import")]
pub(crate) struct Arguments {
    /// Address of the disk, https://... or http://..., which may be compressed; or a container image that has it, such as
    /// quay.io/containerdisks/fedora:latest.
    #[arg(value_name = "URL|IMAGE")]
    source: String,
    /// Name of the DataVolume, and of its claim.
    name: String,
    /// Size of the disk. It must not be smaller than the image's own.
    #[arg(long, value_name = "SIZE", default_value = "10Gi", value_parser = size, env = "ORLOP_IMPORT_SIZE")]
    size: String,
    /// Checksum of the file, such as sha256:...; of an image, its digest is part of its name.
    #[arg(long, value_name = "CHECKSUM")]
    checksum: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    target: Target,
}

fn size(text: &str) -> Result<String, String> {
    let amount: Amount = text.parse().map_err(|error| format!("{error}"))?;
    if amount.units() > 0 { Ok(text.to_owned()) } else { Err("the size must be greater than 0".to_owned()) }
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { source, name, size, checksum, waiting, target } = arguments;
    let object = object(source, name, size, checksum.as_deref())?;
    with_client(target, async |client| {
        create::<DataVolume>(&client, object).await.with_context(|| format!("import {source}"))?;
        writeln!(out, "DataVolume {name} was created; a VM uses it as `dataVolume: {{ name: {name} }}`")
            .context("write to standard output")?;
        follow(&client, name, waiting, progress, out).await
    })
}

fn object(source: &str, name: &str, size: &str, checksum: Option<&str>) -> anyhow::Result<Value> {
    let is_web = ["http://", "https://"].iter().any(|scheme| source.starts_with(scheme));
    let from = match source.split_once("://") {
        _ if is_web => match checksum {
            Some(checksum) => json!({ "http": { "url": source, "checksum": checksum } }),
            None => json!({ "http": { "url": source } }),
        },
        _ if checksum.is_some() => {
            anyhow::bail!("--checksum is for files of web servers; name an image by its digest, as IMAGE@sha256:...")
        }
        Some(("docker", _)) => json!({ "registry": { "url": source } }),
        Some((scheme, _)) => anyhow::bail!("{scheme}:// is not supported; use https://, http:// or a container image"),
        None => json!({ "registry": { "url": format!("docker://{source}") } }),
    };
    Ok(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": { "name": name },
        "spec": {
            "source": from,
            "storage": { "resources": { "requests": { "storage": size } } },
        },
    }))
}

fn progress(volume: &DataVolume) -> Progress {
    let Some(status) = &volume.status else { return Progress::Goes("waiting for the controller".to_owned()) };
    let says = |kind: &str| conditions::find(status.conditions.as_deref(), kind).and_then(|one| one.message.clone());
    match status.phase.as_ref().unwrap_or(&Phase::Unset) {
        Phase::Succeeded => Progress::Done,
        Phase::Failed => {
            Progress::Failed(says("Running").or_else(|| says("Bound")).unwrap_or_else(|| "see its events".to_owned()))
        }
        phase => {
            let going = is_going(status).then_some(status.progress.as_deref()).flatten().and_then(percent);
            let step = says("Running").unwrap_or_else(|| phase.to_string());
            match going {
                Some(percent) => Progress::Part { step, percent },
                None => Progress::Goes(step),
            }
        }
    }
}

/// Whether the importer runs: how far one was that failed is of no use.
fn is_going(status: &DataVolumeStatus) -> bool {
    conditions::has(status.conditions.as_deref(), "Running", &ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_file_or_an_image() {
        let source = |text: &str| object(text, "d", "1Gi", None).map(|object| object["spec"]["source"].clone());
        assert_eq!(source("https://h/a.qcow2").unwrap(), json!({ "http": { "url": "https://h/a.qcow2" } }));
        for image in ["docker://quay.io/a/b:c", "quay.io/a/b:c"] {
            assert_eq!(source(image).unwrap(), json!({ "registry": { "url": "docker://quay.io/a/b:c" } }));
        }
        assert_eq!(
            source("ftp://h/a").unwrap_err().to_string(),
            "ftp:// is not supported; use https://, http:// or a container image"
        );
        let with = object("http://h/a", "d", "1Gi", Some("md5:00")).unwrap();
        assert_eq!(with["spec"]["source"]["http"]["checksum"], "md5:00");
        assert!(object("quay.io/a/b", "d", "1Gi", Some("md5:00")).is_err());
        assert!(size("0").is_err() && size("1GiB").is_err() && size("20Gi").is_ok());
    }

    #[test]
    fn an_import_shows_how_far_it_is_until_it_ends() {
        let at = |status: Value| {
            let volume = json!({ "spec": {}, "status": status });
            progress(&serde_json::from_value(volume).unwrap())
        };
        let running = |is: &str, message: &str| json!([{ "type": "Running", "status": is, "message": message }]);
        assert_eq!(
            progress(&serde_json::from_value(json!({ "spec": {} })).unwrap()),
            Progress::Goes("waiting for the controller".to_owned())
        );
        let going =
            json!({ "phase": "ImportInProgress", "progress": "42.37%", "conditions": running("True", "it goes") });
        assert_eq!(at(going), Progress::Part { step: "it goes".to_owned(), percent: 42 });
        let again = json!({ "phase": "ImportInProgress", "progress": "42.37%", "conditions": running("False", "404") });
        assert_eq!(at(again), Progress::Goes("404".to_owned()));
        assert_eq!(
            at(json!({ "phase": "Failed", "conditions": running("False", "no") })),
            Progress::Failed("no".to_owned())
        );
        assert_eq!(at(json!({ "phase": "Succeeded" })), Progress::Done);
    }
}
