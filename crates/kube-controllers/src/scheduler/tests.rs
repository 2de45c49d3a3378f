//! What the scheduler's tests share: small objects, and one-line questions to a cluster.

mod cluster;
mod filters;
mod model;
mod pods;
mod properties;
mod queue;
mod scores;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use serde_json::{Value, json};

use super::{Cluster, Outcome, PodInfo};

/// A node of 4 CPUs, 8Gi and 10 pods; `more` is laid over it.
fn node(name: &str, more: Value) -> Node {
    let mut object = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" } },
    });
    lay_over(&mut object, more);
    serde_json::from_value(object).unwrap()
}

/// A pod of namespace `default` whose UID is its name; `more` is laid over it.
fn pod(name: &str, more: Value) -> Pod {
    let mut object = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": { "containers": [] },
    });
    lay_over(&mut object, more);
    serde_json::from_value(object).unwrap()
}

fn namespace(name: &str, labels: Value) -> Namespace {
    let mut object = json!({ "metadata": { "name": name } });
    lay_over(&mut object, field("metadata", field("labels", labels)));
    serde_json::from_value(object).unwrap()
}

fn asking(name: &str, requests: Value) -> Pod {
    let resources = field("requests", requests);
    pod(name, json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } }))
}

fn info(pod: &Pod) -> Arc<PodInfo> {
    Arc::new(PodInfo::new(pod))
}

fn on(node: &str, mut pod: Pod) -> Pod {
    pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
    pod
}

fn cluster(nodes: &[Node], pods: &[Pod]) -> Cluster {
    let mut cluster = Cluster::default();
    for node in nodes {
        cluster.set_node(node);
    }
    for pod in pods {
        cluster.set_pod(pod);
    }
    cluster
}

/// The node's name, or the message.
fn answer(cluster: &mut Cluster, pod: &Pod) -> String {
    match cluster.schedule(&PodInfo::new(pod)) {
        Outcome::Bind { node } => node,
        Outcome::Unschedulable { message, .. } => message,
    }
}

fn field(name: &str, value: Value) -> Value {
    Value::Object([(name.to_owned(), value)].into_iter().collect())
}

fn lay_over(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                lay_over(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}
