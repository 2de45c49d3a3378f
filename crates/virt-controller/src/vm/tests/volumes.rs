//! Disks that are data volumes.

use super::*;

#[test]
fn a_vm_whose_disk_is_imported_says_how_far_it_is() {
    let volumes = json!([{ "name": "root", "dataVolume": { "name": "d" } }]);
    let more = json!({ "spec": { "template": { "spec": { "volumes": volumes } } } });
    let at = |vm: VirtualMachine, status: Value| {
        let volume = json!({ "metadata": { "name": "d" }, "spec": {}, "status": status });
        let data_volumes = vec![serde_json::from_value(volume).unwrap()];
        Bench { vm, data_volumes, ..Bench::new("Always", &json!({})) }
    };
    let message = |vm: &VirtualMachine| {
        let found = api::conditions::find(vm.status.as_ref()?.conditions.as_deref(), "Provisioning")?;
        found.message.clone()
    };
    let going = |progress: &str| json!({ "phase": "ImportInProgress", "progress": progress });
    let first = at(Bench::new("Always", &more).vm, going("42.10%"));
    let plan = first.decide();
    assert_eq!((plan.start.is_none(), first.word()), (true, "Provisioning".to_owned()));
    let told = first.then(&plan);
    assert_eq!(message(&told).as_deref(), Some("the DataVolume d is being imported: 42%"));
    assert_eq!(at(told.clone(), going("42.90%")).decide().status, None, "not every percent of a percent is written");
    let next = at(told.clone(), going("43.00%"));
    assert_eq!(message(&next.then(&next.decide())).as_deref(), Some("the DataVolume d is being imported: 43%"));
    let failed = at(told, json!({ "phase": "Failed" }));
    assert_eq!(message(&failed.then(&failed.decide())), None);
}

#[test]
fn data_volumes_are_refused_by_name_where_there_are_none() {
    let templates = json!({ "spec": { "dataVolumeTemplates": [{ "metadata": { "name": "d" }, "spec": {} }] } });
    let bench = Bench::new("Always", &templates);
    let plan = bench.decide();
    assert!(plan.start.is_none() && plan.volumes.is_empty());
    assert!(plan.events[0].message.starts_with("spec.dataVolumeTemplates: this cluster has no DataVolumes"));
}
