//! What guests find on their PCI bus does not move from release to release: QEMU's own account of it, for sample instances and our
//! examples, is compared with `layout/`. What is there for `../shared/manifests`, which not every machine has, was recorded before
//! devices had places of their own.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails on the terminal")]

#[path = "support/samples.rs"]
mod samples;
mod support;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use api::vmi::VirtualMachineInstance;
use hypervisor::guest::build::{Before, build};
use hypervisor::guest::{DeviceId, Guest, Kind};
use hypervisor::qmp::{self, Qmp};
use hypervisor::render::{self, Call, Part};
use hypervisor::step::{Step, difference};
use hypervisor::{accelerator::Accelerator, wiring::Wiring};
use serde_json::{Value, json};
use testkit::harness::block_on;
use testkit::{Harness, Need, Test, needs};

fn main() -> std::process::ExitCode {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = package.join("tests");
    let examples = samples(&package.join("../../examples")).into_iter();
    let mut all: Vec<Test> = samples(&folder.join("samples"))
        .into_iter()
        .filter(|(name, _)| name != "refused")
        .chain(examples.map(|(name, vmi)| (format!("example-{name}"), vmi)))
        .map(|(name, vmi)| test(&folder, name, vmi))
        .collect();
    let manifests = Need::Shared("manifests");
    if manifests.missing().is_none() {
        let others = samples(&needs::shared("manifests")).into_iter();
        let recorded = others.filter(|(name, _)| folder.join("layout").join(format!("{name}.txt")).exists());
        all.extend(recorded.map(|(name, vmi)| test(&folder, name, vmi)));
    }
    all.push(Test::new("a_disk_comes_and_goes_while_the_guest_runs", || {
        block_on(a_disk_comes_and_goes_while_the_guest_runs());
    }));
    Harness::default().run(all.into_iter().map(|test| test.needing(&[Need::Qemu])).collect())
}

fn test(folder: &Path, name: String, vmi: VirtualMachineInstance) -> Test {
    let recorded =
        std::fs::read_to_string(folder.join("layout").join(format!("{name}.txt"))).expect("a recorded layout");
    Test::new(name, move || block_on(stays_where_it_was(&vmi, &recorded)))
}

fn samples(folder: &Path) -> Vec<(String, VirtualMachineInstance)> {
    let entries = std::fs::read_dir(folder).expect("samples");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a sample").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).expect("a sample is text");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("a sample is YAML");
        let vmi = documents.into_iter().find_map(samples::instance)?;
        let vmi = api::decode::object::<VirtualMachineInstance>(vmi).ok()?.object;
        Some((file.file_stem()?.to_string_lossy().into_owned(), vmi))
    };
    files.into_iter().filter_map(read).collect()
}

async fn stays_where_it_was(vmi: &VirtualMachineInstance, recorded: &str) {
    let guest = build(vmi, Accelerator::Tcg, Before::Nothing).expect("it is supported");
    let qemu = Qemu::start(&guest, &support::wiring(vmi)).await;
    let ports = guest.devices.values().filter(|device| device.kind == Kind::RootPort).count();
    let mut found = qemu.layout().await;
    // Spare ports are new, and behind everything else.
    let is_spare = |line: &String| line.starts_with("00:1e.") && line.ends_with("1b36:000c");
    assert_eq!(found.iter().filter(|line| is_spare(line)).count(), ports);
    found.retain(|line| !is_spare(line));
    assert_eq!(found, recorded.lines().collect::<Vec<_>>());
}

async fn a_disk_comes_and_goes_while_the_guest_runs() {
    let disks = |names: &[&str]| {
        let disk = |name: &&str| json!({ "name": name, "disk": { "bus": "virtio" } });
        let volume = |name: &&str| json!({ "name": name, "emptyDisk": { "capacity": "1Gi" } });
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" },
            "spec": {
                "domain": {
                    "devices": { "disks": names.iter().map(disk).collect::<Vec<_>>() }, "memory": { "guest": "64Mi" },
                },
                "volumes": names.iter().map(volume).collect::<Vec<_>>(),
            },
        });
        api::decode::object::<VirtualMachineInstance>(vmi).expect("it fits the types").object
    };
    let old = build(&disks(&["a"]), Accelerator::Tcg, Before::Nothing).expect("it is supported");
    let vmi = disks(&["a", "later"]);
    let new = build(&vmi, Accelerator::Tcg, Before::Running(&old)).expect("it is supported");
    let wiring = support::wiring(&vmi);
    let qemu = Qemu::start(&old, &wiring).await;
    let found = difference(&old, &new);
    let [Step::Plug(id, _)] = found.steps.as_slice() else { panic!("{found:?}") };
    let parts: Vec<Part> = render::parts(&new, &wiring, id).expect("it is wired").into_iter().map(stand_in).collect();
    for part in &parts {
        qemu.call(part.add().expect("it can come")).await;
    }
    // Where a start of the new guest has it as well.
    let started = Qemu::start(&new, &wiring).await;
    let (plugged, started) = (qemu.bus_of(id).await, started.bus_of(id).await);
    assert!(plugged.contains("/port0/"), "{plugged}");
    assert_eq!(plugged, started);
    // Its guest has not booted, so that nobody lets go of it: what is behind it cannot be taken away.
    let last = parts.last().and_then(Part::remove).expect("it can go");
    qemu.call(last).await;
    let behind = parts.first().and_then(Part::remove).expect("it can go");
    assert!(qemu.qmp.execute(behind).await.is_err());
}

