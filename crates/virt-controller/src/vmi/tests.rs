mod marks;
mod nodes;
mod replacing;
mod targets;

use std::collections::BTreeMap;

use json_patch::merge;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use proptest::prelude::*;

use super::*;

/// An instance, its pods, and all else as in an empty cluster.
struct Bench {
    vmi: VirtualMachineInstance,
    pods: Vec<Pod>,
    claims: Vec<PersistentVolumeClaim>,
    late_binding: bool,
    asked: bool,
    failure: Option<String>,
    config: ClusterConfig,
    launcher: Launcher,
    taken_cids: BTreeSet<u32>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

impl Bench {
    fn new(phase: &str, more: &Value) -> Self {
        let mut vmi = json!({
            "metadata": {
                "name": "v", "namespace": "n", "uid": "u", "resourceVersion": "7", "finalizers": [finalizer::VMI],
            },
            "spec": { "domain": { "devices": {}, "memory": { "guest": "64Mi" } } },
            "status": { "phase": phase },
        });
        merge(&mut vmi, more);
        Self {
            vmi: serde_json::from_value(vmi).unwrap(),
            pods: Vec::new(),
            claims: Vec::new(),
            late_binding: false,
            asked: true,
            failure: None,
            config: ClusterConfig::default(),
            launcher: Launcher::new("launcher"),
            taken_cids: BTreeSet::new(),
        }
    }

    fn pod(mut self, more: &Value) -> Self {
        let (kind, version) = ("VirtualMachineInstance", "kubevirt.io/v1");
        let owner = json!({ "apiVersion": version, "kind": kind, "name": "v", "uid": "u", "controller": true });
        let mut pod = json!({
            "metadata": { "name": "virt-launcher-v", "namespace": "n", "uid": "p", "ownerReferences": [owner] },
            "spec": { "nodeName": "one", "containers": [{ "name": "compute", "image": "launcher" }] },
            "status": { "phase": "Running", "qosClass": "Burstable", "containerStatuses": [
                { "name": "compute", "ready": true, "image": "", "imageID": "", "restartCount": 0, "state": { "running": {} } },
            ] },
        });
        merge(&mut pod, more);
        self.pods.push(serde_json::from_value(pod).unwrap());
        self
    }

    fn claim(mut self, phase: &str) -> Self {
        let claim = json!({ "metadata": { "name": "data" }, "spec": { "storageClassName": "slow" }, "status": { "phase": phase } });
        self.claims.push(serde_json::from_value(claim).unwrap());
        self
    }

    fn decide(&self) -> Plan {
        let late = if self.late_binding { BTreeSet::from(["slow"]) } else { BTreeSet::new() };
        let seen = Observed {
            vmi: &self.vmi,
            pods: self.pods.iter().collect(),
            asked: self.asked,
            volumes: volumes::Known {
                claims: self.claims.iter().map(|one| (one.metadata.name.as_deref().unwrap(), one)).collect(),
                data_volumes: None,
                late_binding: late,
                default_class: None,
            },
            namespace: Namespace::default(),
            config: &self.config,
            launcher: &self.launcher,
            image_volumes: true,
            failure: self.failure.as_deref(),
            taken_cids: &self.taken_cids,
            chance: 5,
        };
        decide(&seen, at(60))
    }

    /// The instance after the plan was carried out.
    fn then(&self, plan: &Plan) -> VirtualMachineInstance {
        let mut next = json!(self.vmi);
        if let Some(change) = &plan.change {
            merge(&mut next, change);
        }
        serde_json::from_value(next).unwrap()
    }
}

fn condition(vmi: &VirtualMachineInstance, kind: &str) -> Option<(String, String)> {
    let all = vmi.status.as_ref()?.conditions.as_deref();
    let found = api::conditions::find(all, kind)?;
    Some((found.status.to_string(), found.reason.clone().unwrap_or_default()))
}

fn phase_after(bench: &Bench) -> String {
    bench.then(&bench.decide()).phase().to_string()
}

fn data() -> Value {
    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
}

#[test]
fn a_young_instance_gets_its_pod_and_nothing_is_written_for_it() {
    let plan = Bench::new("", &json!({})).decide();
    let pod = plan.create.as_ref().unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some(render::name::launcher("v", "u").as_str()));
    assert_eq!(plan, Plan { create: plan.create.clone(), ..Plan::default() });
}

