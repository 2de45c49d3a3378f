use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::source;

/// A DataVolume of this source, in this phase.
fn volume(source: &Value, phase: &str) -> DataVolume {
    let status = (!phase.is_empty()).then(|| json!({ "phase": phase }));
    let storage = json!({ "resources": { "requests": { "storage": "1Gi" } } });
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": "v", "namespace": "n", "uid": "u" },
        "spec": { "source": source, "storage": storage },
        "status": status,
    }))
    .unwrap()
}

fn web() -> Value {
    json!({ "http": { "url": "http://a/b" } })
}

fn claim(owner: &str, phase: &str, populated: &str) -> PersistentVolumeClaim {
    let owners = json!([{ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "v", "uid": owner, "controller": true }]);
    serde_json::from_value(json!({
        "metadata": { "name": "v", "namespace": "n", "ownerReferences": owners, "annotations": { POPULATED: populated } },
        "spec": { "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": phase },
    }))
    .unwrap()
}

/// A pod in this phase, whose container is in this state.
fn pod(phase: &str, state: &Value, restarts: i32) -> Pod {
    let container = json!({
        "name": "importer", "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
    });
    serde_json::from_value(json!({
        "metadata": { "name": "importer-v" }, "status": { "phase": phase, "containerStatuses": [container] },
    }))
    .unwrap()
}

fn ended(words: &str) -> Value {
    json!({ "terminated": { "exitCode": 0, "message": words } })
}

fn plan(volume: &DataVolume, claim: Option<&PersistentVolumeClaim>, pod: Option<&Pod>, gaps: Gaps<'_>) -> VolumePlan {
    let origin = source::origin(&volume.spec, "n", |_, _| None);
    decide(&Observed { claim, pod, gaps, ..seen(volume, &origin) })
}

/// A DataVolume and its origin, and nothing else.
fn seen<'a>(volume: &'a DataVolume, origin: &'a Result<Origin, OriginError>) -> Observed<'a> {
    let gaps = Gaps::default();
    let (claim, pod, original, snapshot, setback, progress) = (None, None, None, None, None, None);
    Observed { volume, origin, claim, pod, original, snapshot, taken: false, setback, gaps, progress }
}

/// A claim that a restore has made for the DataVolume.
fn restored(phase: &str, populated: &str) -> PersistentVolumeClaim {
    let mut claim = claim("x", phase, populated);
    claim.metadata.owner_references = None;
    claim.annotations_mut().insert(POPULATED_FOR.to_owned(), "v".to_owned());
    claim
}

fn phase(plan: &VolumePlan) -> String {
    plan.told.as_ref().map(|told| told.phase.to_string()).unwrap_or_default()
}

/// What is there, what is told of it, and what is done.
#[test]
fn an_import_goes_from_claim_to_pod_to_data() {
    let waiting = json!({ "waiting": { "reason": "ContainerCreating" } });
    let running = json!({ "running": {} });
    let again = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let bound = || Some(claim("u", "Bound", "false"));
    let table = [
        (None, None, "Pending", "claim"),
        (Some(claim("u", "Pending", "false")), None, "Pending", "nothing"),
        (Some(claim("x", "Bound", "false")), None, "Pending", "nothing"),
        (Some(claim("u", "Lost", "false")), None, "Failed", "nothing"),
        (bound(), None, "ImportScheduled", "pod"),
        (bound(), Some(pod("Pending", &waiting, 0)), "ImportScheduled", "nothing"),
        (bound(), Some(pod("Running", &running, 0)), "ImportInProgress", "nothing"),
        (bound(), Some(pod("Running", &again, 2)), "ImportInProgress", "nothing"),
        (bound(), Some(pod("Failed", &ended("evicted"), 0)), "ImportScheduled", "retry"),
        (bound(), Some(pod("Succeeded", &ended(DONE), 0)), "", "populate"),
        (bound(), Some(pod("Succeeded", &ended("refused: too large"), 0)), "Failed", "nothing"),
        (bound(), Some(pod("Succeeded", &ended(""), 0)), "ImportScheduled", "retry"),
        (Some(claim("u", "Bound", "true")), Some(pod("Succeeded", &ended(DONE), 0)), "Succeeded", "remove"),
        (Some(claim("u", "Bound", "true")), None, "Succeeded", "nothing"),
    ];
    for (claim, pod, told, done) in table {
        let plan = plan(&volume(&web(), ""), claim.as_ref(), pod.as_ref(), Gaps::default());
        let act = match &plan.act {
            Act::Nothing => "nothing",
            Act::CreateClaim(_) => "claim",
            Act::Populate => "populate",
            Act::CreatePod => "pod",
            Act::RemovePod => "remove",
            Act::Retry(_) => "retry",
            Act::Adopt => "adopt",
        };
        assert_eq!((phase(&plan).as_str(), act), (told, done), "{claim:?} {pod:?}");
    }
}

