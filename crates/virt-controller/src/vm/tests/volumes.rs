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

#[test]
fn a_vm_waits_for_the_end_of_the_disk_of_its_predecessor() {
    let templates = json!([{ "metadata": { "name": "d" }, "spec": {} }]);
    for source in [json!({ "dataVolume": { "name": "d" } }), json!({ "persistentVolumeClaim": { "claimName": "d" } })] {
        let mut volume = source.clone();
        volume["name"] = json!("root");
        let more =
            json!({ "spec": { "dataVolumeTemplates": templates, "template": { "spec": { "volumes": [volume] } } } });
        let vm = Bench::new("Always", &more).vm;
        let made_for = |uid: &str, name: &str| -> DataVolume {
            let mut owner = json!(api::owner::controller_reference(&vm).unwrap());
            owner["uid"] = json!(uid);
            let metadata = json!({ "name": name, "uid": "u-d", "ownerReferences": [owner] });
            serde_json::from_value(json!({ "metadata": metadata, "spec": {}, "status": { "phase": "Succeeded" } }))
                .unwrap()
        };
        let at = |volume: DataVolume| Bench {
            vm: vm.clone(),
            data_volumes: vec![volume],
            ..Bench::new("Always", &json!({}))
        };
        let waits = at(made_for("u-before", "d"));
        let plan = waits.decide();
        assert!(plan.start.is_none() && plan.volumes.is_empty(), "{source}");
        let told = waits.then(&plan);
        let told = api::conditions::find(told.status.as_ref().unwrap().conditions.as_deref(), "Provisioning").unwrap();
        assert_eq!(
            told.message.as_deref(),
            Some("the DataVolume d belongs to an earlier VirtualMachine named v and is about to be deleted"),
            "{source}"
        );
        // It is gone: there is one of its own now.
        let gone = at(made_for("u-before", "another")).decide();
        assert_eq!((gone.start.is_none(), gone.volumes.len()), (true, 1), "{source}");
        assert!(at(made_for(vm.metadata.uid.as_deref().unwrap(), "d")).decide().start.is_some(), "{source}");
    }
}
