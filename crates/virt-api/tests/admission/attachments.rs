//! What an instance is refused for: its disks, volumes, networks and interfaces.

use serde_json::{Value, json};

use crate::support::{Cluster, assert_refused, changed, create, devices, refuses, vmi};

#[test]
fn disks_that_cannot_be_attached_are_refused() {
    let disk = |disk: Value| devices(&json!({ "disks": [changed(&json!({ "name": "root" }), &disk)] }));
    let at = "spec.domain.devices.disks[0]";
    let field = |name: &str| format!("{at}.{name}");
    let discard = |bus: &str, step: u32| {
        let custom = json!({ "logical": 512, "physical": 512, "discardGranularity": step });
        json!({ "disk": { "bus": bus }, "blockSize": { "custom": custom } })
    };
    let rows: Vec<(Value, Vec<String>)> = vec![
        (disk(json!({ "disk": {}, "cdrom": {} })), vec![at.into()]),
        (disk(json!({ "disk": { "bus": "ide" } })), vec![field("disk.bus")]),
        (disk(json!({ "disk": { "bus": "nvme" } })), vec![field("disk.bus")]),
        (disk(json!({ "cdrom": { "bus": "virtio" } })), vec![field("cdrom.bus")]),
        (disk(json!({ "cdrom": { "tray": "ajar" } })), vec![field("cdrom.tray")]),
        (disk(json!({ "disk": { "readonly": true } })), vec![field("disk.readonly")]),
        (disk(json!({ "disk": { "bus": "sata" }, "dedicatedIOThread": true })), vec![field("dedicatedIOThread")]),
        (disk(json!({ "disk": { "bus": "virtio", "pciAddress": "1:2" } })), vec![field("disk.pciAddress")]),
        (disk(json!({ "disk": { "bus": "scsi", "pciAddress": "0000:81:01.1" } })), vec![field("disk.pciAddress")]),
        (disk(json!({ "lun": {} })), vec![field("lun")]),
        (disk(json!({ "bootOrder": 0 })), vec![field("bootOrder")]),
        (disk(json!({ "bootOrder": 2_147_483_648_u32 })), vec![field("bootOrder")]),
        (disk(discard("sata", 4096)), vec![field("blockSize.custom.discardGranularity")]),
        (disk(discard("sata", 512)), vec![]),
        (disk(discard("virtio", 4096)), vec![]),
        (disk(discard("virtio", 4000)), vec![field("blockSize.custom.discardGranularity")]),
        (disk(json!({ "cache": "warm" })), vec![field("cache")]),
        (disk(json!({ "io": "uring" })), vec![field("io")]),
        (disk(json!({ "errorPolicy": "hope" })), vec![field("errorPolicy")]),
        (disk(json!({ "serial": "a b" })), vec![field("serial")]),
        (
            disk(
                json!({ "disk": { "bus": "virtio" }, "blockSize": { "custom": { "logical": 512, "physical": 4096 } } }),
            ),
            vec![],
        ),
        (
            disk(
                json!({ "disk": { "bus": "virtio" }, "blockSize": { "custom": { "logical": 513, "physical": 4096 } } }),
            ),
            vec![field("blockSize.custom.logical")],
        ),
        (
            disk(json!({ "blockSize": { "custom": { "logical": 4096, "physical": 4096 } } })),
            vec![field("blockSize.custom.logical")],
        ),
        (disk(json!({ "blockSize": { "custom": {}, "matchVolume": {} } })), vec![field("blockSize")]),
        (
            devices(&json!({ "disks": [{ "name": "root" }, { "name": "Ghost" }] })),
            vec!["spec.domain.devices.disks[1].name".into(), "spec.domain.devices.disks[1].name".into()],
        ),
        (
            devices(&json!({ "disks": [{ "name": "root" }, { "name": "root" }] })),
            vec!["spec.domain.devices.disks[1].name".into()],
        ),
        (
            devices(&json!({ "disks": [{ "name": "root" }, { "name": "cd", "cdrom": {} }] })),
            vec!["spec.domain.devices.disks[1].name".into()],
        ),
    ];
    let cluster = Cluster::new();
    for (patch, expected) in rows {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        assert_refused(create(&cluster, &changed(&vmi(), &patch)), &expected, &patch);
    }
    let order = json!({ "disks": [{ "name": "root", "bootOrder": 1 }], "interfaces": [{ "name": "default", "masquerade": {}, "bootOrder": 1 }] });
    refuses(&cluster, &vmi(), &[(devices(&order), &["spec.domain.devices.interfaces[0].bootOrder"])]);
}

