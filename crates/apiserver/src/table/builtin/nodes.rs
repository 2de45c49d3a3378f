//! Nodes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::parts::{at, flag, items, map, or, text};
use super::{AGE, Cell, NAME};

pub(super) const NODES: &[Cell] = &[
    NAME,
    Cell::text("Status", "Whether the node is ready and accepts pods.", |node, _| status(node).into()),
    Cell::text("Roles", "Roles of the node.", |node, _| roles(node).into()),
    AGE,
    Cell::text("Version", "Version of the kubelet.", |node, _| text(node, "/status/nodeInfo/kubeletVersion")),
    Cell::text("Internal-IP", "Internal address of the node.", |node, _| address(node, "InternalIP").into()).wide(),
    Cell::text("External-IP", "External address of the node.", |node, _| address(node, "ExternalIP").into()).wide(),
    Cell::text("OS-Image", "Operating system of the node.", |node, _| info(node, "osImage").into()).wide(),
    Cell::text("Kernel-Version", "Kernel and architecture of the node.", |node, _| kernel(node).into()).wide(),
    Cell::text("Container-Runtime", "Container runtime of the node.", |node, _| {
        info(node, "containerRuntimeVersion").into()
    })
    .wide(),
];

fn status(node: &Value) -> String {
    let conditions = items(node, "/status/conditions").iter();
    let ready = match conditions.rev().find(|condition| condition["type"] == "Ready") {
        None => "Unknown",
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
    };
    let closed = if flag(node, "/spec/unschedulable", false) { ",SchedulingDisabled" } else { "" };
    format!("{ready}{closed}")
}

fn roles(node: &Value) -> String {
    let role = |(key, value): (&'_ String, &'_ Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<_> = map(node, "/metadata/labels").filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let found = items(node, "/status/addresses").iter().find(|address| address["type"] == kind);
    found.map_or("<none>", |address| at(address, "/address"))
}

fn info(node: &Value, field: &str) -> String {
    or(node, &format!("/status/nodeInfo/{field}"), "<unknown>")
}

fn kernel(node: &Value) -> String {
    match at(node, "/status/nodeInfo/architecture") {
        "" => info(node, "kernelVersion"),
        architecture => format!("{} ({architecture})", info(node, "kernelVersion")),
    }
}
