//! The status of one container.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, PodSpec,
};
use manager::writing::whole_second;

use crate::agent::backoff;
use crate::agent::decide::{Fetch, Observed, Part};
use crate::agent::output;
use crate::agent::probes;
use crate::agent::record::{End, Record};
use crate::agent::view::{self, At};

/// What all containers of a pod have in common.
pub(super) struct Build<'a> {
    pub(super) observed: &'a Observed<'a>,
    pub(super) pod: &'a Pod,
    pub(super) spec: &'a PodSpec,
    pub(super) record: &'a Record,
    /// Nothing of it will be started any more.
    pub(super) over: bool,
}

impl Build<'_> {
    /// The status of an init container, with or without a process.
    pub(super) fn init_status(&self, container: &Container) -> ContainerStatus {
        let Some(other) = container.image.as_deref().and_then(output::of) else { return self.status(container, true) };
        let other = view::containers(self.spec).find(|one| one.name == other);
        output::status(container, other.map(|one| self.status(one, false)).as_ref())
    }

    pub(super) fn status(&self, container: &Container, init: bool) -> ContainerStatus {
        let kept = self.record.containers.get(&container.name);
        let at = view::at(self.record, self.observed.state, &container.name);
        let (state, last) = self.states(container, at);
        let running = matches!(at, At::Running { .. });
        let started = running && probes::is_started(container, self.observed.health);
        let ready = match at {
            At::Running { .. } => started && probes::is_ready(container, self.observed.health),
            At::Ended(end) => init && !view::is_sidecar(container) && end.exit_code == 0,
            At::Absent { .. } | At::Created => false,
        };
        let id = match at {
            At::Running { id, .. } => Some(id),
            At::Ended(end) => Some(end.id.as_str()),
            At::Absent { .. } | At::Created => kept.and_then(|kept| kept.last.as_ref()).map(|end| end.id.as_str()),
        };
        let image = container.image.clone().unwrap_or_default();
        ContainerStatus {
            name: container.name.clone(),
            image: kept.map(|kept| kept.image.clone()).filter(|image| !image.is_empty()).unwrap_or(image),
            image_id: kept.map(|kept| kept.image_id.clone()).unwrap_or_default(),
            container_id: id.filter(|id| !id.is_empty()).map(|id| self.id(id)),
            ready,
            started: Some(started),
            restart_count: kept.map_or(0, |kept| i32::try_from(kept.attempt).unwrap_or(i32::MAX)),
            state: Some(state),
            // The API server shows an empty one, too.
            last_state: Some(last.map(|end| self.terminated(end)).unwrap_or_default()),
            ..ContainerStatus::default()
        }
    }

    /// The state now, and the end before it.
    fn states(&self, container: &Container, at: At<'_>) -> (ContainerState, Option<&End>) {
        let kept = self.record.containers.get(&container.name);
        let before = kept.and_then(|kept| kept.last.as_ref());
        match at {
            At::Running { started_at, .. } => {
                let running = ContainerStateRunning { started_at: Some(whole_second(started_at)) };
                (ContainerState { running: Some(running), ..ContainerState::default() }, before)
            }
            At::Ended(end) if !self.over && view::restarts(self.spec, container, end) => {
                let end = kept.and_then(|kept| kept.end.as_ref());
                (waiting(self.restarting(container)), end)
            }
            At::Ended(end) => (self.terminated(end), before),
            At::Absent { .. } | At::Created => (waiting(self.not_yet(container)), before),
        }
    }

    fn restarting(&self, container: &Container) -> (String, Option<String>) {
        if let Some(why) = self.trouble(container) {
            return why;
        }
        let kept = self.record.containers.get(&container.name);
        let pause = backoff::restart(kept.map_or(0, |kept| kept.crashes));
        let metadata = &self.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let pod = format!("{}_{}({})", text(&metadata.name), text(&metadata.namespace), text(&metadata.uid));
        let message = format!("back-off {}s restarting failed container={} pod={pod}", pause.as_secs(), container.name);
        ("CrashLoopBackOff".to_owned(), Some(message))
    }

    fn not_yet(&self, container: &Container) -> (String, Option<String>) {
        if let Some(why) = self.trouble(container) {
            return why;
        }
        let has_init = view::init_containers(self.spec).next().is_some();
        let main = self.spec.containers.iter().any(|one| one.name == container.name);
        // An init container's turn comes with the sandbox; all others wait for it.
        let first = view::init_containers(self.spec).next().is_some_and(|one| one.name == container.name);
        let creating = if main { !has_init || self.record.initialized } else { first };
        let reason = if creating { "ContainerCreating" } else { "PodInitializing" };
        (reason.to_owned(), None)
    }

    /// What keeps it from being started.
    fn trouble(&self, container: &Container) -> Option<(String, Option<String>)> {
        let own = self.observed.troubles.get(&Part::Container(container.name.clone()));
        let own = own.or_else(|| self.observed.troubles.get(&Part::Begin));
        if let Some(trouble) = own {
            return Some((trouble.reason.to_owned(), Some(trouble.message.clone())));
        }
        let mounts = container.volume_mounts.iter().flatten().map(|mount| view::volume_key(&mount.name));
        let mut keys = [container.name.clone()].into_iter().chain(mounts);
        keys.find_map(|key| match self.observed.fetches.get(&key) {
            Some(Fetch::Failed(trouble)) => Some((trouble.reason.to_owned(), Some(trouble.message.clone()))),
            _ => None,
        })
    }

    fn terminated(&self, end: &End) -> ContainerState {
        let reason = if end.unknown {
            "ContainerStatusUnknown"
        } else if end.out_of_memory {
            "OOMKilled"
        } else if end.exit_code == 0 {
            "Completed"
        } else if end.started_at.is_none() {
            "StartError"
        } else {
            "Error"
        };
        let terminated = ContainerStateTerminated {
            container_id: Some(&end.id).filter(|id| !id.is_empty()).map(|id| self.id(id)),
            exit_code: end.exit_code,
            signal: end.signal,
            reason: Some(reason.to_owned()),
            message: Some(end.message.clone()).filter(|message| !message.is_empty()),
            started_at: end.started_at.map(whole_second),
            finished_at: Some(whole_second(end.finished_at)),
        };
        ContainerState { terminated: Some(terminated), ..ContainerState::default() }
    }

    fn id(&self, id: &str) -> String {
        format!("{}://{id}", self.observed.place.runtime)
    }
}

fn waiting((reason, message): (String, Option<String>)) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}
