//! What is not set. Go writes every field that is not a pointer, set or not, where JSON leaves out those that are not; the rest
//! of this server takes what is there for set, and a template that has more in it for another one.

use serde_json::Value;

use crate::facts::{Field, Type};

/// Texts that are unset only where they are absent.
const EMPTY_COUNTS: [&str; 3] = ["holderIdentity", "storageClassName", "volumeAttributesClassName"];

/// Flags that are unset where they are false, in every type but one.
const FALSE_IS_UNSET: [&str; 21] = [
    "chapAuthDiscovery",
    "chapAuthSession",
    "clusterScope",
    "denied",
    "deprecated",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "globalDefault",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "nullable",
    "paused",
    "preserveUnknownFields",
    "publishNotReadyAddresses",
    "readOnly",
    "sslEnabled",
    "stdin",
    "stdinOnce",
    "tty",
    "unschedulable",
];

/// Here it is a pointer.
const BUT_OF: (&str, &str) = ("core.v1.CSIVolumeSource", "readOnly");

/// Numbers that are unset where they are zero, by type; those of a status always are.
const ZERO_IS_UNSET: [(&str, &[&str]); 15] = [
    ("apiextensions.v1.CustomResourceColumnDefinition", &["priority"]),
    ("apps.v1.DaemonSetSpec", &["minReadySeconds"]),
    ("apps.v1.DeploymentSpec", &["minReadySeconds"]),
    ("apps.v1.ReplicaSetSpec", &["minReadySeconds"]),
    ("apps.v1.StatefulSetSpec", &["minReadySeconds"]),
    ("autoscaling.v1.ScaleSpec", &["replicas"]),
    ("core.v1.ContainerPort", &["hostPort"]),
    ("core.v1.ContainerStateTerminated", &["signal"]),
    ("core.v1.Event", &["count"]),
    ("core.v1.PodCondition", &["observedGeneration"]),
    (
        "core.v1.Probe",
        &["failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold", "timeoutSeconds"],
    ),
    ("core.v1.ServicePort", &["nodePort"]),
    ("core.v1.ServiceSpec", &["healthCheckNodePort"]),
    ("meta.v1.Condition", &["observedGeneration"]),
    ("meta.v1.ObjectMeta", &["generation"]),
];

/// Whether JSON would not have it.
pub(super) fn is_unset(of: &Type, field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() && !field.required && !EMPTY_COUNTS.contains(&field.name),
        Value::Bool(false) => FALSE_IS_UNSET.contains(&field.name) && (of.name, field.name) != BUT_OF,
        Value::Number(number) => {
            let listed = ZERO_IS_UNSET.iter().any(|(name, fields)| *name == of.name && fields.contains(&field.name));
            number.as_i64() == Some(0) && !field.required && (listed || of.name.ends_with("Status"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Shape, facts};

    /// A name that is spelled wrong would change nothing.
    #[test]
    fn what_is_listed_is_there() {
        let has = |of: &Type, name: &str, flag: bool| {
            let shape = |field: &Field| match field.shape {
                Shape::Boolean => flag,
                Shape::Int32 | Shape::Int64 => !flag,
                _ => false,
            };
            of.field(name).is_some_and(shape)
        };
        let types = facts().types();
        for name in FALSE_IS_UNSET {
            assert!(types.iter().any(|of| has(of, name, true)), "{name}");
        }
        for (name, fields) in ZERO_IS_UNSET.iter().chain(&[(BUT_OF.0, &[][..])]) {
            let of = types.iter().find(|of| of.name == *name).unwrap_or_else(|| panic!("no type {name}"));
            assert!(fields.iter().all(|field| has(of, field, false)), "{name}");
        }
    }
}
