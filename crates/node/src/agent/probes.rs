//! Probes: whether a container has started, serves, and lives.

mod check;
mod counter;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Probe};
use manager::events::{Kind, Recorder};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::decide::Health;
use super::parts::PodShim;
use check::check;
use counter::{Counter, Verdict};

/// Whether a running container counts as started.
pub(super) fn is_started(container: &Container, health: &BTreeMap<String, Health>) -> bool {
    container.startup_probe.is_none() || health.get(&container.name).is_some_and(|health| health.started)
}

/// Whether a started container counts as ready.
pub(super) fn is_ready(container: &Container, health: &BTreeMap<String, Health>) -> bool {
    container.readiness_probe.is_none() || health.get(&container.name).is_some_and(|health| health.ready)
}

/// Whether there is anything to probe.
pub(super) fn has_some(container: &Container) -> bool {
    container.startup_probe.is_some() || container.readiness_probe.is_some() || container.liveness_probe.is_some()
}

/// Whom to probe.
pub(super) struct Subject {
    pub(super) container: Container,
    /// Where its ports are.
    pub(super) address: Option<IpAddr>,
    /// How long it has been running.
    pub(super) age: Duration,
    /// What was known of it before.
    pub(super) before: Health,
    pub(super) shim: Arc<dyn PodShim>,
    pub(super) recorder: Recorder,
    /// What events are about.
    pub(super) about: ObjectReference,
    /// Called whenever something changes.
    pub(super) wake: Box<dyn Fn() + Send + Sync>,
}

/// The probes of one attempt of a container, for as long as this lives.
pub(super) struct Probing {
    pub(super) attempt: u32,
    health: Arc<Mutex<Health>>,
    task: JoinHandle<()>,
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Probing {
    pub(super) fn begin(attempt: u32, subject: Subject) -> Self {
        let health = Arc::new(Mutex::new(subject.before.clone()));
        let task = tokio::spawn(Prober { subject, health: health.clone() }.run());
        Self { attempt, health, task }
    }

    pub(super) fn health(&self) -> Health {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Prober {
    subject: Subject,
    health: Arc<Mutex<Health>>,
}

impl Prober {
    async fn run(self) {
        let container = &self.subject.container;
        if let Some(probe) = &container.startup_probe
            && !self.subject.before.started
        {
            let mut started = false;
            self.follow("Startup", probe, |verdict| {
                started = verdict == Verdict::Passes;
                false
            })
            .await;
            if !started {
                let why = format!("Container {} failed startup probe, will be restarted", container.name);
                return self.change(|health| health.failed = Some(why.clone()));
            }
            self.change(|health| health.started = true);
        }
        let readiness = async {
            if let Some(probe) = &container.readiness_probe {
                let ready = |verdict: Verdict| {
                    self.change(|health| health.ready = verdict == Verdict::Passes);
                    true
                };
                self.follow("Readiness", probe, ready).await;
            }
        };
        let liveness = async {
            if let Some(probe) = &container.liveness_probe {
                self.follow("Liveness", probe, |verdict| verdict == Verdict::Passes).await;
                let why = format!("Container {} failed liveness probe, will be restarted", container.name);
                self.change(|health| health.failed = Some(why.clone()));
            }
        };
        tokio::join!(readiness, liveness);
    }

    /// Probes again and again, until the verdict's taker has had enough.
    async fn follow(&self, kind: &str, probe: &Probe, mut take: impl FnMut(Verdict) -> bool) {
        let seconds = |value: Option<i32>, unsaid: u64| {
            Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(unsaid))
        };
        let delay = seconds(probe.initial_delay_seconds, 0);
        sleep(delay.saturating_sub(self.subject.age)).await;
        let mut counter = Counter::new(probe.success_threshold, probe.failure_threshold);
        loop {
            let found = check(&self.subject, probe, seconds(probe.timeout_seconds, 1)).await;
            if let Err(why) = &found {
                let message = format!("{kind} probe failed: {why}");
                let subject = &self.subject;
                subject.recorder.record_about(subject.about.clone(), Kind::Warning, "Unhealthy", message);
            }
            if let Some(verdict) = counter.count(found.is_ok())
                && !take(verdict)
            {
                return;
            }
            sleep(seconds(probe.period_seconds, 10).max(Duration::from_secs(1))).await;
        }
    }

    fn change(&self, change: impl Fn(&mut Health)) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let before = health.clone();
        change(&mut health);
        let changed = *health != before;
        drop(health);
        if changed {
            (self.subject.wake)();
        }
    }
}
