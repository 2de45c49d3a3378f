//! The two built-in kinds whose versions differ: events, and horizontal pod autoscalers. All else converts by its name.

use serde_json::{Map, Value, json};

use crate::facts::{self, facts};
use crate::registry::Resource;

/// Field names of `events.k8s.io/v1` and what they are in the core group, where events are stored.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// Whether a version's form differs from the stored one.
pub(crate) fn differs(resource: &Resource, version: &str) -> bool {
    resource.group == "events.k8s.io" || (resource.group == "autoscaling" && version != resource.storage_version)
}

/// From the stored form to a version's.
pub(crate) fn from_storage(resource: &Resource, version: &str, object: &mut Value) {
    if !differs(resource, version) {
        return;
    }
    match resource.group.as_str() {
        "events.k8s.io" => {
            rename(object, EVENT_FIELDS.iter().map(|(new, old)| (*old, *new)));
            if let Some(map) = object.as_object_mut() {
                map.retain(|name, value| !name.starts_with("reporting") || value != "");
            }
        }
        _ => autoscaler_to_v1(object),
    }
}

/// From a version's form to the stored one.
pub(crate) fn to_storage(resource: &Resource, version: &str, object: &mut Value) {
    if !differs(resource, version) {
        return;
    }
    match resource.group.as_str() {
        "events.k8s.io" => rename(object, EVENT_FIELDS.into_iter()),
        _ => autoscaler_to_v2(object),
    }
}

/// Sets what the stored form has by default.
pub(crate) fn complete(resource: &Resource, object: &mut Value) {
    let kind =
        if resource.group == "events.k8s.io" { "core.v1.Event" } else { "autoscaling.v2.HorizontalPodAutoscaler" };
    if let Some(id) = facts().named(kind) {
        // It was decoded in its own version; what was renamed still fits.
        drop(facts::decode(id, object));
    }
}

/// What a field selector's name is in the stored form.
pub(crate) fn stored_field(resource: &Resource, field: &str) -> String {
    if resource.group != "events.k8s.io" {
        return field.to_owned();
    }
    match field.split_once('.') {
        Some(("regarding", rest)) => format!("involvedObject.{rest}"),
        _ if field == "reportingController" => "reportingComponent".to_owned(),
        _ => field.to_owned(),
    }
}

fn rename<'a>(object: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(map) = object.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

fn autoscaler_to_v1(object: &mut Value) {
    let is_cpu = |metric: &Value| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    if let Some(spec) = object["spec"].as_object_mut() {
        let metrics = spec.remove("metrics");
        spec.remove("behavior");
        let cpu = metrics.as_ref().and_then(Value::as_array).into_iter().flatten().find(|metric| is_cpu(metric));
        if let Some(target) = cpu.and_then(|metric| metric.pointer("/resource/target/averageUtilization")) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), target.clone());
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        let metrics = status.remove("currentMetrics");
        status.remove("conditions");
        let cpu = metrics.as_ref().and_then(Value::as_array).into_iter().flatten().find(|metric| is_cpu(metric));
        if let Some(current) = cpu.and_then(|metric| metric.pointer("/resource/current/averageUtilization")) {
            status.insert("currentCPUUtilizationPercentage".to_owned(), current.clone());
        }
    }
}

fn autoscaler_to_v2(object: &mut Value) {
    let cpu = |target: Map<String, Value>, place: &str| json!([{ "type": "Resource", "resource": { "name": "cpu", place: target } }]);
    let number = |value: Value| Map::from_iter([("averageUtilization".to_owned(), value)]);
    if let Some(spec) = object["spec"].as_object_mut()
        && let Some(target) = spec.remove("targetCPUUtilizationPercentage")
    {
        let mut target = number(target);
        target.insert("type".to_owned(), "Utilization".into());
        spec.insert("metrics".to_owned(), cpu(target, "target"));
    }
    if let Some(status) = object["status"].as_object_mut()
        && let Some(current) = status.remove("currentCPUUtilizationPercentage")
    {
        status.insert("currentMetrics".to_owned(), cpu(number(current), "current"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaler_keeps_its_target_across_versions() {
        let v1 = json!({ "spec": { "targetCPUUtilizationPercentage": 70 }, "status": {} });
        let mut object = v1.clone();
        autoscaler_to_v2(&mut object);
        assert_eq!(object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
        autoscaler_to_v1(&mut object);
        assert_eq!(object, v1);
    }

    #[test]
    fn an_event_has_two_faces() {
        let new = json!({ "note": "text", "regarding": { "name": "a" }, "reason": "r" });
        let mut object = new.clone();
        rename(&mut object, EVENT_FIELDS.into_iter());
        assert_eq!(object, json!({ "message": "text", "involvedObject": { "name": "a" }, "reason": "r" }));
        rename(&mut object, EVENT_FIELDS.iter().map(|(new, old)| (*old, *new)));
        assert_eq!(object, new);
    }
}
