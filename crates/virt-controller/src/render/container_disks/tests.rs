use serde_json::{Value, json};

use super::*;
use crate::render::testing::{Bench, vmi};

fn disks(bench: &Bench, spec: Value) -> (Disks, Mounts) {
    let vmi = vmi(spec);
    let mut mounts = Mounts::default();
    let disks = container_disks(&bench.input(&vmi), &mut mounts);
    (disks, mounts)
}

fn two() -> Value {
    json!({
        "volumes": [
            { "name": "seed", "cloudInitNoCloud": {} },
            { "name": "root", "containerDisk": { "image": "demo/cirros", "imagePullSecret": "hub" } },
        ],
        "domain": { "firmware": { "kernelBoot": { "container": { "image": "demo/kernel:v1", "kernelPath": "/k" } } } },
    })
}

#[test]
fn images_are_volumes_where_nodes_can_mount_them() {
    let (disks, mounts) = disks(&Bench::default(), two());
    assert!(disks.containers.is_empty() && disks.init_containers.is_empty());
    assert_eq!(disks.pull_secrets, ["hub"]);
    assert_eq!(
        serde_json::to_value(&mounts.volumes).unwrap(),
        json!([
            { "name": "root", "image": { "reference": "demo/cirros", "pullPolicy": "Always" } },
            { "name": "kernel-boot-volume", "image": { "reference": "demo/kernel:v1", "pullPolicy": "IfNotPresent" } },
        ])
    );
    assert_eq!(mounts.container_disks["root"], "/var/run/kubevirt-image-volume/disk_1");
    assert_eq!(mounts.kernel_boot.as_deref(), Some("/var/run/kubevirt-kernel-boot"));
}

#[test]
fn elsewhere_each_image_is_pulled_first_and_then_held() {
    for bench in [
        Bench { image_volumes: false, ..Bench::default() },
        Bench::configured(&json!({ "developerConfiguration": { "disabledFeatureGates": ["ImageVolume"] } })),
    ] {
        let (disks, mounts) = disks(&bench, two());
        let names = |containers: &[Container]| containers.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            names(&disks.init_containers),
            ["container-disk-binary", "volumeroot-init", "volumekernel-boot-volume-init"]
        );
        assert_eq!(names(&disks.containers), ["volumeroot", "volumekernel-boot-volume"]);
        let uid = "db6109f4-73dc-4a04-9e56-7fe0ea823806";
        let place = format!("/var/run/kubevirt-ephemeral-disks/container-disk-data/{uid}/disk_1");
        assert_eq!(disks.containers[0].args.as_ref().unwrap(), &["--copy-path", &place]);
        assert_eq!(mounts.container_disks["root"], "/var/run/kubevirt/container-disks/disk_1.img");
        assert_eq!(mounts.mounts[0].mount_propagation.as_deref(), Some("HostToContainer"));
    }
}

#[test]
fn a_guest_without_images_has_nothing_of_it() {
    let (disks, mounts) = disks(&Bench { image_volumes: false, ..Bench::default() }, json!({}));
    assert!(disks.init_containers.is_empty() && mounts.volumes.is_empty());
}

#[test]
fn helpers_take_what_the_cluster_says_and_fit_a_guaranteed_pod() {
    let configuration = json!({ "supportContainerResources": [
        { "type": "container-disk", "resources": { "requests": { "cpu": "2" }, "limits": { "memory": "80M" } } },
    ] });
    let bench = Bench { image_volumes: false, ..Bench::configured(&configuration) };
    let (plain, _) = disks(&bench, two());
    let resources = serde_json::to_value(&plain.containers[0].resources).unwrap();
    assert_eq!(resources["limits"], json!({ "cpu": "100m", "memory": "80M" }));
    assert_eq!(resources["requests"], json!({ "cpu": "100m", "memory": "1M" }), "never above the limit");
    let mut spec = two();
    spec["domain"]["cpu"] = json!({ "dedicatedCpuPlacement": true });
    let (pinned, _) = disks(&bench, spec);
    let resources = serde_json::to_value(&pinned.containers[0].resources).unwrap();
    assert_eq!(resources["requests"], resources["limits"]);
}

#[test]
fn what_can_change_is_pulled_each_time() {
    for (reference, policy) in [
        ("cirros", "Always"),
        ("registry:5000/cirros", "Always"),
        ("cirros:latest", "Always"),
        ("registry:5000/cirros:devel", "IfNotPresent"),
        ("cirros@sha256:00", "IfNotPresent"),
    ] {
        let image = Image { volume: "v", reference, policy: None, secret: None, place: String::new() };
        assert_eq!(pull_policy(&image), policy, "{reference}");
    }
}
