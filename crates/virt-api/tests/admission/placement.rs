//! Where a guest may run, who may ask how it is, and what it is called.

use serde_json::{Value, json};

use crate::support::{Cluster, refuses, vmi};

fn spec(spec: &Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn tolerations_and_spread_follow_the_rules_of_pods() {
    let spread = |patch: Value| {
        let mut constraint = json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" });
        crate::support::merge(&mut constraint, &patch);
        spec(&json!({ "topologySpreadConstraints": [constraint] }))
    };
    let at = |name: &str| format!("spec.topologySpreadConstraints[0].{name}");
    let (skew, key, action, selector) =
        (at("maxSkew"), at("topologyKey"), at("whenUnsatisfiable"), at("labelSelector.matchExpressions[0].values"));
    let least = at("minDomains");
    let even = json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" });
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (spec(&json!({ "tolerations": [{ "operator": "Exists" }] })), &[]),
            (spec(&json!({ "tolerations": [{ "operator": "Equal" }] })), &["spec.tolerations[0].operator"]),
            (spec(&json!({ "tolerations": [{ "key": "a b", "operator": "Exists" }] })), &["spec.tolerations[0].key"]),
            (
                spec(&json!({ "tolerations": [{ "key": "a", "operator": "Exists", "value": "b" }] })),
                &["spec.tolerations[0].value"],
            ),
            (spec(&json!({ "tolerations": [{ "key": "a", "effect": "Never" }] })), &["spec.tolerations[0].effect"]),
            (
                spec(&json!({ "tolerations": [{ "key": "a", "tolerationSeconds": 3 }] })),
                &["spec.tolerations[0].effect"],
            ),
            (spread(json!({})), &[]),
            (spread(json!({ "maxSkew": 0 })), &[&skew]),
            (spread(json!({ "topologyKey": "" })), &[&key]),
            (spread(json!({ "whenUnsatisfiable": "Cry" })), &[&action]),
            (
                spread(json!({ "labelSelector": { "matchExpressions": [{ "key": "a", "operator": "In" }] } })),
                &[&selector],
            ),
            (spread(json!({ "minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway" })), &[&least]),
            (spec(&json!({ "topologySpreadConstraints": [even, even] })), &["spec.topologySpreadConstraints[1]"]),
            (spec(&json!({ "nodeSelector": { "a": "b c" } })), &["spec.nodeSelector[a]"]),
            (spec(&json!({ "evictionStrategy": "Jump" })), &["spec.evictionStrategy"]),
            (spec(&json!({ "priorityClassName": "A" })), &["spec.priorityClassName"]),
            (spec(&json!({ "terminationGracePeriodSeconds": -1 })), &["spec.terminationGracePeriodSeconds"]),
        ],
    );
}

#[test]
fn affinity_follows_the_rules_of_pods() {
    let node = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (operator, number) =
        (format!("{node}[0].matchExpressions[0].operator"), format!("{node}[0].matchExpressions[0].values"));
    let by_name = format!("{node}[0].matchFields[0]");
    let required = |terms: Value| {
        let terms = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        spec(&json!({ "affinity": { "nodeAffinity": terms } }))
    };
    let pod = "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]";
    let (weight, topology) = (format!("{pod}.weight"), format!("{pod}.podAffinityTerm.topologyKey"));
    let anti = json!([{ "weight": 0, "podAffinityTerm": { "topologyKey": "" } }]);
    let anti = json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": anti } });
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (required(json!([])), &[node]),
            (required(json!([{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }])), &[]),
            (required(json!([{ "matchExpressions": [{ "key": "a", "operator": "Near" }] }])), &[&operator]),
            (
                required(json!([{ "matchExpressions": [{ "key": "a", "operator": "Gt", "values": ["b"] }] }])),
                &[&number],
            ),
            (
                required(json!([{ "matchFields": [{ "key": "spec.name", "operator": "In", "values": ["n"] }] }])),
                &[&by_name],
            ),
            (spec(&json!({ "affinity": anti })), &[&weight, &topology]),
        ],
    );
}

#[test]
fn names_and_resolvers_are_those_of_dns() {
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (spec(&json!({ "hostname": "Bad" })), &["spec.hostname"]),
            (spec(&json!({ "subdomain": "a_b" })), &["spec.subdomain"]),
            (spec(&json!({ "dnsPolicy": "Rumour" })), &["spec.dnsPolicy"]),
            (spec(&json!({ "dnsPolicy": "None" })), &["spec.dnsConfig.nameservers"]),
            (spec(&json!({ "dnsConfig": { "nameservers": ["dns"] } })), &["spec.dnsConfig.nameservers[0]"]),
            (
                spec(&json!({ "dnsConfig": { "nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"] } })),
                &["spec.dnsConfig.nameservers"],
            ),
            (spec(&json!({ "dnsConfig": { "searches": ["a b"] } })), &["spec.dnsConfig.searches[0]"]),
            (spec(&json!({ "dnsConfig": { "options": [{}] } })), &["spec.dnsConfig.options[0].name"]),
        ],
    );
}

#[test]
fn probes_ask_in_one_way() {
    let get = json!({ "httpGet": { "port": 80 } });
    let alone =
        json!({ "networks": null, "domain": { "devices": { "interfaces": null, "autoattachPodInterface": false } } });
    let mut cut_off = alone.clone();
    cut_off["readinessProbe"] = get.clone();
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (spec(&json!({ "readinessProbe": get })), &[]),
            (spec(&json!({ "readinessProbe": {} })), &["spec.readinessProbe"]),
            (
                spec(&json!({ "livenessProbe": { "httpGet": { "port": 80 }, "guestAgentPing": {} } })),
                &["spec.livenessProbe"],
            ),
            (
                spec(&json!({ "livenessProbe": { "guestAgentPing": {}, "periodSeconds": -1 } })),
                &["spec.livenessProbe.periodSeconds"],
            ),
            (
                spec(&json!({ "livenessProbe": { "guestAgentPing": {} }, "startStrategy": "Paused" })),
                &["spec.startStrategy"],
            ),
            (spec(&json!({ "startStrategy": "Later" })), &["spec.startStrategy"]),
            (spec(&cut_off), &["spec.readinessProbe.httpGet"]),
        ],
    );
}

#[test]
fn credentials_have_one_source_and_one_way() {
    let key = |patch: Value| {
        let source = json!({ "source": { "secret": { "secretName": "s" } }, "propagationMethod": {} });
        let mut key = source;
        crate::support::merge(&mut key, &patch);
        spec(&json!({ "accessCredentials": [{ "sshPublicKey": key }] }))
    };
    let agent = |users: Value| key(json!({ "propagationMethod": { "qemuGuestAgent": { "users": users } } }));
    let at = |name: &str| format!("spec.accessCredentials[0].sshPublicKey.{name}");
    let (way, cloud, users, secret) = (
        at("propagationMethod"),
        at("propagationMethod.noCloud"),
        at("propagationMethod.qemuGuestAgent.users"),
        at("source.secret"),
    );
    refuses(
        &Cluster::new(),
        &vmi(),
        &[
            (agent(json!(["root"])), &[]),
            (agent(json!([])), &[&users]),
            (key(json!({})), &[&way]),
            (key(json!({ "propagationMethod": { "noCloud": {} } })), &[&cloud]),
            (
                key(
                    json!({ "source": { "secret": null }, "propagationMethod": { "qemuGuestAgent": { "users": ["a"] } } }),
                ),
                &[&secret],
            ),
            (spec(&json!({ "accessCredentials": [{}] })), &["spec.accessCredentials[0]"]),
        ],
    );
}
