//! The accelerator: what executes a guest's instructions, found by running a small kernel under it.
//!
//! `/dev/kvm` may be there and not work, in more than one way: QEMU aborts, the guest hangs, or it runs for a while and
//! stops at the first instruction that the host's KVM does not know. So the probe ([`find`]) boots firmware that does what
//! a kernel does (`accelerator/probe.s`), under the CPU model and the machine that guests get.

mod firmware;
mod probe;
mod saved;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use saved::Circumstances;

/// Where it works, the probe takes less than a second; emulation, which is slower than any KVM worth having, not much more.
const LIMIT: Duration = Duration::from_secs(15);
/// The device of Linux' KVM.
const KVM: &str = "/dev/kvm";

/// What runs a guest's instructions.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Accelerator {
    /// The CPU itself, by Linux' KVM.
    Kvm,
    /// QEMU, one translated block at a time.
    Tcg,
}

impl Accelerator {
    /// As QEMU calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// What an operator wants to run guests with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Choice {
    /// KVM where it works, else emulation.
    #[default]
    Auto,
    /// KVM, tried or not.
    Kvm,
    /// Emulation.
    Tcg,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err("use auto, kvm or tcg".to_owned()),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// What runs guests here, and why that.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// What runs them.
    pub accelerator: Accelerator,
    pub reason: Reason,
}

/// Why guests run with what they run with.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Reason {
    /// KVM was tried, and works.
    Works,
    /// The operator chose it.
    Chosen,
    /// There is no KVM.
    NoDevice,
    /// KVM is for others.
    Denied(String),
    /// QEMU did not run the probe, and said this.
    Ended(String),
    /// QEMU stopped the probe and went into this state.
    Stopped(String),
    /// The probe took an exception.
    Exception(u8),
    /// Memory did not read as it was written.
    Forgot,
    /// The probe did not end in time.
    Silent,
}

impl Finding {
    /// Guests are emulated.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.accelerator == Accelerator::Tcg
    }

    /// What would give guests KVM, if they should have it and do not.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        if !self.is_emulated() {
            return None;
        }
        match self.reason {
            Reason::Works | Reason::Chosen => None,
            Reason::NoDevice => Some(
                "enable virtualization (VT-x or AMD-V) in the machine's firmware, or nested virtualization if the machine is \
                 a VM; then run `modprobe kvm_intel` or `modprobe kvm_amd`",
            ),
            Reason::Denied(_) => {
                Some("run as root, or join the group that owns /dev/kvm: `sudo usermod -aG kvm $USER`")
            }
            _ => Some(
                "the machine's KVM is broken, usually because of the nested virtualization of its own host; fix it there, \
                 or set `--accelerator tcg` to stop trying",
            ),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accelerator, reason } = self;
        match accelerator {
            Accelerator::Kvm => write!(f, "KVM: {reason}"),
            Accelerator::Tcg => write!(f, "emulation: {reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("a test kernel ran under it"),
            Self::Chosen => f.write_str("set by --accelerator"),
            Self::NoDevice => write!(f, "there is no {KVM}"),
            Self::Denied(why) => write!(f, "{KVM} cannot be opened: {why}"),
            Self::Ended(words) if words.is_empty() => f.write_str("QEMU exited under KVM without a reason"),
            Self::Ended(words) => write!(f, "QEMU exited under KVM: {words}"),
            Self::Stopped(state) => write!(f, "a test kernel stopped under KVM ({state})"),
            Self::Exception(number) => write!(f, "a test kernel took exception {number} under KVM"),
            Self::Forgot => f.write_str("memory was corrupted under KVM"),
            Self::Silent => f.write_str("a test kernel did not finish under KVM"),
        }
    }
}

/// How to try.
#[derive(Clone, Debug)]
pub struct Probe {
    /// With this program, QEMU ends with the caller, whatever ends that; see [`crate::process::guard`].
    pub this: Option<PathBuf>,
    pub qemu: PathBuf,
    /// Where the answer is remembered.
    pub folder: PathBuf,
    device: PathBuf,
    limit: Duration,
}

/// A question that has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The probe's own files could not be written.
    #[error("write the probe to {folder}")]
    Write { folder: PathBuf, source: std::io::Error },
    /// QEMU could not be started.
    #[error("start {program}")]
    Start { program: PathBuf, source: std::io::Error },
    /// KVM was asked for, and is not there.
    #[error("--accelerator kvm: open {KVM} (load the module kvm_intel or kvm_amd, or leave --accelerator out)")]
    NoKvm(#[source] std::io::Error),
}

impl Probe {
    /// A probe of the machine's KVM.
    #[must_use]
    pub fn new(this: Option<&Path>, qemu: &Path, folder: &Path) -> Self {
        Self {
            this: this.map(Path::to_owned),
            qemu: qemu.to_owned(),
            folder: folder.to_owned(),
            device: KVM.into(),
            limit: LIMIT,
        }
    }

    /// The answer is not believed any more: whoever asks next tries again.
    pub fn forget(&self) {
        saved::forget(&self.folder);
    }
}

/// Whether this process may use KVM.
#[must_use]
pub fn has_device() -> bool {
    open(Path::new(KVM)).is_ok()
}

fn open(device: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).open(device)
}

/// What runs guests on this machine: what the operator chose, or what was tried.
///
/// # Guarantees
/// - KVM is the answer only if a kernel would run under it.
/// - A machine is probed once: the answer is kept in the probe's directory until something that it depends on changes (the
///   boot, QEMU, the device, who asks), or until it is forgotten ([`Probe::forget`]).
///
/// # Errors
/// When QEMU cannot be started, the directory cannot be written to, or KVM was chosen and is not there.
pub async fn find(choice: Choice, probe: &Probe) -> Result<Finding, ProbeError> {
    match choice {
        Choice::Tcg => Ok(Finding { accelerator: Accelerator::Tcg, reason: Reason::Chosen }),
        Choice::Kvm => {
            open(&probe.device).map_err(ProbeError::NoKvm)?;
            Ok(Finding { accelerator: Accelerator::Kvm, reason: Reason::Chosen })
        }
        Choice::Auto => try_kvm(probe).await,
    }
}

async fn try_kvm(probe: &Probe) -> Result<Finding, ProbeError> {
    let without = |reason| Finding { accelerator: Accelerator::Tcg, reason };
    if !probe.device.exists() {
        return Ok(without(Reason::NoDevice));
    }
    if let Err(error) = open(&probe.device) {
        return Ok(without(Reason::Denied(error.to_string())));
    }
    let circumstances = Circumstances::now(probe);
    if let Some(finding) = circumstances.as_ref().and_then(|now| saved::recall(&probe.folder, now)) {
        return Ok(finding);
    }
    let finding = match probe::run(probe, Accelerator::Kvm).await? {
        Ok(()) => Finding { accelerator: Accelerator::Kvm, reason: Reason::Works },
        Err(reason) => without(reason),
    };
    if let Some(circumstances) = circumstances {
        saved::keep(&probe.folder, circumstances, &finding);
    }
    Ok(finding)
}

#[cfg(test)]
mod tests;
