//! From an instance to a running guest: the model, volumes, firmware, QEMU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::vmi::{StartStrategy, VirtualMachineInstance};
use hypervisor::Refusal;
use hypervisor::accelerator::{self, Accelerator, Choice, Finding, Probe, ProbeError};
use hypervisor::guest::build::{Before, build};
use hypervisor::render;
use hypervisor::wiring::{Attachment, Efi, Wiring};
use storage::cache::Cache;
use storage::pull::{Progress, Registries};

use crate::driver::{self, Handle, Launch, StartError};
use crate::volumes::{self, Places, Prepared, VolumeError, Workshop};

/// How long a guest may take to power off when its instance does not say.
const GRACE: Duration = Duration::from_secs(30);
/// Where distributions keep EFI firmware.
const FIRMWARE_FOLDERS: &[&str] =
    &["/usr/share/OVMF", "/usr/share/edk2/ovmf", "/usr/share/edk2/x64", "/usr/share/qemu", "/usr/share/edk2-ovmf/x64"];
/// EFI firmware and the template of its variables, by the names distributions give them.
const FIRMWARE: &[(&str, &str)] = &[
    ("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"),
    ("OVMF_CODE.fd", "OVMF_VARS.fd"),
    ("OVMF_CODE.4m.fd", "OVMF_VARS.4m.fd"),
    ("ovmf-x86_64-code.bin", "ovmf-x86_64-vars.bin"),
];

/// What a launcher has to work with.
pub struct Workbench {
    /// The program that becomes QEMU; see [`hypervisor::process::guarded`].
    pub this: PathBuf,
    /// QEMU itself.
    pub qemu: PathBuf,
    /// What the operator wants to run guests with.
    pub choice: Choice,
    /// Where is remembered what runs guests here.
    pub memory: PathBuf,
    /// The guest's own folder, for its sockets and state.
    pub folder: PathBuf,
    /// Where disks are made that go with the guest.
    pub disks: PathBuf,
    /// The folder of EFI firmware, if it is not where distributions keep it.
    pub firmware: Option<PathBuf>,
    /// Where claims, secrets and config maps are.
    pub places: Places,
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
    /// Its images stay in the cache as long as this is held.
    _prepared: Prepared,
}

impl Workbench {
    /// How to find out what runs guests here.
    #[must_use]
    pub fn probe(&self) -> Probe {
        Probe::new(Some(&self.this), &self.qemu, &self.memory)
    }

    /// What runs guests here: what was chosen, what was `told`, or what is found out.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub async fn accelerator(&self, told: Option<Accelerator>) -> Result<Accelerator, ProbeError> {
        match (self.choice, told) {
            (Choice::Auto, Some(Accelerator::Tcg)) => Ok(Accelerator::Tcg),
            // A pod gets the device of its node only if it asks for it.
            (Choice::Auto, Some(Accelerator::Kvm)) if accelerator::has_device() => Ok(Accelerator::Kvm),
            (Choice::Auto, Some(Accelerator::Kvm)) => Ok(Accelerator::Tcg),
            (choice, _) => {
                let Finding { accelerator, .. } = accelerator::find(choice, &self.probe()).await?;
                Ok(accelerator)
            }
        }
    }
}

/// Why a guest did not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The instance asks for what cannot be had.
    #[error("this instance cannot be run as it is\n{}", list(.0))]
    Refused(Vec<Refusal>),
    /// What runs guests here cannot be found out.
    #[error("find out what runs guests here")]
    Accelerator(#[from] ProbeError),
    /// A volume is not there.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The firmware's variables could not be copied.
    #[error("copy {}", template.display())]
    Firmware {
        /// From here.
        template: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// QEMU did not come up.
    #[error("QEMU did not start")]
    Start(#[from] StartError),
}

impl BootError {
    /// Whether the same instance would fail again, however often it is tried.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Volume(VolumeError::Refused(_) | VolumeError::Reference { .. }) => true,
            Self::Accelerator(_) | Self::Volume(_) | Self::Firmware { .. } | Self::Start(_) => false,
        }
    }
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
    workbench: &Workbench,
) -> Result<Started, BootError> {
    let accelerator = workbench.accelerator(told).await?;
    // What cannot be run is refused before anything is pulled or made for it.
    let guest = build(vmi, accelerator, Before::Nothing).map_err(BootError::Refused)?;
    let Workbench { this, qemu, folder, disks, firmware, places, cache, registries, progress, .. } = workbench;
    let workshop = Workshop { folder: disks, places, cache, registries, progress: progress.as_ref() };
    let prepared = volumes::prepare(vmi, &workshop).await?;
    let wiring = Wiring {
        accelerator,
        runtime: folder.clone(),
        volumes: prepared.volumes.clone(),
        interfaces,
        kernel: prepared.kernel.clone(),
        efi: efi(vmi, folder, firmware.as_deref())?,
    };
    let line = render::command_line(&guest, &wiring).map_err(BootError::Refused)?;
    let paused = vmi.spec.start_strategy == Some(StartStrategy::Paused);
    let (this, qemu, runtime) = (this.clone(), qemu.clone(), folder.clone());
    let launch = Launch { this, qemu, guest, line, accelerator, runtime, paused };
    let handle = driver::launch(&launch).await?;
    let seconds = vmi.spec.termination_grace_period_seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0));
    Ok(Started { handle, grace: seconds.map_or(GRACE, Duration::from_secs), _prepared: prepared })
}

/// The firmware of this machine, with variables of the guest's own. None is found out later, by the field that asks.
fn efi(vmi: &VirtualMachineInstance, folder: &Path, firmware: Option<&Path>) -> Result<Option<Efi>, BootError> {
    let bootloader = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    if bootloader.is_none_or(|bootloader| bootloader.efi.is_none()) {
        return Ok(None);
    }
    let usual = || FIRMWARE_FOLDERS.iter().map(Path::new).collect();
    let folders: Vec<&Path> = firmware.map_or_else(usual, |folder| vec![folder]);
    let candidates =
        folders.iter().flat_map(|from| FIRMWARE.iter().map(|(code, vars)| (from.join(code), from.join(vars))));
    let Some((code, template)) = candidates.into_iter().find(|(code, _)| code.exists()) else { return Ok(None) };
    let variables = folder.join("efi-variables.fd");
    std::fs::copy(&template, &variables).map_err(|source| BootError::Firmware { template, source })?;
    Ok(Some(Efi { code, variables }))
}
