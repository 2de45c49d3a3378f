//! What an instance is refused for: one small instance, one change, one field.

use serde_json::{Value, json};
use virt_api::Requester;

use crate::support::{Cluster, changed, create, denied, devices, domain, fields, refuses, vmi, write};

#[test]
fn vcpus_that_cannot_be_are_refused() {
    let pinned = json!({ "cpu": { "dedicatedCpuPlacement": true, "sockets": 2 } });
    let with = |patch: Value| domain(&changed(&pinned, &patch));
    let hugepages = json!({ "hugepages": { "pageSize": "2Mi" } });
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (with(json!({})), &[]),
            (domain(&json!({ "cpu": { "sockets": 4, "maxSockets": 2 } })), &["spec.domain.cpu.sockets"]),
            (domain(&json!({ "cpu": { "sockets": 100, "cores": 100, "threads": 2 } })), &["spec.domain.cpu"]),
            (domain(&json!({ "cpu": { "sockets": 1_u32 << 31, "cores": 2 } })), &["spec.domain.cpu"]),
            (
                domain(&json!({ "cpu": { "features": [{ "name": "vmx", "policy": "beg" }] } })),
                &["spec.domain.cpu.features[0].policy"],
            ),
            (domain(&json!({ "cpu": { "features": [{ "name": "" }] } })), &["spec.domain.cpu.features[0].name"]),
            (domain(&json!({ "cpu": { "isolateEmulatorThread": true } })), &["spec.domain.cpu.isolateEmulatorThread"]),
            (
                domain(&json!({ "cpu": { "numa": { "guestMappingPassthrough": {} } } })),
                &["spec.domain.cpu.numa.guestMappingPassthrough", "spec.domain.cpu.numa.guestMappingPassthrough"],
            ),
            (with(json!({ "cpu": { "numa": { "guestMappingPassthrough": {} } }, "memory": hugepages })), &[]),
            (
                domain(&json!({ "cpu": { "realtime": {} } })),
                &["spec.domain.cpu.dedicatedCpuPlacement", "spec.domain.cpu.numa.guestMappingPassthrough"],
            ),
            (with(json!({ "cpu": { "sockets": 1, "threads": 4 } })), &["spec.domain.cpu.threads"]),
            (with(json!({ "resources": { "requests": { "cpu": "1500m" } } })), &["spec.domain.resources.requests.cpu"]),
            (with(json!({ "resources": { "limits": { "cpu": "3" } } })), &["spec.domain.resources.limits.cpu"]),
            (
                with(json!({ "resources": { "requests": { "memory": "1Gi" }, "limits": { "memory": "2Gi" } } })),
                &["spec.domain.resources.requests.memory"],
            ),
            (
                domain(&json!({ "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } } })),
                &["spec.domain.resources.requests.cpu"],
            ),
            (domain(&json!({ "resources": { "limits": { "cpu": "-1" } } })), &["spec.domain.resources.limits.cpu"]),
        ],
    );
}

#[test]
fn memory_that_does_not_add_up_is_refused() {
    refuses(
        &Cluster::new().configured(&json!({ "vmRolloutStrategy": "Stage" })),
        &vmi(),
        &[
            (domain(&json!({ "memory": null })), &["spec.domain.memory.guest"]),
            (domain(&json!({ "memory": { "guest": "-1Gi" } })), &["spec.domain.memory.guest"]),
            (domain(&json!({ "memory": { "guest": "64k" } })), &["spec.domain.memory.guest"]),
            (domain(&json!({ "memory": { "guest": "2Gi", "maxGuest": "1Gi" } })), &["spec.domain.memory.guest"]),
            (domain(&json!({ "memory": { "hugepages": { "pageSize": "3Mi" } } })), &["spec.domain.memory.guest"]),
            (
                domain(&json!({ "memory": { "hugepages": { "pageSize": "big" } } })),
                &["spec.domain.memory.hugepages.pageSize"],
            ),
            (domain(&json!({ "memory": { "reservedOverhead": {} } })), &["spec.domain.memory.reservedOverhead"]),
            (domain(&json!({ "resources": { "limits": { "memory": "512Mi" } } })), &["spec.domain.memory.guest"]),
            (
                domain(&json!({ "resources": { "requests": { "memory": "3Gi" }, "limits": { "memory": "2Gi" } } })),
                &["spec.domain.resources.requests.memory"],
            ),
        ],
    );
}

#[test]
fn firmware_and_features_that_exclude_or_miss_each_other_are_refused() {
    let firmware = |firmware: Value| domain(&json!({ "firmware": firmware }));
    let hyperv = |hyperv: Value| domain(&json!({ "features": { "hyperv": hyperv } }));
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (
                firmware(json!({ "bootloader": { "bios": {}, "efi": { "secureBoot": false } } })),
                &["spec.domain.firmware.bootloader"],
            ),
            (firmware(json!({ "bootloader": { "efi": {} } })), &["spec.domain.firmware.bootloader.efi.secureBoot"]),
            (domain(&json!({ "features": { "smm": {} }, "firmware": { "bootloader": { "efi": {} } } })), &[]),
            (firmware(json!({ "uuid": "me" })), &["spec.domain.firmware.uuid"]),
            (firmware(json!({ "serial": "9".repeat(257) })), &["spec.domain.firmware.serial"]),
            (
                firmware(json!({ "kernelBoot": { "kernelArgs": "quiet" } })),
                &["spec.domain.firmware.kernelBoot.container", "spec.domain.firmware.kernelBoot.kernelArgs"],
            ),
            (
                firmware(json!({ "kernelBoot": { "container": { "image": "" } } })),
                &["spec.domain.firmware.kernelBoot.container.image", "spec.domain.firmware.kernelBoot.container"],
            ),
            (
                firmware(json!({ "kernelBoot": { "container": { "image": "i", "kernelPath": "/a/../b" } } })),
                &["spec.domain.firmware.kernelBoot.container.kernelPath"],
            ),
            (firmware(json!({ "acpi": {} })), &["spec.domain.firmware.acpi"]),
            (firmware(json!({ "acpi": { "slicNameRef": "none" } })), &["spec.domain.firmware.acpi.slicNameRef"]),
            (firmware(json!({ "acpi": { "msdmNameRef": "root" } })), &["spec.domain.firmware.acpi.msdmNameRef"]),
            (hyperv(json!({ "synictimer": {} })), &[]),
            (hyperv(json!({ "ipi": {}, "vpindex": { "enabled": false } })), &["spec.domain.features.hyperv.ipi"]),
            (hyperv(json!({ "spinlocks": { "spinlocks": 1 } })), &["spec.domain.features.hyperv.spinlocks.spinlocks"]),
            (
                hyperv(json!({ "vendorid": { "vendorid": "thirteen chars" } })),
                &["spec.domain.features.hyperv.vendorid.vendorid"],
            ),
            (
                domain(&json!({ "features": { "hyperv": {}, "hypervPassthrough": {} } })),
                &["spec.domain.features.hyperv"],
            ),
            (
                changed(
                    &hyperv(json!({ "evmcs": {} })),
                    &domain(&json!({ "cpu": { "features": [{ "name": "vmx", "policy": "forbid" }] } })),
                ),
                &["spec.domain.cpu.features[0].policy"],
            ),
        ],
    );
}