/// A change of the only volume, which has no source without it.
fn volume(patch: &Value) -> Value {
    json!({ "spec": { "volumes": [changed(&json!({ "name": "root" }), patch)] } })
}

#[test]
fn cloud_init_data_is_small_and_from_one_place() {
    let inline = |data: Value| volume(&json!({ "cloudInitNoCloud": data }));
    let long = "x".repeat(2049);
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (inline(json!({})), &["spec.volumes[0].cloudInitNoCloud"]),
            (inline(json!({ "userData": long })), &["spec.volumes[0].cloudInitNoCloud.userData"]),
            (inline(json!({ "networkData": long })), &["spec.volumes[0].cloudInitNoCloud.networkData"]),
            (inline(json!({ "userData": long[..2048] })), &[]),
            (inline(json!({ "userDataBase64": "?" })), &["spec.volumes[0].cloudInitNoCloud.userDataBase64"]),
            (inline(json!({ "userData": "a", "secretRef": { "name": "s" } })), &["spec.volumes[0].cloudInitNoCloud"]),
            (
                volume(&json!({ "cloudInitConfigDrive": { "userData": long } })),
                &["spec.volumes[0].cloudInitConfigDrive.userData"],
            ),
        ],
    );
}

#[test]
fn what_is_no_name_names_no_object() {
    let bad = "x,y=/etc";
    let cloud = |data: Value| volume(&json!({ "cloudInitNoCloud": data }));
    let claim = json!({ "claimName": bad });
    let credential = json!({ "userPassword": {
        "source": { "secret": { "secretName": bad } }, "propagationMethod": { "qemuGuestAgent": {} } } });
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (volume(&json!({ "secret": { "secretName": bad } })), &["spec.volumes[0].secret.secretName"]),
            (volume(&json!({ "secret": { "secretName": "a.b-c" } })), &[]),
            (volume(&json!({ "configMap": { "name": bad } })), &["spec.volumes[0].configMap.name"]),
            (volume(&json!({ "persistentVolumeClaim": claim })), &["spec.volumes[0].persistentVolumeClaim.claimName"]),
            (cloud(json!({ "secretRef": { "name": bad } })), &["spec.volumes[0].cloudInitNoCloud.secretRef.name"]),
            (
                cloud(json!({ "networkDataSecretRef": { "name": bad } })),
                &["spec.volumes[0].cloudInitNoCloud.networkDataSecretRef.name"],
            ),
            (
                json!({ "spec": { "accessCredentials": [credential] } }),
                &["spec.accessCredentials[0].userPassword.source.secret.secretName"],
            ),
        ],
    );
}

