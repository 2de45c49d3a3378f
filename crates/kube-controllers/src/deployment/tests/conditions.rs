use super::*;

/// A status as one plan left it.
fn with_status(mut deployment: Deployment, sets: &[ReplicaSet], at: Timestamp) -> Deployment {
    if let Some(status) = plan_at(at, &deployment, sets).status {
        deployment.status = Some(status);
    }
    deployment
}

fn minutes_ago(minutes: i64) -> Timestamp {
    now() - jiff::SignedDuration::from_mins(minutes)
}

#[test]
fn status_counts_over_all_sets() {
    let busy = json!({ "status": { "terminatingReplicas": 2 } });
    let sets = [set("a", 1, 8, 1, busy), set("b", 2, 5, 2, sized_for(10, 13))];
    let status = plan(&deployment(10, "b", json!({ "metadata": { "generation": 7 } })), &sets).status.unwrap();
    assert_eq!((status.replicas, status.updated_replicas, status.ready_replicas), (Some(13), Some(5), Some(10)));
    assert_eq!((status.available_replicas, status.terminating_replicas), (Some(10), Some(2)));
    assert_eq!(status.observed_generation, Some(7));
}

#[test]
fn available_means_no_more_missing_than_allowed() {
    for (missing, expected) in [(0, "True"), (2, "True"), (3, "False")] {
        let plan = plan(&deployment(10, "a", json!({})), &[set("a", 1, 10, missing, sized_for(10, 13))]);
        let available = condition(plan.status.as_ref().unwrap(), "Available").unwrap();
        let reason = if expected == "True" { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" };
        assert_eq!((available.status.as_str(), available.reason.as_deref()), (expected, Some(reason)), "{missing}");
    }
}

#[test]
fn a_set_that_was_there_is_found() {
    let sets = [set("a", 1, 10, 10, json!({ "status": { "replicas": 0 } }))];
    assert_eq!(
        progressing(&plan(&deployment(10, "a", json!({})), &sets)),
        ("True".into(), "FoundNewReplicaSet".into())
    );
}

#[test]
fn progress_is_noted_with_its_time() {
    let base = deployment(10, "b", json!({}));
    let before = [set("a", 1, 8, 0, sized_for(10, 13)), set("b", 2, 5, 5, sized_for(10, 13))];
    let base = with_status(base, &before, minutes_ago(5));
    let after = [set("a", 1, 8, 0, sized_for(10, 13)), set("b", 2, 5, 4, sized_for(10, 13))];
    let plan = plan(&base, &after);
    assert_eq!(progressing(&plan), ("True".into(), "ReplicaSetUpdated".into()));
    let progressing = condition(plan.status.as_ref().unwrap(), "Progressing").unwrap();
    assert_eq!(progressing.last_update_time.unwrap().0, now());
    assert_eq!(progressing.last_transition_time.unwrap().0, minutes_ago(5));
    assert_eq!(plan.recheck_after, Some(Duration::from_secs(600)));
}

#[test]
fn a_rollout_without_progress_times_out_and_stays_so() {
    let sets = [set("a", 1, 8, 0, sized_for(10, 13)), set("b", 2, 5, 5, sized_for(10, 13))];
    let waiting = with_status(deployment(10, "b", json!({})), &sets, minutes_ago(7));
    let calm = plan(&waiting, &sets);
    assert_eq!((calm.status, calm.recheck_after), (None, Some(Duration::from_mins(3))));

    let stuck = with_status(deployment(10, "b", json!({})), &sets, minutes_ago(10));
    let plan_when_stuck = plan(&stuck, &sets);
    assert_eq!(progressing(&plan_when_stuck), ("False".into(), "ProgressDeadlineExceeded".into()));
    assert_eq!(plan_when_stuck.recheck_after, None);
    let reported = with_status(stuck, &sets, now());
    assert_eq!(plan(&reported, &sets).status, None, "reported once");
}

#[test]
fn a_rollout_that_arrived_stays_arrived() {
    let done = [set("a", 1, 10, 0, sized_for(10, 13))];
    let arrived = with_status(deployment(10, "a", json!({})), &done, minutes_ago(60));
    assert_eq!(
        condition(arrived.status.as_ref().unwrap(), "Progressing").unwrap().reason.as_deref(),
        Some("NewReplicaSetAvailable")
    );
    let failing = plan(&arrived, &[set("a", 1, 10, 4, sized_for(10, 13))]);
    assert_eq!(progressing(&failing), ("True".into(), "NewReplicaSetAvailable".into()));
    assert_eq!(failing.recheck_after, None);
}

#[test]
fn a_pause_stops_the_clock_of_the_deadline() {
    let sets = [set("a", 1, 8, 0, sized_for(10, 13)), set("b", 2, 5, 5, sized_for(10, 13))];
    let mut amid = with_status(deployment(10, "b", json!({})), &sets, minutes_ago(60));
    amid.spec.as_mut().unwrap().paused = Some(true);
    let mut paused = with_status(amid, &sets, minutes_ago(59));
    let pause = condition(paused.status.as_ref().unwrap(), "Progressing").unwrap();
    assert_eq!((pause.status.as_str(), pause.reason.as_deref()), ("Unknown", Some("DeploymentPaused")));
    assert_eq!(plan(&paused, &sets), Plan { revision: Some("2".into()), ..Plan::default() });

    paused.spec.as_mut().unwrap().paused = Some(false);
    let resumed = plan(&paused, &sets);
    assert_eq!(progressing(&resumed), ("Unknown".into(), "DeploymentResumed".into()));
    assert_eq!(resumed.recheck_after, Some(Duration::from_secs(600)));
}

#[test]
fn without_a_deadline_there_is_no_progressing() {
    let sets = [set("a", 1, 8, 0, sized_for(10, 13)), set("b", 2, 5, 5, sized_for(10, 13))];
    let mut deployment = with_status(deployment(10, "b", json!({})), &sets, minutes_ago(60));
    deployment.spec.as_mut().unwrap().progress_deadline_seconds = Some(i32::MAX);
    let plan = plan(&deployment, &sets);
    assert_eq!(condition(plan.status.as_ref().unwrap(), "Progressing"), None);
    assert_eq!(plan.recheck_after, None);
}

#[test]
fn the_failure_of_a_replica_set_is_shown_until_it_is_over() {
    let failing = json!({ "status": { "conditions": [
        { "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota" }] } });
    let base = deployment(10, "a", json!({}));
    let failed = with_status(base, &[set("a", 1, 10, 3, failing)], now());
    let failure = condition(failed.status.as_ref().unwrap(), "ReplicaFailure").unwrap();
    assert_eq!((failure.reason.as_deref(), failure.message.as_deref()), (Some("FailedCreate"), Some("quota")));
    let over = plan(&failed, &[set("a", 1, 10, 3, json!({}))]).status.unwrap();
    assert_eq!(condition(&over, "ReplicaFailure"), None);
}