#[test]
fn an_empty_disk_needs_no_pod_and_its_claim_is_complete_at_once() {
    let blank = volume(&json!({ "blank": {} }), "");
    let Act::CreateClaim(made) = plan(&blank, None, None, Gaps::default()).act else { panic!("no claim") };
    assert_eq!(made.annotations()[POPULATED], "true");
    let Act::CreateClaim(made) = plan(&volume(&web(), ""), None, None, Gaps::default()).act else { panic!("no claim") };
    assert_eq!(made.annotations()[POPULATED], "false");
    assert_eq!(phase(&plan(&blank, Some(&claim("u", "Bound", "true")), None, Gaps::default())), "Succeeded");
}

#[test]
fn a_copy_waits_for_its_original_and_is_as_large() {
    let source = json!({ "pvc": { "namespace": "n", "name": "golden" } });
    let mut copy = volume(&source, "");
    copy.spec.storage.as_mut().unwrap().resources = None;
    assert_eq!(phase(&plan(&copy, None, None, Gaps::default())), "CloneScheduled");
    let (origin, original) = (source::origin(&copy.spec, "n", |_, _| None), claim("x", "Bound", "true"));
    let gaps = Gaps { class: Some("local"), ..Gaps::default() };
    let unfinished = claim("x", "Bound", "false");
    let early = Observed { original: Some(&unfinished), gaps: gaps.clone(), ..seen(&copy, &origin) };
    let told = decide(&early);
    assert_eq!((phase(&told).as_str(), told.act), ("CloneScheduled", Act::Nothing), "it would be copied empty");
    let seen = Observed { original: Some(&original), gaps: gaps.clone(), ..seen(&copy, &origin) };
    let Act::CreateClaim(made) = decide(&seen).act else { panic!("no claim") };
    let spec = made.spec.unwrap();
    assert_eq!(
        spec.data_source.map(|source| (source.kind, source.name)),
        Some(("PersistentVolumeClaim".into(), "golden".into()))
    );
    assert_eq!(spec.resources.unwrap().requests.unwrap()["storage"].0, (1_u64 << 30).to_string());
    assert_eq!(spec.storage_class_name.as_deref(), Some("local"));
    let unbound = claim("u", "Pending", "false");
    assert_eq!(phase(&decide(&Observed { claim: Some(&unbound), ..seen.clone() })), "CSICloneInProgress");
    let bound = claim("u", "Bound", "false");
    assert_eq!(decide(&Observed { claim: Some(&bound), ..seen }).act, Act::Populate);
}

#[test]
fn a_claim_that_binds_late_waits_for_whoever_uses_it_first() {
    let (unbound, late) = (claim("u", "Pending", "false"), Gaps { binds_late: true, ..Gaps::default() });
    let mut waits = volume(&web(), "");
    let told = plan(&waits, Some(&unbound), None, late.clone());
    assert_eq!((phase(&told).as_str(), told.act), ("WaitForFirstConsumer", Act::Nothing));
    waits.annotations_mut().insert(IMMEDIATE.to_owned(), String::new());
    assert_eq!(plan(&waits, Some(&unbound), None, late).act, Act::CreatePod);
}

#[test]
fn what_is_not_supported_fails_and_makes_nothing() {
    let told = plan(&volume(&json!({ "upload": {} }), ""), None, None, Gaps::default());
    assert_eq!((phase(&told).as_str(), told.act), ("Failed", Act::Nothing));
    assert!(told.told.unwrap().message.starts_with("spec.source.upload is not supported"));
    let mut sizeless = volume(&web(), "");
    sizeless.spec.storage = Some(Default::default());
    assert_eq!(phase(&plan(&sizeless, None, None, Gaps::default())), "Failed");
}

