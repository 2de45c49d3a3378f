use serde_json::{Value, json};

use super::{answer, asking, cluster, field, namespace, node, on, pod};

const NONE_OF_ONE: &str = "0/1 nodes are available: 1 ";

/// Whether a pod with `spec` can go to `target`, and that the message gives `reason` where it cannot.
fn check(target: Value, spec: Value, reason: &str, fits: bool) {
    let mut cluster = cluster(&[node("n", target)], &[]);
    let expected = if fits { "n".to_owned() } else { format!("{NONE_OF_ONE}{reason}.") };
    let pod = pod("p", field("spec", spec));
    assert_eq!(answer(&mut cluster, &pod), expected, "{pod:?}");
}

#[test]
fn without_nodes_there_is_nothing_to_choose_from() {
    assert_eq!(answer(&mut cluster(&[], &[]), &pod("p", json!({}))), "no nodes available to schedule pods");
}

#[test]
fn a_pod_that_names_its_node_goes_nowhere_else() {
    check(json!({}), json!({ "nodeName": "n" }), "", true);
    check(json!({}), json!({ "nodeName": "m" }), "node(s) didn't match the requested node name", false);
}

#[test]
fn a_cordoned_node_takes_only_pods_that_tolerate_it() {
    let cordoned = json!({ "spec": { "unschedulable": true } });
    let key = "node.kubernetes.io/unschedulable";
    let reason = "node(s) were unschedulable";
    check(cordoned.clone(), json!({}), reason, false);
    check(cordoned.clone(), json!({ "tolerations": [{ "key": key, "operator": "Exists" }] }), reason, true);
    check(cordoned, json!({ "tolerations": [{ "key": "other", "operator": "Exists" }] }), reason, false);
}

#[test]
fn a_taint_refuses_pods_that_do_not_tolerate_it() {
    for effect in ["NoSchedule", "NoExecute"] {
        let tainted = json!({ "spec": { "taints": [{ "key": "k", "value": "v", "effect": effect }] } });
        let cases = [
            (json!([]), false),
            (json!([{ "key": "k", "value": "v" }]), true),
            (json!([{ "key": "k", "operator": "Equal", "value": "w" }]), false),
            (json!([{ "key": "k", "operator": "Exists", "effect": effect }]), true),
            (json!([{ "key": "k", "operator": "Exists", "effect": "PreferNoSchedule" }]), false),
            (json!([{ "operator": "Exists" }]), true),
            (json!([{ "key": "k", "operator": "Gt", "value": "1" }]), false),
            (json!([{ "key": "l", "operator": "Exists" }]), false),
        ];
        for (tolerations, fits) in cases {
            let spec = json!({ "tolerations": tolerations });
            check(tainted.clone(), spec, "node(s) had untolerated taint(s)", fits);
        }
    }
    let soft = json!({ "spec": { "taints": [{ "key": "k", "effect": "PreferNoSchedule" }] } });
    check(soft, json!({}), "", true);
}

#[test]
fn a_node_selector_wants_all_its_labels() {
    let labelled = json!({ "metadata": { "labels": { "a": "1", "b": "2" } } });
    let reason = "node(s) didn't match Pod's node affinity/selector";
    check(labelled.clone(), json!({ "nodeSelector": { "a": "1", "b": "2" } }), reason, true);
    check(labelled.clone(), json!({ "nodeSelector": { "a": "1", "b": "3" } }), reason, false);
    check(labelled, json!({ "nodeSelector": { "c": "1" } }), reason, false);
}

fn node_affinity(terms: Value) -> Value {
    let required = field("nodeSelectorTerms", terms);
    json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
}

#[test]
fn required_node_affinity_knows_each_operator() {
    let labelled = json!({ "metadata": { "labels": { "a": "5", "b": "x" } } });
    let cases = [
        (json!({ "key": "a", "operator": "In", "values": ["4", "5"] }), true),
        (json!({ "key": "a", "operator": "In", "values": ["4"] }), false),
        (json!({ "key": "c", "operator": "In", "values": ["4"] }), false),
        (json!({ "key": "a", "operator": "In" }), false),
        (json!({ "key": "a", "operator": "NotIn", "values": ["5"] }), false),
        (json!({ "key": "c", "operator": "NotIn", "values": ["5"] }), true),
        (json!({ "key": "b", "operator": "Exists" }), true),
        (json!({ "key": "c", "operator": "Exists" }), false),
        (json!({ "key": "b", "operator": "DoesNotExist" }), false),
        (json!({ "key": "c", "operator": "DoesNotExist" }), true),
        (json!({ "key": "a", "operator": "Gt", "values": ["4"] }), true),
        (json!({ "key": "a", "operator": "Gt", "values": ["5"] }), false),
        (json!({ "key": "a", "operator": "Lt", "values": ["6"] }), true),
        (json!({ "key": "b", "operator": "Lt", "values": ["6"] }), false),
        (json!({ "key": "a", "operator": "Lt", "values": ["x"] }), false),
        (json!({ "key": "a", "operator": "Near", "values": ["5"] }), false),
    ];
    for (requirement, fits) in cases {
        let spec = node_affinity(json!([{ "matchExpressions": [requirement] }]));
        check(labelled.clone(), spec, "node(s) didn't match Pod's node affinity/selector", fits);
    }
}

