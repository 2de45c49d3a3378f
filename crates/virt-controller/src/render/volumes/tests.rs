use api::vmi::VirtualMachineInstance;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::render::testing::{Bench, vmi};

fn mounted(bench: &Bench, volumes: &Value) -> Result<Mounts, RenderError> {
    let vmi = vmi(json!({ "volumes": volumes }));
    let mut mounts = Mounts::default();
    guest_volumes(&bench.input(&vmi), &mut mounts).map(|()| mounts)
}

#[test]
fn a_filesystem_claim_is_mounted_and_a_block_claim_is_a_device() {
    let mounts = mounted(
        &Bench::default(),
        &json!([
            { "name": "a", "persistentVolumeClaim": { "claimName": "fs", "readOnly": true } },
            { "name": "b", "dataVolume": { "name": "raw" } },
        ]),
    )
    .unwrap();
    assert_eq!(
        serde_json::to_value(&mounts.mounts).unwrap(),
        json!([{ "name": "a", "mountPath": "/var/run/kubevirt-private/vmi-disks/a", "readOnly": true }])
    );
    assert_eq!(serde_json::to_value(&mounts.devices).unwrap(), json!([{ "name": "b", "devicePath": "/dev/b" }]));
    assert_eq!(mounts.claims["raw"], "/dev/b");
    assert_eq!(
        serde_json::to_value(&mounts.volumes[1]).unwrap(),
        json!({ "name": "b", "persistentVolumeClaim": { "claimName": "raw" } })
    );
}

#[test]
fn the_base_of_an_ephemeral_disk_is_never_written() {
    let source = json!({ "persistentVolumeClaim": { "claimName": "fs" } });
    let mounts = mounted(&Bench::default(), &json!([{ "name": "a", "ephemeral": source }])).unwrap();
    assert_eq!(mounts.mounts[0].read_only, Some(true));
}

#[test]
fn a_missing_claim_is_waited_for() {
    let error = mounted(&Bench::default(), &json!([{ "name": "a", "dataVolume": { "name": "gone" } }])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.volumes[0].dataVolume: persistent volume claim \"gone\" does not exist; waiting for it"
    );
    assert!(error.is_retryable());
}

#[test]
fn a_host_disk_brings_its_folder() {
    let disk = json!([{ "name": "a", "hostDisk": { "path": "/data/disks/a.img", "type": "DiskOrCreate" } }]);
    let mounts = mounted(&Bench::default(), &disk).unwrap();
    assert_eq!(mounts.volumes[0].host_path.as_ref().unwrap().path, "/data/disks");
    assert_eq!(mounts.host_disks["a"], "/var/run/kubevirt-private/vmi-disks/a");
    let relative = json!([{ "name": "a", "hostDisk": { "path": "a.img", "type": "Disk" } }]);
    assert!(mounted(&Bench::default(), &relative).is_err());
}

#[test]
fn secrets_and_config_maps_are_folders() {
    let mounts = mounted(
        &Bench::default(),
        &json!([
            { "name": "a", "cloudInitNoCloud": { "secretRef": { "name": "user" }, "networkDataSecretRef": { "name": "net" } } },
            { "name": "b", "configMap": { "name": "map", "optional": true } },
            { "name": "c", "secret": { "secretName": "key" } },
            { "name": "d", "sysprep": { "configMap": { "name": "win" } } },
            { "name": "e", "downwardAPI": { "fields": [] } },
        ]),
    )
    .unwrap();
    let names: Vec<&str> = mounts.volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["a-udata", "a-ndata", "b", "c", "d", "e"]);
    assert!(mounts.mounts.iter().all(|mount| mount.read_only == Some(true)));
    assert_eq!(mounts.secrets.keys().collect::<Vec<_>>(), ["key", "net", "user"]);
    assert_eq!(mounts.config_maps["win"], "/var/run/kubevirt-private/sysprep/d");
}

#[test]
fn what_is_made_in_the_pod_needs_no_volume() {
    let made = json!([{ "name": "a", "emptyDisk": { "capacity": "1Gi" } }, { "name": "b", "cloudInitNoCloud": {} }]);
    assert!(mounted(&Bench::default(), &made).unwrap().volumes.is_empty());
}

