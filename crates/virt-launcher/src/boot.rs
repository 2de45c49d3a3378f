//! From an instance to a running guest: the model, volumes, firmware, QEMU.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use api::names::annotation::GUEST;
use api::vmi::{StartStrategy, VirtualMachineInstance};
use hypervisor::Refusal;
use hypervisor::accelerator::{self, Accelerator, Choice, Finding, Probe, ProbeError};
use hypervisor::guest::build::{Before, build};
use hypervisor::guest::{Guest, StoredError};
use hypervisor::render;
use hypervisor::wiring::{Attachment, Wiring};
use launcher_api::Outcome;
use storage::cache::Cache;
use storage::pull::{Progress, Registries};

use crate::driver::{self, Handle, Launch, Origin, StartError};
use crate::errors::chain;
use crate::firmware::{self, FirmwareError};
use crate::migrate::mirror;
use crate::volumes::{self, Prepared, VolumeError, VolumePaths, Workshop};

/// How long a guest may take to power off when its instance does not say.
const GRACE: Duration = Duration::from_secs(30);
/// What a launcher has to work with.
pub struct Workbench {
    /// The program that becomes QEMU; see [`hypervisor::process::guarded`].
    pub this: PathBuf,
    /// QEMU itself.
    pub qemu: PathBuf,
    /// What the operator wants to run guests with.
    pub choice: Choice,
    /// Where it is written down what runs guests here.
    pub findings: PathBuf,
    /// The guest's own directory, for its sockets and state.
    pub folder: PathBuf,
    /// Where disks are made that go with the guest.
    pub disks: PathBuf,
    /// The directory of EFI firmware, if it is not where distributions keep it.
    pub firmware: Option<PathBuf>,
    /// Where claims, secrets and config maps are.
    pub places: VolumePaths,
    /// Images that are here already.
    pub cache: Cache,
    /// How to reach registries.
    pub registries: Registries,
    /// Who watches a pull.
    pub progress: Box<dyn Progress>,
}

/// A guest that was started, and what it stands on.
#[derive(Debug)]
pub struct Started {
    /// To watch and steer it.
    pub handle: Handle,
    /// How long it may take to power off.
    pub grace: Duration,
    /// What it has on this node.
    pub(crate) wiring: Wiring,
    /// Its volumes; images stay in the cache as long as this is held.
    pub(crate) prepared: Prepared,
}

/// A guest that comes from another launcher.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// What the guest sees there.
    pub guest: Guest,
    /// Which launcher it comes from, by the migration that moves it.
    pub from: String,
}

impl Workbench {
    /// What preparing volumes needs.
    pub(crate) fn workshop(&self) -> Workshop<'_> {
        let Self { disks, places, cache, registries, progress, .. } = self;
        Workshop { folder: disks, places, cache, registries, progress: progress.as_ref() }
    }

    /// How to find out what runs guests here.
    #[must_use]
    pub fn probe(&self) -> Probe {
        Probe::new(Some(&self.this), &self.qemu, &self.findings)
    }

    /// What runs guests here: what was chosen, what was `told`, or what is found out.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub async fn accelerator(&self, told: Option<Accelerator>) -> Result<Accelerator, ProbeError> {
        if let Some(known) = known(self.choice, told, accelerator::has_device) {
            return Ok(known);
        }
        let Finding { accelerator, .. } = accelerator::find(self.choice, &self.probe()).await?;
        Ok(accelerator)
    }
}

/// What runs guests here, if nothing has to be tried for that.
fn known(choice: Choice, told: Option<Accelerator>, has_device: impl FnOnce() -> bool) -> Option<Accelerator> {
    match (choice, told) {
        (Choice::Auto, Some(Accelerator::Tcg)) => Some(Accelerator::Tcg),
        // A pod gets the device of its node only if it asks for it.
        (Choice::Auto, Some(Accelerator::Kvm)) if has_device() => Some(Accelerator::Kvm),
        (Choice::Auto, Some(Accelerator::Kvm)) => Some(Accelerator::Tcg),
        (Choice::Auto, None) | (Choice::Kvm | Choice::Tcg, _) => None,
    }
}

