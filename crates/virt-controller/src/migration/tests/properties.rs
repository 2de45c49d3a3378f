use proptest::prelude::*;

use super::*;

fn phases() -> impl Strategy<Value = &'static str> {
    let all =
        ["", "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded", "Failed"];
    prop::sample::select(all.to_vec())
}

fn states() -> impl Strategy<Value = Option<Value>> {
    let begun = json!({ "startTimestamp": at(55).to_string() });
    prop::sample::select(vec![
        None,
        Some(json!({})),
        Some(json!({ "migrationUid": "another" })),
        Some(json!({ "targetNodeAddress": "a" })),
        Some(begun.clone()),
        Some(json!({ "completed": true, "endTimestamp": at(58).to_string() })),
        Some(json!({ "completed": true, "failed": true, "endTimestamp": at(58).to_string() })),
    ])
}

proptest! {
    #[test]
    fn whatever_is_seen_the_guarantees_hold(
        phase in phases(),
        state in states(),
        has_target in any::<bool>(),
        target_phase in prop::sample::select(vec!["Pending", "Running", "Failed"]),
        same_node in any::<bool>(),
        is_cancelled in any::<bool>(),
        has_turn in any::<bool>(),
        now in 60..2000_i64,
    ) {
        let mut bench = Bench { has_turn, now, ..Bench::new(phase) };
        if has_target {
            bench = bench.target();
            let node = if same_node { "one" } else { "two" };
            edit(&mut bench.pods[1], &json!({ "spec": { "nodeName": node }, "status": { "phase": target_phase } }));
        }
        if let Some(state) = &state {
            bench = bench.state(state);
        }
        if is_cancelled {
            bench = bench.cancelled();
        }
        let plan = bench.decide();
        prop_assert_eq!(&plan, &bench.decide());
        // Nothing follows an end.
        if matches!(phase, "Succeeded" | "Failed") {
            prop_assert_eq!(bench.phase_after(), phase);
        }
        // A pod is made only in its turn, in Pending.
        prop_assert!(plan.create.is_none() || (phase == "Pending" && has_turn && !has_target && !is_cancelled));
        // Nothing is handed over to the node of the guest.
        let ours = state.as_ref().is_some_and(|state| state.get("migrationUid").is_none());
        let begun = ours && state.as_ref().is_some_and(|state| state.get("startTimestamp").is_some());
        if let Some(patch) = &plan.vmi {
            let hands_over = patch["status"]["migrationState"]["targetPod"].is_string();
            prop_assert!(!hands_over || (!same_node && target_phase == "Running" && phase == "Scheduled"));
            // Once something was sent, the handlers alone say how it ends.
            prop_assert!(!begun || patch["status"]["migrationState"].get("failed").is_none());
        }
        // A target that may have the guest is not deleted.
        if !plan.delete.is_empty() {
            let failed = state.as_ref().is_some_and(|state| state.get("failed").is_some());
            prop_assert!(phase == "Failed" && (!ours || failed));
        }
    }

    #[test]
    fn a_migration_comes_to_rest(phase in phases(), has_target in any::<bool>(), is_cancelled in any::<bool>()) {
        let mut bench = Bench::new(phase);
        if has_target {
            bench = bench.target();
        }
        if is_cancelled {
            bench = bench.cancelled();
        }
        for _ in 0..12 {
            let plan = bench.decide();
            if plan == MigrationPlan::default() || plan.create.is_some() {
                return Ok(());
            }
            bench.migration = bench.then(&plan);
            bench.migration.metadata.resource_version = Some("4".to_owned());
            if let (Some(patch), Some(vmi)) = (&plan.vmi, &bench.vmi) {
                let mut next = json!(vmi);
                merge(&mut next, patch);
                bench.vmi = Some(serde_json::from_value(next).unwrap());
            }
            bench.pods.retain(|pod| !plan.delete.iter().any(|gone| Some(&gone.uid) == pod.metadata.uid.as_ref()));
        }
        prop_assert!(false, "it never rests: {:?}", bench.decide());
    }
}