#[test]
fn terms_are_alternatives_and_an_empty_one_selects_nothing() {
    let reason = "node(s) didn't match Pod's node affinity/selector";
    let absent = json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] });
    let host = json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "Exists" }] });
    check(json!({}), node_affinity(json!([absent, host])), reason, true);
    check(json!({}), node_affinity(json!([absent])), reason, false);
    check(json!({}), node_affinity(json!([{}])), reason, false);
    check(json!({}), node_affinity(json!([])), reason, false);
}

#[test]
fn affinity_by_name_picks_the_node_before_other_rules_are_asked() {
    let by_name =
        |operator: &str, name: &str| json!({ "key": "metadata.name", "operator": operator, "values": [name] });
    let mut cluster = cluster(&[node("a", json!({ "spec": { "unschedulable": true } })), node("b", json!({}))], &[]);
    let mut ask = |fields: Value| {
        answer(&mut cluster, &pod("p", json!({ "spec": node_affinity(json!([{ "matchFields": fields }])) })))
    };
    assert_eq!(ask(json!([by_name("In", "b")])), "b");
    assert_eq!(ask(json!([by_name("NotIn", "a")])), "b");
    let refused =
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) were unschedulable.";
    assert_eq!(ask(json!([by_name("In", "a")])), refused);
    let conflict = "0/2 nodes are available: pod affinity terms conflict.";
    assert_eq!(ask(json!([by_name("In", "a"), by_name("In", "b")])), conflict);
}

#[test]
fn a_node_gives_no_more_than_it_has() {
    let target = json!({ "status": { "allocatable": { "ephemeral-storage": "1Gi", "example.com/gpu": "1" } } });
    let there = on("n", asking("q", json!({ "cpu": "3500m", "memory": "1Gi" })));
    let mut cluster = cluster(&[node("n", target)], &[there]);
    let mut ask = |requests: Value| answer(&mut cluster, &asking("p", requests));
    assert_eq!(ask(json!({ "cpu": "500m", "memory": "7Gi", "ephemeral-storage": "1Gi", "example.com/gpu": 1 })), "n");
    assert_eq!(ask(json!({ "cpu": "501m" })), "0/1 nodes are available: 1 Insufficient cpu.");
    let all =
        json!({ "cpu": 1, "memory": "8Gi", "ephemeral-storage": "2Gi", "example.com/gpu": 2, "example.com/nic": 1 });
    let short = "1 Insufficient cpu, 1 Insufficient ephemeral-storage, 1 Insufficient example.com/gpu, \
                 1 Insufficient example.com/nic, 1 Insufficient memory";
    assert_eq!(ask(all), format!("0/1 nodes are available: {short}."));
}

#[test]
fn a_pod_that_asks_for_nothing_fits_on_a_full_node_as_long_as_pods_may_come() {
    let target = json!({ "status": { "allocatable": { "cpu": "1", "pods": "2" } } });
    let full = on("n", asking("q", json!({ "cpu": "2" })));
    let mut cluster = cluster(&[node("n", target)], &[full]);
    assert_eq!(answer(&mut cluster, &pod("p", json!({}))), "n");
    cluster.set_pod(&on("n", pod("r", json!({}))));
    assert_eq!(answer(&mut cluster, &pod("p", json!({}))), "0/1 nodes are available: 1 Too many pods.");
}

#[test]
fn a_host_port_is_given_once_per_address_and_protocol() {
    let ports = |port: Value| json!({ "spec": { "containers": [{ "name": "c", "ports": [port] }] } });
    let there = on("n", pod("q", ports(json!({ "containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1" }))));
    let mut cluster = cluster(&[node("n", json!({}))], &[there]);
    let cases = [
        (json!({ "containerPort": 80 }), true),
        (json!({ "containerPort": 1, "hostPort": 81 }), true),
        (json!({ "containerPort": 1, "hostPort": 80, "protocol": "UDP" }), true),
        (json!({ "containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.2" }), true),
        (json!({ "containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1" }), false),
        (json!({ "containerPort": 1, "hostPort": 80, "hostIP": "0.0.0.0" }), false),
        (json!({ "containerPort": 1, "hostPort": 80 }), false),
    ];
    for (port, fits) in cases {
        let refused = format!("{NONE_OF_ONE}node(s) didn't have free ports for the requested pod ports.");
        let expected = if fits { "n".to_owned() } else { refused };
        assert_eq!(answer(&mut cluster, &pod("p", ports(port.clone()))), expected, "{port}");
    }
}