/// Why a guest did not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The instance asks for what cannot be had.
    #[error("this instance cannot run\n{}", list(.0))]
    Refused(Vec<Refusal>),
    /// No accelerator was found.
    #[error("find an accelerator")]
    Accelerator(#[from] ProbeError),
    /// A volume is not there.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The firmware is not there.
    #[error(transparent)]
    Firmware(#[from] FirmwareError),
    /// What the guest was like before cannot be read.
    #[error("read the guest's previous model from metadata.annotations[{GUEST}]")]
    Before(#[source] StoredError),
    /// QEMU did not come up.
    #[error("QEMU did not start")]
    Start(#[from] StartError),
}

impl BootError {
    /// What its caller does about it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Refused(refusals) => Outcome::Never(refusals.iter().map(refusal).collect()),
            Self::Volume(error) => match error.refusal() {
                Some(refusal) => Outcome::Never(vec![refusal]),
                None => Outcome::retry(chain(self)),
            },
            Self::Before(_) | Self::Start(StartError::Cpu(_)) => Outcome::never("", chain(self)),
            Self::Accelerator(_) | Self::Firmware(_) | Self::Start(_) => Outcome::retry(chain(self)),
        }
    }
}

pub(crate) fn refusal(refused: &Refusal) -> launcher_api::Refusal {
    let Refusal { path, problem } = refused.clone();
    launcher_api::Refusal { path, problem }
}

fn list(refusals: &[Refusal]) -> String {
    refusals.iter().map(|refusal| format!("  {refusal}")).collect::<Vec<_>>().join("\n")
}

/// Prepares everything and starts QEMU, on the calling thread. `told` is what is known of what runs guests here.
///
/// # Errors
/// When anything that the instance names is missing or refused; then nothing runs.
pub async fn boot(
    vmi: &VirtualMachineInstance,
    interfaces: BTreeMap<String, Attachment>,
    told: Option<Accelerator>,
    incoming: Option<Incoming>,
    workbench: &Workbench,
) -> Result<Started, BootError> {
    let accelerator = workbench.accelerator(told).await?;
    let paused = vmi.spec.start_strategy == Some(StartStrategy::Paused);
    // What cannot be run is refused before anything is pulled or made for it.
    let (mut guest, from) = match incoming {
        Some(Incoming { guest, from }) => (guest, Some(from)),
        None => (first(vmi, accelerator)?, None),
    };
    let Workbench { this, qemu, folder, firmware, .. } = workbench;
    let prepared = volumes::prepare(vmi, &workbench.workshop()).await?;
    let origin = match from {
        Some(from) => Origin::Arrival { from, exports: mirror::exports(&guest, &prepared) },
        None => Origin::Boot { paused },
    };
    let efi = firmware::efi(vmi, folder, firmware.as_deref(), guest.boot.flash)?;
    if matches!(origin, Origin::Boot { .. }) {
        guest.boot.flash = efi.as_ref().map(|(_, flash)| *flash);
    }
    let wiring = Wiring {
        accelerator,
        runtime: folder.clone(),
        volumes: prepared.volumes.clone(),
        interfaces,
        kernel: prepared.kernel.clone(),
        efi: efi.map(|(efi, _)| efi),
        incoming: matches!(origin, Origin::Arrival { .. }),
    };
    let line = render::command_line(&guest, &wiring).map_err(BootError::Refused)?;
    let (this, qemu, runtime) = (this.clone(), qemu.clone(), folder.clone());
    let launch = Launch { this, qemu, guest, line, accelerator, runtime, origin };
    let handle = driver::launch(&launch).await?;
    let seconds = vmi.spec.termination_grace_period_seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0));
    Ok(Started { handle, grace: seconds.map_or(GRACE, Duration::from_secs), wiring, prepared })
}

/// The guest of an instance that boots: as it was before, if it ran before.
fn first(vmi: &VirtualMachineInstance, accelerator: Accelerator) -> Result<Guest, BootError> {
    let kept = vmi.metadata.annotations.as_ref().and_then(|annotations| annotations.get(GUEST));
    let kept = kept.map(|text| Guest::from_stored(text.as_bytes())).transpose().map_err(BootError::Before)?;
    let before = kept.as_ref().map_or(Before::Nothing, Before::Stopped);
    build(vmi, accelerator, before).map_err(BootError::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_that_was_told_what_runs_guests_does_not_try_it() {
        use Accelerator::{Kvm, Tcg};
        assert_eq!(known(Choice::Auto, Some(Tcg), || true), Some(Tcg));
        assert_eq!(known(Choice::Auto, Some(Kvm), || true), Some(Kvm));
        assert_eq!(known(Choice::Auto, Some(Kvm), || false), Some(Tcg), "the pod did not ask for the device");
        assert_eq!(known(Choice::Auto, None, || true), None);
    }

    #[test]
    fn what_the_operator_chose_goes_before_what_was_told() {
        for told in [None, Some(Accelerator::Kvm), Some(Accelerator::Tcg)] {
            assert_eq!(known(Choice::Kvm, told, || true), None);
            assert_eq!(known(Choice::Tcg, told, || true), None);
        }
    }
}
