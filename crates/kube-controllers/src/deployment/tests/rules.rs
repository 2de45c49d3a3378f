use super::*;

#[test]
fn a_first_replica_set_is_created_at_full_size() {
    let plan = plan(&deployment(10, "a", json!({ "metadata": { "annotations": { "team": "x" } } })), &[]);
    let set = plan.create.clone().unwrap();
    let name = set.metadata.name.as_deref().unwrap();
    let hash = &set.metadata.labels.as_ref().unwrap()["pod-template-hash"];
    assert_eq!(name, format!("web-{hash}"));
    let spec = set.spec.as_ref().unwrap();
    assert_eq!(&spec.selector.match_labels.as_ref().unwrap()["pod-template-hash"], hash);
    let pod_labels = spec.template.as_ref().unwrap().metadata.as_ref().unwrap().labels.as_ref().unwrap();
    assert_eq!((&pod_labels["pod-template-hash"], pod_labels["app"].as_str()), (hash, "web"));
    let owner = &set.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Deployment", "u-web", Some(true)));
    let annotations = json!(set.metadata.annotations);
    assert_eq!(
        annotations,
        json!({
            "team": "x", "deployment.kubernetes.io/revision": "1", "deployment.kubernetes.io/desired-replicas": "10",
            "deployment.kubernetes.io/max-replicas": "13",
        })
    );
    assert_eq!((created_size(&plan), plan.revision.as_deref()), (Some(10), Some("1")));
    assert_eq!(progressing(&plan), ("True".into(), "NewReplicaSetCreated".into()));
}

#[test]
fn a_new_template_starts_with_what_the_surge_leaves() {
    let plan = plan(&deployment(10, "b", json!({})), &[set("a", 1, 10, 0, sized_for(10, 13))]);
    assert_eq!(created_size(&plan), Some(3));
    assert_eq!(sizes(&plan), [("web-a", 10, 8)]);
    assert_eq!(plan.revision.as_deref(), Some("2"));
}

#[test]
fn unavailable_new_pods_stop_the_rollout() {
    let sets = [set("a", 1, 8, 0, sized_for(10, 13)), set("b", 2, 5, 5, sized_for(10, 13))];
    assert_eq!(sizes(&plan(&deployment(10, "b", json!({})), &sets)), []);
}

#[test]
fn available_new_pods_let_old_ones_go() {
    let sets = [set("a", 1, 8, 0, sized_for(10, 13)), set("b", 2, 5, 1, sized_for(10, 13))];
    assert_eq!(sizes(&plan(&deployment(10, "b", json!({})), &sets)), [("web-a", 8, 4)]);
}

#[test]
fn unhealthy_old_pods_go_first() {
    let sets = [set("a", 1, 5, 0, json!({})), set("b", 2, 5, 3, json!({})), set("c", 3, 0, 0, json!({}))];
    // Five may go (13 for c, less 8), but for c's three: the three of b that are not available, then two of a.
    let plan = plan(&deployment(10, "c", json!({})), &sets);
    assert_eq!(sizes(&plan), [("web-b", 5, 3), ("web-c", 0, 3)]);
    let eager = deployment(10, "c", json!({ "spec": { "strategy": { "rollingUpdate": { "maxUnavailable": 5 } } } }));
    assert_eq!(sizes(&super::plan(&eager, &sets)), [("web-a", 5, 3), ("web-b", 5, 2), ("web-c", 0, 3)]);
}

#[test]
fn pods_that_were_given_up_count_until_they_are_gone() {
    let mut old = set("a", 1, 10, 0, sized_for(10, 13));
    old.spec.as_mut().unwrap().replicas = Some(8);
    let sets = [old, set("b", 2, 3, 3, sized_for(10, 13))];
    assert_eq!(sizes(&plan(&deployment(10, "b", json!({})), &sets)), []);
    let unseen = json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 1 } });
    let sets = [set("a", 1, 8, 0, unseen), set("b", 2, 3, 3, json!({}))];
    assert_eq!(sizes(&plan(&deployment(10, "b", json!({})), &sets)), []);
    let sets = [set("a", 1, 8, 0, json!({})), set("b", 2, 3, 3, json!({}))];
    assert_eq!(sizes(&plan(&deployment(10, "b", json!({})), &sets)), [("web-b", 3, 5)]);
}

#[test]
fn pods_that_a_status_does_not_count_yet_are_counted() {
    let old = set("a", 1, 10, 0, json!({}));
    let pods = pods_of(&old);
    let fewer = set("a", 1, 8, 0, json!({}));
    let new = set("b", 2, 3, 3, json!({}));
    let deployment = deployment(10, "b", json!({}));
    let pods = pods.iter().collect();
    let replica_sets = vec![&fewer, &new];
    let seen = Observed { deployment: &deployment, replica_sets, pods, taken_names: BTreeSet::new() };
    assert_eq!(sizes(&decide(&seen, now()).unwrap()), []);
}

