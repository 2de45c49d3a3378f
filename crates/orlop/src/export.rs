//! `orlop export`: downloads a disk of a VM, of a snapshot or of a claim.

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::conditions;
use api::export::{
    VirtualMachineExport, VirtualMachineExportLink as Link, VirtualMachineExportPhase as Phase,
    VirtualMachineExportVolume as Volume,
};
use certificates::tls;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::controller_program::duration;
use crate::target::Target;

/// Download a disk of a VM that is stopped, of a snapshot or of a claim.
#[derive(clap::Args)]
#[group(id = "export")]
pub(crate) struct Arguments {
    /// The VM, or the snapshot or claim with --snapshot or --claim.
    name: String,
    /// Export a snapshot of a VM.
    #[arg(long, conflicts_with = "claim")]
    snapshot: bool,
    /// Export a claim.
    #[arg(long)]
    claim: bool,
    /// Claim to download, where there are several.
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// File to write. The default is named after the volume.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Download the disk as it is. The default is compressed.
    #[arg(long)]
    raw: bool,
    /// Keep the export, so that others can download until its time is over.
    #[arg(long)]
    keep: bool,
    /// Maximum time to wait until the download can begin.
    #[arg(long, default_value = "10m", value_parser = duration, env = "ORLOP_WAIT_TIMEOUT")]
    timeout: Duration,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let client = arguments.target.client().await?;
        let name = create(&client, arguments).await.with_context(|| format!("export {}", arguments.name))?;
        let downloaded = tokio::select! {
            biased;
            downloaded = follow(&client, &name, arguments, out) => downloaded,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        };
        if arguments.keep {
            writeln!(out, "export {name} is kept until its time is over").context("write to standard output")?;
            return downloaded;
        }
        let exports: Api<VirtualMachineExport> = Api::default_namespaced(client);
        let deleted = exports.delete(&name, &DeleteParams::default()).await.map(drop);
        downloaded?;
        deleted.with_context(|| format!("delete the export {name}"))
    })
}

async fn create(client: &Client, arguments: &Arguments) -> anyhow::Result<String> {
    let Arguments { name, snapshot, claim, .. } = arguments;
    let (group, kind) = match (snapshot, claim) {
        (true, _) => ("snapshot.kubevirt.io", "VirtualMachineSnapshot"),
        (_, true) => ("", "PersistentVolumeClaim"),
        _ => ("kubevirt.io", "VirtualMachine"),
    };
    let export: VirtualMachineExport = serde_json::from_value(json!({
        "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
        "metadata": { "generateName": format!("{name}-") },
        "spec": { "source": { "apiGroup": group, "kind": kind, "name": name } },
    }))
    .context("make the object")?;
    let exports: Api<VirtualMachineExport> = Api::default_namespaced(client.clone());
    match exports.create(&PostParams::default(), &export).await {
        Ok(made) => Ok(made.name_any()),
        Err(kube::Error::Api(status)) => bail!("{}", status.message),
        Err(error) => Err(error).context("ask the API server"),
    }
}

async fn follow(client: &Client, name: &str, arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let late = || format!("{name} was not ready within {} s", arguments.timeout.as_secs());
    let ready = tokio::time::timeout(arguments.timeout, ready(client, name, out)).await.with_context(late)??;
    let status = ready.status.unwrap_or_default();
    let links = status.links.unwrap_or_default();
    let external =
        links.external.context("the export has no external link; read it from a pod, at status.links.internal")?;
    let volume = chosen(&external, arguments.volume.as_deref())?;
    let (format, url) = address(volume, arguments.raw)?;
    let secret = status.token_secret_ref.context("the export names no token")?;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = secrets.get(&secret).await.context("read the token of the export")?;
    let token =
        secret.data.and_then(|mut data| data.remove("token")).context("the secret of the export has no token")?;
    let output = arguments.output.clone().unwrap_or_else(|| file_name(&volume.name, format).into());
    let bytes = download(&external.cert, url, &token.0, &output).await?;
    writeln!(out, "{} bytes were written to {}", bytes, output.display()).context("write to standard output")
}

/// Shows what is waited for, until the export can be downloaded.
async fn ready(client: &Client, name: &str, out: &mut impl Write) -> anyhow::Result<VirtualMachineExport> {
    let exports: Api<VirtualMachineExport> = Api::default_namespaced(client.clone());
    let mut changes = std::pin::pin!(watcher::watch_object(exports, name));
    let mut told = String::new();
    while let Some(change) = changes.next().await {
        let Some(seen) = change.context("ask the API server")? else { bail!("{name} was deleted") };
        let status = seen.status.clone().unwrap_or_default();
        let condition = conditions::find(status.conditions.as_deref(), "Ready");
        let words = condition.and_then(|one| one.message.clone().or(one.reason.clone())).unwrap_or_default();
        match status.phase {
            Some(Phase::Ready) => return Ok(seen),
            Some(Phase::Skipped) => bail!("there is nothing to export: {words}"),
            _ if words != told => {
                writeln!(out, "waiting: {words}").context("write to standard output")?;
                out.flush().context("write to standard output")?;
                told = words;
            }
            _ => {}
        }
    }
    bail!("the watch has ended")
}

fn chosen<'a>(link: &'a Link, wanted: Option<&str>) -> anyhow::Result<&'a Volume> {
    let all = link.volumes.as_deref().unwrap_or_default();
    let names = || all.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>().join(", ");
    match (wanted, all) {
        (None, [only]) => Ok(only),
        (None, []) => bail!("the export has no volumes"),
        (None, _) => bail!("the export has several volumes: {}; choose one with --volume", names()),
        (Some(wanted), all) => {
            let found = all.iter().find(|volume| volume.name == wanted);
            found.with_context(|| format!("the export has no volume {wanted:?}; use one of {}", names()))
        }
    }
}

