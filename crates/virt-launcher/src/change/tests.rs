use std::collections::BTreeSet;
use std::sync::Mutex;

use hypervisor::accelerator::{Accelerator, Choice};
use hypervisor::guest::build::{Before, build};
use hypervisor::qmp::Qmp;
use hypervisor::wiring::Wiring;
use serde_json::{Value, json};
use storage::cache::Cache;
use storage::pull::{Limits, Registries};
use tempfile::TempDir;

use super::*;
use crate::fake_qmp::{FakeQemu, answering};
use crate::volumes::{self, VolumePaths};

/// A QEMU that plugs in whatever it is asked to, and lets go of all but what it holds.
#[derive(Clone, Default)]
struct Qemu {
    devices: Arc<Mutex<BTreeSet<String>>>,
    held: Arc<Mutex<BTreeSet<String>>>,
}

impl Qemu {
    fn answer(&self, request: &Value) -> Option<Value> {
        let mut devices = self.devices.lock().unwrap();
        let id = request["arguments"]["id"].as_str().unwrap_or_default();
        match request["execute"].as_str().unwrap() {
            "qom-list" => return Some(devices.iter().map(|name| json!({ "name": name, "type": "child" })).collect()),
            "device_add" => drop(devices.insert(id.to_owned())),
            "device_del" if !self.held.lock().unwrap().contains(id) => drop(devices.remove(id)),
            _ => {}
        }
        Some(json!({}))
    }

    async fn connect(&self) -> Qmp {
        let qemu = self.clone();
        answering(FakeQemu::new(move |request| qemu.answer(request))).await
    }
}

/// A guest of a QEMU that is none, and what changes it.
struct Bench {
    qemu: Qemu,
    started: Started,
    workbench: Workbench,
    folder: TempDir,
}

impl Bench {
    /// With a disk `root` on the SCSI controller.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = || folder.path().to_owned();
        let claims = BTreeMap::from([("empty".to_owned(), folder.path().join("claim"))]);
        std::fs::create_dir(folder.path().join("claim")).unwrap();
        let workbench = Workbench {
            this: path(),
            qemu: path(),
            choice: Choice::Tcg,
            findings: path(),
            folder: path(),
            disks: path(),
            firmware: None,
            places: VolumePaths { claims, ..VolumePaths::default() },
            cache: Cache::open(&folder.path().join("images"), Limits::default()).unwrap(),
            registries: Registries::default(),
            progress: Box::new(()),
        };
        let vmi = instance(&[disk("root", "scsi")], None, &[empty_disk("root", "1Mi")]);
        let guest = build(&vmi, Accelerator::Tcg, Before::Nothing).unwrap();
        let prepared = volumes::prepare(&vmi, &workbench.workshop()).await.unwrap();
        let qemu = Qemu::default();
        let wiring = Wiring {
            accelerator: Accelerator::Tcg,
            runtime: path(),
            volumes: prepared.volumes.clone(),
            interfaces: BTreeMap::new(),
            kernel: None,
            efi: None,
            incoming: false,
        };
        let handle = Handle::undriven(qemu.connect().await, guest);
        Self { qemu, started: Started { handle, grace: DEPARTURE, wiring, prepared }, workbench, folder }
    }

    async fn apply(&mut self, vmi: &VirtualMachineInstance) -> Outcome {
        let interfaces = vmi.spec.domain.devices.interfaces.iter().flatten();
        let tap = |name: &str| Attachment::Tap { device: format!("tap-{name}"), vhost: false };
        let taps = interfaces.map(|interface| (interface.name.clone(), tap(&interface.name))).collect();
        apply(&mut self.started, vmi, taps, &self.workbench).await
    }

    /// Where the bytes of a volume are.
    fn file(&self, volume: &str) -> Option<std::path::PathBuf> {
        self.started.prepared.volumes.get(volume).map(|source| source.top.path.clone())
    }

    fn devices(&self) -> BTreeSet<String> {
        self.qemu.devices.lock().unwrap().clone()
    }
}

fn instance(disks: &[Value], interface: Option<&str>, volumes: &[Value]) -> VirtualMachineInstance {
    let mac = "02:00:00:00:00:01";
    let interfaces: Vec<Value> =
        interface.iter().map(|name| json!({ "name": name, "masquerade": {}, "macAddress": mac })).collect();
    let networks: Vec<Value> = interface.iter().map(|name| json!({ "name": name, "pod": {} })).collect();
    let devices = json!({ "disks": disks, "interfaces": interfaces });
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" },
        "spec": {
            "domain": { "devices": devices, "memory": { "guest": "64Mi" } }, "networks": networks, "volumes": volumes,
        },
    });
    api::decode::object::<VirtualMachineInstance>(vmi).unwrap().object
}

fn disk(name: &str, bus: &str) -> Value {
    json!({ "name": name, "disk": { "bus": bus } })
}

fn empty_disk(name: &str, capacity: &str) -> Value {
    json!({ "name": name, "emptyDisk": { "capacity": capacity } })
}

