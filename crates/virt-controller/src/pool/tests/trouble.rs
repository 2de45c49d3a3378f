use super::*;

#[test]
fn one_that_cannot_start_is_made_again_where_the_pool_heals() {
    let healing = json!({ "autohealing": { "startUpFailureThreshold": 2, "minFailingToStartDuration": "10m" } });
    let ready = |status: &str, since: &str| json!([{ "type": "Ready", "status": status, "lastTransitionTime": since }]);
    let table = [
        (json!({ "printableStatus": "Running", "conditions": ready("False", "2026-01-01T10:00:00Z") }), 0, None),
        (json!({ "printableStatus": "ErrImagePull", "conditions": ready("False", "2026-01-01T11:49:00Z") }), 1, None),
        (
            json!({ "printableStatus": "ErrImagePull", "conditions": ready("False", "2026-01-01T11:55:00Z") }),
            0,
            Some(300),
        ),
        (json!({ "startFailure": { "consecutiveFailCount": 2 } }), 1, None),
        (json!({ "startFailure": { "consecutiveFailCount": 1 } }), 0, None),
    ];
    for (status, given_up, recheck) in table {
        let mut world = World::settled(pool(2, healing.clone()));
        world.vms[0].status = serde_json::from_value(status.clone()).unwrap();
        let plan = world.plan();
        assert_eq!((plan.delete.len(), plan.create.len()), (given_up, 0), "{status}");
        assert!(plan.delete.iter().all(|one| one.why == Why::Failing));
        assert_eq!(plan.recheck_after, recheck.map(Duration::from_secs), "{status}");
        world.pool.spec.autohealing = None;
        assert_eq!(world.plan().delete, [], "nobody is given up without a strategy");
    }
}

#[test]
fn one_that_cannot_start_keeps_the_disks_that_the_pool_keeps() {
    for (preservation, kept) in
        [("Disabled", vec![]), ("Offline", vec!["root-0".to_owned()]), ("Online", vec!["root-0".to_owned()])]
    {
        let strategy = json!({ "proactive": { "statePreservation": preservation } });
        let healing = json!({ "autohealing": { "startUpFailureThreshold": 2 }, "scaleInStrategy": strategy });
        let mut world = World::settled(pool(2, healing));
        world.vms[0].status = serde_json::from_value(json!({ "startFailure": { "consecutiveFailCount": 2 } })).unwrap();
        let plan = world.plan();
        assert_eq!((plan.delete[0].why, &plan.delete[0].keeps), (Why::Failing, &kept), "{preservation}");
    }
}

#[test]
fn a_pool_that_cannot_be_acted_on_says_why() {
    let error = |changes: Value| {
        let pool = pool(1, changes);
        let seen = Observed {
            pool: &pool,
            vms: Vec::new(),
            in_use: BTreeSet::new(),
            instances: BTreeMap::new(),
            nodes: BTreeMap::new(),
            revisions: Vec::new(),
            failure: None,
        };
        decide(&seen, now()).unwrap_err().to_string()
    };
    assert_eq!(
        error(json!({ "virtualMachineTemplate": { "spec": null } })),
        "spec.virtualMachineTemplate.spec is missing"
    );
    assert!(error(json!({ "selector": { "matchLabels": { "app": "other" } } })).contains("does not match"));
}
