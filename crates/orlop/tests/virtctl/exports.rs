//! `virtctl vmexport`: a disk comes out of the machine through its API server.

use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use api::data_volume::{DataVolume, DataVolumePhase};
use api::export::VirtualMachineExport;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::Virtctl;

const WORDS: &[u8] = b"from the claim";

pub(crate) fn vmexport(virtctl: &Virtctl<'_>) -> Result<()> {
    let machine = virtctl.0;
    let immediate = json!({ "cdi.kubevirt.io/storage.bind.immediate.requested": "true" });
    machine.create::<DataVolume>(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": { "name": "exported", "annotations": immediate },
        "spec": { "source": { "blank": {} }, "storage": { "resources": { "requests": { "storage": "16Mi" } } } },
    }))?;
    let is_done = |volume: Option<&DataVolume>| {
        volume.and_then(|volume| volume.status.as_ref()?.phase.as_ref()) == Some(&DataVolumePhase::Succeeded)
    };
    machine.wait::<DataVolume>("exported", "filled", is_done)?;
    let claim = machine.get::<PersistentVolumeClaim>("exported")?.context("no claim")?;
    let volume = claim.spec.and_then(|spec| spec.volume_name).context("no volume")?;
    let disk = machine.data().join("volumes").join(volume).join("disk.img");
    // No VM has ever started with it.
    let mut blank = std::fs::OpenOptions::new().write(true).open(&disk).context("a blank DataVolume has no disk")?;
    ensure!(blank.metadata()?.len() == 16 << 20, "the blank disk has another size");
    blank.write_all(WORDS)?;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("disk.img");
    let path = file.display().to_string();
    let download = ["vmexport", "download", "e", "--pvc", "exported", "--format", "raw", "--output", &path];
    let said = virtctl.ok(&download)?;
    ensure!(said.contains("Download finished succesfully"), "{said}");
    ensure!(std::fs::read(&file)? == std::fs::read(&disk)?, "another disk was downloaded");
    // It was made for this download, and goes with it.
    machine.gone::<VirtualMachineExport>("e")
}