/// The format that is downloaded, and from where.
fn address(volume: &Volume, raw: bool) -> anyhow::Result<(&'static str, &str)> {
    let wanted: &[&'static str] = if raw { &["raw"] } else { &["gzip", "tar.gz"] };
    for &format in wanted {
        let found = volume.formats.iter().flatten().find(|one| one.format == format);
        if let Some(found) = found {
            return Ok((format, found.url.as_str()));
        }
    }
    bail!("volume {} holds files and is not offered as a raw disk; leave --raw out", volume.name)
}

fn file_name(volume: &str, format: &str) -> String {
    let suffix = match format {
        "raw" => "img",
        "gzip" => "img.gz",
        _ => "tar.gz",
    };
    format!("{volume}.{suffix}")
}

/// Downloads to a file that appears whole or not at all. Returns how many bytes it has.
async fn download(authority: &str, url: &str, token: &[u8], output: &Path) -> anyhow::Result<u64> {
    let config = tls::client(tls::roots(authority)?, None)?;
    let client = reqwest::Client::builder().tls_backend_preconfigured(config).no_proxy().build();
    let client = client.context("set up TLS")?;
    let token = http::HeaderValue::from_bytes(token).context("use the token of the export")?;
    let mut answer = client.get(url).header(exporter::TOKEN, token).send().await.context("download")?;
    if !answer.status().is_success() {
        bail!("download: the server answered with status {}", answer.status());
    }
    let total = answer.content_length();
    let directory = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = tempfile::Builder::new().prefix(".orlop-export-").tempfile_in(directory);
    let draft = draft.with_context(|| format!("create a file in {}", directory.display()))?;
    let mut file = tokio::fs::File::from_std(draft.as_file().try_clone().context("open the file")?);
    let (mut done, mut bar) = (0, Bar::default());
    while let Some(piece) = answer.chunk().await.context("download")? {
        file.write_all(&piece).await.with_context(|| format!("write {}", output.display()))?;
        done += piece.len() as u64;
        bar.draw(done, total);
    }
    bar.end();
    file.sync_all().await.with_context(|| format!("write {}", output.display()))?;
    draft.persist(output).with_context(|| format!("write {}", output.display()))?;
    Ok(done)
}

/// How far a download is: on a terminal in place, elsewhere nothing.
#[derive(Default)]
struct Bar {
    drawn: Option<String>,
}

impl Bar {
    fn draw(&mut self, done: u64, total: Option<u64>) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let text = words(done, total);
        if self.drawn.as_ref() != Some(&text) {
            // A progress line that cannot be drawn is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{text}");
            self.drawn = Some(text);
        }
    }

    fn end(&self) {
        if self.drawn.is_some() {
            let _ = writeln!(std::io::stderr());
        }
    }
}

fn words(done: u64, total: Option<u64>) -> String {
    const WIDTH: u64 = 30;
    let mib = done >> 20;
    let Some(total) = total.filter(|total| *total > 0) else { return format!("downloading: {mib} MiB") };
    let share = done.min(total).saturating_mul(WIDTH) / total;
    let filled = usize::try_from(share).unwrap_or_default();
    let rest = usize::try_from(WIDTH - share).unwrap_or_default();
    format!("downloading: [{}{}] {mib} of {} MiB", "#".repeat(filled), " ".repeat(rest), total.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(volumes: &[(&str, &[&str])]) -> Link {
        let volumes: Vec<_> = volumes
            .iter()
            .map(|(name, formats)| {
                let formats: Vec<_> = formats
                    .iter()
                    .map(|format| json!({ "format": format, "url": format!("https://{format}") }))
                    .collect();
                json!({ "name": name, "formats": formats })
            })
            .collect();
        serde_json::from_value(json!({ "cert": "", "volumes": volumes })).unwrap()
    }

    #[test]
    fn one_volume_is_chosen_and_several_are_named() {
        let (one, two) = (link(&[("a", &[])]), link(&[("a", &[]), ("b", &[])]));
        assert_eq!(chosen(&one, None).unwrap().name, "a");
        assert_eq!(chosen(&two, Some("b")).unwrap().name, "b");
        assert!(chosen(&two, None).unwrap_err().to_string().contains("a, b; choose one with --volume"));
        assert!(chosen(&two, Some("c")).unwrap_err().to_string().contains("use one of a, b"));
        assert!(chosen(&link(&[]), None).is_err());
    }

    #[test]
    fn what_is_compressed_comes_first_and_files_are_no_disk() {
        let all = link(&[("disk", &["raw", "gzip"]), ("files", &["dir", "tar.gz"])]).volumes.unwrap();
        assert_eq!(address(&all[0], false).unwrap(), ("gzip", "https://gzip"));
        assert_eq!(address(&all[0], true).unwrap(), ("raw", "https://raw"));
        assert_eq!(address(&all[1], false).unwrap(), ("tar.gz", "https://tar.gz"));
        assert!(address(&all[1], true).unwrap_err().to_string().contains("leave --raw out"));
        assert_eq!(file_name("a", "gzip"), "a.img.gz");
        assert_eq!(file_name("a", "tar.gz"), "a.tar.gz");
    }

    #[test]
    fn progress_is_never_beyond_the_whole() {
        assert_eq!(words(3 << 20, None), "downloading: 3 MiB");
        let bar = words(1 << 20, Some(2 << 20));
        assert_eq!(bar, format!("downloading: [{}{}] 1 of 2 MiB", "#".repeat(15), " ".repeat(15)));
        assert!(words(9 << 20, Some(2 << 20)).contains(&"#".repeat(30)));
        assert_eq!(words(0, Some(0)), "downloading: 0 MiB");
    }
}
