//! Virtual machines: what kubectl's users see of them, on nodes and domains that are simulated.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Check, Cluster, WAIT};
use crate::clients::kubectl::{Kubectl, has};

/// On any API server.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("the_seed_vm_starts_and_stops_by_running", by_running),
    ("a_vm_starts_and_stops_by_its_strategy", by_strategy),
    ("a_guest_that_ends_is_treated_as_its_strategy_says", strategies),
    ("a_vm_that_fails_to_start_waits", crash_loop),
    ("requests_start_and_stop_a_manual_vm", requests),
    ("an_instancetype_sizes_a_vm_and_stays_as_it_was", instancetypes),
    ("a_claim_that_is_missing_is_waited_for", claims),
    ("a_deleted_vm_leaves_nothing", deletion),
    ("vms_outlive_their_controller", restart),
];

/// On a server that fills in and checks virtual machines.
pub(super) const ADMITTED: &[(&str, Check)] =
    &[("what_is_wrong_is_refused_by_its_field", refusals), ("the_kubevirt_object_is_followed", configuration)];

/// The same, with samples that are not part of the project.
pub(super) const SAMPLES: &[(&str, Check)] = &[("every_sample_runs_or_is_refused", samples)];

/// The VM of the seed document, in its old version.
fn seed(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1alpha3", "kind": "VirtualMachine",
        "metadata": { "name": name },
        "spec": {
            "running": false,
            "template": {
                "metadata": { "labels": { "kubevirt.io/size": "small", "kubevirt.io/domain": name } },
                "spec": guest(),
            },
        },
    })
}

pub(super) fn guest() -> Value {
    json!({
        "terminationGracePeriodSeconds": 5,
        "domain": {
            "devices": {
                "disks": [{ "name": "root", "disk": { "bus": "virtio" } }],
                "interfaces": [{ "name": "default", "masquerade": {} }],
            },
            "resources": { "requests": { "memory": "64M" } },
        },
        "networks": [{ "name": "default", "pod": {} }],
        "volumes": [{ "name": "root", "containerDisk": { "image": "registry.example/disk:1" } }],
    })
}

pub(super) fn machine(name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "name": name },
        "spec": { "runStrategy": strategy, "template": { "spec": guest() } },
    })
}

/// The same, with a guest whose end is decided.
fn doomed(name: &str, strategy: &str, fate: &str) -> Value {
    let mut vm = machine(name, strategy);
    vm["spec"]["template"]["metadata"] =
        json!({ "annotations": { "orlop.io/hollow-fate": fate, "orlop.io/hollow-run-for": "1s" } });
    vm
}

pub(super) fn apply(kubectl: &Kubectl, object: &Value) -> Result<String> {
    kubectl.given(&["apply", "-f", "-"], &object.to_string())
}

/// Waits for the word that `kubectl get vm` shows.
fn word(kubectl: &Kubectl, name: &str, word: &str) -> Result<()> {
    let path = format!("--for=jsonpath={{.status.printableStatus}}={word}");
    kubectl.ok(&["wait", &path, &format!("vm/{name}"), WAIT]).map(drop)
}

fn get(kubectl: &Kubectl, what: &str, path: &str) -> Result<String> {
    kubectl.ok(&["get", what, "--ignore-not-found", "-o", &format!("jsonpath={{{path}}}")])
}

fn by_running(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    apply(kubectl, &seed("testvm"))?;
    word(kubectl, "testvm", "Stopped")?;
    let patch = |running: bool| format!("{{\"spec\":{{\"running\":{running}}}}}");
    kubectl.ok(&["patch", "vm", "testvm", "--type=merge", "-p", &patch(true)])?;
    kubectl.ok(&["wait", "--for=condition=Ready", "vm/testvm", WAIT])?;
    let shown = kubectl.ok(&["get", "vm", "testvm"])?;
    has(&shown, "Running")?;
    let shown = kubectl.ok(&["get", "vmi", "testvm"])?;
    has(&shown, "hollow-")?;
    let pods =
        kubectl.ok(&["get", "pods", "-l", "kubevirt.io=virt-launcher,kubevirt.io/domain=testvm", "-o", "name"])?;
    ensure!(pods.lines().count() == 1, "its pods are {pods:?}");
    kubectl.ok(&["patch", "vm", "testvm", "--type=merge", "-p", &patch(false)])?;
    word(kubectl, "testvm", "Stopped")?;
    let left = kubectl.ok(&["get", "vmi,pods", "-l", "kubevirt.io/domain=testvm", "-o", "name"])?;
    ensure!(left.is_empty(), "{left} is left");
    Ok(())
}

