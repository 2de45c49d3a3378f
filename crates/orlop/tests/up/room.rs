//! Storage that the owner of the machine chooses, and what happens when it is used up.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::ListParams;
use serde_json::json;
use tempfile::TempDir;

use super::Test;
use super::guests::{Terminal, add_volume, linux};
use super::machines::status;
use super::storing::claim;
use super::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("claims_beyond_the_room_are_refused", claims_beyond_the_room_are_refused),
    ("a_guest_whose_storage_is_full_waits_for_room", a_guest_whose_storage_is_full_waits_for_room),
];

/// Those that need XFS.
pub(crate) const ON_XFS: &[(&str, Test)] =
    &[("volumes_are_on_an_xfs_that_grows_and_goes", volumes_are_on_an_xfs_that_grows_and_goes)];

/// A file system of a few MiB, mounted as long as this lives.
struct Small {
    folder: TempDir,
}

impl Small {
    fn new(mib: u64) -> Result<Self> {
        let small = Self { folder: tempfile::tempdir()? };
        let image = small.folder.path().join("image");
        std::fs::File::create(&image)?.set_len(mib << 20)?;
        std::fs::create_dir(small.path())?;
        e2e::output(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))?;
        e2e::output(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(small.path()))?;
        Ok(small)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Takes all but so much of its room.
    fn fill(&self, but: u64) -> Result<PathBuf> {
        let stat = rustix::fs::statvfs(self.path())?;
        let size = (stat.f_bavail * stat.f_frsize).saturating_sub(but);
        let filler = self.path().join("filler");
        e2e::output(Command::new("fallocate").args(["-l", &size.to_string()]).arg(&filler))?;
        Ok(filler)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(e2e::output(Command::new("umount").args(["--lazy"]).arg(self.path())));
    }
}

fn is_bound(claim: Option<&PersistentVolumeClaim>) -> bool {
    claim.is_some_and(|claim| claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound")))
}

/// What a claim was told that does not fit.
fn refusal(claim: Option<&PersistentVolumeClaim>) -> Option<String> {
    let conditions = claim?.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == "orlop.dev/HasRoom" && one.status == "False")?.message.clone()
}

fn warnings(machine: &TestHost, name: &str) -> Result<Vec<(String, String)>> {
    let of = ListParams::default().fields(&format!("involvedObject.name={name},type=Warning"));
    let events = machine.runtime.block_on(machine.api::<Event>().list(&of))?;
    Ok(events.items.into_iter().map(|one| (one.reason.unwrap_or_default(), one.message.unwrap_or_default())).collect())
}

fn claims_beyond_the_room_are_refused() -> Result<()> {
    let small = Small::new(64)?;
    let directory = small.path().display().to_string();
    let machine = TestHost::with(&["--storage-dir", &directory, "--storage-overcommit", "1.5"])?;
    let said = status(&machine)?;
    ensure!(said.contains("on ext4") && said.contains("plain copies") && said.contains("--storage-size"), "{said}");
    machine.ready()?;
    let page = http::Request::get("/readyz?verbose").body(Vec::new())?;
    let said = machine.runtime.block_on(machine.client().request_text(page))?;
    ensure!(said.contains("[+]volumes ok: ") && said.contains("orlop-volumes on ext4"), "{said}");

    machine.create::<PersistentVolumeClaim>(claim("fits", "50Mi"))?;
    machine.wait("fits", "bound", is_bound)?;
    machine.create::<PersistentVolumeClaim>(claim("wide", "70Mi"))?;
    let told = |claim: Option<&PersistentVolumeClaim>| refusal(claim).is_some();
    let wide = machine.wait("wide", "refused", told)?;
    let why = refusal(wide.as_ref()).context("no reason")?;
    ensure!(
        why.contains("asks for 70Mi") && why.contains("claims may ask for 150 %") && why.contains("ask for 50Mi"),
        "{why}"
    );
    let event = machine.until_some("event", || {
        warnings(&machine, "wide").ok()?.into_iter().find(|(reason, _)| reason == "ProvisioningFailed")
    })?;
    ensure!(event.1 == why, "{event:?}");
    // It gets its room when another one goes.
    machine.delete::<PersistentVolumeClaim>("fits")?;
    let wide = machine.wait("wide", "bound", is_bound)?;
    ensure!(refusal(wide.as_ref()).is_none(), "{wide:?}");
    Ok(())
}