/// Admission refuses it; what was stored before, or past it, is told once and then left alone.
#[test]
fn what_no_launcher_runs_gets_no_pod_and_is_at_rest() {
    for source in ["sysprep", "downwardAPI", "serviceAccount"] {
        let mut bench = Bench::new("", &json!({ "spec": { "volumes": [{ "name": "v", source: {} }] } }));
        let plan = bench.decide();
        assert_eq!((plan.create.is_none(), plan.events.len()), (true, 1), "{plan:?}");
        bench.vmi = bench.then(&plan);
        assert_eq!(condition(&bench.vmi, "Synchronized"), Some(("False".to_owned(), "FailedCreate".to_owned())));
        assert_eq!(bench.decide(), Plan::default(), "{source}");
    }
}

#[test]
fn without_its_finalizer_it_gets_that_first() {
    let bench = Bench::new("", &json!({ "metadata": { "finalizers": null } }));
    let plan = bench.decide();
    assert_eq!(plan.create, None);
    let next = bench.then(&plan);
    assert!(has_finalizer(&next));
    assert_eq!(next.phase(), &Phase::Pending);
}

#[test]
fn the_phase_follows_the_pod_until_the_hand_over() {
    let pending = json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending" } });
    let starting = json!({ "status": { "containerStatuses": [{ "name": "compute", "ready": false, "image": "", "imageID": "", "restartCount": 0 }] } });
    // Its probe asks the guest, which is not there before the hand-over.
    let probed = json!({ "status": { "containerStatuses": [{ "name": "compute", "ready": false, "image": "", "imageID": "", "restartCount": 0, "state": { "running": {} } }] } });
    let ended = json!({ "status": { "phase": "Failed" } });
    let going = json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:30Z" } });
    for (pod, phase) in [
        (&pending, "Scheduling"),
        (&starting, "Scheduling"),
        (&going, "Scheduling"),
        (&ended, "Failed"),
        (&json!({}), "Scheduled"),
        (&probed, "Scheduled"),
    ] {
        for from in ["", "Pending", "Scheduling"] {
            assert_eq!(phase_after(&Bench::new(from, &json!({})).pod(pod)), phase, "{from} {pod}");
        }
    }
    assert_eq!(phase_after(&Bench::new("Scheduling", &json!({}))), "Failed", "its pod is gone");
    for from in ["Scheduled", "Running"] {
        assert_eq!(phase_after(&Bench::new(from, &json!({})).pod(&ended)), from, "the handler tells how it ended");
        assert_eq!(phase_after(&Bench::new(from, &json!({}))), "Failed", "its pod is gone");
    }
}

#[test]
fn absence_is_asked_for_before_anything_follows_from_it() {
    for phase in ["Scheduling", "Scheduled", "Running"] {
        let bench = Bench { asked: false, ..Bench::new(phase, &json!({})) };
        assert_eq!(bench.decide(), Plan { ask: true, ..Plan::default() });
    }
    let deleted = json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:30Z" } });
    for phase in ["", "Running", "Succeeded"] {
        let bench = Bench { asked: false, ..Bench::new(phase, &deleted) };
        assert!(bench.decide().ask, "{phase}");
    }
}

#[test]
fn the_hand_over_tells_all_in_one_write() {
    let vsock = json!({ "spec": { "domain": { "devices": { "autoattachVSOCK": true } } } });
    let mut bench = Bench::new("Scheduling", &vsock).pod(&json!({}));
    bench.taken_cids = BTreeSet::from([5, 6]);
    let plan = bench.decide();
    let next = bench.then(&plan);
    assert_eq!(plan.change.as_ref().unwrap()["metadata"]["resourceVersion"], "7");
    assert_eq!(next.metadata.labels.as_ref().unwrap()[api::names::label::NODE_NAME], "one");
    let status = next.status.clone().unwrap();
    assert_eq!(status.node_name.as_deref(), Some("one"));
    assert_eq!(status.active_pods, Some(BTreeMap::from([("p".to_owned(), "one".to_owned())])));
    assert_eq!((status.runtime_user, status.vsock_cid), (Some(107), Some(7)));
    assert_eq!(status.launcher_container_image_version.as_deref(), Some("launcher"));
    assert_eq!(condition(&next, "Ready"), Some(("False".to_owned(), "GuestNotRunning".to_owned())));
    let after = Bench { vmi: next, ..bench };
    assert_eq!(after.decide(), Plan::default(), "then the handler has it");
}