fn in_zone(name: &str, zone: &str) -> k8s_openapi::api::core::v1::Node {
    node(name, json!({ "metadata": { "labels": { "zone": zone } } }))
}

fn app(name: &str, app: &str, kind: &str, term: Value) -> k8s_openapi::api::core::v1::Pod {
    let mut term_of_zone = json!({ "topologyKey": "zone" });
    super::lay_over(&mut term_of_zone, term);
    let affinity = json!({ kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term_of_zone] } });
    pod(name, json!({ "metadata": { "labels": { "app": app } }, "spec": { "affinity": affinity } }))
}

fn selecting(app: &str) -> Value {
    json!({ "labelSelector": { "matchLabels": { "app": app } } })
}

#[test]
fn pod_affinity_wants_a_pod_of_the_same_domain() {
    let there = on("b", pod("q", json!({ "metadata": { "labels": { "app": "db" } } })));
    let mut cluster =
        cluster(&[in_zone("a", "1"), in_zone("b", "2"), in_zone("c", "2"), node("d", json!({}))], &[there]);
    cluster
        .set_node(&node("b", json!({ "metadata": { "labels": { "zone": "2" } }, "spec": { "unschedulable": true } })));
    assert_eq!(answer(&mut cluster, &app("p", "web", "podAffinity", selecting("db"))), "c");
    let none = "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) didn't match pod affinity rules.";
    assert_eq!(answer(&mut cluster, &app("p", "web", "podAffinity", selecting("cache"))), none);
}

#[test]
fn the_first_pod_with_affinity_to_its_own_kind_may_go_anywhere_that_has_the_key() {
    let mut cluster = cluster(&[node("a", json!({})), in_zone("b", "2")], &[]);
    let first = app("p", "web", "podAffinity", selecting("web"));
    assert_eq!(answer(&mut cluster, &first), "b");
    cluster.set_pod(&on("b", first));
    cluster.set_node(&in_zone("c", "3"));
    assert_eq!(answer(&mut cluster, &app("q", "web", "podAffinity", selecting("web"))), "b");
}

#[test]
fn anti_affinity_holds_for_the_new_pod_and_for_those_that_are_there() {
    let there = on("a", app("q", "db", "podAntiAffinity", selecting("web")));
    let mut cluster = cluster(&[in_zone("a", "1"), in_zone("b", "1")], &[there]);
    let existing = "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert_eq!(answer(&mut cluster, &pod("p", json!({ "metadata": { "labels": { "app": "web" } } }))), existing);
    let own = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.";
    assert_eq!(answer(&mut cluster, &app("p", "cache", "podAntiAffinity", selecting("db"))), own);
    cluster.set_node(&in_zone("c", "2"));
    assert_eq!(answer(&mut cluster, &app("p", "cache", "podAntiAffinity", selecting("db"))), "c");
}

#[test]
fn a_term_means_pods_of_its_namespaces_only() {
    let other = json!({ "metadata": { "namespace": "other", "labels": { "app": "db" } } });
    let there = on("a", pod("q", other));
    let mut cluster = cluster(&[in_zone("a", "1")], &[there]);
    cluster.set_namespace(&namespace("other", json!({ "team": "x" })));
    let cases = [
        (json!({}), false),
        (json!({ "namespaces": ["other"] }), true),
        (json!({ "namespaces": ["third"] }), false),
        (json!({ "namespaceSelector": {} }), true),
        (json!({ "namespaceSelector": { "matchLabels": { "team": "x" } } }), true),
        (json!({ "namespaceSelector": { "matchLabels": { "team": "y" } } }), false),
    ];
    for (namespaces, fits) in cases {
        let mut term = selecting("db");
        super::lay_over(&mut term, namespaces.clone());
        let refused = format!("{NONE_OF_ONE}node(s) didn't match pod affinity rules.");
        let expected = if fits { "a".to_owned() } else { refused };
        assert_eq!(answer(&mut cluster, &app("p", "web", "podAffinity", term)), expected, "{namespaces}");
    }
}

#[test]
fn reasons_are_counted_and_sorted_as_text() {
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
    let mut nodes: Vec<_> = (0..10).map(|number| node(&format!("t{number}"), tainted.clone())).collect();
    nodes.extend([node("a", json!({})), node("b", json!({}))]);
    let text = "0/12 nodes are available: 10 node(s) had untolerated taint(s), 2 Insufficient cpu.";
    assert_eq!(answer(&mut cluster(&nodes, &[]), &asking("p", json!({ "cpu": "5" }))), text);
}
