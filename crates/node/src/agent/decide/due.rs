//! Which containers are to be started now.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::Observed;
use crate::agent::backoff;
use crate::agent::probes;
use crate::agent::record::Record;
use crate::agent::view::{self, At};

/// What is due.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Due {
    /// Containers and their attempts.
    pub(super) starts: Vec<(String, u32)>,
    /// When the next one is due whose back-off is not over.
    pub(super) wait: Option<Duration>,
}

/// Init containers one after the other, each sidecar up before the next; then all others at once.
pub(super) fn due(observed: &Observed<'_>, spec: &PodSpec, record: &Record) -> Due {
    let mut due = Due::default();
    for container in view::init_containers(spec) {
        let at = view::at(record, observed.state, &container.name);
        let sidecar = view::is_sidecar(container);
        if record.initialized {
            if sidecar {
                due.consider(observed, spec, record, container);
            }
            continue;
        }
        let done = match at {
            At::Ended(end) => !sidecar && end.exit_code == 0,
            At::Running { .. } => sidecar && probes::is_started(container, observed.health),
            At::Absent { .. } | At::Created => false,
        };
        if !done {
            due.consider(observed, spec, record, container);
            return due;
        }
    }
    for container in &spec.containers {
        due.consider(observed, spec, record, container);
    }
    due
}

impl Due {
    fn consider(&mut self, observed: &Observed<'_>, spec: &PodSpec, record: &Record, container: &Container) {
        match view::at(record, observed.state, &container.name) {
            At::Absent { attempt } => self.starts.push((container.name.clone(), attempt)),
            At::Created | At::Running { .. } => {}
            At::Ended(end) if view::restarts(spec, container, end) => {
                let kept = record.containers.get(&container.name);
                let pause = backoff::restart(kept.map_or(0, |kept| kept.crashes));
                match backoff::remaining(end.finished_at, pause, observed.now) {
                    Some(left) => self.wait = Some(self.wait.map_or(left, |known| known.min(left))),
                    None => {
                        let attempt = kept.map_or(0, |kept| kept.attempt).saturating_add(1);
                        self.starts.push((container.name.clone(), attempt));
                    }
                }
            }
            At::Ended(_) => {}
        }
    }
}
