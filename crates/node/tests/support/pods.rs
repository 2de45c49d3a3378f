//! What a pod's status says.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn condition(pod: &Pod, kind: &str) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut of_kind = conditions.into_iter().filter(|one| one.type_ == kind);
    of_kind.next().map(|one| one.status.clone()).unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == "True"
}

pub(crate) fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [status.container_statuses.as_ref(), status.init_container_statuses.as_ref()];
    lists.into_iter().flatten().flatten().find(|one| one.name == container)
}

pub(crate) fn waiting(pod: &Pod, container: &str) -> String {
    let state = status(pod, container).and_then(|status| status.state.as_ref());
    state.and_then(|state| state.waiting.as_ref()).and_then(|waiting| waiting.reason.clone()).unwrap_or_default()
}
