//! What an instance becomes that says little.

use serde_json::{Value, json};
use virt_api::Requester;

use crate::support::{Cluster, changed, create, stored, vm, vmi, write};

fn filled(cluster: &Cluster, patch: &Value) -> Value {
    let sent = changed(&vmi(), patch);
    stored(create(cluster, &sent), &sent)
}

#[test]
fn a_bare_instance_is_complete() {
    let bare = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "v" },
        "spec": {
            "domain": { "devices": {}, "resources": { "requests": { "memory": "64M", "cpu": "1500m" } } },
            "volumes": [{ "name": "root", "containerDisk": { "image": "registry:5000/disk" } }],
        },
    });
    let stored = stored(create(&Cluster::new(), &bare), &bare);
    let mut expected = bare.clone();
    crate::support::merge(
        &mut expected,
        &json!({
            "metadata": {
                "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
                "annotations": {
                    "kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1",
                },
            },
            "spec": {
                "architecture": "amd64",
                "evictionStrategy": "None",
                "networks": [{ "name": "default", "pod": {} }],
                "domain": {
                    "machine": { "type": "q35" },
                    "memory": { "guest": "64M" },
                    "cpu": { "sockets": 2, "cores": 1, "threads": 1, "model": "host-model" },
                    "devices": {
                        "disks": [{ "name": "root", "disk": { "bus": "sata" } }],
                        "interfaces": [{ "name": "default", "masquerade": {} }],
                    },
                },
            },
            "status": {
                "phase": "Pending", "runtimeUser": 107,
                "memory": { "guestAtBoot": "64M", "guestCurrent": "64M", "guestRequested": "64M" },
                "currentCPUTopology": { "sockets": 2, "cores": 1, "threads": 1 },
            },
        }),
    );
    expected["spec"]["volumes"][0]["containerDisk"]["imagePullPolicy"] = json!("Always");
    assert_eq!(stored, expected);
}

#[test]
fn images_that_cannot_move_are_pulled_once() {
    for (image, policy) in [
        ("disk", "Always"),
        ("disk:latest", "Always"),
        ("registry:5000/disk", "Always"),
        ("registry:5000/disk:1", "IfNotPresent"),
        ("disk@sha256:00", "IfNotPresent"),
    ] {
        let patch = json!({ "spec": { "volumes": [{ "name": "root", "containerDisk": { "image": image } }] } });
        let disk = &filled(&Cluster::new(), &patch)["spec"]["volumes"][0]["containerDisk"];
        assert_eq!(disk["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn what_is_said_stays() {
    let patch = json!({ "spec": {
        "architecture": "amd64", "evictionStrategy": "LiveMigrate",
        "domain": { "machine": { "type": "pc-q35-9.0" }, "cpu": { "cores": 4, "model": "Nehalem" } },
    } });
    let spec = &filled(&Cluster::new(), &patch)["spec"];
    assert_eq!(spec["domain"]["machine"]["type"], "pc-q35-9.0");
    assert_eq!(spec["domain"]["cpu"], json!({ "sockets": 1, "cores": 4, "threads": 1, "model": "Nehalem" }));
    assert_eq!(spec["evictionStrategy"], "LiveMigrate");
    assert_eq!(spec["domain"]["devices"]["disks"][0]["disk"]["bus"], "virtio");
}

#[test]
fn the_cluster_decides_where_the_instance_does_not() {
    let cluster = Cluster::new().configured(&json!({
        "cpuModel": "Skylake-Server", "evictionStrategy": "LiveMigrateIfPossible",
        "network": { "defaultNetworkInterface": "masquerade" },
        "architectureConfiguration": { "amd64": { "machineType": "pc-q35-8.2" } },
        "developerConfiguration": { "featureGates": ["Root"] },
    }));
    let patch = json!({ "spec": { "networks": null, "domain": { "devices": { "interfaces": null } } } });
    let made = filled(&cluster, &patch);
    assert_eq!(made["spec"]["domain"]["cpu"]["model"], "Skylake-Server");
    assert_eq!(made["spec"]["domain"]["machine"]["type"], "pc-q35-8.2");
    assert_eq!(made["spec"]["evictionStrategy"], "LiveMigrateIfPossible");
    assert_eq!(made["spec"]["domain"]["devices"]["interfaces"][0], json!({ "name": "default", "masquerade": {} }));
    assert_eq!(made["status"].get("runtimeUser"), None);
}

#[test]
fn devices_are_made_whole() {
    let patch = json!({ "spec": {
        "domain": {
            "devices": {
                "autoattachInputDevice": true,
                "disks": [{ "name": "root" }, { "name": "cd", "cdrom": {} }],
                "watchdog": { "name": "w" },
            },
        },
        "volumes": [
            { "name": "root", "containerDisk": { "image": "a:1" } }, { "name": "cd", "containerDisk": { "image": "b:1" } },
        ],
    } });
    let domain = filled(&Cluster::new(), &patch)["spec"]["domain"].clone();
    assert_eq!(domain["devices"]["inputs"], json!([{ "name": "default-0", "type": "tablet", "bus": "usb" }]));
    assert_eq!(domain["devices"]["disks"][1]["cdrom"], json!({ "bus": "sata", "readonly": true, "tray": "closed" }));
    assert_eq!(domain["devices"]["watchdog"], json!({ "name": "w", "i6300esb": { "action": "reset" } }));
}

#[test]
fn only_our_programs_begin_with_a_status() {
    let cluster = Cluster::new();
    let sent = changed(&vmi(), &json!({ "status": { "phase": "Running", "nodeName": "n" } }));
    let by_user = stored(create(&cluster, &sent), &sent);
    assert_eq!((&by_user["status"]["phase"], by_user["status"].get("nodeName")), (&json!("Pending"), None));
    let by_component = stored(write(&cluster, Requester::Component, "", None, &sent), &sent);
    assert_eq!(by_component["status"]["phase"], "Running");
}

#[test]
fn fields_that_nobody_here_knows_survive() {
    let sent = changed(&vmi(), &json!({ "spec": { "domain": { "devices": { "quantumLink": { "spin": "up" } } } } }));
    let stored = stored(create(&Cluster::new(), &sent), &sent);
    assert_eq!(stored["spec"]["domain"]["devices"]["quantumLink"]["spin"], "up");
}

#[test]
fn a_machine_keeps_what_must_not_move() {
    let cluster = Cluster::new();
    let made = stored(create(&cluster, &vm()), &vm());
    let template = &made["spec"]["template"]["spec"];
    assert_eq!(template["architecture"], "amd64");
    assert_eq!(template["domain"]["machine"]["type"], "q35");
    assert_eq!(template["domain"]["firmware"]["uuid"], "00000000-0000-4000-8000-000000000000");
    assert_eq!(template["domain"]["firmware"]["serial"], "00000000-0000-4000-8000-000000000001");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubevirt.io/virtualMachineControllerFinalize"]));
    // The rest is the instance's: so that a template stays what its user wrote.
    assert_eq!(template["domain"].get("cpu"), None);
}