/// A QEMU that never runs an instruction, with nothing behind its disks.
struct Qemu {
    qmp: Qmp,
    _process: tokio::process::Child,
}

impl Qemu {
    async fn start(guest: &Guest, wiring: &Wiring) -> Self {
        let line = render::command_line(guest, wiring).expect("it is wired");
        let mut arguments = vec!["-qmp".into(), "stdio".into()];
        arguments.extend(without_a_node(&line.arguments));
        let mut process = tokio::process::Command::new("qemu-system-x86_64")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("QEMU starts");
        let pipes = process.stdout.take().zip(process.stdin.take()).expect("pipes");
        let (qmp, _) = qmp::connect(tokio::io::join(pipes.0, pipes.1)).await.expect("QEMU greets");
        Self { qmp, _process: process }
    }

    async fn call(&self, call: Call) -> Value {
        self.qmp.execute(call).await.expect("QEMU does it")
    }

    /// Every PCI device, with its address and what it says it is.
    async fn layout(&self) -> Vec<String> {
        let buses = self.call(Call { name: "query-pci", arguments: json!({}) }).await;
        let devices =
            buses.as_array().expect("buses").iter().flat_map(|bus| bus["devices"].as_array().expect("devices"));
        let line = |device: &Value| {
            let number = |value: &Value| value.as_u64().expect("a number");
            format!(
                "{:02x}:{:02x}.{:x} {:04x}:{:04x}",
                number(&device["bus"]),
                number(&device["slot"]),
                number(&device["function"]),
                number(&device["id"]["vendor"]),
                number(&device["id"]["device"]),
            )
        };
        let mut lines: Vec<String> = devices.map(line).collect();
        lines.sort();
        lines
    }

    /// What a device is plugged into; behind ports QEMU's account of PCI shows nothing before firmware has counted them.
    async fn bus_of(&self, id: &DeviceId) -> String {
        let arguments = json!({ "path": format!("/machine/peripheral/{id}"), "property": "parent_bus" });
        let bus = self.call(Call { name: "qom-get", arguments }).await;
        bus.as_str().expect("a path").to_owned()
    }
}

/// The same arguments, with stand-ins for whatever a node would have.
fn without_a_node(arguments: &[OsString]) -> Vec<OsString> {
    let texts: Vec<String> = arguments.iter().map(|text| text.to_str().expect("text").to_owned()).collect();
    let mut kept = Vec::new();
    let mut rest = texts.into_iter().peekable();
    while let Some(option) = rest.next() {
        let value = rest.next_if(|next| !next.starts_with('-')).unwrap_or_default();
        let value = match option.as_str() {
            "-kernel" | "-initrd" | "-append" | "-vnc" | "-mon" | "-sandbox" => continue,
            "-chardev" => {
                let id = value.split(',').find_map(|pair| pair.strip_prefix("id=")).expect("an id");
                format!("null,id={id}")
            }
            "-blockdev" if value.contains("\"efi-") => continue,
            "-blockdev" => null(&serde_json::from_str(&value).expect("JSON")).to_string(),
            "-netdev" => value.split(',').filter(|pair| !pair.starts_with("hostfwd")).collect::<Vec<_>>().join(","),
            "-machine" => value.split(',').filter(|pair| !pair.starts_with("pflash")).collect::<Vec<_>>().join(","),
            "-cpu" => "max".to_owned(),
            _ => value,
        };
        kept.push(option.into());
        if !value.is_empty() {
            kept.push(value.into());
        }
    }
    kept
}

fn stand_in(part: Part) -> Part {
    match part {
        Part::Block(node) => Part::Block(null(&node)),
        part => part,
    }
}

/// A node of the same name with nothing in it.
fn null(node: &Value) -> Value {
    json!({ "driver": "null-co", "size": 1 << 30, "node-name": node["node-name"], "read-only": node["read-only"] })
}
