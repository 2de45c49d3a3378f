//! What runs a guest's instructions, found out by letting it run some.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::process;

/// What runs a guest's instructions.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Accelerator {
    /// The CPU itself, by Linux' KVM.
    Kvm,
    /// QEMU, one translated block at a time.
    Tcg,
}

/// A probe is a few instructions; a machine that takes longer than this is not going to run a guest.
const LIMIT: Duration = Duration::from_secs(5);
/// What the probe writes to the exit port, and what QEMU makes of it: twice that, plus one.
const SIGN: u8 = 0x2a;
const EXIT: i32 = 2 * SIGN as i32 + 1;
/// The port of the device that ends QEMU.
const PORT: u8 = 0xf4;
/// The smallest firmware that QEMU maps, with the reset vector 16 bytes before its end.
const ROM: usize = 64 << 10;
const RESET: usize = ROM - 16;

/// A probe that could not be made at all.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The probe's own files could not be written.
    #[error("write the probe to {folder}")]
    Write {
        /// Where to.
        folder: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// QEMU could not be started.
    #[error("start {program}")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// The answer of an earlier probe, and what it holds for.
#[derive(Deserialize, PartialEq, Serialize)]
struct Remembered {
    boot: String,
    program: PathBuf,
    accelerator: Accelerator,
}

/// The accelerator that works on this machine: KVM if it really runs instructions, else emulation.
///
/// The answer is remembered in `folder` until the machine boots again; `/dev/kvm` may exist and not work, and finding
/// that out takes a moment. With `this`, QEMU ends with the caller, whatever ends that; see [`process::guard`].
///
/// # Errors
/// When QEMU cannot be started, or the folder cannot be written to.
pub async fn probe(this: Option<&Path>, program: &Path, folder: &Path) -> Result<Accelerator, ProbeError> {
    let memory = folder.join("accelerator.json");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let remembered = std::fs::read(&memory).ok().and_then(|json| serde_json::from_slice::<Remembered>(&json).ok());
    if let Some(known) = remembered.filter(|known| known.boot == boot && known.program == program && !boot.is_empty()) {
        return Ok(known.accelerator);
    }
    let works =
        Path::new("/dev/kvm").exists() && runs(this, program, folder, &["-accel", "kvm", "-cpu", "host"]).await?;
    let accelerator = if works { Accelerator::Kvm } else { Accelerator::Tcg };
    let answer = Remembered { boot, program: program.to_owned(), accelerator };
    // Forgetting the answer only costs a probe next time.
    if let Ok(json) = serde_json::to_vec(&answer) {
        let _ = std::fs::write(&memory, json);
    }
    Ok(accelerator)
}

/// Whether QEMU with these arguments runs the probe to its end.
async fn runs(this: Option<&Path>, program: &Path, folder: &Path, arguments: &[&str]) -> Result<bool, ProbeError> {
    let rom = folder.join("probe.rom");
    std::fs::write(&rom, firmware()).map_err(|source| ProbeError::Write { folder: folder.to_owned(), source })?;
    let mut command = Command::from(process::guard(this, program));
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-m", "16"])
        .args(arguments)
        .arg("-device")
        .arg(format!("isa-debug-exit,iobase={PORT:#x},iosize=1"))
        .arg("-bios")
        .arg(&rom)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|source| ProbeError::Start { program: program.to_owned(), source })?;
    let ended = tokio::time::timeout(LIMIT, child.wait()).await;
    let _ = std::fs::remove_file(&rom);
    Ok(matches!(ended, Ok(Ok(status)) if status.code() == Some(EXIT)))
}

/// Firmware whose first instructions say that they ran: `mov al, SIGN; out PORT, al; hlt`.
fn firmware() -> Vec<u8> {
    let mut rom = vec![0xf4; ROM];
    rom[RESET..RESET + 4].copy_from_slice(&[0xb0, SIGN, 0xe6, PORT]);
    rom
}

#[cfg(test)]
mod tests {
    use super::*;

    const QEMU: &str = "qemu-system-x86_64";

    #[tokio::test]
    async fn emulation_runs_the_probe() {
        let folder = tempfile::tempdir().unwrap();
        assert!(runs(None, Path::new(QEMU), folder.path(), &["-accel", "tcg"]).await.unwrap());
    }

    #[tokio::test]
    async fn an_accelerator_that_does_not_exist_does_not_run_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!runs(None, Path::new(QEMU), folder.path(), &["-accel", "warp"]).await.unwrap());
    }

    #[tokio::test]
    async fn an_answer_holds_until_the_next_boot() {
        let folder = tempfile::tempdir().unwrap();
        let first = probe(None, Path::new(QEMU), folder.path()).await.unwrap();
        let memory = folder.path().join("accelerator.json");
        let mut known: Remembered = serde_json::from_slice(&std::fs::read(&memory).unwrap()).unwrap();
        assert_eq!(known.accelerator, first);

        // A remembered answer is used without asking QEMU again ...
        known.program = "/nowhere/qemu".into();
        std::fs::write(&memory, serde_json::to_vec(&known).unwrap()).unwrap();
        assert_eq!(probe(None, Path::new("/nowhere/qemu"), folder.path()).await.unwrap(), first);

        // ... but not across a boot.
        known.boot = "another".into();
        known.accelerator = Accelerator::Kvm;
        known.program = QEMU.into();
        std::fs::write(&memory, serde_json::to_vec(&known).unwrap()).unwrap();
        assert_eq!(probe(None, Path::new(QEMU), folder.path()).await.unwrap(), first);
    }
}
