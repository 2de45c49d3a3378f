use json_patch::merge;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
fn service(changes: Value) -> Service {
    let mut spec = json!({
        "selector": { "app": "web" }, "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"],
        "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }],
    });
    merge(&mut spec, &changes);
    let metadata = json!({ "name": "web", "namespace": "shop", "uid": "u-web", "labels": { "team": "a" } });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn pod(number: usize, ready: bool) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("p{number:04}"), "namespace": "shop", "uid": format!("u{number}"), "labels": { "app": "web" },
        },
        "spec": { "nodeName": "one", "containers": [] },
        "status": {
            "phase": "Running",
            "podIPs": [{ "ip": format!("10.0.{}.{}", number / 256, number % 256) }, { "ip": format!("fd00::{number:x}") }],
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
        },
    }))
    .unwrap()
}

fn pods(numbers: impl IntoIterator<Item = usize>) -> Vec<Pod> {
    numbers.into_iter().map(|number| pod(number, true)).collect()
}

fn seen<'a>(service: &'a Service, pods: &'a [Pod], slices: &'a [EndpointSlice], most: usize) -> Observed<'a> {
    Observed {
        service,
        pods: pods.iter().collect(),
        zones: BTreeMap::from([("one".to_owned(), Some("west".to_owned()))]),
        slices: slices.iter().collect(),
        taken_names: BTreeSet::new(),
        trigger: None,
        most,
    }
}

/// Carries out a plan, and says how many writes it took.
fn act(slices: &mut Vec<EndpointSlice>, plan: Plan) -> usize {
    let writes = plan.create.len() + plan.update.len() + plan.delete.len();
    let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap();
    slices.retain(|slice| !plan.delete.iter().any(|target| target.name == name(slice)));
    for new in plan.update {
        let old = slices.iter_mut().find(|slice| name(slice) == name(&new)).unwrap();
        assert_eq!(old.address_type, new.address_type, "the type never changes");
        *old = new;
    }
    for new in plan.create {
        assert!(!slices.iter().any(|slice| name(slice) == name(&new)), "the name is free");
        slices.push(new);
    }
    writes
}

/// All slices for these pods, from nothing.
fn settled(service: &Service, pods: &[Pod], most: usize) -> Vec<EndpointSlice> {
    let mut slices = Vec::new();
    act(&mut slices, decide(&seen(service, pods, &[], most)));
    slices
}

fn names(slice: &EndpointSlice) -> Vec<&str> {
    endpoints_of(slice).iter().filter_map(|one| one.target_ref.as_ref()?.name.as_deref()).collect()
}

#[test]
fn a_pod_is_told_of_with_all_there_is_to_say() {
    let mut named = pod(1, true);
    let spec = named.spec.as_mut().unwrap();
    (spec.hostname, spec.subdomain) = (Some("first".to_owned()), Some("web".to_owned()));
    let slices = settled(&service(json!({})), &[named], 100);
    let [slice] = slices.as_slice() else { panic!("{slices:?}") };
    assert!(slice.metadata.name.as_ref().unwrap().starts_with("web-"));
    assert_eq!(slice.metadata.generate_name.as_deref(), Some("web-"));
    let owner = &slice.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Service", "u-web", Some(true)));
    let labels = slice.metadata.labels.as_ref().unwrap();
    assert_eq!(
        (labels["team"].as_str(), labels[SERVICE_NAME].as_str(), labels[MANAGED_BY].as_str()),
        ("a", "web", MANAGER)
    );
    assert!(!labels.contains_key(HEADLESS));
    let port = &slice.ports.as_ref().unwrap()[0];
    assert_eq!((port.name.as_deref(), port.port, port.protocol.as_deref()), (Some("http"), Some(8080), Some("TCP")));
    let endpoint = &endpoints_of(slice)[0];
    assert_eq!(endpoint.addresses, ["10.0.0.1"]);
    assert_eq!((endpoint.hostname.as_deref(), endpoint.node_name.as_deref()), (Some("first"), Some("one")));
    assert_eq!((endpoint.zone.as_deref(), endpoint.hints.as_ref()), (Some("west"), None));
    let conditions = endpoint.conditions.as_ref().unwrap();
    assert_eq!((conditions.ready, conditions.serving, conditions.terminating), (Some(true), Some(true), Some(false)));
    assert_eq!(endpoint.target_ref.as_ref().unwrap().uid.as_deref(), Some("u1"));
}

