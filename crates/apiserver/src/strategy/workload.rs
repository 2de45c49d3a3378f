//! Deployments and their kin: a status cannot change labels, a selector cannot change at all.

use serde_json::Value;
use structural::{FieldError, Reason};

use super::{Strategy, immutable, invalid, member, negative};

pub(super) struct Workload;

impl Strategy for Workload {
    fn prepare_update(&self, old: &Value, new: &mut Value, subresource: Option<&str>) {
        if subresource == Some("status") {
            keep_labels(old, new);
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        let (before, after) = (&old["spec"]["selector"], &new["spec"]["selector"]);
        if before == after { Vec::new() } else { vec![immutable("spec.selector", after)] }
    }
}

pub(super) struct ReplicationController;

impl Strategy for ReplicationController {
    fn prepare_create(&self, object: &mut Value) {
        let labels = object["spec"]["template"]["metadata"]["labels"].clone();
        if object["spec"]["selector"].is_null() && !labels.is_null() {
            object["spec"]["selector"] = labels;
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let counts = ["replicas", "minReadySeconds"].map(|field| negative(&format!("spec.{field}"), &spec[field]));
        let mut wrong: Vec<FieldError> = counts.into_iter().flatten().collect();
        let labels = &spec["template"]["metadata"]["labels"];
        match spec["selector"].as_object().filter(|selector| !selector.is_empty()) {
            None => wrong.push(FieldError {
                field: "spec.selector".to_owned(),
                reason: Reason::Required,
                message: "Required value".to_owned(),
            }),
            Some(selector) if !selector.iter().all(|(key, value)| labels.get(key) == Some(value)) => {
                let why = "`selector` does not match template `labels`";
                wrong.push(invalid("spec.template.metadata.labels", labels, why));
            }
            Some(_) => {}
        }
        wrong
    }

    fn validate_update(&self, _old: &Value, new: &Value, subresource: Option<&str>) -> Vec<FieldError> {
        if subresource.is_some() { Vec::new() } else { self.validate_create(new) }
    }

    fn orphans_by_default(&self) -> bool {
        true
    }
}

pub(super) struct Job;

impl Strategy for Job {
    /// A job selects its pods by its own UID, unless it was told to use a selector of the user's.
    fn prepare_create(&self, object: &mut Value) {
        if object["spec"]["manualSelector"] == true {
            return;
        }
        let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
        let Some(template) = member(&mut object["spec"], "template") else { return };
        let metadata = template.entry("metadata").or_insert_with(|| serde_json::json!({}));
        for (key, value) in [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ] {
            metadata["labels"][key] = value.clone();
        }
        object["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid;
    }

    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        let (before, after) = (&old["spec"]["selector"], &new["spec"]["selector"]);
        if before == after { Vec::new() } else { vec![immutable("spec.selector", after)] }
    }

    fn orphans_by_default(&self) -> bool {
        true
    }
}

fn keep_labels(old: &Value, new: &mut Value) {
    if let Some(metadata) = member(new, "metadata") {
        match old["metadata"].get("labels") {
            Some(labels) => drop(metadata.insert("labels".to_owned(), labels.clone())),
            None => drop(metadata.remove("labels")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replication_controller_that_would_make_pods_for_ever_is_refused_by_its_path() {
        let spec = |spec: Value| ReplicationController.validate_create(&json!({ "spec": spec }));
        let template = json!({ "metadata": { "labels": { "app": "web", "tier": "front" } } });
        assert_eq!(spec(json!({ "replicas": 0, "selector": { "app": "web" }, "template": template })), []);
        let negative = spec(json!({ "replicas": -1, "selector": { "app": "web" }, "template": template }));
        assert_eq!(negative[0].field, "spec.replicas");
        assert_eq!(negative[0].message, "Invalid value: -1: must be greater than or equal to 0");
        for (selector, field) in [
            (json!({ "app": "other" }), "spec.template.metadata.labels"),
            (json!({}), "spec.selector"),
            (Value::Null, "spec.selector"),
        ] {
            let wrong = spec(json!({ "selector": selector, "template": template }));
            assert_eq!(wrong.iter().map(|one| one.field.as_str()).collect::<Vec<_>>(), [field], "{selector}");
        }
        // Whoever writes the status is not judged.
        let wrong = json!({ "spec": { "replicas": -1 } });
        assert_eq!(ReplicationController.validate_update(&wrong, &wrong, Some("status")), []);
    }
}
