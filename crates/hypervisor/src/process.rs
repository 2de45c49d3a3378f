//! The QEMU process: started so that it can never outlive whoever started it.
//!
//! A parent-death signal must be set between fork and exec, in the child. Instead of unsafe code there, the program
//! starts itself under another name ([`exec_guarded`]), sets the signal, and becomes QEMU.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid, umask};

use crate::render::CommandLine;

/// What the hidden subcommand is called that becomes QEMU.
pub const GUARD: &str = "exec-guarded";

/// The command that starts QEMU under guard of the calling thread: if that thread ends, QEMU is killed.
///
/// # Assumptions
/// - `this` is a program whose subcommand [`GUARD`] calls [`exec_guarded`] with what follows it.
/// - The calling thread lives as long as the process does: the kernel watches the thread, not the process.
#[must_use]
pub fn guarded(this: &Path, qemu: &Path, line: &CommandLine) -> Command {
    let mut command = guard(Some(this), qemu);
    command
        .args(&line.arguments)
        .envs(line.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// The beginning of a command that starts a program under guard of the calling thread, if there is a `this` to guard it; its
/// arguments follow. See [`guarded`].
#[must_use]
pub fn guard(this: Option<&Path>, program: &Path) -> Command {
    let Some(this) = this else { return Command::new(program) };
    let mut command = Command::new(this);
    command.arg(GUARD).arg(std::process::id().to_string()).arg(program);
    command
}

/// Becomes `program`, to be killed when the parent ends. Returns only if that fails.
///
/// # Guarantees
/// - A parent that was gone before the signal was set is noticed: nothing is started.
/// - What the program creates is for its owner alone: sockets are 0600.
/// - The program has a session of its own: a Ctrl-C on the parent's terminal is for the parent to handle.
#[must_use]
pub fn exec_guarded(parent: i32, program: &OsString, arguments: &[OsString]) -> io::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    if getppid() != Pid::from_raw(parent) {
        return io::Error::other("the parent process has already ended");
    }
    if let Err(error) = setsid() {
        return error.into();
    }
    umask(rustix::fs::Mode::from_raw_mode(0o177));
    Command::new(program).args(arguments).exec()
}