fn by_strategy(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    apply(kubectl, &machine("strategic", "Halted"))?;
    for (strategy, shown) in [("Always", "Running"), ("Halted", "Stopped"), ("Always", "Running")] {
        let patch = format!("{{\"spec\":{{\"runStrategy\":\"{strategy}\"}}}}");
        kubectl.ok(&["patch", "vm", "strategic", "--type=merge", "-p", &patch])?;
        word(kubectl, "strategic", shown)?;
    }
    let events = kubectl.ok(&["get", "events", "--field-selector=involvedObject.name=strategic", "-o", "name"])?;
    ensure!(!events.is_empty(), "nobody told of it");
    Ok(())
}

fn strategies(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    for (name, strategy) in [("again", "Always"), ("rerun", "RerunOnFailure"), ("once", "Once")] {
        apply(kubectl, &doomed(name, strategy, if strategy == "RerunOnFailure" { "crash" } else { "succeed" }))?;
    }
    // Instances come and go here, which `kubectl wait` takes for an error: lists are asked for instead.
    let uid = |name: &str, wanted: &dyn Fn(&str) -> bool| {
        let named = format!("--field-selector=metadata.name={name}");
        kubectl.until(&["get", "vmi", &named, "-o", "jsonpath={.items[*].metadata.uid}"], wanted)
    };
    for name in ["again", "rerun"] {
        let first = uid(name, &|uid| !uid.is_empty())?;
        uid(name, &|uid| !uid.is_empty() && uid != first)?;
    }
    let ended = "jsonpath={.items[*].status.phase}";
    kubectl.until(&["get", "vmi", "--field-selector=metadata.name=once", "-o", ended], |phase| phase == "Succeeded")?;
    word(kubectl, "once", "Stopped")?;
    kubectl.ok(&["delete", "vm", "again", "rerun", "once", WAIT]).map(drop)
}

fn crash_loop(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    apply(kubectl, &doomed("broken", "Always", "fail-to-start"))?;
    word(kubectl, "broken", "CrashLoopBackOff")?;
    let count = get(kubectl, "vm/broken", ".status.startFailure.consecutiveFailCount")?;
    ensure!(count.parse::<u32>().is_ok_and(|count| count > 0), "it counts {count:?} failures");
    kubectl.ok(&["delete", "vm", "broken", WAIT]).map(drop)
}

fn requests(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    apply(kubectl, &machine("manual", "Manual"))?;
    word(kubectl, "manual", "Stopped")?;
    let ask = |request: Value| {
        let patch = json!({ "status": { "stateChangeRequests": [request] } }).to_string();
        kubectl.ok(&["patch", "vm", "manual", "--subresource=status", "--type=merge", "-p", &patch])
    };
    ask(json!({ "action": "Start" }))?;
    word(kubectl, "manual", "Running")?;
    let open = get(kubectl, "vm/manual", ".status.stateChangeRequests")?;
    ensure!(open.is_empty(), "{open} is still open");
    ask(json!({ "action": "Stop", "uid": get(kubectl, "vmi/manual", ".metadata.uid")? }))?;
    word(kubectl, "manual", "Stopped")
}