#[test]
fn dedicated_cpus_need_a_guaranteed_pod() {
    let dedicated = json!({ "spec": { "domain": { "cpu": { "dedicatedCpuPlacement": true } } } });
    let bench = Bench::new("Scheduling", &dedicated).pod(&json!({}));
    assert_eq!(phase_after(&bench), "Failed");
    assert_eq!(bench.decide().events[0].reason, "FailedGuaranteeResources");
    let guaranteed = Bench::new("Scheduling", &dedicated).pod(&json!({ "status": { "qosClass": "Guaranteed" } }));
    assert_eq!(phase_after(&guaranteed), "Scheduled");
}

#[test]
fn an_image_that_does_not_come_is_told_once() {
    let waiting = json!({ "status": { "phase": "Pending", "containerStatuses": [{
        "name": "compute", "ready": false, "image": "", "imageID": "", "restartCount": 0,
        "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } },
    }] } });
    let bench = Bench::new("Scheduling", &json!({})).pod(&waiting);
    let plan = bench.decide();
    assert_eq!(plan.events[0].reason, "ImagePullBackOff");
    let next = bench.then(&plan);
    assert_eq!(condition(&next, "Synchronized"), Some(("False".to_owned(), "ImagePullBackOff".to_owned())));
    assert_eq!(Bench { vmi: next, ..bench }.decide(), Plan::default());
}

#[test]
fn claims_must_be_there_and_bound_or_wait_for_the_pod() {
    let missing = Bench::new("", &data());
    let plan = missing.decide();
    assert_eq!((plan.create.is_none(), plan.events[0].reason), (true, "FailedPvcNotFound"));
    let next = missing.then(&plan);
    assert_eq!(condition(&next, "Synchronized"), Some(("False".to_owned(), "FailedPvcNotFound".to_owned())));
    assert_eq!(condition(&next, "PodScheduled"), Some(("False".to_owned(), "Unschedulable".to_owned())));

    let unbound = Bench { vmi: next, ..Bench::new("", &data()) }.claim("Pending");
    let next = unbound.then(&unbound.decide());
    assert_eq!(condition(&next, "Provisioning").unwrap().0, "True");
    assert_eq!((condition(&next, "Synchronized"), condition(&next, "PodScheduled")), (None, None));
    let late = Bench { late_binding: true, ..Bench::new("", &data()) }.claim("Pending");
    assert!(late.decide().create.is_some(), "the pod is who it waits for");
    let bound = Bench { vmi: next, ..Bench::new("", &data()) }.claim("Bound");
    assert!(bound.decide().create.is_some());
}

#[test]
fn a_failed_creation_is_told_and_tried_again() {
    let bench = Bench { failure: Some("quota".to_owned()), ..Bench::new("Pending", &json!({})) };
    let plan = bench.decide();
    assert!(plan.create.is_some());
    assert_eq!(condition(&bench.then(&plan), "Synchronized"), Some(("False".to_owned(), "FailedCreate".to_owned())));
}

#[test]
fn what_nobody_can_render_is_told_by_its_field() {
    let bench =
        Bench::new("", &json!({ "spec": { "volumes": [{ "name": "v", "memoryDump": { "claimName": "data" } }] } }));
    let plan = bench.decide();
    assert_eq!((plan.create.is_none(), plan.events[0].reason), (true, "FailedCreate"));
    assert!(plan.events[0].message.starts_with("spec.volumes[0].memoryDump"), "{:?}", plan.events);
}

#[test]
fn the_gate_tells_whether_the_guest_is_paused() {
    let paused = json!({ "status": { "conditions": [{ "type": "Paused", "status": "True" }] } });
    let gate = |bench: &Bench| bench.decide().gate.map(|(_, condition)| condition.status);
    assert_eq!(gate(&Bench::new("Scheduled", &json!({})).pod(&json!({}))), None);
    assert_eq!(gate(&Bench::new("Running", &json!({})).pod(&json!({}))).as_deref(), Some("True"));
    assert_eq!(gate(&Bench::new("Running", &paused).pod(&json!({}))).as_deref(), Some("False"));
    let told =
        json!({ "status": { "conditions": [{ "type": api::names::UNPAUSED_READINESS_GATE, "status": "True" }] } });
    assert_eq!(gate(&Bench::new("Running", &json!({})).pod(&told)), None);
}

