//! Labels that mean something.

use std::collections::BTreeMap;

use api::names::label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::selectors::{check_key, check_value};
use crate::denial::Problems;
use crate::request::Requester;

/// Labels by which controllers find instances, pods and nodes.
const RESERVED: [&str; 6] = [
    label::CREATED_BY,
    label::MIGRATION_JOB_UID,
    label::NODE_NAME,
    label::MIGRATION_TARGET_NODE_NAME,
    label::SCHEDULABLE,
    "kubevirt.io/install-strategy",
];

pub(super) fn check(metadata: &ObjectMeta, requester: Requester, problems: &mut Problems) {
    if requester == Requester::User {
        for (key, _) in reserved_labels(metadata) {
            problems.unsupported(format!("metadata.labels[{key}]"), "may only be set by controllers; remove it");
        }
    }
    for (key, value) in metadata.labels.iter().flatten() {
        let field = format!("metadata.labels[{key}]");
        check_key(key, &field, problems);
        check_value(value, &field, problems);
    }
}

/// The labels of an object that only controllers set.
pub(crate) fn reserved_labels(metadata: &ObjectMeta) -> BTreeMap<&str, &str> {
    let labels = metadata.labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
    labels.filter(|(key, _)| RESERVED.contains(key)).collect()
}