#[test]
fn encryption_needs_its_technology_alone_and_its_firmware() {
    let efi = json!({ "bootloader": { "efi": { "secureBoot": false } } });
    let with = |security: Value| domain(&json!({ "firmware": efi, "launchSecurity": security }));
    refuses(
        &Cluster::new().with_gates(&["WorkloadEncryptionTDX"]),
        &vmi(),
        &[
            (with(json!({ "sev": {} })), &[]),
            (with(json!({ "sev": {}, "snp": {} })), &["spec.domain.launchSecurity"]),
            (domain(&json!({ "launchSecurity": { "snp": {} } })), &["spec.domain.launchSecurity.snp"]),
            (with(json!({ "sev": { "attestation": {} } })), &["spec.domain.launchSecurity.sev.attestation"]),
            (
                changed(&with(json!({ "tdx": {} })), &domain(&json!({ "features": { "smm": {} } }))),
                &["spec.domain.launchSecurity.tdx"],
            ),
        ],
    );
}

#[test]
fn devices_that_do_not_exist_are_refused() {
    refuses(
        &Cluster::new().with_gates(&["HostDevices"]),
        &vmi(),
        &[
            (
                devices(&json!({ "inputs": [{ "name": "i", "type": "mouse", "bus": "ps2" }] })),
                &["spec.domain.devices.inputs[0].bus", "spec.domain.devices.inputs[0].type"],
            ),
            (devices(&json!({ "sound": { "name": "", "model": "sb16" } })), &["spec.domain.devices.sound"]),
            (devices(&json!({ "video": {}, "autoattachGraphicsDevice": false })), &["spec.domain.devices.video"]),
            (devices(&json!({ "video": { "type": "hercules" } })), &["spec.domain.devices.video.type"]),
            (devices(&json!({ "watchdog": { "name": "w", "diag288": {} } })), &["spec.domain.devices.watchdog"]),
            (
                devices(&json!({ "watchdog": { "name": "w", "i6300esb": { "action": "sing" } } })),
                &["spec.domain.devices.watchdog.i6300esb.action"],
            ),
            (
                devices(&json!({ "panicDevices": [{ "model": "button" }] })),
                &["spec.domain.devices.panicDevices[0].model"],
            ),
            (
                devices(&json!({ "gpus": [{ "name": "g", "deviceName": "a/b" }] })),
                &["spec.domain.devices.gpus[0].deviceName"],
            ),
            (devices(&json!({ "hostDevices": [{ "name": "h" }] })), &["spec.domain.devices.hostDevices[0].deviceName"]),
            (domain(&json!({ "ioThreadsPolicy": "many" })), &["spec.domain.ioThreadsPolicy"]),
            (
                domain(&json!({ "ioThreadsPolicy": "supplementalPool" })),
                &["spec.domain.ioThreads.supplementalPoolThreadCount"],
            ),
            (domain(&json!({ "machine": { "type": "pc" } })), &["spec.domain.machine.type"]),
            (json!({ "spec": { "architecture": "vax" } }), &["spec.architecture"]),
        ],
    );
}

