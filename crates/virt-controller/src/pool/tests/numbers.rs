//! Numbers: in names, and of what is done at one time.

use super::*;

#[test]
fn secrets_with_the_data_of_cloud_init_are_numbered_too() {
    let secrets = json!({ "secretRef": { "name": "user" }, "networkDataSecretRef": { "name": "net" } });
    let volumes =
        json!([{ "name": "a", "cloudInitNoCloud": secrets }, { "name": "b", "cloudInitConfigDrive": secrets }]);
    let template = json!({ "spec": { "template": { "spec": { "volumes": volumes } } } });
    for (appends, user, net) in [(true, "user-1", "net-1"), (false, "user", "net")] {
        let names = json!({ "appendIndexToSecretRefs": appends });
        let plan =
            World::new(pool(2, json!({ "nameGeneration": names, "virtualMachineTemplate": template.clone() }))).plan();
        let made = json!(plan.create[1].spec.template.spec.as_ref().unwrap().volumes);
        for (index, kind) in ["cloudInitNoCloud", "cloudInitConfigDrive"].into_iter().enumerate() {
            let source = &made[index][kind];
            assert_eq!(source["secretRef"]["name"], user, "{kind}");
            assert_eq!(source["networkDataSecretRef"]["name"], net, "{kind}");
        }
    }
}

/// More than that at a time would keep everybody else waiting.
#[test]
fn never_more_than_a_burst_is_made_changed_or_deleted_at_once() {
    let mut world = World::new(pool(600, json!({})));
    let mut made = Vec::new();
    while made.last() != Some(&0) {
        let plan = world.plan();
        made.push(plan.create.len());
        world.act(plan);
        world.run();
    }
    assert_eq!(made, [BURST, BURST, 100, 0]);
    edited(&mut world, &another_template());
    let plan = world.plan();
    assert_eq!((plan.update.len(), plan.restart.len(), plan.delete.len()), (BURST, 0, 0));
    // Those that were changed already are restarted within the same bound.
    world.act(plan);
    let plan = world.plan();
    assert_eq!(plan.update.len() + plan.restart.len() + plan.relabel.len(), BURST);
    world.pool.spec.replicas = Some(0);
    assert_eq!(world.plan().delete.len(), BURST);
    // Those that are given up and those that are too many are bounded each by itself.
    world.pool.spec.autohealing = serde_json::from_value(json!({ "startUpFailureThreshold": 1 })).unwrap();
    for vm in &mut world.vms {
        vm.status = serde_json::from_value(json!({ "startFailure": { "consecutiveFailCount": 1 } })).unwrap();
    }
    assert_eq!(world.plan().delete.len(), BURST);
}
