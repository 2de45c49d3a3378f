//! The steps, carried out. Each can be repeated.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::OWN;
use super::decide::{Next, Place};
use super::see::{self, file, mount_point, mounted_from, owner_file, record};
use crate::up::paths;

pub(super) fn act(data: &Path, next: &Next) -> anyhow::Result<()> {
    match next {
        Next::Ready => Ok(()),
        Next::Adopt(directory) => adopt(data, directory),
        Next::Record(place) => keep(data, place),
        Next::Make(size) => make(data, *size),
        Next::Mount => mount(data),
        Next::Extend(size) => extend(data, *size),
        Next::Widen => widen(data),
    }
}

/// Unmounts the file's XFS, if it is mounted; its loop device goes with the mount.
pub(super) fn unmount(data: &Path) -> anyhow::Result<()> {
    while mounted(data)?.is_some() {
        run("umount", [mount_point(data).as_os_str()]).context("unmount the volumes")?;
    }
    Ok(())
}

/// Removes the volumes that are outside of the data directory.
pub(super) fn remove_outside(data: &Path) -> anyhow::Result<()> {
    let Place::Directory { path } = see::place(data)? else { return Ok(()) };
    let owner = std::fs::read_to_string(owner_file(&path)).unwrap_or_default();
    if Path::new(owner.trim_end_matches('\n')) != std::path::absolute(data).context("find the data directory")? {
        return Ok(());
    }
    let own = path.join(OWN);
    std::fs::remove_dir_all(&own).with_context(|| format!("remove {}", own.display()))
}

fn adopt(data: &Path, directory: &Path) -> anyhow::Result<()> {
    let own = directory.join(OWN);
    make_directory(&own, 0o755)?;
    let owner = std::path::absolute(data).context("find the data directory")?;
    write(&owner_file(directory), format!("{}\n", owner.display()).as_bytes())
}

fn keep(data: &Path, place: &Place) -> anyhow::Result<()> {
    make_directory(&paths::storage(data), 0o700)?;
    write(&record(data), &serde_json::to_vec(place)?)
}

/// The file gets its name when all of it is on the disk.
fn make(data: &Path, size: u64) -> anyhow::Result<()> {
    let (folder, path) = (paths::storage(data), file(data));
    make_directory(&folder, 0o700)?;
    let new = path.with_extension("new");
    let made = (|| {
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        let opened = opened.with_context(|| format!("create {}", new.display()))?;
        allocate(&opened, &new, size)?;
        let words = ["-q", "-f", "-K", "-m", "reflink=1"].map(OsStr::new);
        run("mkfs.xfs", words.into_iter().chain([new.as_os_str()])).context("make an XFS for volumes")?;
        opened.sync_all().with_context(|| format!("sync {}", new.display()))?;
        std::fs::rename(&new, &path).with_context(|| format!("rename {}", new.display()))?;
        sync(&folder)
    })();
    if made.is_err() {
        // The first error is the one to report; the next attempt truncates it.
        let _ = std::fs::remove_file(&new);
    }
    made
}

/// Takes the room from the disk at once: what is only promised is missing when the disk is full.
fn allocate(opened: &File, path: &Path, size: u64) -> anyhow::Result<()> {
    loop {
        return match rustix::fs::fallocate(opened, FallocateFlags::empty(), 0, size) {
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP) => bail!(
                "--storage-size: the file system of {} cannot allocate files in advance; use --storage-dir",
                path.display()
            ),
            allocated => allocated.with_context(|| format!("allocate {size} bytes for {}", path.display())),
        };
    }
}

fn mount(data: &Path) -> anyhow::Result<()> {
    let (path, point) = (file(data), mount_point(data));
    make_directory(&point, 0o755)?;
    let size = std::fs::metadata(&path).with_context(|| format!("look at {}", path.display()))?.len();
    if let Err(error) = extend(data, size) {
        // A trim of the machine's disks may have given its room away.
        let error = manager::errors::chain(error.as_ref());
        tracing::warn!(error, "the XFS of volumes is not fully allocated; a full disk can break it");
    }
    let words = ["-t", "xfs", "-o", "loop,noatime"].map(OsStr::new);
    run("mount", words.into_iter().chain([path.as_os_str(), point.as_os_str()])).context("mount the XFS of volumes")?;
    if let Some(device) = mounted(data)? {
        // Saves memory where it is possible: the bytes are not kept twice.
        if let Err(error) = run("losetup", ["--direct-io=on", &device].map(OsStr::new)) {
            tracing::debug!(error = manager::errors::chain(error.as_ref()), "the XFS of volumes is cached twice");
        }
    }
    make_directory(&point.join("volumes"), 0o755)
}

fn extend(data: &Path, size: u64) -> anyhow::Result<()> {
    let path = file(data);
    let opened = OpenOptions::new().write(true).open(&path).with_context(|| format!("open {}", path.display()))?;
    allocate(&opened, &path, size)?;
    opened.sync_all().with_context(|| format!("sync {}", path.display()))
}

/// The device first, then its file system, then the record that it is done.
fn widen(data: &Path) -> anyhow::Result<()> {
    let Some(device) = mounted(data)? else { bail!("the XFS of volumes is not mounted") };
    run("losetup", ["--set-capacity", &device].map(OsStr::new)).context("grow the device of volumes")?;
    run("xfs_growfs", [OsStr::new("-d"), mount_point(data).as_os_str()]).context("grow the XFS of volumes")?;
    keep(data, &Place::File { growing: false })
}

fn mounted(data: &Path) -> anyhow::Result<Option<String>> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    Ok(mounted_from(&mounts, data))
}

/// Runs a program to its end; its words are the error's.
fn run<'a>(program: &str, words: impl IntoIterator<Item = &'a OsStr>) -> anyhow::Result<()> {
    let path = hypervisor::programs::find(Path::new(program)).unwrap_or_else(|| program.into());
    let output = Command::new(path).args(words).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("run {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("{program} failed: {}", said.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn make_directory(path: &Path, mode: u32) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.with_context(|| format!("create {}", path.display()))?;
    path.parent().map_or(Ok(()), sync)
}

/// A file that is there with all its bytes, or as it was.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&new, path)).with_context(|| format!("write {}", path.display()))?;
    path.parent().map_or(Ok(()), sync)
}

fn sync(directory: &Path) -> anyhow::Result<()> {
    File::open(directory).and_then(|opened| opened.sync_all()).with_context(|| format!("sync {}", directory.display()))
}