#[test]
fn a_pod_that_goes_serves_but_is_not_ready_unless_the_service_wants_all() {
    let mut going = pod(1, true);
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let shown = |spec: Value, pod: &Pod| {
        let slices = settled(&service(spec), std::slice::from_ref(pod), 100);
        let conditions = endpoints_of(&slices[0])[0].conditions.clone().unwrap();
        (conditions.ready.unwrap(), conditions.serving.unwrap(), conditions.terminating.unwrap())
    };
    assert_eq!(shown(json!({}), &going), (false, true, true));
    assert_eq!(shown(json!({ "publishNotReadyAddresses": true }), &going), (true, true, true));
    assert_eq!(shown(json!({}), &pod(2, false)), (false, false, false));
}

#[test]
fn a_pod_that_has_ended_or_has_no_address_or_node_is_left_out() {
    let mut ended = pod(1, true);
    ended.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    let mut young = pod(2, false);
    young.status.as_mut().unwrap().pod_ips = None;
    let mut lost = pod(3, true);
    lost.spec.as_mut().unwrap().node_name = Some("gone".to_owned());
    let all = [ended, young, lost];
    assert!(endpoints_of(&settled(&service(json!({})), &all, 100)[0]).is_empty());
    let published = settled(&service(json!({ "publishNotReadyAddresses": true })), &all, 100);
    assert_eq!(names(&published[0]), ["p0003"]);
}

#[test]
fn each_family_has_its_slices() {
    let both = service(json!({ "ipFamilies": ["IPv6", "IPv4"] }));
    let slices = settled(&both, &pods([1]), 100);
    let shown: Vec<_> =
        slices.iter().map(|one| (one.address_type.as_str(), endpoints_of(one)[0].addresses.clone())).collect();
    assert_eq!(shown, [("IPv4", vec!["10.0.0.1".to_owned()]), ("IPv6", vec!["fd00::1".to_owned()])]);
    // One that is no longer asked for goes.
    let plan = decide(&seen(&service(json!({})), &pods([1]), &slices, 100));
    assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (0, 0, 1));
}

#[test]
fn a_service_without_pods_has_one_slice_that_says_so_and_keeps_it() {
    let service = service(json!({ "clusterIP": "None" }));
    let mut slices = settled(&service, &[], 100);
    assert_eq!((slices.len(), endpoints_of(&slices[0]).len(), slices[0].ports.as_ref().unwrap().len()), (1, 0, 0));
    assert_eq!(slices[0].metadata.labels.as_ref().unwrap()[HEADLESS], "");
    assert_eq!(decide(&seen(&service, &[], &slices, 100)), Plan::default());
    // It is the one that is filled, and that says it when there is nothing again.
    let name = slices[0].metadata.name.clone();
    for pods in [pods([1, 2]), Vec::new()] {
        let plan = decide(&seen(&service, &pods, &slices, 100));
        assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (0, 1, 0));
        act(&mut slices, plan);
        assert_eq!((slices[0].metadata.name == name, names(&slices[0]).len()), (true, pods.len()));
    }
}

#[test]
fn a_port_by_name_makes_a_slice_for_each_number() {
    let named = service(json!({ "ports": [{ "name": "http", "port": 80, "targetPort": "web", "protocol": "TCP" }] }));
    let with = |number: usize, port: i32| {
        let mut pod = pod(number, true);
        let container = json!({ "name": "c", "ports": [{ "name": "web", "containerPort": port, "protocol": "TCP" }] });
        pod.spec.as_mut().unwrap().containers = vec![serde_json::from_value(container).unwrap()];
        pod
    };
    let slices = settled(&named, &[with(1, 8080), with(2, 8080), with(3, 9090)], 100);
    let shown: Vec<_> = slices.iter().map(|one| (one.ports.as_ref().unwrap()[0].port, names(one))).collect();
    assert_eq!(shown, [(Some(8080), vec!["p0001", "p0002"]), (Some(9090), vec!["p0003"])]);
}

#[test]
fn one_more_pod_is_one_write_and_nothing_else_moves() {
    let service = service(json!({}));
    let mut slices = settled(&service, &pods(0..25), 10);
    assert_eq!(slices.iter().map(|one| endpoints_of(one).len()).collect::<Vec<_>>(), [10, 10, 5]);
    let before = slices.clone();
    assert_eq!(act(&mut slices, decide(&seen(&service, &pods(0..26), &before, 10))), 1);
    assert_eq!((&slices[0], &slices[1], endpoints_of(&slices[2]).len()), (&before[0], &before[1], 6));
    // One goes and one comes: what is written anyway takes it.
    let known = slices.clone();
    assert_eq!(act(&mut slices, decide(&seen(&service, &pods((1..26).chain([90])), &known, 10))), 1);
    assert!(names(&slices[0]).contains(&"p0090"));
    // A label of the service is a write of each.
    let mut labelled = service.clone();
    labelled.metadata.labels.as_mut().unwrap().insert("new".to_owned(), "yes".to_owned());
    let plan = decide(&seen(&labelled, &pods((1..26).chain([90])), &slices, 10));
    assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (0, 3, 0));
}

