//! Presets: what a new instance takes over from those that match its labels.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Cluster, changed, create, denied, domain, fields, refuses, stored, vmi};

const EXCLUDE: &str = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";

fn preset() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstancePreset",
        "metadata": { "name": "small" },
        "spec": {
            "selector": { "matchLabels": { "size": "small" } },
            "domain": { "devices": {}, "resources": { "requests": { "memory": "64Mi" } } },
        },
    })
}

/// The settings for instances of a size.
fn settings(size: &str, domain: &Value) -> Value {
    let mut whole = json!({ "devices": {} });
    crate::support::merge(&mut whole, domain);
    json!({ "selector": { "matchLabels": { "size": size } }, "domain": whole })
}

fn labelled(size: &str) -> Value {
    changed(&vmi(), &json!({ "metadata": { "labels": { "size": size } } }))
}

fn made(cluster: &Cluster, instance: &Value) -> Value {
    stored(create(cluster, instance), instance)
}

fn mark(instance: &Value, name: &str) -> Value {
    instance["metadata"]["annotations"][format!("virtualmachinepreset.kubevirt.io/{name}")].clone()
}

#[test]
fn a_preset_is_admitted_with_a_warning_if_it_can_be_of_use() {
    let response = create(&Cluster::new(), &preset());
    assert_eq!(response.warnings, ["VirtualMachineInstancePreset is deprecated; use a VirtualMachinePreference"]);
    assert_eq!(stored(response, &preset()), preset());
    refuses(
        &Cluster::new(),
        &preset(),
        &[
            (json!({ "spec": null }), &["spec"]),
            (json!({ "spec": { "domain": null } }), &["spec.domain"]),
            (
                json!({ "spec": { "selector": { "matchExpressions": [{ "key": "a", "operator": "Near" }] } } }),
                &["spec.selector.matchExpressions[0].operator"],
            ),
        ],
    );
}

#[test]
fn an_instance_that_matches_takes_over_what_it_does_not_say_itself() {
    let cores = json!({ "cpu": { "cores": 4 }, "devices": { "watchdog": { "name": "dog", "i6300esb": {} } } });
    let cluster = Cluster::new().preset("cores", &settings("large", &cores));
    let instance = made(&cluster, &labelled("large"));
    assert_eq!(instance["spec"]["domain"]["cpu"]["cores"], 4);
    assert_eq!(instance["spec"]["domain"]["devices"]["watchdog"]["name"], "dog");
    assert_eq!(mark(&instance, "cores"), "kubevirt.io/v1");
    // Another size is another matter.
    let other = made(&cluster, &labelled("small"));
    assert_eq!((other["spec"]["domain"]["cpu"]["cores"].clone(), mark(&other, "cores")), (json!(1), Value::Null));
    // What it says itself stays, and a preset of which nothing was taken over is not named.
    let own = changed(
        &labelled("large"),
        &domain(&json!({ "cpu": { "cores": 2 }, "devices": { "watchdog": { "name": "w", "i6300esb": {} } } })),
    );
    let own = made(&cluster, &own);
    assert_eq!((own["spec"]["domain"]["cpu"]["cores"].clone(), mark(&own, "cores")), (json!(2), Value::Null));
}

#[test]
fn an_instance_is_checked_with_what_it_took_over() {
    let cluster = Cluster::new().preset(
        "odd",
        &settings(
            "odd",
            &json!({ "cpu": { "cores": 4, "dedicatedCpuPlacement": true, "numa": { "guestMappingPassthrough": {} } } }),
        ),
    );
    assert_ne!(fields(create(&cluster, &labelled("odd"))), [""; 0]);
    assert_eq!(fields(create(&cluster, &labelled("plain"))), [""; 0]);
}

#[test]
fn presets_that_contradict_each_other_are_not_applied_and_the_instance_is_refused() {
    let cluster = Cluster::new()
        .preset("two", &settings("x", &json!({ "cpu": { "cores": 2 } })))
        .preset("four", &settings("x", &json!({ "cpu": { "cores": 4 } })));
    let denial = denied(create(&cluster, &labelled("x")));
    assert!(denial.message.contains("the presets \"four\" and \"two\" match this instance"), "{denial}");
    assert!(denial.message.contains(EXCLUDE), "{denial}");
    // Whoever wants none of it says so.
    let excluded = changed(&labelled("x"), &json!({ "metadata": { "annotations": { EXCLUDE: "true" } } }));
    let excluded = made(&cluster, &excluded);
    assert_eq!((excluded["spec"]["domain"]["cpu"]["cores"].clone(), mark(&excluded, "two")), (json!(1), Value::Null));
}

fn any_settings() -> impl Strategy<Value = Value> {
    let parts = vec![
        json!({ "cpu": { "cores": 2 } }),
        json!({ "cpu": { "cores": 4 } }),
        json!({ "features": { "acpi": {} } }),
        json!({ "clock": { "utc": {} } }),
        json!({ "clock": { "timezone": "Europe/Berlin", "timer": { "hpet": { "present": false } } } }),
        json!({ "resources": { "requests": { "memory": "64Mi" } } }),
        json!({ "resources": { "requests": { "memory": "32Mi", "cpu": "1" } } }),
        json!({ "ioThreadsPolicy": "shared" }),
        json!({ "firmware": { "serial": "a" } }),
    ];
    let count = parts.len();
    (proptest::sample::subsequence(parts, 0..=count), prop_oneof![Just("small"), Just("large")]).prop_map(
        |(parts, size)| {
            let mut whole = json!({});
            parts.iter().for_each(|part| crate::support::merge(&mut whole, part));
            settings(size, &whole)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(200)))]

    /// Whatever presets there are: their order makes no difference, what an instance says itself stays, and one that was
    /// admitted is admitted unchanged the second time.
    #[test]
    fn the_order_of_presets_makes_no_difference(all in prop::collection::vec(any_settings(), 0..4), own in any_settings()) {
        let cluster = |order: &mut dyn Iterator<Item = (usize, &Value)>| {
            order.fold(Cluster::new(), |cluster, (number, spec)| cluster.preset(&format!("p{number}"), spec))
        };
        let instance = changed(&labelled("small"), &domain(&own["domain"]));
        let forth = create(&cluster(&mut all.iter().enumerate()), &instance);
        let back = create(&cluster(&mut all.iter().enumerate().rev()), &instance);
        prop_assert_eq!(&forth, &back);
        if let Ok(changed) = forth.outcome {
            let made = changed.unwrap_or(instance);
            let cores = &own["domain"]["cpu"]["cores"];
            prop_assert!(cores.is_null() || &made["spec"]["domain"]["cpu"]["cores"] == cores);
            let again = create(&cluster(&mut all.iter().enumerate()), &made);
            prop_assert_eq!(again.outcome, Ok(None));
        }
    }
}
