//! Images that are missing, broken or too large: told in the VM's status, and run when they are fixed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod};
use kube::api::ListParams;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use serde_json::{Value, json};

use super::Test;
use super::guests::{add_volume, bare, linux, template, write};
use super::test_host::{TestHost, qemus};

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("an_image_that_is_missing_or_broken_is_told_and_awaited", an_image_that_is_missing_or_broken_is_told_and_awaited),
    ("an_image_that_does_not_fit_is_told_and_awaited", an_image_that_does_not_fit_is_told_and_awaited),
];

/// A registry that nobody runs.
const NOBODY: &str = "127.0.0.1:1/orlop/none:1";

fn an_image_that_is_missing_or_broken_is_told_and_awaited() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (missing, broken) =
        (Layout::copy(&folder.path().join("missing"))?, Layout::copy(&folder.path().join("broken"))?);
    missing.forget_tags()?;
    let good = broken.spoil("demo")?;
    let machine = TestHost::up()?;
    machine.create::<VirtualMachine>(booting("missing", &missing.image("kernel"))?)?;
    machine.create::<VirtualMachine>(with_disk("broken", &broken.image("demo"))?)?;
    machine.create::<VirtualMachine>(with_disk("nobody", NOBODY)?)?;

    for (name, why) in [("missing", "has 0 images for"), ("broken", "digest"), ("nobody", "onnection refused")] {
        // Whoever is late sees the second attempt, or a later one.
        let told = |reason: Option<&str>| matches!(reason, Some("ErrImagePull" | "ImagePullBackOff"));
        machine.until_some(why, || {
            let waiting = waiting(&machine, name).ok()?;
            (told(waiting.reason.as_deref()) && waiting.message?.contains(why)).then_some(())
        })?;
        machine.until_some("a status that says so", || {
            let vm = machine.get::<VirtualMachine>(name).ok()??;
            told(vm.status?.printable_status.map(|status| status.to_string()).as_deref()).then_some(())
        })?;
        ensure!(qemus(name).is_empty(), "{name} runs");
    }
    let unpacked = unpacked(&machine)?;
    ensure!(unpacked.is_empty(), "{unpacked:?}");

    missing.recall_tags()?;
    broken.mend("demo", &good)?;
    for name in ["missing", "broken"] {
        machine.phase(name, Phase::Running, None)?;
        machine.status(name, "Running")?;
    }
    // The other was tried again as well.
    machine.status("nobody", "ImagePullBackOff")?;
    ensure!(waiting(&machine, "nobody")?.reason.as_deref() == Some("ImagePullBackOff"));
    Ok(())
}

fn an_image_that_does_not_fit_is_told_and_awaited() -> Result<()> {
    let mut machine = TestHost::up()?;
    machine.down()?;
    // Room for the image as it is packed, but not for what is in it.
    let images = Small::mount(machine.data().join("images"), "17m")?;
    machine.start()?;
    machine.create::<VirtualMachine>(with_disk("large", &e2e::guest::image("demo")?)?)?;
    machine.status("large", "ErrImagePull")?;
    let message = waiting(&machine, "large")?.message.unwrap_or_default();
    ensure!(message.contains("not enough disk space for") && message.contains("bytes"), "{message}");
    let unpacked = unpacked(&machine)?;
    ensure!(unpacked.is_empty(), "{unpacked:?}");
    images.resize("64m")?;
    machine.phase("large", Phase::Running, None)?;
    // Only what pods had mounted goes with them.
    machine.down()?;
    ensure!(images.is_mounted()?, "the images' own file system is gone");
    Ok(())
}

/// A VM that boots a kernel from this image.
fn booting(name: &str, image: &str) -> Result<Value> {
    let mut vm = linux(name, "Always")?;
    template(&mut vm)["domain"]["firmware"]["kernelBoot"]["container"]["image"] = json!(image);
    Ok(vm)
}

