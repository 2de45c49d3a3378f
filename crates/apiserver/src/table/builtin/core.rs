//! The core group.

use serde_json::Value;

use super::events::EVENTS;
use super::nodes::NODES;
use super::parts::{joined, labels, map, number, or, text};
use super::pods::PODS;
use super::services::{ENDPOINTS, SERVICES};
use super::storage::{CLAIMS, VOLUMES};
use super::workloads::{CONTAINERS, IMAGES};
use super::{AGE, AGED, Cell, NAME};

pub(super) fn of(plural: &str) -> Option<&'static [Cell]> {
    Some(match plural {
        "configmaps" => CONFIG_MAPS,
        "endpoints" => ENDPOINTS,
        "events" => EVENTS,
        "namespaces" => NAMESPACES,
        "nodes" => NODES,
        "persistentvolumeclaims" => CLAIMS,
        "persistentvolumes" => VOLUMES,
        "pods" => PODS,
        "podtemplates" => POD_TEMPLATES,
        "replicationcontrollers" => REPLICATION_CONTROLLERS,
        "resourcequotas" => QUOTAS,
        "secrets" => SECRETS,
        "serviceaccounts" => AGED,
        "services" => SERVICES,
        _ => return None,
    })
}

const NAMESPACES: &[Cell] =
    &[NAME, Cell::text("Status", "Active or Terminating.", |object, _| text(object, "/status/phase")), AGE];

const CONFIG_MAPS: &[Cell] = &[
    NAME,
    Cell::text("Data", "Number of entries.", |object, _| {
        (map(object, "/data").count() + map(object, "/binaryData").count()).into()
    }),
    AGE,
];

const SECRETS: &[Cell] = &[
    NAME,
    Cell::text("Type", "Type of the secret.", |object, _| text(object, "/type")),
    Cell::text("Data", "Number of entries.", |object, _| map(object, "/data").count().into()),
    AGE,
];

const POD_TEMPLATES: &[Cell] = &[
    NAME,
    Cell::text("Containers", "Names of the containers.", |object, _| {
        joined(object, "/template/spec/containers", "/name")
    }),
    Cell::text("Images", "Images of the containers.", |object, _| {
        joined(object, "/template/spec/containers", "/image")
    }),
    Cell::text("Pod Labels", "Labels of the created pods.", |object, _| labels(object, "/template/metadata/labels")),
];

const REPLICATION_CONTROLLERS: &[Cell] = &[
    NAME,
    Cell::integer("Desired", "Desired number of pods.", |object, _| number(object, "/spec/replicas").into()),
    Cell::integer("Current", "Current number of pods.", |object, _| number(object, "/status/replicas").into()),
    Cell::integer("Ready", "Number of ready pods.", |object, _| number(object, "/status/readyReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    Cell::text("Selector", "Labels of its pods.", |object, _| labels(object, "/spec/selector")).wide(),
];

const QUOTAS: &[Cell] = &[
    NAME,
    Cell::text("Request", "Requests: used and hard limit.", |object, _| quota(object, false).into()),
    Cell::text("Limit", "Limits: used and hard limit.", |object, _| quota(object, true).into()),
    AGE,
];

fn quota(object: &Value, limits: bool) -> String {
    let mut names: Vec<_> = map(object, "/status/hard").map(|(name, _)| name.as_str()).collect();
    names.retain(|name| name.starts_with("limits.") == limits);
    names.sort_unstable();
    // Names of resources may have slashes, which pointers escape.
    let (hard, used) = (&object["status"]["hard"], &object["status"]["used"]);
    let part = |name: &&str| format!("{name}: {}/{}", or(&used[*name], "", "0"), or(&hard[*name], "", "0"));
    names.iter().map(part).collect::<Vec<_>>().join(", ")
}
