//! Defaults that depend on other fields of the same object.

use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// Sets them in an object of the type, after those of the table.
pub(super) fn apply(name: &str, object: &mut Object) {
    match name {
        "apiextensions.v1.CustomResourceDefinitionNames" => crd_names(object),
        "apps.v1.DaemonSetUpdateStrategy" | "apps.v1.DeploymentStrategy" if is(object, "type", "RollingUpdate") => {
            let rolling = match name {
                "apps.v1.DeploymentStrategy" => json!({ "maxSurge": "25%", "maxUnavailable": "25%" }),
                _ => json!({ "maxSurge": 0, "maxUnavailable": 1 }),
            };
            set(object, "rollingUpdate", rolling);
        }
        "apps.v1.StatefulSetUpdateStrategy" if is(object, "type", "RollingUpdate") => {
            set(object, "rollingUpdate", json!({ "partition": 0 }));
        }
        "batch.v1.JobSpec" => job(object),
        "core.v1.Container" | "core.v1.EphemeralContainer" => image_pull_policy(object),
        "batch.v1.Job" | "core.v1.ReplicationController" => labels_from_template(object),
        "core.v1.Event" => event(object),
        "core.v1.Pod" => {
            requests_from_limits(object);
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                set(spec, "enableServiceLinks", true.into());
            }
        }
        "core.v1.PodSpec" => {
            if object.get("hostNetwork") == Some(&Value::Bool(true)) {
                host_ports(object);
            }
            account_names(object);
        }
        "core.v1.ServicePort" => {
            if let Some(port) = object.get("port").cloned() {
                set(object, "targetPort", port);
            }
        }
        "core.v1.ServiceSpec" if !is(object, "type", "ExternalName") => {
            set(object, "internalTrafficPolicy", "Cluster".into());
        }
        "core.v1.Volume" if object.len() == 1 && object.contains_key("name") => {
            set(object, "emptyDir", json!({}));
        }
        "networking.v1.NetworkPolicySpec" => policy_types(object),
        "rbac.v1.RoleRef" => set_if_blank(object, "apiGroup", "rbac.authorization.k8s.io"),
        "rbac.v1.Subject" if is(object, "kind", "User") || is(object, "kind", "Group") => {
            set_if_blank(object, "apiGroup", "rbac.authorization.k8s.io");
        }
        _ => {}
    }
}

fn is(object: &Object, field: &str, value: &str) -> bool {
    object.get(field).and_then(Value::as_str) == Some(value)
}

fn set(object: &mut Object, field: &str, value: Value) {
    object.entry(field).or_insert(value);
}

fn set_if_blank(object: &mut Object, field: &str, value: &str) {
    let slot = object.entry(field).or_insert(Value::Null);
    if slot.as_str().is_none_or(str::is_empty) {
        *slot = value.into();
    }
}

/// What Go writes of an event even when it is not set.
fn event(object: &mut Object) {
    for field in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        set(object, field, Value::Null);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        set(object, field, "".into());
    }
}

fn labels_from_template(object: &mut Object) {
    let labels = object.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels")).cloned();
    if let (Some(labels), Some(metadata)) = (labels, object.get_mut("metadata").and_then(Value::as_object_mut)) {
        set(metadata, "labels", labels);
    }
}

fn crd_names(object: &mut Object) {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    set_if_blank(object, "singular", &kind.to_lowercase());
    set_if_blank(object, "listKind", &format!("{kind}List"));
}

fn job(object: &mut Object) {
    if !object.contains_key("completions") && !object.contains_key("parallelism") {
        set(object, "completions", 1.into());
    }
    set(object, "parallelism", 1.into());
    let policy = if object.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set(object, "podReplacementPolicy", policy.into());
}

/// A tag that moves is asked for again each time.
fn image_pull_policy(object: &mut Object) {
    let image = object.get("image").and_then(Value::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or(image);
    let pinned = image.contains('@') || last.rsplit_once(':').is_some_and(|(_, tag)| tag != "latest");
    set(object, "imagePullPolicy", if pinned { "IfNotPresent" } else { "Always" }.into());
}

fn requests_from_limits(pod: &mut Object) {
    for list in ["containers", "initContainers"] {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { continue };
            let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { continue };
            let requests = resources.entry("requests").or_insert_with(|| json!({}));
            if let Some(requests) = requests.as_object_mut() {
                for (name, limit) in limits {
                    requests.entry(name).or_insert(limit);
                }
            }
        }
    }
}

/// An account has an old name for its field, too; both are told, and the new one counts.
fn account_names(spec: &mut Object) {
    let named =
        |field: &str| spec.get(field).and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    if let Some(name) = named("serviceAccountName").or_else(|| named("serviceAccount")) {
        for field in ["serviceAccountName", "serviceAccount"] {
            spec.insert(field.to_owned(), name.clone().into());
        }
    }
}

fn host_ports(spec: &mut Object) {
    for container in spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(port) = port.as_object_mut()
                && let Some(number) = port.get("containerPort").cloned()
            {
                set(port, "hostPort", number);
            }
        }
    }
}

fn policy_types(object: &mut Object) {
    let egress = object.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set(object, "policyTypes", types);
}