/// A VM with a disk from this image.
fn with_disk(name: &str, image: &str) -> Result<Value> {
    let mut vm = bare(name, "Always");
    add_volume(&mut vm, "root", "containerDisk", json!({ "image": image, "imagePullPolicy": "IfNotPresent" }))?;
    Ok(vm)
}

/// What a container of the VM's pod waits for.
fn waiting(machine: &TestHost, name: &str) -> Result<ContainerStateWaiting> {
    let selected = ListParams::default().labels(&format!("vm={name}"));
    let pods = machine.runtime.block_on(machine.api::<Pod>().list(&selected))?;
    let status = pods.items.into_iter().find_map(|pod| pod.status).context("no pod")?;
    let containers = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
    let mut waiting = containers.filter_map(|container| container.state?.waiting);
    let pulls = |one: &ContainerStateWaiting| one.reason.as_deref().is_some_and(|reason| reason.contains("Pull"));
    waiting.find(pulls).with_context(|| format!("no container of {name} waits for an image"))
}

/// All files below the directories of images, finished or not.
fn unpacked(machine: &TestHost) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in ["images", "work"] {
        for entry in std::fs::read_dir(machine.data().join("images").join(folder))? {
            found.push(entry?.path());
        }
    }
    Ok(found)
}

/// A copy of the guest's OCI layout.
struct Layout(PathBuf);

impl Layout {
    fn copy(to: &Path) -> Result<Self> {
        let from = e2e::guest::directory()?.join("oci");
        e2e::output(std::process::Command::new("cp").arg("-R").arg(from).arg(to))?;
        Ok(Self(to.to_owned()))
    }

    fn image(&self, tag: &str) -> String {
        format!("oci:{}:{tag}", self.0.display())
    }

    fn forget_tags(&self) -> Result<()> {
        std::fs::rename(self.0.join("index.json"), self.0.join("kept"))?;
        write(&self.0.join("index.json"), r#"{ "schemaVersion": 2, "manifests": [] }"#)
    }

    fn recall_tags(&self) -> Result<()> {
        Ok(std::fs::rename(self.0.join("kept"), self.0.join("index.json"))?)
    }

    /// Changes one byte of an image's layer. Returns how it was.
    fn spoil(&self, tag: &str) -> Result<Vec<u8>> {
        let path = self.layer(tag)?;
        let good = std::fs::read(&path)?;
        let mut bad = good.clone();
        let last = bad.last_mut().context("an empty layer")?;
        *last = !*last;
        std::fs::write(path, bad)?;
        Ok(good)
    }

    fn mend(&self, tag: &str, good: &[u8]) -> Result<()> {
        Ok(std::fs::write(self.layer(tag)?, good)?)
    }

    fn layer(&self, tag: &str) -> Result<PathBuf> {
        let index = self.read(&self.0.join("index.json"))?;
        let tagged = |entry: &&Value| entry["annotations"]["org.opencontainers.image.ref.name"] == tag;
        let entry = index["manifests"].as_array().into_iter().flatten().find(tagged).context("no such tag")?;
        let manifest = self.read(&self.blob(&entry["digest"])?)?;
        self.blob(&manifest["layers"][0]["digest"])
    }

    fn blob(&self, digest: &Value) -> Result<PathBuf> {
        let hex = digest.as_str().and_then(|digest| digest.strip_prefix("sha256:")).context("no digest")?;
        Ok(self.0.join("blobs/sha256").join(hex))
    }

    fn read(&self, path: &Path) -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

/// A file system of few bytes.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf, size: &str) -> Result<Self> {
        let options = std::ffi::CString::new(format!("mode=700,size={size}"))?;
        mount("tmpfs", &at, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))?;
        Ok(Self(at))
    }

    fn resize(&self, size: &str) -> Result<()> {
        Ok(mount_remount(&self.0, MountFlags::empty(), format!("size={size}"))?)
    }

    fn is_mounted(&self) -> Result<bool> {
        let at = self.0.display().to_string();
        Ok(std::fs::read_to_string("/proc/self/mountinfo")?.lines().any(|line| line.split(' ').nth(4) == Some(&at)))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Gone already if the test failed early.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
