//! Deployments and their kin: a status cannot change labels, a selector cannot change at all.

use serde_json::Value;
use structural::FieldError;

use super::{Strategy, immutable, member};

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