fn instancetypes(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let size = |cores: u32| {
        json!({ "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype",
            "metadata": { "name": "small" }, "spec": { "cpu": { "guest": cores }, "memory": { "guest": "64Mi" } } })
    };
    apply(kubectl, &size(2))?;
    let mut vm = machine("sized", "Always");
    vm["spec"]["instancetype"] = json!({ "name": "small", "kind": "VirtualMachineInstancetype" });
    vm["spec"]["template"]["spec"]["domain"]["resources"] = Value::Null;
    apply(kubectl, &vm)?;
    word(kubectl, "sized", "Running")?;
    let sockets = get(kubectl, "vmi/sized", ".spec.domain.cpu.sockets")?;
    ensure!(sockets == "2", "it has {sockets:?} sockets");
    apply(kubectl, &size(4))?;
    let patch = |strategy: &str| format!("{{\"spec\":{{\"runStrategy\":\"{strategy}\"}}}}");
    kubectl.ok(&["patch", "vm", "sized", "--type=merge", "-p", &patch("Halted")])?;
    word(kubectl, "sized", "Stopped")?;
    kubectl.ok(&["patch", "vm", "sized", "--type=merge", "-p", &patch("Always")])?;
    word(kubectl, "sized", "Running")?;
    let sockets = get(kubectl, "vmi/sized", ".spec.domain.cpu.sockets")?;
    ensure!(sockets == "2", "started again it has {sockets:?} sockets, though it was bound to 2");
    let kept = get(kubectl, "vm/sized", ".status.instancetypeRef.controllerRevisionRef.name")?;
    kubectl.ok(&["get", "controllerrevision", &kept]).map(drop)
}

fn claims(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let mut vm = machine("stored", "Always");
    vm["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "root", "persistentVolumeClaim": { "claimName": "data" } }]);
    apply(kubectl, &vm)?;
    word(kubectl, "stored", "ErrorPvcNotFound")?;
    apply(kubectl, &claim("data"))?;
    word(kubectl, "stored", "Provisioning")?;
    bind(kubectl, "data")?;
    word(kubectl, "stored", "Running")
}

fn claim(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } })
}

/// Plays the binder of volumes.
fn bind(kubectl: &Kubectl, name: &str) -> Result<()> {
    let bound = json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } }).to_string();
    kubectl.ok(&["patch", "pvc", name, "--subresource=status", "--type=merge", "-p", &bound]).map(drop)
}

fn deletion(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["create", "namespace", "short"])?;
    let vm = machine("gone", "Always").to_string();
    kubectl.given(&["apply", "-n", "short", "-f", "-"], &vm)?;
    kubectl.ok(&["wait", "-n", "short", "--for=condition=Ready", "vm/gone", WAIT])?;
    kubectl.ok(&["delete", "-n", "short", "vm", "gone", WAIT])?;
    kubectl.until(&["get", "-n", "short", "vm,vmi,pods,controllerrevisions", "-o", "name"], str::is_empty)?;
    // A namespace takes its VMs along.
    kubectl.given(&["apply", "-n", "short", "-f", "-"], &vm)?;
    kubectl.ok(&["wait", "-n", "short", "--for=condition=Ready", "vm/gone", WAIT])?;
    kubectl.ok(&["delete", "namespace", "short", WAIT]).map(drop)
}

fn restart(cluster: &mut Cluster) -> Result<()> {
    apply(&cluster.kubectl, &machine("steady", "Always"))?;
    word(&cluster.kubectl, "steady", "Running")?;
    let before = get(&cluster.kubectl, "vmi/steady", ".metadata.uid")?;
    cluster.end("virt-controller");
    cluster.kubectl.ok(&[
        "patch",
        "vm",
        "strategic",
        "--type=merge",
        "-p",
        "{\"spec\":{\"runStrategy\":\"Halted\"}}",
    ])?;
    cluster.virt_controller()?;
    word(&cluster.kubectl, "strategic", "Stopped").context("what was asked for meanwhile is done")?;
    let after = get(&cluster.kubectl, "vmi/steady", ".metadata.uid")?;
    ensure!(before == after, "another instance has taken its place");
    Ok(())
}

fn refusals(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let mut both = machine("wrong", "Always");
    both["spec"]["running"] = json!(true);
    let mut stranger = machine("wrong", "Always");
    stranger["spec"]["template"]["spec"]["volumes"][0]["name"] = json!("other");
    let pool = json!({ "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": { "name": "p" },
        "spec": { "selector": {}, "virtualMachineTemplate": { "spec": machine("p", "Always")["spec"] } } });
    for (object, words) in [
        (both, "spec.running"),
        (machine("wrong", "WaitAsReceiver"), "WaitAsReceiver"),
        (stranger, "spec.template.spec.domain.devices.disks[0].name"),
        (pool, "spec.selector"),
    ] {
        has(&kubectl.refused(&["create", "-f", "-"], &object.to_string())?, words)?;
    }
    let warned = kubectl.command(&["get", "vm", "testvm"]).output()?;
    ensure!(warned.status.success());
    Ok(())
}