#[test]
fn what_is_not_built_or_switched_off_is_refused() {
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (
                devices(&json!({ "filesystems": [{ "name": "root", "virtiofs": {} }] })),
                &["spec.domain.devices.filesystems"],
            ),
            (devices(&json!({ "autoattachVSOCK": true })), &["spec.domain.devices.autoattachVSOCK"]),
            (devices(&json!({ "tpm": { "persistent": true } })), &["spec.domain.devices.tpm"]),
            (
                json!({ "metadata": { "annotations": { "kubevirt.io/ignitiondata": "{}" } } }),
                &["metadata.annotations[kubevirt.io/ignitiondata]"],
            ),
            (
                json!({ "metadata": { "annotations": { "hooks.kubevirt.io/hookSidecars": "[]" } } }),
                &["metadata.annotations[hooks.kubevirt.io/hookSidecars]"],
            ),
        ],
    );
}

#[test]
fn labels_and_annotations_that_controllers_go_by_are_reserved_for_them() {
    let labelled = changed(
        &vmi(),
        &json!({ "metadata": {
            "labels": { "kubevirt.io/nodeName": "n", "kubevirt.io/size": "s" },
            "annotations": { "orlop.dev/guest": "{}", "orlop.dev/other": "o" },
        } }),
    );
    let cluster = Cluster::new();
    let reserved = ["metadata.annotations[orlop.dev/guest]", "metadata.labels[kubevirt.io/nodeName]"];
    assert_eq!(fields(create(&cluster, &labelled)), reserved);
    for requester in [Requester::Admin, Requester::Component] {
        assert!(write(&cluster, requester, "", None, &labelled).outcome.is_ok());
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let patch = json!({ "spec": {
        "hostname": "Bad", "terminationGracePeriodSeconds": -1, "domain": { "memory": null, "firmware": { "uuid": "x" } },
    } });
    let denial = denied(create(&Cluster::new(), &changed(&vmi(), &patch)));
    assert_eq!(denial.causes.len(), 4, "{denial}");
    assert!(
        denial.message.starts_with("VirtualMachineInstance.kubevirt.io \"v\" is invalid: [spec.domain.firmware.uuid: ")
    );
}

#[test]
fn what_does_not_fit_its_type_is_refused_by_its_field() {
    let patch = json!({ "spec": { "domain": { "cpu": { "cores": "two" } } } });
    let denial = denied(create(&Cluster::new(), &changed(&vmi(), &patch)));
    assert_eq!(denial.causes[0].field, "spec.domain.cpu.cores");
    assert!(denial.causes[0].message.contains("got the string \"two\""));
}

/// No launcher runs other architectures; what they would have is told as well.
#[test]
fn other_architectures_are_refused_and_have_other_devices() {
    for (architecture, patch, field) in [
        ("arm64", devices(&json!({ "watchdog": { "name": "w" } })), "spec.domain.devices.watchdog"),
        ("arm64", devices(&json!({ "sound": { "name": "s" } })), "spec.domain.devices.sound"),
        ("arm64", domain(&json!({ "cpu": { "model": "Nehalem" } })), "spec.domain.cpu.model"),
        ("arm64", domain(&json!({ "cpu": { "threads": 2 } })), "spec.domain.cpu.threads"),
        (
            "arm64",
            domain(&json!({ "firmware": { "bootloader": { "bios": {} } } })),
            "spec.domain.firmware.bootloader.bios",
        ),
        (
            "arm64",
            devices(&json!({ "disks": [{ "name": "root", "disk": { "bus": "sata" } }] })),
            "spec.domain.devices.disks[0].disk.bus",
        ),
        ("arm64", domain(&json!({ "launchSecurity": { "sev": {} } })), "spec.domain.launchSecurity"),
        ("s390x", devices(&json!({ "watchdog": { "name": "w", "i6300esb": {} } })), "spec.domain.devices.watchdog"),
        ("s390x", devices(&json!({ "video": { "type": "vga" } })), "spec.domain.devices.video.type"),
        ("s390x", devices(&json!({ "panicDevices": [{ "model": "isa" }] })), "spec.domain.devices.panicDevices"),
    ] {
        let cluster = Cluster::on(architecture);
        assert!(!fields(create(&cluster, &vmi())).iter().any(|told| told == field), "{field}");
        let told = fields(create(&cluster, &changed(&vmi(), &patch)));
        assert!(["spec.architecture", field].iter().all(|field| told.iter().any(|told| told == field)), "{told:?}");
    }
}
