use serde_json::{Value, json};

use super::{answer, asking, cluster, info, node, on, pod};

#[test]
fn the_node_with_most_left_is_taken() {
    let mut cluster =
        cluster(&[node("a", json!({})), node("b", json!({}))], &[on("a", asking("q", json!({ "cpu": "1" })))]);
    for _ in 0..3 {
        assert_eq!(answer(&mut cluster, &asking("p", json!({ "cpu": "1", "memory": "2Gi" }))), "b");
    }
}

#[test]
fn a_pod_that_asks_for_nothing_still_counts_as_a_small_one() {
    let unsaying = |name: &str| pod(name, json!({ "spec": { "containers": [{ "name": "c" }] } }));
    let mut cluster = cluster(&[node("a", json!({})), node("b", json!({}))], &[on("b", unsaying("q"))]);
    for _ in 0..3 {
        assert_eq!(answer(&mut cluster, &unsaying("p")), "a");
    }
}

#[test]
fn a_node_whose_use_becomes_more_even_is_better() {
    // The same share is left on both, but on `a` it is all memory that is used.
    let of_memory = on("a", asking("q", json!({ "cpu": "0", "memory": "2Gi" })));
    let of_cpu = on("b", asking("r", json!({ "cpu": "1", "memory": "0" })));
    let mut cluster = cluster(&[node("a", json!({})), node("b", json!({}))], &[of_memory, of_cpu]);
    for _ in 0..3 {
        assert_eq!(answer(&mut cluster, &asking("p", json!({ "cpu": "1", "memory": "0" }))), "a");
        assert_eq!(answer(&mut cluster, &asking("p", json!({ "cpu": "0", "memory": "2Gi" }))), "b");
    }
}

#[test]
fn a_soft_taint_is_avoided_unless_tolerated() {
    let soft = json!({ "spec": { "taints": [{ "key": "k", "effect": "PreferNoSchedule" }] } });
    let mut cluster = cluster(&[node("a", soft), node("b", json!({}))], &[on("b", asking("q", json!({ "cpu": "1" })))]);
    let tolerating = json!({ "spec": { "tolerations": [{ "key": "k", "operator": "Exists" }] } });
    for _ in 0..3 {
        assert_eq!(answer(&mut cluster, &pod("p", json!({}))), "b");
        assert_eq!(answer(&mut cluster, &pod("p", tolerating.clone())), "a");
    }
}

#[test]
fn preferred_node_affinity_adds_up_its_weights() {
    let nodes = [
        node("a", json!({ "metadata": { "labels": { "x": "1" } } })),
        node("b", json!({ "metadata": { "labels": { "y": "1", "z": "1" } } })),
    ];
    let term = |weight: i32, key: &str| json!({ "weight": weight, "preference": { "matchExpressions": [{ "key": key, "operator": "Exists" }] } });
    let preferring = |terms: Value| {
        let preferred = json!({ "preferredDuringSchedulingIgnoredDuringExecution": terms });
        pod("p", json!({ "spec": { "affinity": { "nodeAffinity": preferred } } }))
    };
    let mut cluster = cluster(&nodes, &[]);
    for _ in 0..3 {
        assert_eq!(answer(&mut cluster, &preferring(json!([term(10, "x"), term(6, "y")]))), "a");
        assert_eq!(answer(&mut cluster, &preferring(json!([term(10, "x"), term(6, "y"), term(6, "z")]))), "b");
    }
}

fn drawn(name: &str, kind: &str, app: &str) -> k8s_openapi::api::core::v1::Pod {
    let term = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": app } } });
    let preferred = json!([{ "weight": 5, "podAffinityTerm": term }]);
    let affinity = json!({ kind: { "preferredDuringSchedulingIgnoredDuringExecution": preferred } });
    pod(name, json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "affinity": affinity } }))
}

#[test]
fn preferred_pod_affinity_draws_and_repels() {
    let there = on("a", pod("q", json!({ "metadata": { "labels": { "app": "db" } } })));
    let mut cluster = cluster(&[node("a", json!({})), node("b", json!({}))], &[there]);
    for _ in 0..3 {
        assert_eq!(answer(&mut cluster, &drawn("p", "podAffinity", "db")), "a");
        assert_eq!(answer(&mut cluster, &drawn("p", "podAntiAffinity", "db")), "b");
    }
}

#[test]
fn the_preferences_of_pods_that_are_there_count_too() {
    for (kind, expected) in [("podAffinity", "a"), ("podAntiAffinity", "b")] {
        let mut cluster = cluster(&[node("a", json!({})), node("b", json!({}))], &[on("a", drawn("q", kind, "new"))]);
        for _ in 0..3 {
            let new = pod("p", json!({ "metadata": { "labels": { "app": "new" } } }));
            assert_eq!(answer(&mut cluster, &new), expected, "{kind}");
        }
    }
}

#[test]
fn nodes_of_equal_score_take_turns() {
    let mut cluster = cluster(&["a", "b", "c"].map(|name| node(name, json!({}))), &[]);
    let turns: Vec<_> = (0..6).map(|_| answer(&mut cluster, &pod("p", json!({})))).collect();
    assert_eq!(turns, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn equal_pods_spread_evenly() {
    let nodes: Vec<_> = (0..5).map(|number| node(&format!("n{number}"), json!({}))).collect();
    let mut cluster = cluster(&nodes, &[]);
    let mut counts = std::collections::BTreeMap::<_, usize>::new();
    for number in 0..20 {
        let pod = asking(&format!("p{number}"), json!({ "cpu": "100m", "memory": "100Mi" }));
        let node = answer(&mut cluster, &pod);
        cluster.assume(&info(&pod), &node);
        *counts.entry(node).or_default() += 1;
    }
    assert!(counts.values().all(|count| *count == 4), "{counts:?}");
}