#[test]
fn a_disk_of_a_snapshot_is_as_large_as_that_and_waits_until_it_is_known() {
    let mut copy = volume(&json!({ "snapshot": { "namespace": "n", "name": "s" } }), "");
    copy.spec.storage.as_mut().unwrap().resources = None;
    let origin = source::origin(&copy.spec, "n", |_, _| None);
    assert_eq!(phase(&decide(&seen(&copy, &origin))), "CloneScheduled");
    let snapshot = |status: Value| -> VolumeSnapshot {
        let spec = json!({ "source": {} });
        let whole = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {}, "spec": spec, "status": status });
        serde_json::from_value(whole).unwrap()
    };
    let (early, ready) = (snapshot(json!({})), snapshot(json!({ "restoreSize": "2Gi" })));
    let told = decide(&Observed { snapshot: Some(&early), ..seen(&copy, &origin) });
    assert_eq!((phase(&told).as_str(), told.act), ("CloneScheduled", Act::Nothing));
    let Act::CreateClaim(made) = decide(&Observed { snapshot: Some(&ready), ..seen(&copy, &origin) }).act else {
        panic!("no claim")
    };
    assert_eq!(made.spec.unwrap().resources.unwrap().requests.unwrap()["storage"].0, (2_u64 << 30).to_string());
}

/// As a restored claim says of itself.
#[test]
fn a_claim_that_has_the_data_already_is_adopted_and_not_filled() {
    for before in ["", "Succeeded", "Failed"] {
        let told = plan(&volume(&web(), before), Some(&restored("Bound", "true")), None, Gaps::default());
        assert_eq!((phase(&told).as_str(), told.act), ("Succeeded", Act::Adopt), "{before:?}");
    }
    let mut owned = claim("u", "Bound", "true");
    owned.annotations_mut().insert(POPULATED_FOR.to_owned(), "v".to_owned());
    assert_eq!(plan(&volume(&web(), ""), Some(&owned), None, Gaps::default()).act, Act::Nothing);
    // Another one's stays another one's.
    let mut others = claim("x", "Bound", "true");
    others.annotations_mut().insert(POPULATED_FOR.to_owned(), "v".to_owned());
    let told = plan(&volume(&web(), ""), Some(&others), None, Gaps::default());
    assert_eq!((phase(&told).as_str(), told.act), ("Succeeded", Act::Nothing));
    assert_eq!(phase(&plan(&volume(&web(), ""), Some(&restored("Pending", "true")), None, Gaps::default())), "Pending");
}

#[test]
fn a_claim_that_is_being_replaced_is_not_missed() {
    for before in ["", "Succeeded", "Failed"] {
        let mut volume = volume(&web(), before);
        volume.annotations_mut().insert(PREPOPULATED.to_owned(), "v".to_owned());
        let told = plan(&volume, None, None, Gaps::default());
        assert_eq!((told.act, told.told), (Act::Nothing, None), "{before:?}");
    }
}

#[test]
fn where_restored_data_came_from_once_does_not_matter() {
    let origin = Err(OriginError::Missing { namespace: "n".to_owned(), name: "deleted".to_owned() });
    let (volume, claim) = (volume(&web(), ""), restored("Bound", "true"));
    assert_eq!(phase(&decide(&Observed { claim: Some(&claim), ..seen(&volume, &origin) })), "Succeeded");
}

#[test]
fn an_importer_that_died_or_has_no_name_is_made_later() {
    let (volume, claim) = (volume(&web(), ""), claim("u", "Bound", "false"));
    let origin = source::origin(&volume.spec, "n", |_, _| None);
    let seen = Observed { claim: Some(&claim), ..seen(&volume, &origin) };
    let plan = decide(&seen);
    assert_eq!(plan.act, Act::CreatePod);
    assert!(plan.again.is_some(), "an answer may mean another pod of its name");
    let taken = decide(&Observed { taken: true, ..seen.clone() });
    assert_eq!(taken.act, Act::Nothing);
    assert!(taken.told.unwrap().message.contains("importer-v, which belongs to somebody else"));
    let left = Duration::from_secs(7);
    let setback = Some(Setback { message: "evicted".to_owned(), left });
    let plan = decide(&Observed { setback, ..seen });
    assert_eq!((plan.act, plan.again), (Act::Nothing, Some(left)));
    assert_eq!(plan.told.unwrap().message, "evicted; another attempt follows");
}