#[test]
fn volumes_without_one_good_source_are_refused() {
    refuses(
        &Cluster::new().with_gates(&["HostDisk"]),
        &vmi(),
        &[
            (volume(&json!({})), &["spec.volumes[0]"]),
            (
                json!({ "spec": { "volumes": [{ "name": "root", "emptyDisk": { "capacity": "1Gi" } }, { "name": "A", "emptyDisk": { "capacity": "1Gi" } }] } }),
                &["spec.domain.devices.disks[1].name", "spec.volumes[1].name"],
            ),
            (
                volume(&json!({ "containerDisk": { "image": "a:1" }, "emptyDisk": { "capacity": "1Gi" } })),
                &["spec.volumes[0]"],
            ),
            (volume(&json!({ "containerDisk": { "image": "" } })), &["spec.volumes[0].containerDisk.image"]),
            (
                volume(&json!({ "containerDisk": { "image": "a:1", "path": "disk" } })),
                &["spec.volumes[0].containerDisk.path"],
            ),
            (
                volume(&json!({ "containerDisk": { "image": "a:1", "imagePullPolicy": "Often" } })),
                &["spec.volumes[0].containerDisk.imagePullPolicy"],
            ),
            (
                volume(&json!({ "persistentVolumeClaim": { "claimName": "" } })),
                &["spec.volumes[0].persistentVolumeClaim.claimName"],
            ),
            (volume(&json!({ "dataVolume": { "name": "" } })), &["spec.volumes[0].dataVolume.name"]),
            (volume(&json!({ "ephemeral": {} })), &["spec.volumes[0].ephemeral.persistentVolumeClaim.claimName"]),
            (volume(&json!({ "configMap": {} })), &["spec.volumes[0].configMap.name"]),
            (volume(&json!({ "secret": {} })), &["spec.volumes[0].secret.secretName"]),
            (volume(&json!({ "serviceAccount": {} })), &["spec.volumes[0].serviceAccount.serviceAccountName"]),
            (volume(&json!({ "sysprep": {} })), &["spec.volumes[0].sysprep"]),
            (volume(&json!({ "emptyDisk": { "capacity": "0" } })), &["spec.volumes[0].emptyDisk.capacity"]),
            (volume(&json!({ "hostDisk": { "path": "disk", "type": "Disk" } })), &["spec.volumes[0].hostDisk.path"]),
            (
                volume(&json!({ "hostDisk": { "path": "/d", "type": "Disk", "capacity": "1Gi" } })),
                &["spec.volumes[0].hostDisk.capacity"],
            ),
            (
                volume(&json!({ "hostDisk": { "path": "/d", "type": "DiskOrCreate" } })),
                &["spec.volumes[0].hostDisk.capacity"],
            ),
            (volume(&json!({ "hostDisk": { "path": "/d", "type": "Tape" } })), &["spec.volumes[0].hostDisk.type"]),
            (
                json!({ "spec": { "volumes": [{ "name": "root", "containerDisk": { "image": "a:1" } }, { "name": "root", "containerDisk": { "image": "b:1" } }] } }),
                &["spec.volumes[1].name"],
            ),
            (
                json!({ "spec": { "volumes": [{ "name": "root", "serviceAccount": { "serviceAccountName": "a" } }, { "name": "two", "serviceAccount": { "serviceAccountName": "a" } }] } }),
                &["spec.volumes"],
            ),
            (
                json!({ "spec": { "serviceAccountName": "b", "volumes": [{ "name": "root", "serviceAccount": { "serviceAccountName": "a" } }] } }),
                &["spec.serviceAccountName"],
            ),
        ],
    );
}

/// A change of the only interface.
fn interface(patch: &Value) -> Value {
    devices(&json!({ "interfaces": [changed(&json!({ "name": "default", "masquerade": {} }), patch)] }))
}

