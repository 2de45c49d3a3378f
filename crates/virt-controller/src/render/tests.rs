use api::names::UNPAUSED_READINESS_GATE;
use serde_json::json;

use super::testing::{Bench, compute_of, vmi};
use super::*;

#[test]
fn the_usual_pod_has_one_container() {
    let pod = Bench::default().render(&vmi(json!({
        "volumes": [{ "name": "root", "containerDisk": { "image": "demo/cirros" } }, { "name": "seed", "cloudInitNoCloud": {} }],
    })));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.containers.len(), 1);
    assert!(spec.init_containers.is_none());
    assert_eq!((spec.restart_policy.as_deref(), spec.enable_service_links), (Some("Never"), Some(false)));
    assert_eq!(spec.readiness_gates.unwrap()[0].condition_type, UNPAUSED_READINESS_GATE);
}

#[test]
fn the_console_has_a_log_of_its_own_where_that_costs_no_process() {
    let mut bench = Bench::default();
    let image = "orlop.dev/output-of/compute";
    bench.launcher.console_log = Some(image.to_owned());
    let names = |bench: &Bench, devices: serde_json::Value| -> Vec<String> {
        let pod = bench.render(&vmi(json!({ "domain": { "devices": devices } })));
        let spec = pod.spec.unwrap();
        assert!(spec.containers.iter().all(|one| one.name != CONSOLE_LOG));
        spec.init_containers.into_iter().flatten().map(|one| format!("{} {}", one.name, one.image.unwrap())).collect()
    };
    assert_eq!(names(&bench, json!({})), [format!("guest-console-log {image}")]);
    assert!(names(&bench, json!({ "logSerialConsole": false })).is_empty());
    let pod = bench.render(&vmi(json!({ "domain": { "devices": {} } })));
    let resources = pod.spec.unwrap().init_containers.unwrap().remove(0).resources.unwrap();
    assert!(resources.limits.is_some() && resources.requests == resources.limits, "a Guaranteed pod stays so");
    assert!(names(&bench, json!({ "autoattachSerialConsole": false })).is_empty());
    let mut quiet = Bench::configured(&json!({ "virtualMachineOptions": { "disableSerialConsoleLog": {} } }));
    quiet.launcher.console_log = Some(image.to_owned());
    assert!(names(&quiet, json!({})).is_empty());
    assert_eq!(names(&quiet, json!({ "logSerialConsole": true })).len(), 1);
    bench.launcher.console_log = None;
    assert!(names(&bench, json!({})).is_empty(), "a process for each VM is not worth it");
}

#[test]
fn the_pod_belongs_to_its_instance() {
    let pod = Bench::default().render(&vmi(json!({})));
    let owner = &pod.metadata.owner_references.unwrap()[0];
    assert_eq!((owner.api_version.as_str(), owner.kind.as_str()), ("kubevirt.io/v1", "VirtualMachineInstance"));
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
}

#[test]
fn objects_in_the_old_version_give_the_same_pod() {
    let new = vmi(json!({}));
    let old = VirtualMachineInstance { api_version: Some("kubevirt.io/v1alpha3".into()), ..new.clone() };
    assert_eq!(Bench::default().render(&new), Bench::default().render(&old));
}

#[test]
fn the_node_waits_longer_than_the_launcher_and_it_longer_than_the_guest() {
    for (grace, pod) in [(json!(null), 60), (json!(0), 30), (json!(180), 210), (json!(-5), 30)] {
        let rendered = Bench::default().render(&vmi(json!({ "terminationGracePeriodSeconds": grace })));
        assert_eq!(rendered.spec.unwrap().termination_grace_period_seconds, Some(pod), "{grace}");
    }
}

#[test]
fn secrets_of_the_launcher_and_of_disks_are_named_once() {
    let mut bench = Bench::default();
    bench.launcher.pull_secrets = vec!["hub".into(), "own".into()];
    let pod = bench.render(&vmi(json!({
        "volumes": [{ "name": "root", "containerDisk": { "image": "demo/cirros", "imagePullSecret": "hub" } }],
    })));
    let names: Vec<String> = pod.spec.unwrap().image_pull_secrets.unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["hub", "own"]);
}

#[test]
fn an_instance_that_was_never_stored_has_no_pod() {
    let mut vmi = vmi(json!({}));
    vmi.metadata.uid = None;
    let bench = Bench::default();
    assert_eq!(render(&bench.input(&vmi)), Err(RenderError::NotStored { field: "uid" }));
}

#[test]
fn the_cluster_chooses_when_the_launcher_is_pulled() {
    let bench = Bench::configured(&json!({ "imagePullPolicy": "Always", "defaultRuntimeClass": "slim" }));
    let pod = bench.render(&vmi(json!({})));
    assert_eq!(compute_of(&pod).image_pull_policy.as_deref(), Some("Always"));
    assert_eq!(pod.spec.unwrap().runtime_class_name.as_deref(), Some("slim"));
}

#[test]
fn huge_pages_are_mounted() {
    let pod = Bench::default().render(&vmi(json!({ "domain": { "memory": { "hugepages": { "pageSize": "2Mi" } } } })));
    let compute = compute_of(&pod);
    assert!(compute.volume_mounts.iter().flatten().any(|mount| mount.mount_path == "/dev/hugepages"));
    let limits = compute.resources.as_ref().unwrap().limits.as_ref().unwrap();
    assert_eq!(limits["hugepages-2Mi"].0, "1Gi");
}

#[test]
fn a_pod_that_binds_claims_is_beside_the_launcher_and_runs_no_guest() {
    let vmi = vmi(json!({
        "volumes": [{ "name": "a", "persistentVolumeClaim": { "claimName": "fs" } }, { "name": "b", "containerDisk": { "image": "x" } }],
        "readinessProbe": { "tcpSocket": { "port": 80 } },
    }));
    let bench = Bench { image_volumes: false, ..Bench::default() };
    let (pod, launcher) = (provisioning(&bench.input(&vmi)).unwrap(), bench.render(&vmi));
    assert_ne!(pod.metadata.name, launcher.metadata.name);
    assert_eq!(pod.metadata.annotations.as_ref().unwrap()["kubevirt.io/ephemeral-provisioning"], "true");
    let compute = compute_of(&pod);
    assert_eq!((compute.command.as_ref().unwrap()[1].as_str(), &compute.args), ("--version", &None));
    assert_eq!(compute.resources, compute_of(&launcher).resources, "it must fit where the launcher will");
    let (spec, usual) = (pod.spec.as_ref().unwrap(), launcher.spec.as_ref().unwrap());
    assert_eq!((&spec.node_selector, &spec.volumes), (&usual.node_selector, &usual.volumes));
    assert!(spec.containers.len() == 1 && spec.init_containers.is_none() && spec.readiness_gates.is_none());
}
