//! `orlop run`, and QEMU alone with the same arguments.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{PATIENCE, USERLAND, median, program, ratio, watch};
use crate::resident_kib;

/// What the driver logs when QEMU runs the guest.
const RESUMED: &str = "event=RESUME";

/// What one run of `orlop` took and held.
struct Ours {
    started: Duration,
    userland: Duration,
    resident_kib: u64,
    /// QEMU's own arguments, for the comparison.
    arguments: Vec<String>,
}

/// Figures of `orlop run`: medians of so many runs, and the most memory.
///
/// # Errors
/// When a guest does not come up.
pub fn measure(runs: usize, tell: &mut dyn FnMut(Value)) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let manifest = folder.path().join("vmi.json");
    std::fs::write(&manifest, instance()?.to_string())?;
    // The first run fills the image cache and is not counted.
    let warm = ours(&manifest)?;
    bare(&warm.arguments)?;
    let (mut measured, mut without) = (Vec::new(), Vec::new());
    // Who begins changes from run to run. The arguments are the same in all.
    for run in 0..runs {
        if run % 2 == 0 {
            measured.push(ours(&manifest)?);
            without.push(bare(&warm.arguments)?);
        } else {
            without.push(bare(&warm.arguments)?);
            measured.push(ours(&manifest)?);
        }
    }
    let started = median(measured.iter().map(|one| one.started).collect());
    let resident = measured.iter().map(|one| one.resident_kib).max().unwrap_or_default();
    let with: Vec<Duration> = measured.iter().map(|one| one.userland).collect();
    let beside = ratio(&with, &without);
    let (with, without) = (median(with), median(without));
    tell(json!({ "figure": "orlop run to QEMU running", "ms": started.as_millis() }));
    tell(json!({ "figure": "orlop run to guest userland", "ms": with.as_millis() }));
    tell(json!({ "figure": "bare QEMU to guest userland", "ms": without.as_millis() }));
    tell(json!({ "figure": "orlop run beside bare QEMU", "ratio": beside }));
    tell(json!({ "figure": "resident memory of orlop run", "kib": resident }));
    Ok(())
}

fn instance() -> Result<Value> {
    let container = json!({
        "image": e2e::guest::image("kernel")?,
        "kernelPath": "/boot/vmlinuz",
        "initrdPath": "/boot/initrd.img",
    });
    Ok(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "bench-boot" },
        "spec": {
            "domain": {
                "devices": {},
                "memory": { "guest": "256Mi" },
                "firmware": { "kernelBoot": { "container": container, "kernelArgs": "console=ttyS0 quiet no_timer_check" } },
            },
            "terminationGracePeriodSeconds": 0,
        },
    }))
}

fn ours(manifest: &Path) -> Result<Ours> {
    let start = Instant::now();
    let mut child = Command::new(program()?)
        .arg("run")
        .arg(manifest)
        .env("ORLOP_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start orlop run")?;
    let log = watch(child.stderr.take().context("no log")?, RESUMED);
    let console = watch(child.stdout.take().context("no console")?, USERLAND);
    let measure = || {
        let started = log.recv_timeout(PATIENCE).context("QEMU did not run")? - start;
        let userland = console.recv_timeout(PATIENCE).context("the guest did not come up")? - start;
        let resident_kib = resident_kib(child.id());
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()))?;
        let Some(qemu) = children.split_whitespace().next() else { bail!("orlop has no QEMU") };
        Ok(Ours { started, userland, resident_kib, arguments: arguments(qemu.parse()?)? })
    };
    let measured = measure();
    end(&mut child);
    measured
}

/// The arguments of a process.
///
/// # Errors
/// When it is gone.
pub(super) fn arguments(pid: u32) -> Result<Vec<String>> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline"))?;
    let words = line.split(|byte| *byte == 0).skip(1).map(|part| String::from_utf8_lossy(part).into_owned());
    Ok(words.filter(|part| !part.is_empty()).collect())
}

/// The same machine without anything around it: no pause, no monitor, the console on standard output.
pub(super) fn bare(arguments: &[String]) -> Result<Duration> {
    let changed = alone(arguments)?;
    let start = Instant::now();
    let mut child = Command::new("qemu-system-x86_64")
        .args(&changed)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start QEMU")?;
    let console = watch(child.stdout.take().context("no console")?, USERLAND);
    let userland = console.recv_timeout(PATIENCE).context("the bare guest did not come up");
    end(&mut child);
    Ok(userland? - start)
}

/// Arguments without what needs somebody beside QEMU.
fn alone(arguments: &[String]) -> Result<Vec<String>> {
    let mut changed: Vec<String> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-S" => {}
            "-vnc" | "-mon" => drop(rest.next()),
            // As many devices, connected to nothing.
            "-netdev" => {
                let value = rest.next().context("-netdev without a value")?;
                changed.extend(["-netdev".to_owned(), format!("hubport,hubid=0,id={}", id(value)?)]);
            }
            // Its files may be those of a container.
            "-kernel" => changed.extend(["-kernel".to_owned(), boot_file(&mut rest, "vmlinuz")?]),
            "-initrd" => changed.extend(["-initrd".to_owned(), boot_file(&mut rest, "initrd.img")?]),
            "-chardev" => {
                let value = rest.next().context("-chardev without a value")?;
                let id = id(value)?;
                let backend = if id == "serial0" { "stdio,signal=off" } else { "null" };
                changed.extend(["-chardev".to_owned(), format!("{backend},id={id}")]);
            }
            other => changed.push(other.to_owned()),
        }
    }
    Ok(changed)
}

fn id(value: &str) -> Result<&str> {
    value.split(',').find_map(|part| part.strip_prefix("id=")).context("no id")
}

fn boot_file(rest: &mut std::slice::Iter<'_, String>, name: &str) -> Result<String> {
    rest.next().context("no file to boot")?;
    Ok(e2e::guest::directory()?.join(name).display().to_string())
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_alone_runs_at_once_and_talks_to_standard_output() {
        let words = "-S -vnc unix:a -chardev socket,id=serial0,path=b -chardev socket,id=mon,path=c -mon chardev=mon -m 1 \
                     -netdev tap,id=net0,ifname=tap0";
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let expected = "-chardev stdio,signal=off,id=serial0 -chardev null,id=mon -m 1 -netdev hubport,hubid=0,id=net0";
        assert_eq!(alone(&words).unwrap().join(" "), expected);
    }
}