#[test]
fn networks_and_interfaces_belong_together() {
    let at = |name: &str| format!("spec.domain.devices.interfaces[0].{name}");
    let rows: Vec<(Value, Vec<String>)> = vec![
        (interface(&json!({ "masquerade": null })), vec!["spec.domain.devices.interfaces[0]".into()]),
        (interface(&json!({ "bridge": {} })), vec!["spec.domain.devices.interfaces[0]".into()]),
        (interface(&json!({ "name": "other" })), vec!["spec.networks[0].name".into(), at("name")]),
        (interface(&json!({ "model": "ne1000" })), vec![at("model")]),
        (interface(&json!({ "macAddress": "02:00" })), vec![at("macAddress")]),
        (interface(&json!({ "macAddress": "02:00:00:00:00:00" })), vec![at("macAddress")]),
        (interface(&json!({ "pciAddress": "x" })), vec![at("pciAddress")]),
        (interface(&json!({ "state": "absent" })), vec![at("state")]),
        (interface(&json!({ "state": "sideways" })), vec![at("state")]),
        (interface(&json!({ "masquerade": null, "binding": { "name": "mine" } })), vec![at("binding.name")]),
        (interface(&json!({ "masquerade": null, "slirp": {} })), vec![at("slirp")]),
        (interface(&json!({ "ports": [{ "port": 0 }] })), vec![at("ports[0].port")]),
        (interface(&json!({ "ports": [{ "port": 80, "protocol": "SCTP" }] })), vec![at("ports[0].protocol")]),
        (
            interface(&json!({ "ports": [{ "port": 80, "name": "a" }, { "port": 81, "name": "a" }] })),
            vec![at("ports[1].name")],
        ),
        (interface(&json!({ "ports": [{ "port": 80, "name": "A" }] })), vec![at("ports[0].name")]),
        (interface(&json!({ "portRanges": [{ "start": 1, "end": 2, "protocol": "TCP" }] })), vec![at("portRanges")]),
        (interface(&json!({ "dhcpOptions": { "ntpServers": ["time"] } })), vec![at("dhcpOptions.ntpServers[0]")]),
        (
            interface(&json!({ "dhcpOptions": { "privateOptions": [{ "option": 3, "value": "" }] } })),
            vec![at("dhcpOptions.privateOptions[0].option")],
        ),
        (
            interface(
                &json!({ "dhcpOptions": { "privateOptions": [{ "option": 230, "value": "" }, { "option": 230, "value": "" }] } }),
            ),
            vec![at("dhcpOptions.privateOptions[1].option")],
        ),
        (json!({ "spec": { "networks": [{ "name": "default" }] } }), vec!["spec.networks[0]".into(), at("masquerade")]),
        (
            json!({ "spec": { "networks": [{ "name": "default", "pod": {}, "multus": { "networkName": "" } }] } }),
            vec![
                "spec.networks[0].multus".into(),
                "spec.networks[0]".into(),
                "spec.networks[0].multus.networkName".into(),
            ],
        ),
        (
            json!({ "spec": { "networks": [{ "name": "default", "pod": {} }, { "name": "two", "pod": {} }] } }),
            vec!["spec.networks[1].name".into(), "spec.networks[1].pod".into()],
        ),
        (
            json!({ "spec": { "networks": [{ "name": "default", "multus": { "networkName": "n" } }] } }),
            vec!["spec.networks[0].multus".into(), at("masquerade")],
        ),
    ];
    let cluster = Cluster::new();
    for (patch, expected) in rows {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        assert_refused(create(&cluster, &changed(&vmi(), &patch)), &expected, &patch);
    }
}

#[test]
fn what_the_cluster_and_other_networks_do_not_allow_is_refused() {
    let cluster = Cluster::new();
    let multus = |name: &str| json!({ "name": name, "multus": { "networkName": "n", "default": true } });
    let two = json!({ "spec": {
        "networks": [{ "name": "default", "pod": {} }, multus("two"), multus("three")],
        "domain": { "devices": { "interfaces": [
            { "name": "default", "masquerade": {} }, { "name": "two", "bridge": {} }, { "name": "three", "sriov": {}, "state": "up" },
        ] } },
    } });
    let (first, second) = ("spec.networks[1].multus", "spec.networks[2].multus");
    let defaults = "spec.networks[2].multus.default";
    let state = "spec.domain.devices.interfaces[2].state";
    refuses(&cluster, &vmi(), &[(two, &[first, second, defaults, defaults, state])]);
    let strict = Cluster::new().configured(&json!({
        "network": { "permitBridgeInterfaceOnPodNetwork": false, "defaultNetworkInterface": "masquerade" },
    }));
    let bridged = interface(&json!({ "masquerade": null, "bridge": {} }));
    refuses(&strict, &vmi(), &[(bridged, &["spec.domain.devices.interfaces[0].bridge"])]);
}