#[test]
fn an_instance_goes_after_its_pods() {
    let deleted = json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:30Z" } });
    let live = Bench::new("Running", &deleted).pod(&json!({}));
    let plan = live.decide();
    assert_eq!(
        plan.delete,
        [Deletion {
            target: Target { name: "virt-launcher-v".to_owned(), uid: "p".to_owned() },
            grace: None,
            version: None
        }]
    );
    assert!(has_finalizer(&live.then(&plan)));
    let going = Bench::new("Running", &deleted).pod(&deleted);
    assert!(going.decide().delete.is_empty() && has_finalizer(&going.then(&going.decide())));
    for (from, to) in [("", "Failed"), ("Running", "Failed"), ("Succeeded", "Succeeded")] {
        let gone = Bench::new(from, &deleted);
        let next = gone.then(&gone.decide());
        assert!(!has_finalizer(&next));
        assert_eq!(next.phase().to_string(), to);
    }
}

#[test]
fn the_pod_of_an_instance_that_ended_stays() {
    let bench = Bench::new("Succeeded", &json!({})).pod(&json!({ "status": { "phase": "Succeeded" } }));
    let plan = bench.decide();
    assert!(plan.delete.is_empty());
    let next = bench.then(&plan);
    assert_eq!(Bench { vmi: next, ..bench }.decide(), Plan::default());
}

fn any_pod() -> impl Strategy<Value = Option<Value>> {
    let phases = prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed"]);
    prop::option::of((phases, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(phase, ready, going, bound)| {
        let mut pod = json!({ "status": { "phase": phase, "containerStatuses": [
            { "name": "compute", "ready": ready, "image": "", "imageID": "", "restartCount": 0 },
        ] } });
        if going {
            pod["metadata"] = json!({ "deletionTimestamp": "1970-01-01T00:00:30Z" });
        }
        if !bound {
            pod["spec"] = json!({ "nodeName": null });
        }
        pod
    }))
}

/// How far a phase is; it never goes back.
fn rank(phase: &Phase) -> u8 {
    match phase {
        Phase::Unset => 0,
        Phase::Pending => 1,
        Phase::Scheduling => 2,
        Phase::Scheduled => 3,
        Phase::Running => 4,
        _ => 5,
    }
}

proptest! {
    #[test]
    fn whatever_is_seen_the_plan_is_safe_and_comes_to_rest(
        phase in prop::sample::select(vec!["", "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed"]),
        pod in any_pod(), deleted: bool, finalizer: bool, paused: bool, asked: bool,
        claim in prop::option::of(prop::sample::select(vec!["Pending", "Bound", "Lost"])), late_binding: bool,
    ) {
        let mut more = data();
        if deleted {
            more["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        }
        if !finalizer {
            more["metadata"]["finalizers"] = Value::Null;
        }
        if paused {
            more["status"] = json!({ "conditions": [{ "type": "Paused", "status": "True" }] });
        }
        let mut bench = Bench { late_binding, asked, ..Bench::new(phase, &more) };
        if let Some(pod) = &pod {
            bench = bench.pod(pod);
        }
        if let Some(claim) = claim {
            bench = bench.claim(claim);
        }
        let plan = bench.decide();
        prop_assert_eq!(&plan, &bench.decide(), "equal observations give equal plans");
        let next = bench.then(&plan);
        prop_assert!(rank(next.phase()) >= rank(bench.vmi.phase()));
        prop_assert!(!(bench.vmi.is_final() && next.phase() != bench.vmi.phase()));
        if plan.create.is_some() {
            prop_assert!(pod.is_none() && !deleted && finalizer && rank(bench.vmi.phase()) <= 1);
        }
        if pod.is_some() || !asked {
            prop_assert_eq!(has_finalizer(&next), has_finalizer(&bench.vmi) || (!deleted && rank(next.phase()) == 1));
        }
        // Carried out, and nothing else happens: it comes to rest, unless it waits for what was asked for.
        let mut rested = Bench { vmi: next, ..bench };
        for _ in 0..2 {
            let next = rested.then(&rested.decide());
            rested.vmi = next;
        }
        let last = rested.decide();
        prop_assert_eq!((last.change, last.events), (None, Vec::new()));
    }
}