fn a_guest_whose_storage_is_full_waits_for_room() -> Result<()> {
    let small = Small::new(64)?;
    let machine = TestHost::with(&["--storage-dir", &small.path().display().to_string()])?;
    machine.create::<PersistentVolumeClaim>(claim("data", "48Mi"))?;
    let mut vm = linux("v", "Always")?;
    add_volume(&mut vm, "data", "persistentVolumeClaim", json!({ "claimName": "data" }))?;
    machine.create::<VirtualMachine>(vm)?;
    let first = machine.phase("v", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    let filler = small.fill(8 << 20)?;
    let write = "dd if=/dev/zero bs=1M count=32 2> /dev/null | tr '\\000' x | dd of=/dev/vda bs=64k conv=fsync 2> /tmp/said; echo $? > /tmp/ended";
    // Of a shell of its own: this one would tell its end in the middle of what is read below.
    terminal.run(&format!("(({write}) > /dev/null 2>&1 &)"))?;

    machine.status("v", "Paused")?;
    let paused = |vmi: Option<&VirtualMachineInstance>| {
        let conditions = vmi.and_then(|vmi| vmi.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| {
            one.reason.as_deref() == Some("PausedIOError")
                && one
                    .message
                    .as_deref()
                    .is_some_and(|why| why.contains("disk data: the file system that holds its volume is full"))
        })
    };
    machine.wait("v", "paused by a full disk", paused)?;
    let (_, message) = machine
        .until_some("event", || warnings(&machine, "v").ok()?.into_iter().find(|(reason, _)| reason == "IOerror"))?;
    ensure!(message.contains("the guest goes on by itself when there is room"), "{message}");
    let says = || e2e::output(&mut machine.orlop(&["get", "v"])).unwrap_or_default();
    testkit::waiting::until("`orlop get` says why", || {
        says().contains("the file system that holds its volume is full")
    });

    std::fs::remove_file(filler)?;
    machine.status("v", "Running")?;
    // Nothing was lost, and nobody started it anew.
    terminal.run("until [ -s /tmp/ended ]; do sleep 0.1; done")?;
    let ended = terminal.run("cat /tmp/ended")?;
    ensure!(ended == "0", "{ended}");
    ensure!(terminal.run("head -c 33554432 /dev/vda | tr -d x | wc -c")? == "0");
    let vmi = machine.get::<VirtualMachineInstance>("v")?.context("the instance is gone")?;
    ensure!(vmi.metadata.uid == first.metadata.uid, "it is another instance");
    Ok(())
}

/// Where the XFS is mounted, and its device.
fn mount(machine: &TestHost) -> Option<String> {
    let point = machine.data().join("storage/mounted").canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find(|line| line.split(' ').nth(1) == point.to_str()).map(str::to_owned)
}

fn size(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_blocks * stat.f_frsize)
}

fn volumes_are_on_an_xfs_that_grows_and_goes() -> Result<()> {
    let mut machine = TestHost::with(&["--storage-size", "320Mi"])?;
    let (file, mounted) = (machine.data().join("storage/volumes.xfs"), machine.data().join("storage/mounted"));
    ensure!(mount(&machine).is_some_and(|mount| mount.contains(" xfs ")), "it is not mounted");
    let metadata = std::fs::metadata(&file)?;
    ensure!(metadata.len() == 320 << 20 && metadata.blocks() * 512 >= metadata.len(), "{metadata:?}");
    let said = status(&machine)?;
    ensure!(said.contains("on xfs") && said.contains("share blocks with their origin"), "{said}");
    machine.create::<PersistentVolumeClaim>(claim("data", "64Mi"))?;
    let bound = machine.wait("data", "bound", is_bound)?.context("no claim")?;
    let volume = mounted.join("volumes").join(bound.spec.and_then(|spec| spec.volume_name).context("no volume")?);
    std::fs::write(volume.join("disk.img"), "bytes")?;

    // It outlives whoever mounted it, and is found again without the flag.
    machine.kill()?;
    machine.change_flags(&[]);
    machine.start()?;
    ensure!(std::fs::read(volume.join("disk.img"))? == b"bytes");
    let before = size(&mounted)?;

    machine.terminate()?;
    machine.change_flags(&["--storage-size", "400Mi"]);
    machine.start()?;
    ensure!(size(&mounted)? > before + (64 << 20), "it did not grow");
    let metadata = std::fs::metadata(&file)?;
    ensure!(metadata.len() == 400 << 20 && metadata.blocks() * 512 >= metadata.len(), "{metadata:?}");

    machine.terminate()?;
    for (flags, words) in [
        (["--storage-size", "320Mi"], "XFS cannot shrink; use 400Mi or more"),
        (["--storage-dir", "/tmp"], "1 volumes and snapshots are in"),
        (["--storage-size", "100Ti"], "stay in reserve"),
    ] {
        machine.change_flags(&flags);
        let refused = machine.start().err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(refused.contains(words), "{flags:?}: {refused}");
        machine.forget_process()?;
    }

    // Nothing of it is left mounted, and its bytes are.
    machine.change_flags(&[]);
    machine.start()?;
    machine.down()?;
    ensure!(mount(&machine).is_none() && file.exists() && !volume.exists(), "it is still mounted");
    let attached = e2e::output(Command::new("losetup").arg("-j").arg(&file))?;
    ensure!(attached.is_empty(), "{attached}");
    machine.start()?;
    ensure!(std::fs::read(volume.join("disk.img"))? == b"bytes");
    machine.delete::<PersistentVolumeClaim>("data")?;
    machine.gone::<PersistentVolumeClaim>("data")?;
    testkit::waiting::until("the claim's data is gone", || !volume.exists());
    e2e::output(&mut machine.orlop(&["down", "--purge"]))?;
    machine.forget_process()?;
    ensure!(!machine.data().exists(), "something is left");
    Ok(())
}
