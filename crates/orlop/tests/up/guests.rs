//! VMs for tests, and their consoles.

use std::process::{Child, ChildStdin, Stdio};

use anyhow::{Context as _, Result};
use e2e::console::Console;
use serde_json::{Value, json};

use super::test_host::TestHost;

/// A VM that boots the test guest's kernel: userland in seconds, nothing on disk.
pub(crate) fn linux(name: &str, strategy: &str) -> Result<Value> {
    let container = json!({
        "image": e2e::guest::image("kernel")?, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img",
        "imagePullPolicy": "IfNotPresent",
    });
    let boot = json!({ "kernelArgs": "console=ttyS0 quiet cryptomgr.notests no_timer_check", "container": container });
    let mut vm = bare(name, strategy);
    vm["spec"]["template"]["spec"]["domain"]["firmware"] = json!({ "kernelBoot": boot });
    Ok(vm)
}

/// A VM that boots nothing: its machine runs, its firmware looks for a disk for ever.
pub(crate) fn bare(name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": name },
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": { "labels": { "vm": name } },
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "domain": {
                        "memory": { "guest": "256Mi" },
                        "devices": { "rng": {}, "interfaces": [{ "name": "default", "masquerade": {} }] },
                    },
                    "networks": [{ "name": "default", "pod": {} }],
                },
            },
        },
    })
}

/// The instance's part of a VM.
pub(crate) fn template(vm: &mut Value) -> &mut Value {
    &mut vm["spec"]["template"]["spec"]
}

/// Adds a volume, and a disk for it.
pub(crate) fn add_volume(vm: &mut Value, name: &str, source: &str, volume: Value) -> Result<()> {
    let spec = template(vm);
    let push = |list: &mut Value, item: Value| match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    };
    push(&mut spec["domain"]["devices"]["disks"], json!({ "name": name, "disk": { "bus": "virtio" } }));
    let mut whole = json!({ "name": name });
    whole.as_object_mut().context("an object")?.insert(source.to_owned(), volume);
    push(&mut spec["volumes"], whole);
    Ok(())
}

/// `orlop console`, as a person uses it.
pub(crate) struct Terminal {
    pub(crate) console: Console<ChildStdin>,
    process: Child,
}

impl Terminal {
    /// Opens the console of a VM.
    pub(crate) fn open(machine: &TestHost, name: &str) -> Result<Self> {
        let mut command = machine.orlop(&["console", name]);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("open the console")?;
        let input = process.stdin.take().context("no standard input")?;
        let output = process.stdout.take().context("no standard output")?;
        Ok(Self { console: Console::new(input, output), process })
    }

    /// Opens it and logs in as root.
    pub(crate) fn log_in(machine: &TestHost, name: &str) -> Result<Self> {
        let mut terminal = Self::open(machine, name)?;
        // The prompt may have been shown before anybody looked.
        terminal.console.send("")?;
        terminal.console.log_in("root", "orlop")?;
        Ok(terminal)
    }

    /// Runs a command in the guest.
    pub(crate) fn run(&mut self, command: &str) -> Result<String> {
        self.console.run(command)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes a file in one go.
pub(crate) fn write(path: &std::path::Path, text: &str) -> Result<()> {
    Ok(std::fs::write(path, text)?)
}
