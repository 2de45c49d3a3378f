//! What makes pods: the apps, batch and policy groups.

use jiff::Timestamp;
use serde_json::Value;

use super::parts::{ago, at, flag, has, is_deleted, is_true, items, joined, labels, number, or, size, text};
use super::selectors::selector;
use super::{AGE, Cell, NAME};
use crate::table::duration;

pub(super) fn of(plural: &str) -> Option<&'static [Cell]> {
    Some(match plural {
        "controllerrevisions" => REVISIONS,
        "cronjobs" => CRON_JOBS,
        "daemonsets" => DAEMON_SETS,
        "deployments" => DEPLOYMENTS,
        "jobs" => JOBS,
        "poddisruptionbudgets" => BUDGETS,
        "replicasets" => REPLICA_SETS,
        "statefulsets" => STATEFUL_SETS,
        _ => return None,
    })
}

pub(super) const CONTAINERS: Cell = Cell::text("Containers", "Names of the containers.", |object, _| {
    joined(object, "/spec/template/spec/containers", "/name")
})
.wide();
pub(super) const IMAGES: Cell = Cell::text("Images", "Images of the containers.", |object, _| {
    joined(object, "/spec/template/spec/containers", "/image")
})
.wide();
const SELECTOR: Cell =
    Cell::text("Selector", "Labels of its pods.", |object, _| selector(object, "/spec/selector")).wide();
const READY: Cell = Cell::text("Ready", "Number of ready pods, and of all pods.", |object, _| {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")).into()
});

const DEPLOYMENTS: &[Cell] = &[
    NAME,
    READY,
    Cell::text("Up-to-date", "Number of pods with the newest template.", |object, _| {
        number(object, "/status/updatedReplicas").into()
    }),
    Cell::text("Available", "Number of available pods.", |object, _| {
        number(object, "/status/availableReplicas").into()
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REPLICA_SETS: &[Cell] = &[
    NAME,
    Cell::integer("Desired", "Desired number of pods.", |object, _| number(object, "/spec/replicas").into()),
    Cell::integer("Current", "Current number of pods.", |object, _| number(object, "/status/replicas").into()),
    Cell::integer("Ready", "Number of ready pods.", |object, _| number(object, "/status/readyReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const STATEFUL_SETS: &[Cell] = &[NAME, READY, AGE, CONTAINERS, IMAGES];

const DAEMON_SETS: &[Cell] = &[
    NAME,
    Cell::integer("Desired", "Number of nodes that should run a pod.", |object, _| {
        number(object, "/status/desiredNumberScheduled").into()
    }),
    Cell::integer("Current", "Number of nodes that run a pod.", |object, _| {
        number(object, "/status/currentNumberScheduled").into()
    }),
    Cell::integer("Ready", "Number of nodes with a ready pod.", |object, _| {
        number(object, "/status/numberReady").into()
    }),
    Cell::integer("Up-to-date", "Number of pods with the newest template.", |object, _| {
        number(object, "/status/updatedNumberScheduled").into()
    }),
    Cell::integer("Available", "Number of available pods.", |object, _| {
        number(object, "/status/numberAvailable").into()
    }),
    Cell::text("Node Selector", "Labels of its nodes.", |object, _| labels(object, "/spec/template/spec/nodeSelector")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REVISIONS: &[Cell] = &[
    NAME,
    Cell::text("Controller", "Object that the revision belongs to.", |object, _| controller(object).into()),
    Cell::text("Revision", "Number of the revision.", |object, _| number(object, "/revision").into()),
    AGE,
];

const BUDGETS: &[Cell] = &[
    NAME,
    Cell::text("Min Available", "Minimum number of available pods.", |object, _| {
        or(object, "/spec/minAvailable", "N/A").into()
    }),
    Cell::text("Max Unavailable", "Maximum number of unavailable pods.", |object, _| {
        or(object, "/spec/maxUnavailable", "N/A").into()
    }),
    Cell::integer("Allowed Disruptions", "Number of pods that may be evicted now.", |object, _| {
        number(object, "/status/disruptionsAllowed").into()
    }),
    AGE,
];

const JOBS: &[Cell] = &[
    NAME,
    Cell::text("Status", "Status of the job.", |job, _| job_status(job).into()),
    Cell::text("Completions", "Number of completed pods, and of all pods.", |job, _| completions(job).into()),
    Cell::text("Duration", "Time that the job took, or has taken so far.", |job, now| took(job, now).into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const CRON_JOBS: &[Cell] = &[
    NAME,
    Cell::text("Schedule", "Schedule of the jobs.", |object, _| text(object, "/spec/schedule")),
    Cell::text("Timezone", "Time zone of the schedule.", |object, _| or(object, "/spec/timeZone", "<none>").into()),
    Cell::boolean("Suspend", "Whether it is suspended.", |object, _| suspend(object).into()),
    Cell::integer("Active", "Number of running jobs.", |object, _| size(object, "/status/active")),
    Cell::text("Last Schedule", "Time since the last job was created.", |object, now| {
        last_schedule(object, now).into()
    }),
    AGE,
    Cell::text("Containers", "Names of the containers.", |object, _| {
        joined(object, "/spec/jobTemplate/spec/template/spec/containers", "/name")
    })
    .wide(),
    Cell::text("Images", "Images of the containers.", |object, _| {
        joined(object, "/spec/jobTemplate/spec/template/spec/containers", "/image")
    })
    .wide(),
    Cell::text("Selector", "Labels of its pods.", |object, _| selector(object, "/spec/jobTemplate/spec/selector"))
        .wide(),
];

fn controller(object: &Value) -> String {
    let owners = items(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|owner| flag(owner, "/controller", false)) else {
        return "<none>".to_owned();
    };
    let kind = at(owner, "/kind").to_lowercase();
    match at(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{}", group.to_lowercase(), at(owner, "/name")),
        None => format!("{kind}/{}", at(owner, "/name")),
    }
}

fn job_status(job: &Value) -> &'static str {
    let first = |kinds: &[&'static str]| kinds.iter().find(|kind| is_true(job, kind)).copied();
    match first(&["Complete", "Failed"]) {
        Some(end) => end,
        None if is_deleted(job) => "Terminating",
        None => first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running"),
    }
}

fn completions(job: &Value) -> String {
    let done = number(job, "/status/succeeded");
    match (has(job, "/spec/completions"), number(job, "/spec/parallelism")) {
        (true, _) => format!("{done}/{}", number(job, "/spec/completions")),
        (false, ..=1) => format!("{done}/1"),
        (false, parallel) => format!("{done}/1 of {parallel}"),
    }
}

fn took(job: &Value, now: Timestamp) -> String {
    let time = |pointer| at(job, pointer).parse::<Timestamp>().ok();
    let end = time("/status/completionTime").unwrap_or(now);
    time("/status/startTime").map_or_else(String::new, |start| duration::text(end.as_second() - start.as_second()))
}

fn suspend(object: &Value) -> &'static str {
    match object.pointer("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}

fn last_schedule(object: &Value, now: Timestamp) -> String {
    match has(object, "/status/lastScheduleTime") {
        true => ago(object, "/status/lastScheduleTime", now),
        false => "<none>".to_owned(),
    }
}
