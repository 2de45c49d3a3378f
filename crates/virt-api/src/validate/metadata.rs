//! Labels and annotations that mean something.

use std::collections::BTreeMap;

use api::names::{annotation, label};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::selectors::{check_key, check_value};
use crate::denial::Problems;
use crate::request::Requester;

/// Labels by which controllers find instances, pods and nodes.
const RESERVED_LABELS: [&str; 6] = [
    label::CREATED_BY,
    label::MIGRATION_JOB_UID,
    label::NODE_NAME,
    label::MIGRATION_TARGET_NODE_NAME,
    label::SCHEDULABLE,
    "kubevirt.io/install-strategy",
];
/// What launchers start guests from.
const RESERVED_ANNOTATIONS: [&str; 1] = [annotation::GUEST];

pub(super) fn check(metadata: &ObjectMeta, requester: Requester, problems: &mut Problems) {
    if requester == Requester::User {
        for (field, _) in reserved(metadata) {
            problems.unsupported(field, "may only be set by controllers; remove it");
        }
    }
    for (key, value) in metadata.labels.iter().flatten() {
        let field = format!("metadata.labels[{key}]");
        check_key(key, &field, problems);
        check_value(value, &field, problems);
    }
}

/// The labels and annotations of an object that only controllers set, by their fields.
pub(crate) fn reserved(metadata: &ObjectMeta) -> BTreeMap<String, &str> {
    let labels = metadata.labels.iter().flatten().filter(|(key, _)| RESERVED_LABELS.contains(&key.as_str()));
    let labels = labels.map(|(key, value)| (format!("metadata.labels[{key}]"), value.as_str()));
    let annotations = metadata.annotations.iter().flatten();
    let annotations = annotations.filter(|(key, _)| RESERVED_ANNOTATIONS.contains(&key.as_str()));
    let annotations = annotations.map(|(key, value)| (format!("metadata.annotations[{key}]"), value.as_str()));
    labels.chain(annotations).collect()
}
