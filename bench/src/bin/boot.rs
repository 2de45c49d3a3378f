//! How long `orlop run` takes to a running QEMU and to the guest's userland, beside bare QEMU with the same arguments in
//! the same run, and how much memory it holds meanwhile.
//!
//! `cargo build --release -p orlop && cargo run --release -p bench --bin boot [RUNS]`
#![expect(clippy::print_stdout, reason = "figures go to standard output")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::resident_kib;
use serde_json::json;

/// The first thing that the guest's own code says.
const USERLAND: &str = "guest: userland";
/// What the driver logs when QEMU runs the guest.
const RESUMED: &str = "event=\"RESUME\"";
const PATIENCE: Duration = Duration::from_secs(120);

/// What one run of `orlop` took and held.
struct Ours {
    started: Duration,
    userland: Duration,
    resident_kib: u64,
    /// QEMU's own arguments, for the comparison.
    arguments: Vec<String>,
}

fn main() -> Result<()> {
    let runs = std::env::args().nth(1).map_or(Ok(3), |runs| runs.parse())?;
    let folder = tempfile::tempdir()?;
    let manifest = folder.path().join("vmi.json");
    std::fs::write(&manifest, instance()?.to_string())?;
    // The first run fills the image cache and is not counted.
    let warm = ours(&manifest)?;
    bare(&warm.arguments)?;
    let mut started = Vec::new();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut resident = 0;
    for _ in 0..runs {
        let measured = ours(&manifest)?;
        started.push(measured.started);
        with.push(measured.userland);
        resident = resident.max(measured.resident_kib);
        without.push(bare(&measured.arguments)?);
    }
    let (started, with, without) = (median(started), median(with), median(without));
    println!("{}", json!({ "figure": "orlop run to QEMU running", "ms": millis(started) }));
    println!("{}", json!({ "figure": "orlop run to guest userland", "ms": millis(with) }));
    println!("{}", json!({ "figure": "bare QEMU to guest userland", "ms": millis(without) }));
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!("{}", json!({ "figure": "orlop run beside bare QEMU", "ratio": (ratio * 1000.0).round() / 1000.0 }));
    println!("{}", json!({ "figure": "resident memory of orlop run", "kib": resident }));
    Ok(())
}

fn instance() -> Result<serde_json::Value> {
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
                "firmware": { "kernelBoot": { "container": container, "kernelArgs": "console=ttyS0 quiet" } },
            },
            "terminationGracePeriodSeconds": 0,
        },
    }))
}

fn ours(manifest: &std::path::Path) -> Result<Ours> {
    let program = e2e::root().join("target/release/orlop");
    let start = Instant::now();
    let mut child = Command::new(&program)
        .arg("run")
        .arg(manifest)
        .env("ORLOP_LOG_LEVEL", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}; build it first", program.display()))?;
    let log = watch(child.stderr.take().context("no log")?, RESUMED, start);
    let console = watch(child.stdout.take().context("no console")?, USERLAND, start);
    let measure = || {
        let started = log.recv_timeout(PATIENCE).context("QEMU did not run")?;
        let userland = console.recv_timeout(PATIENCE).context("the guest did not come up")?;
        let resident_kib = resident_kib(child.id());
        let arguments = arguments_of_child(child.id())?;
        Ok(Ours { started, userland, resident_kib, arguments })
    };
    let measured = measure();
    end(&mut child);
    measured
}

/// The same machine without anything around it: no pause, no monitor, the console on standard output.
fn bare(arguments: &[String]) -> Result<Duration> {
    let mut changed: Vec<String> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-S" => {}
            "-vnc" | "-mon" => drop(rest.next()),
            "-chardev" => {
                let value = rest.next().context("-chardev without a value")?;
                let id = value.split(',').find_map(|part| part.strip_prefix("id=")).context("no id")?;
                let backend = if id == "serial0" { "stdio,signal=off" } else { "null" };
                changed.extend(["-chardev".to_owned(), format!("{backend},id={id}")]);
            }
            other => changed.push(other.to_owned()),
        }
    }
    let start = Instant::now();
    let mut child = Command::new("qemu-system-x86_64")
        .args(&changed)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start QEMU")?;
    let console = watch(child.stdout.take().context("no console")?, USERLAND, start);
    let userland = console.recv_timeout(PATIENCE).context("the bare guest did not come up");
    end(&mut child);
    userland
}

/// Tells when `words` came, and reads on so that nobody blocks.
fn watch(stream: impl Read + Send + 'static, words: &'static str, start: Instant) -> mpsc::Receiver<Duration> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if String::from_utf8_lossy(&line).contains(words) {
                // Only the first time counts; nobody may listen any more.
                let _ = send.send(start.elapsed());
            }
            line.clear();
        }
    });
    receive
}

fn arguments_of_child(pid: u32) -> Result<Vec<String>> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let Some(child) = children.split_whitespace().next() else { bail!("orlop has no QEMU") };
    let line = std::fs::read(format!("/proc/{child}/cmdline"))?;
    Ok(line
        .split(|byte| *byte == 0)
        .skip(1)
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .filter(|part| !part.is_empty())
        .collect())
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> u128 {
    time.as_millis()
}
