//! A pod's status, as the agent knows it.

mod conditions;
mod container;

use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use manager::writing::{difference, whole_second};
use serde_json::Value;

use super::decide::{Ending, NO_DEVICES, Observed, rejected};
use super::record::Record;
use super::view::{self, At};

/// The merge patch that brings the pod's status up to date; none if it is.
pub(super) fn patch(observed: &Observed<'_>, pod: &Pod, record: &Record, ending: Option<Ending>) -> Option<Value> {
    let old = pod.status.clone().unwrap_or_default();
    let new = desired(observed, pod, record, ending);
    let as_value = |status: &PodStatus| serde_json::to_value(status).unwrap_or_default();
    difference(&as_value(&old), &as_value(&new))
}

/// What the status should be. Conditions of others stay as they are.
pub(super) fn desired(observed: &Observed<'_>, pod: &Pod, record: &Record, ending: Option<Ending>) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let Some(spec) = &pod.spec else { return status };
    let alive = view::containers(spec).any(|one| view::at(record, observed.state, &one.name).is_alive());
    let over = ending.filter(|_| !alive);
    let build = container::Build { observed, pod, spec, record, over: over.is_some() };
    let init: Vec<_> = view::init_containers(spec).map(|one| build.status(one, true)).collect();
    let main: Vec<_> = spec.containers.iter().map(|one| build.status(one, false)).collect();
    if !view::is_terminal(view::phase(pod)) {
        status.phase = Some(phase(observed, pod, record, over).to_owned());
        if ending == Some(Ending::Deadline) {
            status.reason = Some("DeadlineExceeded".to_owned());
            status.message = Some("Pod was active on the node longer than the specified deadline".to_owned());
        }
        if let (Some(Ending::Rejected), Some(why)) = (ending, rejected(observed, record)) {
            status.reason = Some(NO_DEVICES.to_owned());
            status.message = Some(format!("Pod was rejected: {why}"));
        }
    }
    status.conditions = Some(conditions::conditions(observed, pod, record, over.is_some(), (&init, &main)));
    let all_init: Vec<_> = spec.init_containers.iter().flatten().map(|one| build.init_status(one)).collect();
    status.init_container_statuses = (!all_init.is_empty()).then_some(all_init);
    status.container_statuses = Some(main);
    status.start_time.get_or_insert_with(|| whole_second(observed.now));
    let node = || observed.place.addresses.iter().map(ToString::to_string);
    status.host_ip = node().next();
    status.host_ips = Some(node().map(|ip| HostIP { ip }).collect()).filter(|ips: &Vec<_>| !ips.is_empty());
    let own: Vec<String> = match &record.addresses {
        Some(_) if view::uses_host_network(spec) => node().collect(),
        Some(addresses) => addresses.iter().map(ToString::to_string).collect(),
        None => Vec::new(),
    };
    // What it had stays readable after its end.
    if !own.is_empty() {
        status.pod_ip = own.first().cloned();
        status.pod_ips = Some(own.into_iter().map(|ip| PodIP { ip }).collect());
    }
    status
}

fn phase(observed: &Observed<'_>, pod: &Pod, record: &Record, over: Option<Ending>) -> &'static str {
    let Some(spec) = &pod.spec else { return "Pending" };
    let at = |name: &str| view::at(record, observed.state, name);
    let main = || spec.containers.iter().map(|container| (container, at(&container.name)));
    let well = |at: At<'_>| matches!(at, At::Ended(end) if end.exit_code == 0);
    match over {
        Some(Ending::InitFailed | Ending::Deadline | Ending::Rejected) => return "Failed",
        Some(Ending::Deleted | Ending::Terminal | Ending::Completed) => {
            return if main().all(|(_, at)| well(at)) { "Succeeded" } else { "Failed" };
        }
        None => {}
    }
    // One that ran before and waits for its restart has not gone back to Pending.
    let begun = |name: &str, at: At<'_>| {
        let ran = record.containers.get(name).is_some_and(|kept| kept.last.is_some());
        matches!(at, At::Running { .. } | At::Ended(_)) || ran
    };
    let all_begun = main().all(|(container, at)| begun(&container.name, at));
    if all_begun && record.initialized { "Running" } else { "Pending" }
}
