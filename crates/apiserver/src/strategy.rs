//! What a kind needs beyond its schema. Most need nothing: their row in the table is all there is.

mod budget;
mod certificate;
pub(crate) mod crd;
mod namespace;
mod node;
mod pod;
mod rbac;
mod secret;
mod service_account;
mod volume;
mod workload;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use structural::{FieldError, Reason};

use crate::identity::Identity;

/// How a kind's objects come into being, change and go.
///
/// Objects are complete (defaults set) and have the form of the stored version.
pub(crate) trait Strategy: Sync {
    /// Sets what only the server sets, on creation.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Writes down who asks, where that is part of the object.
    fn sign(&self, _object: &mut Value, _who: &Identity) {}

    /// Takes back what the request may not change.
    fn prepare_update(&self, _old: &Value, _new: &mut Value, _subresource: Option<&str>) {}

    /// What is wrong with a new object.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// What is wrong with a change.
    fn validate_update(&self, _old: &Value, _new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        Vec::new()
    }

    /// How long a deletion waits for whoever runs the object, given what the client asked for.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Sets what goes with the deletion timestamp.
    fn deleting(&self, _object: &mut Value) {}

    /// What keeps an object besides its finalizers.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// Whether a PUT of a name that does not exist creates it.
    fn create_on_update(&self) -> bool {
        false
    }

    /// Whether the answer to a deletion is the object rather than a status.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// Dependents stay unless the client says otherwise.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Whether a kind with a status subresource clears a status that a creation carries.
    fn keeps_status_on_create(&self) -> bool {
        false
    }
}

/// The strategy of a kind that needs none.
struct Plain;
impl Strategy for Plain {}

/// Kinds that clients write with PUT alone.
struct Upserted;
impl Strategy for Upserted {
    fn create_on_update(&self) -> bool {
        true
    }
}

/// Small kinds whose deletion answers with the object.
struct Returned;
impl Strategy for Returned {
    fn returns_deleted(&self) -> bool {
        true
    }
}

/// Custom resources.
pub(crate) fn custom() -> &'static dyn Strategy {
    &Plain
}

/// The strategy of a built-in resource.
pub(crate) fn of(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        ("", "pods") => &pod::Pod,
        ("", "namespaces") => &namespace::Namespace,
        ("", "nodes") => &node::Node,
        ("", "secrets") => &secret::Secret,
        ("", "configmaps") => &secret::ConfigMap,
        ("", "serviceaccounts") => &service_account::ServiceAccount,
        ("", "persistentvolumeclaims") => &volume::Claim,
        ("", "persistentvolumes") => &volume::Volume,
        ("", "services") => &service_account::Service,
        ("", "podtemplates" | "resourcequotas") => &Returned,
        ("" | "events.k8s.io", "events") => &Upserted,
        ("", "endpoints" | "limitranges") => &Upserted,
        ("coordination.k8s.io", "leases") => &Upserted,
        ("rbac.authorization.k8s.io", "roles") => &rbac::Role,
        ("rbac.authorization.k8s.io", "clusterroles") => &rbac::ClusterRole,
        ("rbac.authorization.k8s.io", "rolebindings") => &rbac::RoleBinding,
        ("rbac.authorization.k8s.io", "clusterrolebindings") => &rbac::ClusterRoleBinding,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &crd::Definition,
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => &workload::Workload,
        ("", "replicationcontrollers") => &workload::ReplicationController,
        ("batch", "jobs") => &workload::Job,
        ("policy", "poddisruptionbudgets") => &budget::Budget,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificate::SigningRequest,
        _ => &Plain,
    }
}

/// Whether a conditions list has the type with the status; used where the server itself sets conditions.
pub(crate) fn set_condition(
    status: &mut Value,
    kind: &str,
    truth: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let truth = if truth { "True" } else { "False" };
    let Some(status) = status.as_object_mut() else { return false };
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return false };
    let new = json!({
        "type": kind, "status": truth, "reason": reason, "message": message, "lastTransitionTime": crate::clock::text(now),
    });
    let Some(found) = list.iter_mut().find(|one| one["type"] == kind) else {
        list.push(new);
        return true;
    };
    let same = ["status", "reason", "message"].into_iter().all(|field| found[field] == new[field]);
    if !same {
        *found = new;
    }
    !same
}

/// A field that never changes after creation.
fn immutable(field: &str, value: &Value) -> FieldError {
    let value = match value {
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    };
    let message = format!("Invalid value: {value}: field is immutable");
    FieldError { field: field.to_owned(), reason: Reason::Invalid, message }
}

fn invalid(field: &str, value: &Value, why: &str) -> FieldError {
    FieldError { field: field.to_owned(), reason: Reason::Invalid, message: format!("Invalid value: {value}: {why}") }
}

/// What is wrong with a number that counts something.
fn negative(field: &str, value: &Value) -> Option<FieldError> {
    value.as_i64().filter(|number| *number < 0).map(|_| invalid(field, value, "must be greater than or equal to 0"))
}

fn forbidden(field: &str, why: &str) -> FieldError {
    FieldError { field: field.to_owned(), reason: Reason::Forbidden, message: format!("Forbidden: {why}") }
}

/// A member of an object, made if it is not there.
fn member<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    let slot = object.as_object_mut()?.entry(name).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut()
}
