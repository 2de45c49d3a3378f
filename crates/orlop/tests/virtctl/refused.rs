//! What Orlop does not do yet: virtctl's users are told so, and what to do instead.

use anyhow::Result;
use api::data_volume::DataVolume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::Virtctl;

/// Nothing is evacuated, so nothing is to be cancelled: as with KubeVirt, that is no error. virtctl names no node: whatever an
/// instance is evacuated from is cancelled.
pub(crate) fn evacuate_cancel(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.ok(&["evacuate-cancel", "vm", "v"])?;
    virtctl.ok(&["evacuate-cancel", "vmi", "v"])?;
    virtctl.refused(&["evacuate-cancel", "vmi", "nobody"], "\"nobody\" not found")
}

pub(crate) fn addvolume(virtctl: &Virtctl<'_>) -> Result<()> {
    // virtctl itself looks whether a volume that is to be added is there, and never asks for this one.
    let none = "Volume data is not a DataVolume or PersistentVolumeClaim";
    virtctl.refused(&["addvolume", "v", "--volume-name", "data"], none)?;
    virtctl.0.create::<PersistentVolumeClaim>(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "16Mi" } } },
    }))?;
    virtctl.refused(&["addvolume", "v", "--volume-name", "data"], VOLUMES)
}

const VOLUMES: &str =
    "adding and removing volumes of a running VM is not supported yet; change the VM's template and restart";

pub(crate) fn removevolume(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.refused(&["removevolume", "v", "--volume-name", "data"], VOLUMES)
}

pub(crate) fn memory_dump(virtctl: &Virtctl<'_>) -> Result<()> {
    let words = "dumping a guest's memory is not supported yet; take the dump inside the guest";
    virtctl.refused(&["memory-dump", "get", "v", "--claim-name", "data"], words)?;
    virtctl.refused(&["memory-dump", "remove", "v"], words)?;
    virtctl.refused(&["memory-dump", "download", "v"], "missing outputFile to download the memory dump")
}

pub(crate) fn objectgraph(virtctl: &Virtctl<'_>) -> Result<()> {
    let words = "the object graph is not supported yet; follow the references in the VM's spec";
    virtctl.refused(&["objectgraph", "v"], words)
}

pub(crate) fn guestfs(virtctl: &Virtctl<'_>) -> Result<()> {
    // virtctl does not look at the Status that it is answered with.
    virtctl.refused(&["guestfs", "data"], "could not get guestfs image info: an error on the server")
}

pub(crate) fn usbredir(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.refused(
        &["usbredir", "--no-launch", "v"],
        "USB redirection is not supported yet; attach the device in the VM's spec",
    )
}

/// virtctl makes a DataVolume and waits until it takes an upload. Why it never does is told there.
pub(crate) fn image_upload(virtctl: &Virtctl<'_>) -> Result<()> {
    let image = virtctl.0.data().join("upload.img");
    std::fs::write(&image, [0; 4096])?;
    let path = image.display().to_string();
    let upload = ["image-upload", "dv", "uploaded", "--size", "16Mi", "--image-path", &path, "--wait-secs", "1"];
    virtctl.refused(&upload, "context deadline exceeded")?;
    let told = |volume: Option<&DataVolume>| {
        let status = volume.and_then(|volume| volume.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .any(|one| one.message.as_deref().is_some_and(|why| why.contains("spec.source.upload is not supported")))
    };
    virtctl.0.wait::<DataVolume>("uploaded", "refused", told).map(drop)
}
