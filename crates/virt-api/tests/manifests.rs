//! Manifests that people have: each is admitted, or refused with these words.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "admission/support.rs"]
mod support;

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Harness, Need, needs, tests};

use support::{Cluster, create};

fn main() -> std::process::ExitCode {
    let beside = tests![manifests_beside_the_repository_are_admitted_or_refused_as_listed];
    let beside = beside.into_iter().map(|test| test.needing(&[Need::Shared("manifests")]));
    Harness::default().run(beside.chain(tests![every_example_is_admitted]).collect())
}

/// Refused manifests and words of the refusal; all others are admitted.
const REFUSED: &[(&str, &str)] = &[
    ("migration-job.yaml", "the VMI \"default/vmi-migratable\" does not exist"),
    ("vm-alpine-datavolume.yaml", "spec.dataVolumeTemplates: data volumes are not supported here"),
    ("vm-cirros-csmall.yaml", "spec.template.spec.domain.memory.guest: the instancetype already sets this field"),
    ("vmi-host-disk.yaml", "spec.volumes[0].hostDisk: needs the feature gate HostDisk"),
    ("vmi-multus-ptp.yaml", "spec.networks[0].multus: is not supported yet"),
    ("vmi-windows.yaml", "spec.domain.devices.tpm: is not supported yet"),
];

fn cluster() -> Cluster {
    Cluster::new().instancetype("csmall", json!({ "cpu": { "guest": 1 }, "memory": { "guest": "128Mi" } }))
}

fn check(folder: &Path) -> usize {
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let words = REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, words)| *words);
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            // What is not about virtual machines is not asked for here.
            if !object["apiVersion"].as_str().unwrap().contains("kubevirt.io") {
                continue;
            }
            match (create(&cluster(), &object).outcome, words) {
                (Ok(_), None) => {}
                (Err(denial), Some(words)) => assert!(denial.message.contains(words), "{name}: {denial}"),
                (Err(denial), None) => panic!("{name}: {denial}"),
                (Ok(_), Some(words)) => panic!("{name}: admitted, without {words:?}"),
            }
            checked += 1;
        }
    }
    checked
}

fn every_example_is_admitted() {
    assert!(check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")) > 0);
}

fn manifests_beside_the_repository_are_admitted_or_refused_as_listed() {
    let checked = check(&needs::shared("manifests"));
    assert!(checked > REFUSED.len(), "{checked}");
}
