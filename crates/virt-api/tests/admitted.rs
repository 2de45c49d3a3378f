//! Whatever admission accepts, a launcher does not refuse.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "admitted/fields.rs"]
mod fields;
#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "admission/support.rs"]
mod support;
#[path = "../../hypervisor/tests/support/mod.rs"]
mod wiring;

use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator::Accelerator;
use hypervisor::guest::build::{Before, build};
use hypervisor::render;
use proptest::prelude::*;
use serde_json::{Value, json};
use virt_api::Denial;
use virt_launcher::volumes;
use virt_rules::config::Gate;

use fields::{grafts, is_filled};
use support::{Cluster, changed, create, denied, vmi};

/// What a launcher refuses of an instance that was admitted.
fn refused_later(cluster: &Cluster, sent: &Value) -> Result<Vec<String>, Denial> {
    let stored = create(cluster, sent).outcome?.unwrap_or_else(|| sent.clone());
    let stored: VirtualMachineInstance = serde_json::from_value(stored).unwrap();
    let mut refusals = Vec::new();
    for accelerator in [Accelerator::Kvm, Accelerator::Tcg] {
        let refused = build(&stored, accelerator, Before::Nothing)
            .and_then(|guest| render::command_line(&guest, &wiring::wiring(&stored)));
        refusals.extend(refused.err().into_iter().flatten().map(|refusal| refusal.to_string()));
    }
    refusals.extend(volumes::check(&stored).err().map(|error| error.to_string()));
    Ok(refusals)
}

/// Every gate is on, and everything is permitted: nothing but the table stands between an instance and its node.
fn permissive() -> Cluster {
    let gates: Vec<&str> = Gate::ALL.iter().map(|gate| gate.name()).collect();
    Cluster::new().configured(&json!({
        "developerConfiguration": { "featureGates": gates },
        "emulatedMachines": ["*"],
        "network": { "binding": { "plugin": {} } },
        "permittedHostDevices": { "pciHostDevices": [{ "pciVendorSelector": "1:2", "resourceName": "a.b/c" }] },
    }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(4096), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_admitted_is_not_refused_by_a_launcher(grafts in grafts(), everything_is_on in any::<bool>()) {
        let cluster = if everything_is_on { permissive() } else { Cluster::new() };
        let mut sent = vmi();
        for graft in &grafts {
            graft.apply(&mut sent);
        }
        if let Ok(refused) = refused_later(&cluster, &sent) {
            prop_assert!(refused.is_empty(), "{sent:#}\n{refused:#?}");
        }
    }
}

/// A generator whose objects are all refused would show nothing.
#[test]
fn many_different_fields_are_admitted() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let (mut runner, cluster, strategy) = (TestRunner::default(), permissive(), grafts());
    let mut admitted = std::collections::BTreeSet::new();
    for _ in 0..4096 {
        let grafts = strategy.new_tree(&mut runner).unwrap().current();
        let [graft] = grafts.as_slice() else { continue };
        let mut sent = vmi();
        graft.apply(&mut sent);
        if is_filled(graft) && create(&cluster, &sent).outcome.is_ok() {
            admitted.insert(graft.field());
        }
    }
    assert!(admitted.len() > 100, "{}: {admitted:#?}", admitted.len());
}

/// What used to be admitted and then failed on its node, again and again.
#[test]
fn what_no_launcher_does_is_refused_by_its_field_with_what_to_do() {
    let volume = |source: Value| json!({ "spec": { "volumes": [source] } });
    let devices = |devices: Value| json!({ "spec": { "domain": { "devices": devices } } });
    let efi = |efi: Value| json!({ "spec": { "domain": { "features": { "smm": {} }, "firmware": { "bootloader": { "efi": efi } } } } });
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let lun = json!({ "spec": {
        "domain": { "devices": { "disks": [{ "name": "root", "lun": { "bus": "scsi" } }] } }, "volumes": [claim],
    } });
    for (patch, field) in [
        (devices(json!({ "tpm": {} })), "spec.domain.devices.tpm"),
        (efi(json!({})), "spec.domain.firmware.bootloader.efi.secureBoot"),
        (efi(json!({ "secureBoot": true })), "spec.domain.firmware.bootloader.efi.secureBoot"),
        (lun, "spec.domain.devices.disks[0].lun"),
        (devices(json!({ "sound": { "name": "s" } })), "spec.domain.devices.sound"),
        (volume(json!({ "name": "root", "sysprep": { "secret": { "name": "s" } } })), "spec.volumes[0].sysprep"),
        (volume(json!({ "name": "root", "downwardAPI": {} })), "spec.volumes[0].downwardAPI"),
        (
            volume(json!({ "name": "root", "serviceAccount": { "serviceAccountName": "s" } })),
            "spec.volumes[0].serviceAccount",
        ),
    ] {
        for cluster in [Cluster::new(), permissive()] {
            let denial = denied(create(&cluster, &changed(&vmi(), &patch)));
            let [cause] = denial.causes.as_slice() else { panic!("{denial}") };
            assert_eq!(cause.field, field);
            assert!(cause.message.starts_with("is not supported yet; "), "{denial}");
        }
    }
}

/// Each of the two fields is fine by itself.
#[test]
fn what_no_launcher_does_with_two_fields_at_once_is_refused() {
    let spec = |disk: Value, volume: Value| json!({ "spec": { "domain": { "devices": { "disks": [disk] } }, "volumes": [volume] } });
    let image = || json!({ "name": "root", "containerDisk": { "image": "disk:1" } });
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c", "readOnly": true } });
    let native = |cache: &str| json!({ "name": "root", "disk": { "bus": "virtio" }, "io": "native", "cache": cache });
    for (patch, field) in [
        (spec(json!({ "name": "root", "disk": {} }), claim), "spec.volumes[0].persistentVolumeClaim.readOnly"),
        (spec(native("writeback"), image()), "spec.domain.devices.disks[0].io"),
        (spec(native("writethrough"), image()), "spec.domain.devices.disks[0].io"),
    ] {
        for cluster in [Cluster::new(), permissive()] {
            let denial = denied(create(&cluster, &changed(&vmi(), &patch)));
            let [cause] = denial.causes.as_slice() else { panic!("{denial}") };
            assert_eq!(cause.field, field);
        }
    }
    assert!(create(&Cluster::new(), &changed(&vmi(), &spec(native("none"), image()))).outcome.is_ok());
}
