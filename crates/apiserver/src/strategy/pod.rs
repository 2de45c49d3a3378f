//! Pods: they start Pending, end gracefully, and run what they were made with.

mod containers;
mod rules;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use structural::FieldError;

use super::{Strategy, forbidden, member};

pub(super) struct Pod;

impl Strategy for Pod {
    fn prepare_create(&self, object: &mut Value) {
        let class = quality_of_service(object);
        object["status"] = json!({ "phase": "Pending", "qosClass": class });
        // The priority of a pod without a class, where no class is the default.
        if let Some(spec) = member(object, "spec") {
            spec.entry("priority").or_insert(json!(0));
            spec.entry("preemptionPolicy").or_insert(json!("PreemptLowerPriority"));
        }
        add_default_tolerations(object);
    }

    fn prepare_update(&self, old: &Value, new: &mut Value, subresource: Option<&str>) {
        if subresource.is_none() {
            // What was added on creation need not be repeated.
            for field in ["priority", "preemptionPolicy"] {
                if new["spec"].get(field).is_none() {
                    put_back(&mut new["spec"], &old["spec"], field);
                }
            }
            add_default_tolerations(new);
        }
        if subresource == Some("ephemeralcontainers") {
            // Nothing else comes this way.
            let sent = std::mem::replace(new, old.clone());
            new["metadata"]["resourceVersion"] = sent["metadata"]["resourceVersion"].clone();
            put_back(&mut new["spec"], &sent["spec"], "ephemeralContainers");
        }
        if subresource == Some("status") {
            // It follows from the spec, whatever the client says or leaves out.
            put_back(&mut new["status"], &old["status"], "qosClass");
            new["metadata"]["ownerReferences"] = old["metadata"]["ownerReferences"].clone();
            if new["metadata"]["ownerReferences"].is_null()
                && let Some(metadata) = member(new, "metadata")
            {
                metadata.remove("ownerReferences");
            }
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        rules::check(&object["spec"])
    }

    fn validate_update(&self, old: &Value, new: &Value, subresource: Option<&str>) -> Vec<FieldError> {
        // What was there before there were rules may stay, and must be able to go.
        let mut errors = if old["spec"] == new["spec"] { Vec::new() } else { rules::check(&new["spec"]) };
        match subresource {
            None => {}
            Some("ephemeralcontainers") => {
                errors.extend(kept_ephemeral(old, new));
                return errors;
            }
            Some(_) => return errors,
        }
        let mut allowed = new["spec"].clone();
        for list in ["containers", "initContainers"] {
            let containers = allowed.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            for (container, before) in containers.zip(old["spec"][list].as_array().into_iter().flatten()) {
                put_back(container, before, "image");
            }
        }
        for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"] {
            put_back(&mut allowed, &old["spec"], field);
        }
        if allowed == old["spec"] {
            return errors;
        }
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                   existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.push(forbidden("spec", why));
        errors
    }

    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let period = asked.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
        let unscheduled = object["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
        let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        // Nobody runs it, so nobody would confirm its end.
        let at_least = i64::from(period != 0);
        Some(if unscheduled || ended { 0 } else { period.max(at_least) })
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// Ephemeral containers are added, and neither changed nor removed.
fn kept_ephemeral(old: &Value, new: &Value) -> Vec<FieldError> {
    let list = |pod: &Value| pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    let after: BTreeMap<String, Value> =
        list(new).into_iter().map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), one)).collect();
    let mut errors = Vec::new();
    for before in list(old) {
        let name = before["name"].as_str().unwrap_or_default();
        let problem = match after.get(name) {
            Some(same) if *same == before => continue,
            Some(_) => "changed",
            None => "removed",
        };
        let why = format!("existing ephemeral containers {name:?} may not be {problem}");
        errors.push(forbidden("spec.ephemeralContainers", &why));
    }
    errors
}

fn put_back(spec: &mut Value, old: &Value, field: &str) {
    let Some(spec) = spec.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => {
            spec.insert(field.to_owned(), value.clone());
        }
        None => {
            spec.remove(field);
        }
    }
}

/// Guaranteed where every container limits CPU and memory to what it requests, best effort where none says anything.
fn quality_of_service(object: &Value) -> &'static str {
    let lists = ["containers", "initContainers"];
    let containers: Vec<&Value> =
        lists.iter().flat_map(|list| object["spec"][list].as_array().into_iter().flatten()).collect();
    let amount = |container: &Value, kind: &str, name: &str| {
        container["resources"][kind][name].as_str().filter(|text| !text.starts_with('0')).map(str::to_owned)
    };
    let names = ["cpu", "memory"];
    let any = containers.iter().any(|container| {
        names
            .iter()
            .any(|name| amount(container, "requests", name).is_some() || amount(container, "limits", name).is_some())
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|container| {
        names.iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some() && limit == amount(container, "requests", name)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// A pod survives five minutes on a node that is not ready, unless it says otherwise.
fn add_default_tolerations(object: &mut Value) {
    let Some(spec) = member(object, "spec") else { return };
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|one| {
            let all_keys = one["key"].as_str().is_none_or(str::is_empty) && one["operator"] == "Exists";
            let effect = one["effect"].as_str().is_none_or(|effect| effect.is_empty() || effect == "NoExecute");
            (one["key"] == key || all_keys) && effect
        });
        if !tolerated {
            list.push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_nobody_runs_has_no_grace_period() {
        let pod = |node: &str, phase: &str| json!({ "spec": { "nodeName": node, "terminationGracePeriodSeconds": 30 }, "status": { "phase": phase } });
        assert_eq!(Pod.grace_period(&pod("", "Pending"), None), Some(0));
        assert_eq!(Pod.grace_period(&pod("n", "Succeeded"), None), Some(0));
        assert_eq!(Pod.grace_period(&pod("n", "Running"), None), Some(30));
        assert_eq!(Pod.grace_period(&pod("n", "Running"), Some(5)), Some(5));
        assert_eq!(Pod.grace_period(&pod("n", "Running"), Some(0)), Some(0));
        assert_eq!(Pod.grace_period(&pod("n", "Running"), Some(-3)), Some(1));
    }

    #[test]
    fn the_class_follows_requests_and_limits() {
        let pod = |resources: Value| json!({ "spec": { "containers": [{ "resources": resources }] } });
        let both = json!({ "cpu": "1", "memory": "1Gi" });
        assert_eq!(quality_of_service(&pod(json!({}))), "BestEffort");
        assert_eq!(quality_of_service(&pod(json!({ "requests": { "cpu": "1" } }))), "Burstable");
        assert_eq!(quality_of_service(&pod(json!({ "requests": both, "limits": both }))), "Guaranteed");
    }
}
