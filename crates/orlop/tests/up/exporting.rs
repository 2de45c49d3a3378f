//! Disks for elsewhere: what is in a claim comes out of the machine, byte by byte.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use api::data_volume::{DataVolume, DataVolumePhase};
use api::export::{VirtualMachineExport, VirtualMachineExportPhase as Phase};
use api::vm::VirtualMachine;
use certificates::tls;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::Test;
use super::guests::{add_volume, bare};
use super::importing::{PORT, reached, serve, url, volume};
use super::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[(
    "what_is_in_a_claim_is_downloaded_and_nothing_is_left_over",
    what_is_in_a_claim_is_downloaded_and_nothing_is_left_over,
)];

fn what_is_in_a_claim_is_downloaded_and_nothing_is_left_over() -> Result<()> {
    let machine = TestHost::with(&["--allow-host-port", &PORT.to_string()])?;
    let bytes: Vec<u8> = (0..3_u32 << 20).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let _server = serve(Arc::new(bytes.clone()))?;
    machine.create::<DataVolume>(volume("data", json!({ "http": { "url": url("/raw") } })))?;
    reached(&machine, "data", DataVolumePhase::Succeeded)?;
    let mut disk = bytes;
    disk.resize(16 << 20, 0);

    // The verb: compressed, and as it is.
    let folder = tempfile::tempdir()?;
    let (compressed, raw) = (folder.path().join("data.img.gz"), folder.path().join("data.img"));
    let to = |path: &Path| path.display().to_string();
    e2e::output(&mut machine.orlop(&["export", "data", "--claim", "--output", &to(&compressed)]))?;
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&compressed)?).read_to_end(&mut content)?;
    ensure!(content == disk, "what was compressed is something else");
    e2e::output(&mut machine.orlop(&["export", "data", "--claim", "--raw", "--output", &to(&raw)]))?;
    ensure!(std::fs::read(&raw)? == disk, "what was downloaded is something else");
    nothing_is_left(&machine);

    // A plain client, and a VM that wants its disk back.
    let mut vm = bare("v", "Manual");
    add_volume(&mut vm, "data", "dataVolume", json!({ "name": "data" }))?;
    machine.create::<VirtualMachine>(vm)?;
    machine.create::<VirtualMachineExport>(json!({
        "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport", "metadata": { "name": "e" },
        "spec": { "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "v" } },
    }))?;
    let status = exported(&machine, "e", Phase::Ready)?.status.context("no status")?;
    let token = machine.get::<Secret>(&status.token_secret_ref.context("no token")?)?.context("no secret")?;
    let token = String::from_utf8(token.data.unwrap_or_default().remove("token").context("no token")?.0)?;
    let link = status.links.and_then(|links| links.external).context("no external link")?;
    let volumes = link.volumes.unwrap_or_default();
    let image = volumes[0].formats.iter().flatten().find(|one| one.format == "raw").context("no raw disk")?.url.clone();
    machine.runtime.block_on(async {
        let config = tls::client(tls::roots(&link.cert)?, None)?;
        let client = reqwest::Client::builder().tls_backend_preconfigured(config).no_proxy().build()?;
        let get = |url: &str| client.get(url).header("x-kubevirt-export-token", &token);
        let part = get(&image).header("range", "bytes=1000000-1000999").send().await?;
        ensure!(part.status() == 206, "{}", part.status());
        ensure!(part.bytes().await? == disk[1_000_000..1_001_000], "the range is something else");
        let stranger = client.get(&image).header("x-kubevirt-export-token", "guess").send().await?;
        ensure!(stranger.status() == 401, "{}", stranger.status());
        let other = image.replace("virtualmachineexports/e", "virtualmachineexports/other");
        ensure!(get(&other).send().await?.status() == 404);
        let manifests = link.manifests.unwrap_or_default();
        let all = manifests.iter().find(|one| one.type_ == "all").context("no manifests")?;
        let list: Value = serde_json::from_str(&get(&all.url).send().await?.text().await?)?;
        let kinds: Vec<&str> =
            list["items"].as_array().into_iter().flatten().filter_map(|one| one["kind"].as_str()).collect();
        ensure!(kinds == ["ConfigMap", "VirtualMachine", "DataVolume"], "{list}");
        anyhow::Ok(())
    })?;
    e2e::output(&mut machine.orlop(&["start", "v"]))?;
    exported(&machine, "e", Phase::Pending)?;
    testkit::waiting::until("the exporter has gone", || exporters(&machine).is_empty());
    e2e::output(&mut machine.orlop(&["stop", "v"]))?;
    exported(&machine, "e", Phase::Ready)?;
    machine.delete::<VirtualMachineExport>("e")?;
    nothing_is_left(&machine);
    Ok(())
}

fn exported(machine: &TestHost, name: &str, phase: Phase) -> Result<VirtualMachineExport> {
    let what = format!("{phase:?}");
    let is_there = move |export: Option<&VirtualMachineExport>| {
        export.and_then(|export| export.status.as_ref()?.phase.as_ref()) == Some(&phase)
    };
    machine.wait::<VirtualMachineExport>(name, &what, is_there)?.context("the export is gone")
}

fn exporters(machine: &TestHost) -> Vec<String> {
    let selected = ListParams::default().labels("kubevirt.io.virt-export-service");
    let pods = machine.runtime.block_on(machine.api::<Pod>().list(&selected));
    pods.map(|pods| pods.items.iter().map(Pod::name_any).collect()).unwrap_or_default()
}

/// Pods and secrets go with their export.
fn nothing_is_left(machine: &TestHost) {
    testkit::waiting::until("nothing of the exports is left", || {
        let secrets = machine.runtime.block_on(machine.api::<Secret>().list(&ListParams::default()));
        let secrets = secrets.map(|all| all.items.iter().filter(|one| one.name_any().contains("export")).count());
        exporters(machine).is_empty() && secrets.is_ok_and(|count| count == 0)
    });
}
