use super::*;

fn in_template(changes: &Value) -> Value {
    json!({ "virtualMachineTemplate": changes })
}

#[test]
fn a_change_that_is_not_the_guests_restarts_nobody() {
    let of_vm = [
        in_template(&json!({ "metadata": { "labels": { "tier": "one" } } })),
        in_template(&json!({ "metadata": { "annotations": { "a": "c" } } })),
        in_template(&json!({ "spec": { "runStrategy": "RerunOnFailure" } })),
    ];
    for change in of_vm {
        let mut world = World::settled(pool(3, json!({ "maxUnavailable": 1 })));
        edited(&mut world, &change);
        let plan = world.plan();
        assert_eq!((plan.update.len(), plan.relabel.len()), (3, 0), "{change}");
        world.act(plan);
        let plan = world.plan();
        assert_eq!((plan.restart.len(), plan.relabel.len(), plan.forget.len()), (0, 3, 0), "{change}");
        world.act(plan);
        assert!(world.instances.iter().all(|one| revision_of(one.metadata.labels.as_ref()) == "farm-4"));
        let names = |plan: PoolPlan| plan.forget.into_iter().map(|target| target.name).collect::<Vec<_>>();
        assert_eq!(names(world.plan()), ["farm-3"], "what only the label held is forgotten");
    }
    let of_guest = [
        in_template(&json!({ "spec": { "template": { "metadata": { "labels": { "tier": "one" } } } } })),
        in_template(&json!({ "spec": { "instancetype": { "name": "large" } } })),
        in_template(&json!({ "spec": { "preference": { "name": "linux" } } })),
        another_template(),
    ];
    for change in of_guest {
        let mut world = World::settled(pool(3, json!({ "maxUnavailable": 1 })));
        edited(&mut world, &change);
        world.act(world.plan());
        assert_eq!((world.plan().restart.len(), world.plan().relabel.len()), (1, 0), "{change}");
    }
}

#[test]
fn a_guest_of_a_revision_that_nobody_knows_is_restarted() {
    let mut world = World::settled(pool(2, json!({})));
    for one in &mut world.instances {
        one.metadata.labels.as_mut().unwrap().insert(REVISION.to_owned(), "farm-1".to_owned());
    }
    assert_eq!((world.plan().restart.len(), world.plan().relabel.len()), (2, 0));
    world.settle();
}

#[test]
fn a_new_template_reaches_those_alone_that_the_strategy_selects() {
    let canary = |selectors: Value| {
        let strategy = json!({ "proactive": { "selectionPolicy": { "selectors": selectors } } });
        let mut world = World::settled(pool(4, json!({ "updateStrategy": strategy })));
        world.vms[1].metadata.labels.as_mut().unwrap().insert("canary".to_owned(), "yes".to_owned());
        let of_template = world.vms[2].spec.template.metadata.as_mut().unwrap();
        of_template.labels.get_or_insert_default().insert("canary".to_owned(), "template".to_owned());
        world.nodes.insert("node-farm-3".to_owned(), BTreeMap::from([("age".to_owned(), "5".to_owned())]));
        edited(&mut world, &another_template());
        world
    };
    let label =
        |values: Value| json!({ "matchExpressions": [{ "key": "canary", "operator": "In", "values": values }] });
    let node = json!([{ "key": "age", "operator": "Exists" }]);
    for (selectors, reached) in [
        (json!({ "labelSelector": label(json!(["yes"])) }), vec!["farm-1"]),
        (json!({ "labelSelector": label(json!(["template"])) }), vec!["farm-2"]),
        (json!({ "nodeSelectorRequirementMatcher": node }), vec!["farm-3"]),
        (json!({ "labelSelector": label(json!(["yes"])), "nodeSelectorRequirementMatcher": node }), vec![]),
        (json!({}), vec!["farm-0", "farm-1", "farm-2", "farm-3"]),
    ] {
        let plan = canary(selectors.clone()).plan();
        let mut names: Vec<&str> = plan.update.iter().map(|(target, _)| target.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, reached, "{selectors}");
    }
    // The first few have the new template, in their guests as well; the rest follow once the selectors are gone.
    let mut world = canary(json!({ "labelSelector": label(json!(["yes"])) }));
    world.settle();
    let hostnames = |world: &World| -> Vec<bool> {
        let mut all: Vec<_> = world.instances.iter().collect();
        all.sort_by_key(|one| one.metadata.name.clone());
        all.iter().map(|one| one.spec.hostname.as_deref() == Some("other")).collect()
    };
    assert_eq!(hostnames(&world), [false, true, false, false]);
    edited(&mut world, &json!({ "updateStrategy": null }));
    world.settle();
    assert_eq!(hostnames(&world), [true; 4]);
}
