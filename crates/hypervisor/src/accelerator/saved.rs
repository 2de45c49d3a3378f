//! The saved result of the probe, with everything that it depends on.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Finding, Probe, Reason};

/// The file's name.
const FILE: &str = "accelerator.json";
/// Another number for another probe: what an earlier one found says nothing about this one.
const PROBE: u32 = 2;
/// A machine may just have been busy when a probe did not end in time, or short of something when QEMU gave up: such an answer
/// does not last.
const DOUBTFUL: Duration = Duration::from_secs(3600);

/// An answer, and what it holds for. When it was given is when the file was written.
#[derive(Serialize, Deserialize)]
struct Remembered {
    circumstances: Circumstances,
    finding: Finding,
}

/// All that an answer depends on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Circumstances {
    probe: u32,
    /// A kernel, and the modules that it has loaded, last as long as the boot.
    boot: String,
    /// Another version of QEMU is another file.
    qemu: Identity,
    device: Option<Identity>,
    /// Who asks: the device may be open to one and closed to another.
    user: u32,
    opens: bool,
}

/// Which file something is, and who may use it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
    number: u64,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(path: &Path, is_device: bool) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        // Whoever uses a device touches its times.
        let modified = if is_device { (0, 0) } else { (found.mtime(), found.mtime_nsec()) };
        Some(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            number: found.rdev(),
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            size: found.size(),
            modified,
        })
    }
}

impl Circumstances {
    /// As they are now; none if they cannot be told, and then nothing is remembered.
    pub(super) fn now(probe: &Probe) -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let device = Identity::of(&probe.device, true);
        let opens = super::open(&probe.device).is_ok();
        let user = rustix::process::geteuid().as_raw();
        Some(Self { probe: PROBE, boot, qemu: Identity::of(&probe.qemu, false)?, device, user, opens })
    }
}

/// What is remembered for these circumstances.
pub(super) fn recall(folder: &Path, now: &Circumstances) -> Option<Finding> {
    let file = folder.join(FILE);
    let text = std::fs::read(&file).ok()?;
    let Remembered { circumstances, finding } = serde_json::from_slice(&text).ok()?;
    let age = || std::fs::metadata(&file).ok()?.modified().ok()?.elapsed().ok();
    let is_doubtful = matches!(finding.reason, Reason::Silent | Reason::Ended(_));
    let stale = is_doubtful && age().is_some_and(|age| age > DOUBTFUL);
    (circumstances == *now && !stale).then_some(finding)
}

/// Remembers; forgetting would only cost a probe next time.
pub(super) fn keep(folder: &Path, circumstances: Circumstances, finding: &Finding) {
    let remembered = Remembered { circumstances, finding: finding.clone() };
    let written = serde_json::to_vec(&remembered).map_err(std::io::Error::other).and_then(|json| {
        // A reader sees the old answer or the new one.
        let draft = folder.join(format!(".{FILE}.{}", std::process::id()));
        std::fs::write(&draft, json)?;
        std::fs::rename(&draft, folder.join(FILE))
    });
    if let Err(error) = written {
        tracing::debug!(%error, "cannot save the result of the accelerator probe");
    }
}

/// Forgets what was found.
pub(super) fn forget(folder: &Path) {
    // There may be nothing to forget.
    let _ = std::fs::remove_file(folder.join(FILE));
}