fn of_another(populated: &str) -> PersistentVolumeClaim {
    claim("x", "Bound", populated)
}

proptest! {
    #[test]
    fn whatever_is_seen_the_guarantees_hold(
        kind in 0..6_usize,
        told in prop::sample::select(vec!["", "Pending", "ImportInProgress", "Succeeded", "Failed"]),
        owner in prop::sample::select(vec!["u", "x", "nobody"]),
        bound in prop::sample::select(vec!["Pending", "Bound", "Lost"]),
        populated in prop::sample::select(vec!["true", "false"]),
        (has_claim, meant, marked, original) in any::<(bool, bool, bool, Option<bool>)>(),
        pods in prop::sample::select(vec![None, Some("Pending"), Some("Running"), Some("Succeeded"), Some("Failed")]),
        words in prop::sample::select(vec!["", DONE, "refused: no", "broke"]),
        (binds_late, taken, too_early) in any::<(bool, bool, bool)>(),
    ) {
        let sources = [
            web(),
            json!({ "blank": {} }),
            json!({ "registry": { "url": "docker://a/b" } }),
            json!({ "snapshot": { "namespace": "n", "name": "s" } }),
            json!({ "s3": { "url": "http://a/b" } }),
            json!({ "pvc": { "namespace": "n", "name": "golden" } }),
        ];
        let mut volume = volume(&sources[kind], told);
        if marked {
            volume.annotations_mut().insert(PREPOPULATED.to_owned(), "true".to_owned());
        }
        let claim = has_claim.then(|| {
            let mut claim = claim(owner, bound, populated);
            if owner == "nobody" {
                claim.metadata.owner_references = None;
            }
            if meant {
                claim.annotations_mut().insert(POPULATED_FOR.to_owned(), "v".to_owned());
            }
            claim
        });
        let origin = source::origin(&volume.spec, "n", |_, _| None);
        let pod = pods.map(|phase| pod(phase, &ended(words), 0));
        let whole = original.map(|whole| of_another(if whole { "true" } else { "false" }));
        let seen = Observed {
            claim: claim.as_ref(),
            pod: pod.as_ref(),
            original: whole.as_ref(),
            taken,
            setback: too_early.then(|| Setback { message: "died".to_owned(), left: Duration::from_secs(1) }),
            gaps: Gaps { binds_late, ..Gaps::default() },
            ..seen(&volume, &origin)
        };
        let plan = decide(&seen);
        let imports = kind == 0 || kind == 2;
        let is_its_own = has_claim && owner == "u";
        match plan.act {
            Act::CreatePod => {
                prop_assert!(imports && is_its_own && bound == "Bound" && populated == "false" && !meant);
                prop_assert!(pod.is_none() && told != "Failed" && !taken && !too_early);
                prop_assert!(plan.again.is_some());
            }
            Act::Populate => {
                prop_assert!(is_its_own && bound == "Bound" && populated == "false");
                prop_assert!(meant || !imports || (pods == Some("Succeeded") && words == DONE));
            }
            Act::CreateClaim(_) => {
                prop_assert!(!has_claim && !marked && !matches!(told, "Succeeded" | "Failed"));
                prop_assert!(kind != 5 || original == Some(true), "nothing that is not complete is copied");
            }
            Act::Adopt => prop_assert!(has_claim && owner == "nobody" && meant && bound == "Bound"),
            Act::RemovePod => prop_assert!(pod.is_some() && populated == "true"),
            Act::Retry(_) => prop_assert!(pod.is_some() && is_its_own && populated == "false"),
            Act::Nothing => {}
        }
        let phase = plan.told.map(|told| told.phase);
        if phase == Some(Phase::Succeeded) {
            prop_assert!(has_claim && bound == "Bound" && (meant || owner == "u" && populated == "true"));
        }
        if !has_claim && marked {
            prop_assert!(phase.is_none(), "it may be about to be made again");
        }
    }
}