/// Disks of these names beside `root`, each with a volume of its own.
fn with_disks(names: &[&str]) -> VirtualMachineInstance {
    let mut disks = vec![disk("root", "scsi")];
    let mut volumes = vec![empty_disk("root", "1Mi")];
    for name in names {
        disks.push(disk(name, "virtio"));
        volumes.push(empty_disk(name, "1Mi"));
    }
    instance(&disks, None, &volumes)
}

#[tokio::test]
async fn a_disk_stays_when_an_interface_of_its_name_goes() {
    let mut bench = Bench::new().await;
    let disks = [disk("root", "scsi"), disk("x", "virtio")];
    let volumes = [empty_disk("root", "1Mi"), empty_disk("x", "1Mi")];
    assert_eq!(bench.apply(&instance(&disks, Some("x"), &volumes)).await, Outcome::Done);
    assert_eq!(bench.devices().len(), 2);
    let file = bench.file("x").unwrap();
    assert_eq!(bench.apply(&instance(&disks, None, &volumes)).await, Outcome::Done);
    assert_eq!((bench.devices().len(), bench.file("x")), (1, Some(file)));
    assert!(bench.started.wiring.interfaces.is_empty());
    assert_eq!(bench.apply(&with_disks(&[])).await, Outcome::Done);
    assert_eq!((bench.devices().len(), bench.file("x")), (0, None));
}

#[tokio::test]
async fn a_disk_that_does_not_go_keeps_no_interface_of_its_name_waiting() {
    let mut bench = Bench::new().await;
    assert_eq!(bench.apply(&with_disks(&["x"])).await, Outcome::Done);
    bench.qemu.held.lock().unwrap().extend(bench.devices());
    let without = instance(&[disk("root", "scsi")], Some("x"), &[empty_disk("root", "1Mi")]);
    assert!(matches!(bench.apply(&without).await, Outcome::Retry { .. }));
    assert_eq!(bench.devices().len(), 2, "the interface has come");
}

#[tokio::test]
async fn a_disk_that_is_replaced_under_its_name_is_not_forgotten() {
    let mut bench = Bench::new().await;
    assert_eq!(bench.apply(&with_disks(&["x"])).await, Outcome::Done);
    let file = bench.file("x");
    let disks = [disk("root", "scsi"), disk("x", "scsi")];
    let moved = instance(&disks, None, &[empty_disk("root", "1Mi"), empty_disk("x", "1Mi")]);
    for _ in 0..2 {
        assert_eq!(bench.apply(&moved).await, Outcome::Done);
        assert_eq!(
            (bench.file("x"), bench.devices().len()),
            (file.clone(), 1),
            "what was written to it is still there"
        );
    }
    // Another volume under the same name is another disk.
    let disks = [disk("root", "scsi"), disk("x", "virtio")];
    let other = instance(&disks, None, &[empty_disk("root", "1Mi"), empty_disk("x", "2Mi")]);
    assert_eq!(bench.apply(&other).await, Outcome::Done);
    assert!(bench.file("x").is_some() && bench.file("x") != file);
}

#[tokio::test]
async fn a_disk_that_replaces_another_waits_for_its_port_and_comes_with_the_next_attempt() {
    let mut bench = Bench::new().await;
    assert_eq!(bench.apply(&with_disks(&["a", "b", "c", "d"])).await, Outcome::Done);
    let there = with_disks(&["a", "b", "c", "new"]);
    let outcome = bench.apply(&there).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome}");
    assert!(outcome.to_string().contains("spec.domain.devices.disks[4]"), "{outcome}");
    assert_eq!((bench.devices().len(), bench.file("d")), (3, None));
    assert_eq!(bench.apply(&there).await, Outcome::Done);
    assert_eq!(bench.devices().len(), 4);
    let outcome = bench.apply(&with_disks(&["a", "b", "c", "new", "more"])).await;
    assert!(matches!(outcome, Outcome::Never(_)), "{outcome}");
}

#[tokio::test]
async fn a_volume_that_cannot_be_had_keeps_no_other_waiting() {
    let mut bench = Bench::new().await;
    let disks = ["root", "hopeless", "missing", "good"].map(|name| disk(name, "scsi"));
    let map = json!({ "name": "hopeless", "configMap": { "name": "nowhere" } });
    let claim = json!({ "name": "missing", "persistentVolumeClaim": { "claimName": "empty" } });
    let volumes = [empty_disk("root", "1Mi"), map, claim, empty_disk("good", "1Mi")];
    let whole = instance(&disks, None, &volumes);
    let outcome = bench.apply(&whole).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome}");
    assert!(["spec.volumes[1]", "spec.volumes[2]"].iter().all(|path| outcome.to_string().contains(path)), "{outcome}");
    assert_eq!(bench.devices().len(), 1);
    // Once only the hopeless one is left, nobody needs to come again.
    std::fs::write(bench.folder.path().join("claim/disk.img"), [0; 512]).unwrap();
    let outcome = bench.apply(&whole).await;
    assert!(matches!(&outcome, Outcome::Never(refusals) if refusals.len() == 1), "{outcome}");
    assert_eq!(bench.devices().len(), 2);
}