#[test]
fn each_credential_is_mounted_once() {
    let source = json!({ "secret": { "secretName": "keys" } });
    let key = json!({ "sshPublicKey": { "source": source, "propagationMethod": {} } });
    let vmi = vmi(json!({ "accessCredentials": [key, key] }));
    let mut mounts = Mounts::default();
    guest_volumes(&Bench::default().input(&vmi), &mut mounts).unwrap();
    assert_eq!(mounts.mounts.len(), 1);
    assert_eq!(mounts.secrets["keys"], "/var/run/kubevirt-private/secret/keys-access-cred");
}

#[test]
fn names_and_sources_must_make_sense() {
    for volumes in [
        json!([{ "name": "a" }]),
        json!([{ "name": "a", "emptyDisk": { "capacity": "1" }, "containerDisk": { "image": "x" } }]),
        json!([{ "name": "private", "emptyDisk": { "capacity": "1" } }]),
        json!([{ "name": "x-udata", "emptyDisk": { "capacity": "1" } }]),
        json!([{ "name": "a", "emptyDisk": { "capacity": "1" } }, { "name": "a", "emptyDisk": { "capacity": "1" } }]),
    ] {
        let error = mounted(&Bench::default(), &volumes).unwrap_err();
        assert!(matches!(error, RenderError::Invalid { .. }), "{volumes} gave {error}");
    }
}

/// All arguments that a launcher is given, split as the launcher splits them: at commas, then at the first equals sign.
fn places(bench: &Bench, vmi: &VirtualMachineInstance) -> Result<Vec<(String, String)>, RenderError> {
    let mut mounts = Mounts::default();
    let input = bench.input(vmi);
    guest_volumes(&input, &mut mounts)?;
    let all = arguments::arguments(&input, &mounts);
    let split = all.iter().zip(all.iter().skip(1)).filter(|(flag, _)| PLACES.contains(&flag.as_str()));
    let split = split.flat_map(|(_, text)| text.split(','));
    Ok(split.filter_map(|one| one.split_once('=')).map(|(name, path)| (name.to_owned(), path.to_owned())).collect())
}

const PLACES: [&str; 5] = ["--claim", "--secret", "--config-map", "--host-disk", "--container-disk"];

/// An instance that names an object, in each of the ways that there are.
fn naming(name: &str) -> Vec<VirtualMachineInstance> {
    let of = |source: Value| vmi(json!({ "volumes": [source] }));
    let secret = json!({ "source": { "secret": { "secretName": name } }, "propagationMethod": {} });
    vec![
        of(json!({ "name": "a", "secret": { "secretName": name } })),
        of(json!({ "name": "a", "configMap": { "name": name } })),
        of(json!({ "name": "a", "cloudInitNoCloud": { "secretRef": { "name": name } } })),
        of(json!({ "name": "a", "cloudInitConfigDrive": { "networkDataSecretRef": { "name": name } } })),
        of(json!({ "name": "a", "sysprep": { "configMap": { "name": name } } })),
        of(json!({ "name": "a", "sysprep": { "secret": { "name": name } } })),
        of(json!({ "name": "a", "persistentVolumeClaim": { "claimName": name } })),
        of(json!({ "name": name, "hostDisk": { "path": "/disks/a.img", "type": "Disk" } })),
        vmi(json!({ "accessCredentials": [{ "sshPublicKey": secret }] })),
        vmi(json!({ "accessCredentials": [{ "userPassword": secret }] })),
    ]
}

#[test]
fn a_name_with_syntax_in_it_is_refused() {
    for name in ["x=/etc,y", "x,y=/etc", "x=y", "x,y", "../x", "x/y"] {
        let mut bench = Bench::default();
        bench.claims.insert(name.to_owned(), crate::render::Claim { block: false });
        for vmi in naming(name) {
            let refused = places(&bench, &vmi);
            assert!(matches!(refused, Err(RenderError::Invalid { .. })), "{name:?} gave {refused:?}");
        }
    }
}

proptest! {
    #[test]
    fn an_argument_names_one_object_and_a_folder_of_the_launcher(name in "[a-z.,=/]{1,12}") {
        let mut bench = Bench::default();
        bench.claims.insert(name.clone(), crate::render::Claim { block: false });
        for vmi in naming(&name) {
            let Ok(places) = places(&bench, &vmi) else { continue };
            prop_assert_eq!(places.len(), 1);
            for (named, path) in places {
                prop_assert_eq!(&named, &name);
                prop_assert!(path.starts_with("/var/run/kubevirt-private/"), "{}", path);
            }
        }
    }
}