fn configuration(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let mut vm = machine("hosted", "Always");
    vm["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "root", "hostDisk": { "path": "/data/disk.img", "type": "DiskOrCreate", "capacity": "1Gi" } }]);
    let refused = kubectl.refused(&["create", "-f", "-"], &vm.to_string())?;
    has(&refused, "needs the feature gate HostDisk")?;
    let object = json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" },
        "spec": { "configuration": { "developerConfiguration": { "featureGates": ["HostDisk"] } } } });
    apply(kubectl, &object)?;
    kubectl.given(&["create", "-f", "-"], &vm.to_string())?;
    word(kubectl, "hosted", "Running")
}

/// The samples that come with KubeVirt, beside the project.
fn samples(cluster: &mut Cluster) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let files = std::fs::read_dir(testkit::needs::shared("manifests"))?;
    let mut files: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    // What others refer to comes first.
    files.sort_by_key(|file| {
        (!std::fs::read_to_string(file).unwrap_or_default().contains("instancetype.kubevirt.io/"), file.clone())
    });
    kubectl.ok(&["create", "namespace", "samples"])?;
    for name in ["disk-alpine", "disk-windows"] {
        kubectl.given(&["apply", "-n", "samples", "-f", "-"], &claim(name).to_string())?;
        let bound = json!({ "status": { "phase": "Bound" } }).to_string();
        kubectl.ok(&["patch", "-n", "samples", "pvc", name, "--subresource=status", "--type=merge", "-p", &bound])?;
    }
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        let made = kubectl.command(&["apply", "-n", "samples", "-f", &file.display().to_string()]).output()?;
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        let clear = [
            "is not supported yet",
            "needs the feature gate",
            "data volumes are not supported here",
            "the instancetype already sets this field",
            // A migration of an instance that another sample would make.
            "does not exist",
        ];
        let name = file.display();
        ensure!(made.status.success() || clear.iter().any(|words| said.contains(words)), "{name}: {said}");
        if made.status.success() && text.contains("kind: VirtualMachineInstance\n") {
            let printed = String::from_utf8_lossy(&made.stdout).into_owned();
            let object = printed.split_whitespace().next().unwrap_or_default().to_owned();
            let phase = "--for=jsonpath={.status.phase}=Running";
            kubectl.ok(&["wait", "-n", "samples", phase, &object, WAIT]).with_context(|| format!("{name}"))?;
        }
    }
    let vms = kubectl.ok(&["get", "-n", "samples", "vm", "-o", "jsonpath={.items[*].metadata.name}"])?;
    for vm in vms.split_whitespace() {
        let always = "{\"spec\":{\"running\":null,\"runStrategy\":\"Always\"}}";
        kubectl.ok(&["patch", "-n", "samples", "vm", vm, "--type=merge", "-p", always])?;
        let made = "jsonpath={.spec.dataVolumeTemplates[0].metadata.name}";
        let made = kubectl.ok(&["get", "-n", "samples", "vm", vm, "-o", made])?;
        // Nobody imports disks here: such a VM asks for its own, and waits.
        let (until, of) = match made.trim() {
            "" => ("--for=condition=Ready", format!("vm/{vm}")),
            name => ("--for=create", format!("datavolumes.cdi.kubevirt.io/{name}")),
        };
        kubectl.ok(&["wait", "-n", "samples", until, &of, WAIT])?;
    }
    // Nobody here protects claims that are in use, nor lets go of them.
    for name in ["disk-alpine", "disk-windows"] {
        let free = "{\"metadata\":{\"finalizers\":null}}";
        kubectl.ok(&["patch", "-n", "samples", "pvc", name, "--type=merge", "-p", free])?;
    }
    kubectl.ok(&["delete", "namespace", "samples", WAIT]).map(drop)
}