#[test]
fn a_note_of_another_size_does_not_hold_up_a_rollout() {
    let stale = set("a", 1, 4, 0, sized_for(10, 13));
    let plan = plan(&deployment(4, "b", json!({})), &[stale]);
    assert_eq!((plan.create.as_ref(), sizes(&plan)), (None, vec![]));
    assert_eq!(plan.update[0].annotations["deployment.kubernetes.io/desired-replicas"], "4");
    assert_eq!(
        created_size(&super::plan(&deployment(4, "b", json!({})), &[set("a", 1, 4, 0, sized_for(4, 7))])),
        Some(3)
    );
}

#[test]
fn a_stale_status_of_a_set_that_is_wanted_again_is_not_believed() {
    let stale = set("a", 1, 0, -10, json!({}));
    let current = set("b", 2, 10, 0, json!({}));
    let plan = plan(&deployment(10, "a", json!({})), &[stale, current]);
    assert_eq!(sizes(&plan), [("web-b", 10, 8), ("web-a", 0, 3)]);
}

#[test]
fn recreate_waits_until_the_last_old_pod_is_gone() {
    let recreate = |image: &str| {
        deployment(3, image, json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": null } } }))
    };
    let first = plan(&recreate("b"), &[set("a", 1, 3, 0, json!({}))]);
    assert_eq!((sizes(&first), first.create.as_ref()), (vec![("web-a", 3, 0)], None));
    assert_eq!(plan(&recreate("b"), &[set("a", 1, 0, 0, json!({ "status": { "replicas": 1 } }))]).create, None);

    let deployment = recreate("b");
    let mut old = set("a", 1, 1, 0, json!({}));
    let mut pods = pods_of(&old);
    old = set("a", 1, 0, 0, json!({}));
    pods[0].metadata.deletion_timestamp = Some(now().into());
    let with = |pods: &[Pod]| {
        let pods = pods.iter().collect();
        decide(
            &Observed { deployment: &deployment, replica_sets: vec![&old], pods, taken_names: BTreeSet::new() },
            now(),
        )
    };
    assert_eq!(with(&pods).unwrap().create, None, "a terminating pod still runs");
    let stranger = pods_of(&set("x", 1, 1, 0, json!({})));
    assert_eq!(created_size(&with(&stranger).unwrap()), Some(3), "another deployment's pod is no reason to wait");
    assert_eq!(created_size(&with(&[]).unwrap()), Some(3));
}

#[test]
fn orphans_are_adopted_and_strangers_released() {
    let orphan = set("a", 1, 3, 0, json!({ "metadata": { "ownerReferences": [] } }));
    let stranger = set("b", 2, 1, 0, json!({ "metadata": { "labels": { "app": "db" } } }));
    let plan = plan(&deployment(3, "a", json!({})), &[orphan, stranger]);
    assert_eq!((plan.adopt[0].target.name.as_str(), plan.adopt.len()), ("web-a", 1));
    assert_eq!((plan.release[0].target.name.as_str(), plan.release.len()), ("web-b", 1));
    assert_eq!((plan.create.as_ref(), sizes(&plan)), (None, vec![]), "the released one is left alone");
}

#[test]
fn a_name_that_another_template_has_raises_the_collision_count() {
    let mut deployment = deployment(3, "b", json!({}));
    let name = plan(&deployment, &[]).create.unwrap().metadata.name.unwrap();
    let mut other = set("a", 1, 3, 0, json!({}));
    other.metadata.name = Some(name.clone());
    let collided = plan(&deployment, std::slice::from_ref(&other));
    assert_eq!(collided.create, None);
    deployment.status = collided.status;
    assert_eq!(deployment.status.as_ref().unwrap().collision_count, Some(1));
    let second = plan(&deployment, std::slice::from_ref(&other));
    assert_ne!(second.create.unwrap().metadata.name.unwrap(), name);
    assert_eq!(second.status.unwrap().collision_count, Some(1));
}

#[test]
fn a_roll_back_makes_the_old_set_the_new_one_with_the_next_revision() {
    let sets = [set("a", 1, 0, 0, json!({})), set("b", 2, 10, 0, json!({}))];
    let plan = plan(&deployment(10, "a", json!({})), &sets);
    let update = plan.update.iter().find(|update| update.target.name == "web-a").unwrap();
    assert_eq!(update.annotations["deployment.kubernetes.io/revision"], "3");
    assert_eq!(update.annotations["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(update.resize, Some(Resize { from: 0, to: 3 }));
    assert_eq!((plan.create, plan.revision.as_deref()), (None, Some("3")));
}

#[test]
fn the_new_set_follows_annotations_and_min_ready_seconds() {
    let changes = json!({ "metadata": { "annotations": {
        "team": "y", "kubectl.kubernetes.io/last-applied-configuration": "{}" } }, "spec": { "minReadySeconds": 7 } });
    let plan = plan(&deployment(3, "a", changes), &[set("a", 1, 3, 0, sized_for(3, 6))]);
    assert_eq!(plan.update.len(), 1);
    assert_eq!(json!(plan.update[0].annotations), json!({ "team": "y" }));
    assert_eq!(plan.update[0].patch()["spec"], json!({ "minReadySeconds": 7 }));
}

#[test]
fn idle_sets_beyond_the_history_limit_are_deleted() {
    let limited = deployment(3, "d", json!({ "spec": { "revisionHistoryLimit": 1 } }));
    let done = set("d", 4, 3, 0, sized_for(3, 6));
    let busy = set("a", 1, 0, 0, json!({ "metadata": { "generation": 2 } }));
    let sets = [busy, set("b", 2, 0, 0, json!({})), set("c", 3, 0, 0, json!({})), done];
    let names = |plan: Plan| plan.delete.into_iter().map(|target| target.name).collect::<Vec<_>>();
    assert_eq!(names(plan(&limited, &sets)), ["web-b"], "a is not at rest, c is kept");
    assert_eq!(names(plan(&deployment(3, "d", json!({})), &sets)), [""; 0]);
    let rolling_out = set("d", 4, 3, 1, sized_for(3, 6));
    assert_eq!(names(plan(&limited, &[sets[1].clone(), sets[2].clone(), rolling_out])), [""; 0]);
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let paused = |replicas, image| deployment(replicas, image, json!({ "spec": { "paused": true } }));
    let sets = [set("a", 1, 10, 0, sized_for(10, 13))];
    let plan_of_new_template = plan(&paused(10, "b"), &sets);
    assert_eq!((plan_of_new_template.create.as_ref(), sizes(&plan_of_new_template)), (None, vec![]));
    assert_eq!(sizes(&plan(&paused(12, "b"), &sets)), [("web-a", 10, 12)]);
    let amid = [set("a", 1, 8, 0, sized_for(10, 13)), set("b", 2, 3, 0, sized_for(10, 13))];
    assert_eq!(sizes(&plan(&paused(10, "b"), &amid)), [], "a pause alone changes no size");
}

#[test]
fn a_resize_amid_a_rollout_is_shared_in_proportion() {
    let sets = |a, b| [set("a", 1, a, 0, sized_for(10, 13)), set("b", 2, b, 0, sized_for(10, 13))];
    let table = [
        // Twice the size, the surge stays three: 23 in all.
        (20, sets(8, 5), vec![("web-a", 8, 14), ("web-b", 5, 9)]),
        // As Kubernetes' conformance has it: 33 in all.
        (30, sets(8, 5), vec![("web-a", 8, 20), ("web-b", 5, 13)]),
        // Half of it: 8 in all.
        (5, sets(8, 5), vec![("web-a", 8, 5), ("web-b", 5, 3)]),
        // One more: the newer of two equals takes what is left over.
        (11, sets(5, 5), vec![("web-b", 5, 9)]),
        (0, sets(8, 5), vec![("web-a", 8, 0), ("web-b", 5, 0)]),
    ];
    for (replicas, sets, expected) in table {
        let plan = plan(&deployment(replicas, "b", json!({})), &sets);
        assert_eq!(sizes(&plan), expected, "{replicas}");
        for update in &plan.update {
            assert_eq!(update.annotations["deployment.kubernetes.io/desired-replicas"], replicas.to_string());
            assert_eq!(update.annotations["deployment.kubernetes.io/max-replicas"], (replicas + 3).to_string());
        }
    }
}

#[test]
fn a_resize_of_a_settled_deployment_goes_to_its_one_set() {
    let plan = plan(&deployment(4, "a", json!({})), &[set("a", 1, 10, 0, sized_for(10, 13))]);
    assert_eq!(sizes(&plan), [("web-a", 10, 4)]);
}

#[test]
fn a_deployment_that_is_being_deleted_only_counts() {
    let going = deployment(10, "b", json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } }));
    let plan = plan(&going, &[set("a", 1, 10, 0, sized_for(3, 6))]);
    assert_eq!(plan.status.as_ref().unwrap().replicas, Some(10));
    assert_eq!(plan, Plan { status: plan.status.clone(), ..Plan::default() });
}

#[test]
fn a_resize_waits_for_pods_that_an_old_set_was_told_to_give_up() {
    let strategy = json!({ "spec": { "strategy": { "rollingUpdate": { "maxSurge": 0 } } } });
    let deployment = deployment(4, "b", strategy);
    let given_up = |pods: i32| set("a", 1, 0, 0, json!({ "status": { "replicas": pods } }));
    let new = |size: i32, desired: i32| set("b", 2, size, 0, sized_for(desired, desired));
    assert_eq!(sizes(&plan(&deployment, &[given_up(1), new(2, 3)])), [("web-b", 2, 3)]);
    assert_eq!(sizes(&plan(&deployment, &[given_up(1), new(3, 4)])), []);
    assert_eq!(sizes(&plan(&deployment, &[given_up(0), new(3, 4)])), [("web-b", 3, 4)]);
    // Nobody knows yet how many pods it is making.
    let unseen = set("a", 1, 0, 0, json!({ "metadata": { "generation": 2 } }));
    assert_eq!(sizes(&plan(&deployment, &[unseen, new(2, 3)])), []);
}
