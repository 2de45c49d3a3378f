//! A guest that is nothing but a boot sector: it says `ready` on its serial port, and then again whatever is typed there. Where guests
//! are emulated, twenty of those cost less than one Linux.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::guests::{add_volume, bare, template};

/// Its code, for the 8086 that every processor begins as.
const CODE: [u8; 44] = [
    0x31, 0xc0, // xor ax, ax
    0x8e, 0xd8, // mov ds, ax
    0xfc, 0xfb, // cld; sti
    0xbe, 0x26, 0x7c, // mov si, text
    0xac, // next: lodsb
    0x84, 0xc0, // test al, al
    0x74, 0x06, // jz echo
    0xba, 0xf8, 0x03, // mov dx, data of the serial port
    0xee, // out dx, al
    0xeb, 0xf5, // jmp next
    0xba, 0xfd, 0x03, // echo: mov dx, state of the serial port
    0xec, // look: in al, dx
    0xa8, 0x01, // test al, 1
    0x75, 0x03, // jnz take
    0xf4, // hlt: until the next tick of the clock
    0xeb, 0xf8, // jmp look
    0xba, 0xf8, 0x03, // take: mov dx, data of the serial port
    0xec, 0xee, // in al, dx; out dx, al
    0xeb, 0xee, // jmp echo
    b'r', b'e', b'a', b'd', b'y', 0, // text
];
const TAG: &str = "tiny";

/// A VM that boots it.
pub(crate) fn tiny(name: &str, image: &str) -> Result<Value> {
    let mut vm = bare(name, "Always");
    template(&mut vm)["domain"]["memory"]["guest"] = json!("32Mi");
    add_volume(&mut vm, "root", "containerDisk", json!({ "image": image }))?;
    Ok(vm)
}

/// Makes its image in a directory.
pub(crate) fn image(folder: &Path) -> Result<String> {
    let disk = folder.join("disk");
    std::fs::create_dir(&disk)?;
    let mut sectors = vec![0; 1 << 20];
    sectors[..CODE.len()].copy_from_slice(&CODE);
    sectors[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(disk.join("boot.img"), sectors)?;
    let layer = folder.join("layer.tar");
    let mut tar = Command::new("tar");
    tar.args(["--owner=107", "--group=107", "--numeric-owner", "-cf"]).arg(&layer).arg("-C").arg(folder).arg("disk");
    e2e::output(&mut tar)?;

    let layout = folder.join("oci");
    std::fs::create_dir_all(layout.join("blobs/sha256"))?;
    std::fs::write(layout.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
    let layer = blob(&layout, "application/vnd.oci.image.layer.v1.tar", &std::fs::read(&layer)?)?;
    let config = json!({
        "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
    });
    let config = blob(&layout, "application/vnd.oci.image.config.v1+json", config.to_string().as_bytes())?;
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [layer] });
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let mut manifest = blob(&layout, kind, manifest.to_string().as_bytes())?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": TAG });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    std::fs::write(layout.join("index.json"), index.to_string())?;
    Ok(format!("oci:{}:{TAG}", layout.display()))
}

/// Stores bytes in a layout, and describes them.
fn blob(layout: &Path, kind: &str, bytes: &[u8]) -> Result<Value> {
    let made = layout.join("blobs/sha256/new");
    std::fs::write(&made, bytes)?;
    let told = e2e::output(Command::new("sha256sum").arg(&made))?;
    let sum = told.split_whitespace().next().context("no sum")?;
    std::fs::rename(&made, made.with_file_name(sum))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": bytes.len() }))
}
