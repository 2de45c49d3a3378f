//! Guests of `orlop run`, for tests.

use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use e2e::console::Console;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A guest in the foreground, its terminal in our hands. Killed when dropped, and QEMU with it.
pub(crate) struct Guest {
    pub(crate) console: Console<ChildStdin>,
    pub(crate) process: Child,
    _folder: TempDir,
}

impl Guest {
    /// Runs `orlop run` on this instance.
    pub(crate) fn run(instance: &Value, flags: &[&str]) -> Result<Self> {
        Self::by(orlop(), instance, flags)
    }

    /// The same where a script has changed what is mounted, which nobody else sees.
    pub(crate) fn behind(script: &str, instance: &Value, flags: &[&str]) -> Result<Self> {
        let mut command = Command::new("unshare");
        let script = format!("set -e; {script}; exec \"$0\" \"$@\"");
        command.args(["--mount", "bash", "-c", &script, env!("CARGO_BIN_EXE_orlop")]);
        Self::by(command, instance, flags)
    }

    fn by(mut orlop: Command, instance: &Value, flags: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let manifest = folder.path().join("vmi.json");
        std::fs::File::create(&manifest)?.write_all(instance.to_string().as_bytes())?;
        let mut process = orlop
            .arg("run")
            .arg(&manifest)
            .args(flags)
            // What a killed run leaves goes with the test.
            .env("TMPDIR", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("start orlop")?;
        let input = process.stdin.take().context("no standard input")?;
        let output = process.stdout.take().context("no standard output")?;
        Ok(Self { console: Console::new(input, output), process, _folder: folder })
    }

    /// Sends a signal to `orlop` itself.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        e2e::output(Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()])).map(drop)
    }

    /// Waits for `orlop` to end.
    pub(crate) fn wait(mut self) -> Result<ExitStatus> {
        // The pipe is drained first: a guest that still talks must not block on it.
        self.console.rest();
        Ok(self.process.wait()?)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program under test.
pub(crate) fn orlop() -> Command {
    Command::new(env!("CARGO_BIN_EXE_orlop"))
}

/// An instance with this domain; memory and the rest as every test wants them.
pub(crate) fn instance(name: &str, domain: &Value, volumes: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": name, "namespace": "tests", "uid": format!("uid-of-{name}") },
        "spec": {
            "terminationGracePeriodSeconds": 60,
            "domain": { "devices": {}, "memory": { "guest": "256Mi" } },
            "volumes": volumes,
        },
    });
    if let (Some(target), Some(fields)) = (object["spec"]["domain"].as_object_mut(), domain.as_object()) {
        target.extend(fields.clone());
    }
    object
}

/// The QEMU processes that run a guest of this name.
pub(crate) fn qemus(name: &str) -> Vec<u32> {
    let wanted = format!("guest=tests_{name},");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
            // The guard that is about to become QEMU has the same arguments, and counts.
            String::from_utf8_lossy(&line).contains(&wanted)
        })
        .collect()
}
