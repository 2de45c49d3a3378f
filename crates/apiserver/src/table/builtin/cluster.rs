//! Kinds of small groups: access, certificates, leases, priorities, extensions of the API.

use serde_json::Value;

use super::parts::{at, condition, flag, has, items, number, or, text};
use super::{AGE, Cell, NAME};
use crate::table::duration;

pub(super) fn of(group: &str, plural: &str) -> Option<&'static [Cell]> {
    Some(match (group, plural) {
        ("apiregistration.k8s.io", "apiservices") => API_SERVICES,
        ("certificates.k8s.io", "certificatesigningrequests") => SIGNING_REQUESTS,
        ("coordination.k8s.io", "leases") => LEASES,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => FLOW_SCHEMAS,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => PRIORITY_LEVELS,
        ("node.k8s.io", "runtimeclasses") => RUNTIME_CLASSES,
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => BINDINGS,
        ("scheduling.k8s.io", "priorityclasses") => PRIORITY_CLASSES,
        _ => return None,
    })
}

const BINDINGS: &[Cell] = &[
    NAME,
    Cell::text("Role", "Role that is granted.", |object, _| {
        format!("{}/{}", at(object, "/roleRef/kind"), at(object, "/roleRef/name")).into()
    }),
    AGE,
    Cell::text("Users", "Users that have the role.", |object, _| subjects(object, "User").into()).wide(),
    Cell::text("Groups", "Groups that have the role.", |object, _| subjects(object, "Group").into()).wide(),
    Cell::text("ServiceAccounts", "Service accounts that have the role.", |object, _| {
        subjects(object, "ServiceAccount").into()
    })
    .wide(),
];

const SIGNING_REQUESTS: &[Cell] = &[
    NAME,
    AGE,
    Cell::text("SignerName", "Signer that is asked.", |object, _| or(object, "/spec/signerName", "<none>").into()),
    Cell::text("Requestor", "User that asks.", |object, _| text(object, "/spec/username")),
    Cell::text("RequestedDuration", "Requested lifetime of the certificate.", |object, _| {
        match has(object, "/spec/expirationSeconds") {
            true => duration::text(number(object, "/spec/expirationSeconds")).into(),
            false => "<none>".into(),
        }
    }),
    Cell::text("Condition", "State of the request.", |object, _| outcome(object).into()),
];

const LEASES: &[Cell] =
    &[NAME, Cell::text("Holder", "Current holder.", |object, _| text(object, "/spec/holderIdentity")), AGE];

const RUNTIME_CLASSES: &[Cell] =
    &[NAME, Cell::text("Handler", "Runtime of its containers.", |object, _| text(object, "/handler")), AGE];

const PRIORITY_CLASSES: &[Cell] = &[
    NAME,
    Cell::integer("Value", "Priority of its pods.", |object, _| number(object, "/value").into()),
    Cell::boolean("Global-Default", "Whether it is the default class.", |object, _| {
        flag(object, "/globalDefault", false).into()
    }),
    AGE,
    Cell::text("PreemptionPolicy", "Whether its pods preempt others.", |object, _| text(object, "/preemptionPolicy")),
];

const FLOW_SCHEMAS: &[Cell] = &[
    NAME,
    Cell::text("PriorityLevel", "Priority level of its requests.", |object, _| {
        text(object, "/spec/priorityLevelConfiguration/name")
    }),
    Cell::text("MatchingPrecedence", "Precedence; lower numbers are matched first.", |object, _| {
        number(object, "/spec/matchingPrecedence").into()
    }),
    Cell::text("DistinguisherMethod", "How its requests are divided into flows.", |object, _| {
        or(object, "/spec/distinguisherMethod/type", "<none>").into()
    }),
    AGE,
    Cell::text("MissingPL", "Whether its priority level is missing.", |object, _| {
        condition(object, "Dangling").map_or("?", |condition| at(condition, "/status")).into()
    }),
];

const PRIORITY_LEVELS: &[Cell] = &[
    NAME,
    Cell::text("Type", "Whether it is limited.", |object, _| text(object, "/spec/type")),
    Cell::text("NominalConcurrencyShares", "Nominal share of all seats.", |object, _| {
        limit(object, "/spec/limited/nominalConcurrencyShares")
    }),
    Cell::text("Queues", "Number of queues.", |object, _| limit(object, "/spec/limited/limitResponse/queuing/queues")),
    Cell::text("HandSize", "Number of queues that a flow may use.", |object, _| {
        limit(object, "/spec/limited/limitResponse/queuing/handSize")
    }),
    Cell::text("QueueLengthLimit", "Maximum length of a queue.", |object, _| {
        limit(object, "/spec/limited/limitResponse/queuing/queueLengthLimit")
    }),
    AGE,
];

const API_SERVICES: &[Cell] = &[
    NAME,
    Cell::text("Service", "Service behind the group and version.", |object, _| {
        let service = &object["spec"]["service"];
        match service.is_null() {
            true => "Local".into(),
            false => format!("{}/{}", at(service, "/namespace"), at(service, "/name")).into(),
        }
    }),
    Cell::text("Available", "Whether it is available.", |object, _| available(object).into()),
    AGE,
];

fn subjects(object: &Value, kind: &str) -> String {
    let name = |subject: &Value| match kind {
        "ServiceAccount" => format!("{}/{}", at(subject, "/namespace"), at(subject, "/name")),
        _ => at(subject, "/name").to_owned(),
    };
    let subjects = items(object, "/subjects").iter().filter(|subject| subject["kind"] == kind);
    subjects.map(name).collect::<Vec<_>>().join(", ")
}

fn outcome(object: &Value) -> String {
    let decision = match condition(object, "Denied").or_else(|| condition(object, "Approved")) {
        Some(condition) => at(condition, "/type"),
        None => "Pending",
    };
    let failed = if condition(object, "Failed").is_some() { ",Failed" } else { "" };
    let issued = if at(object, "/status/certificate").is_empty() { "" } else { ",Issued" };
    format!("{decision}{failed}{issued}")
}

fn limit(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| "<none>".into())
}

fn available(object: &Value) -> String {
    let Some(condition) = condition(object, "Available") else { return "Unknown".to_owned() };
    match (at(condition, "/status"), at(condition, "/reason")) {
        ("True", _) => "True".to_owned(),
        (status, "") => status.to_owned(),
        (status, reason) => format!("{status} ({reason})"),
    }
}
