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
    let metadata = json!({ "name": "web", "namespace": "shop", "labels": { "team": "a" } });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn pod(number: usize, ready: bool) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("p{number}"), "namespace": "shop", "uid": format!("u{number}"), "labels": { "app": "web" },
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

fn plan(service: &Service, pods: &[Pod], current: Option<&Endpoints>) -> Plan {
    decide(&Observed { service, pods: pods.iter().collect(), current, trigger: None })
}

fn made(service: &Service, pods: &[Pod]) -> Endpoints {
    match plan(service, pods, None) {
        Plan::Create(endpoints) => *endpoints,
        other => panic!("{other:?}"),
    }
}

fn ips(addresses: Option<&Vec<EndpointAddress>>) -> Vec<&str> {
    addresses.into_iter().flatten().map(|one| one.ip.as_str()).collect()
}

#[test]
fn pods_are_told_apart_by_whether_they_are_ready() {
    let made = made(&service(json!({})), &[pod(2, true), pod(1, true), pod(3, false)]);
    let subsets = made.subsets.unwrap();
    assert_eq!(subsets.len(), 1);
    assert_eq!(ips(subsets[0].addresses.as_ref()), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(ips(subsets[0].not_ready_addresses.as_ref()), ["10.0.0.3"]);
    let port = &subsets[0].ports.as_ref().unwrap()[0];
    assert_eq!((port.name.as_deref(), port.port, port.protocol.as_deref()), (Some("http"), 8080, Some("TCP")));
    let address = &subsets[0].addresses.as_ref().unwrap()[0];
    assert_eq!(address.node_name.as_deref(), Some("one"));
    assert_eq!(address.target_ref.as_ref().unwrap().uid.as_deref(), Some("u1"));
    let labels = made.metadata.labels.unwrap();
    assert_eq!((labels["team"].as_str(), labels[MANAGED_BY].as_str()), ("a", MANAGER));
    assert!(!labels.contains_key(HEADLESS));
}

#[test]
fn a_pod_that_goes_is_left_out_unless_the_service_wants_all() {
    let mut going = pod(1, true);
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let all = [going, pod(2, false)];
    let usual = made(&service(json!({})), &all).subsets.unwrap();
    assert_eq!((ips(usual[0].addresses.as_ref()).len(), ips(usual[0].not_ready_addresses.as_ref()).len()), (0, 1));
    let published = made(&service(json!({ "publishNotReadyAddresses": true })), &all).subsets.unwrap();
    assert_eq!(ips(published[0].addresses.as_ref()), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn the_family_is_the_first_of_the_service() {
    let made = made(&service(json!({ "ipFamilies": ["IPv6", "IPv4"] })), &[pod(1, true)]);
    assert_eq!(ips(made.subsets.unwrap()[0].addresses.as_ref()), ["fd00::1"]);
}

#[test]
fn a_service_without_an_address_says_so_and_may_have_no_ports() {
    let headless = service(json!({ "clusterIP": "None", "ports": null }));
    let made = made(&headless, &[pod(1, true)]);
    assert_eq!(made.metadata.labels.as_ref().unwrap()[HEADLESS], "");
    let subsets = made.subsets.unwrap();
    assert_eq!((ips(subsets[0].addresses.as_ref()), subsets[0].ports.as_ref()), (vec!["10.0.0.1"], None));
}

#[test]
fn ports_with_the_same_pods_are_one_subset_and_others_are_not() {
    let ports = json!([
        { "name": "a", "port": 1, "targetPort": 1, "protocol": "TCP" },
        { "name": "b", "port": 2, "targetPort": 2, "protocol": "UDP" },
        { "name": "c", "port": 3, "targetPort": "named", "protocol": "TCP" },
    ]);
    let mut named = pod(2, true);
    let container = json!({ "name": "c", "ports": [{ "name": "named", "containerPort": 7, "protocol": "TCP" }] });
    named.spec.as_mut().unwrap().containers = vec![serde_json::from_value(container).unwrap()];
    let subsets = made(&service(json!({ "ports": ports })), &[pod(1, true), named]).subsets.unwrap();
    let shown: Vec<_> = subsets
        .iter()
        .map(|one| (ips(one.addresses.as_ref()), one.ports.iter().flatten().map(|port| port.port).collect::<Vec<_>>()))
        .collect();
    assert_eq!(shown, [(vec!["10.0.0.1", "10.0.0.2"], vec![1, 2]), (vec!["10.0.0.2"], vec![7])]);
}

#[test]
fn no_pods_are_no_subsets() {
    let made = made(&service(json!({})), &[]);
    assert_eq!(made.subsets, None);
    assert_eq!(plan(&service(json!({})), &[], Some(&made)), Plan::Nothing);
}

#[test]
fn beyond_a_thousand_the_ready_ones_stay_and_it_is_said() {
    let pods: Vec<Pod> = (0..1100).map(|number| pod(number, number < 900)).collect();
    let whole = made(&service(json!({})), &pods);
    let subset = &whole.subsets.as_ref().unwrap()[0];
    assert_eq!(length(subset), (900, 100));
    assert_eq!(whole.metadata.annotations.as_ref().unwrap()[OVER_CAPACITY], "truncated");
    assert_eq!(plan(&service(json!({})), &pods, Some(&whole)), Plan::Nothing);
    let all_ready: Vec<Pod> = (0..1100).map(|number| pod(number, number < 1050)).collect();
    assert_eq!(length(&made(&service(json!({})), &all_ready).subsets.unwrap()[0]), (1000, 0));
    // Fewer again: nothing is left out, and nobody says so.
    let Plan::Update(fewer) = plan(&service(json!({})), &pods[..5], Some(&whole)) else { panic!("it has changed") };
    assert_eq!(fewer.metadata.annotations, None);
}

fn length(subset: &EndpointSubset) -> (usize, usize) {
    (ips(subset.addresses.as_ref()).len(), ips(subset.not_ready_addresses.as_ref()).len())
}

#[test]
fn what_others_noted_stays_and_the_time_of_the_trigger_is_told() {
    let mut current = made(&service(json!({})), &[]);
    current.metadata.annotations = Some([("mine".to_owned(), "yes".to_owned())].into());
    let (service, pods) = (service(json!({})), [pod(1, true)]);
    let trigger = Some("2026-01-01T00:00:05Z".parse().unwrap());
    let seen = Observed { service: &service, pods: pods.iter().collect(), current: Some(&current), trigger };
    let Plan::Update(new) = decide(&seen) else { panic!("it has changed") };
    let annotations = new.metadata.annotations.unwrap();
    assert_eq!((annotations["mine"].as_str(), annotations[TRIGGER_TIME].as_str()), ("yes", "2026-01-01T00:00:05Z"));
}

#[test]
fn endpoints_go_with_the_service_that_was_seen_to_go_or_that_they_were_written_for() {
    let mut ours = made(&service(json!({})), &[]);
    assert!(goes_with_service(&ours, false));
    ours.metadata.labels = None;
    assert!(!goes_with_service(&ours, false) && goes_with_service(&ours, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(300)))]

    /// In whatever order pods come, the object is the same; each pod is in it once; and what is there is left alone, in any
    /// order of its parts.
    #[test]
    fn each_pod_is_there_once_and_a_second_look_writes_nothing(
        states in prop::collection::vec((any::<bool>(), any::<bool>()), 0..30),
        two_ports in any::<bool>(),
    ) {
        let mut ports = vec![json!({ "name": "a", "port": 1, "targetPort": 1, "protocol": "TCP" })];
        if two_ports {
            ports.push(json!({ "name": "b", "port": 2, "targetPort": 2, "protocol": "TCP" }));
        }
        let service = service(json!({ "ports": ports }));
        let mut pods: Vec<Pod> = states.iter().enumerate().map(|(number, (ready, has_address))| {
            let mut pod = pod(number, *ready);
            if !has_address {
                pod.status.as_mut().unwrap().pod_ips = None;
            }
            pod
        }).collect();
        let first = made(&service, &pods);
        let count: usize = first.subsets.iter().flatten().map(|one| { let (a, b) = length(one); a + b }).sum();
        prop_assert_eq!(count, states.iter().filter(|(_, has_address)| *has_address).count());
        pods.reverse();
        prop_assert_eq!(&made(&service, &pods), &first);
        let mut shuffled = first;
        for subset in shuffled.subsets.iter_mut().flatten() {
            subset.ports.iter_mut().for_each(|ports| ports.reverse());
            subset.addresses.iter_mut().for_each(|addresses| addresses.reverse());
        }
        prop_assert_eq!(plan(&service, &pods, Some(&shuffled)), Plan::Nothing);
    }
}