#[test]
fn what_is_near_is_hinted_at_where_it_is_asked_for() {
    let hinted = |distribution: &str| {
        let slices = settled(&service(json!({ "trafficDistribution": distribution })), &pods([1]), 100);
        endpoints_of(&slices[0])[0].hints.clone()
    };
    let zones = |hints: &EndpointHints| hints.for_zones.as_ref().map(|zones| zones[0].name.clone());
    for name in ["PreferClose", "PreferSameZone"] {
        let hints = hinted(name).unwrap();
        assert_eq!((zones(&hints).as_deref(), hints.for_nodes), (Some("west"), None), "{name}");
    }
    let hints = hinted("PreferSameNode").unwrap();
    assert_eq!((zones(&hints).as_deref(), hints.for_nodes.unwrap()[0].name.as_str()), (Some("west"), "one"));
    assert_eq!(hinted("Anywhere"), None);
}

#[test]
fn the_slices_of_a_service_of_the_same_name_go() {
    let mut old = settled(&service(json!({})), &pods([1]), 100);
    old[0].metadata.owner_references.as_mut().unwrap()[0].uid = "u-before".to_owned();
    let plan = decide(&seen(&service(json!({})), &pods([1]), &old, 100));
    assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (1, 0, 1));
    assert_ne!(plan.create[0].metadata.name, old[0].metadata.name);
}

#[test]
fn a_service_that_goes_gets_no_more_slices() {
    let mut service = service(json!({}));
    service.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(decide(&seen(&service, &pods([1]), &[], 100)), Plan::default());
}

#[test]
fn two_leaders_choose_the_same_names_and_a_taken_one_is_not_chosen() {
    let (service, pods) = (service(json!({})), pods([1]));
    let first = decide(&seen(&service, &pods, &[], 100));
    assert_eq!(first, decide(&seen(&service, &pods, &[], 100)));
    let mut taken = seen(&service, &pods, &[], 100);
    taken.taken_names.insert(first.create[0].metadata.name.clone().unwrap());
    assert_ne!(decide(&taken).create[0].metadata.name, first.create[0].metadata.name);
}

#[test]
fn the_time_of_the_trigger_is_told_in_what_is_written() {
    let (service, pods) = (service(json!({})), pods([1]));
    let mut triggered = seen(&service, &pods, &[], 100);
    triggered.trigger = Some("2026-01-01T00:00:05Z".parse().unwrap());
    let annotations = decide(&triggered).create[0].metadata.annotations.clone().unwrap();
    assert_eq!(annotations[TRIGGER_TIME], "2026-01-01T00:00:05Z");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(300)))]

    /// Whatever the pods were and are: the slices together say what there is to say, each once and in slices that are not too
    /// full; a second look writes nothing; and no more is written than there is to change.
    #[test]
    fn slices_follow_the_pods(
        before in prop::collection::btree_map(0..60_usize, any::<bool>(), 0..50),
        after in prop::collection::btree_map(0..60_usize, any::<bool>(), 0..50),
        most in 1..12_usize,
    ) {
        let service = service(json!({}));
        let all = |states: &BTreeMap<usize, bool>| -> Vec<Pod> {
            states.iter().map(|(number, ready)| pod(*number, *ready)).collect()
        };
        let mut slices = settled(&service, &all(&before), most);
        let known = slices.clone();
        let writes = act(&mut slices, decide(&seen(&service, &all(&after), &known, most)));
        let mut found: Vec<(String, bool)> = slices.iter().flat_map(endpoints_of).map(|one| {
            let ready = one.conditions.as_ref().unwrap().ready.unwrap();
            (one.target_ref.as_ref().unwrap().name.clone().unwrap(), ready)
        }).collect();
        found.sort();
        let wanted: Vec<(String, bool)> = after.iter().map(|(number, ready)| (format!("p{number:04}"), *ready)).collect();
        prop_assert_eq!(found, wanted);
        prop_assert!(slices.iter().all(|slice| endpoints_of(slice).len() <= most));
        prop_assert!(!slices.is_empty());
        prop_assert_eq!(decide(&seen(&service, &all(&after), &slices, most)), Plan::default());
        // A change of one pod is at most one write.
        let changed = before.iter().filter(|(number, ready)| after.get(number) != Some(ready)).count()
            + after.keys().filter(|number| !before.contains_key(number)).count();
        prop_assert!(writes <= changed, "{writes} writes for {changed} changes");
    }
}
