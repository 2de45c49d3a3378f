//! A pod's world in memory: an API that holds one object, a machine that does what a plan says.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use json_patch::merge;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{Action, Fetch, NodeFacts, Observed, Plan, decide};
use crate::agent::record::{Kept, Record, Stopping};
use crate::agent::view::{self, At};
use crate::runtime::spec::{ContainerState, PodState};

/// More rounds than any pod needs.
const MOST_ROUNDS: usize = 100;

pub(super) struct World {
    pub(super) pod: Option<Pod>,
    pub(super) record: Option<Record>,
    pub(super) state: Option<PodState>,
    pub(super) now: Timestamp,
    /// Containers heed the first signal.
    pub(super) heed: bool,
    pub(super) writes: usize,
    pub(super) starts: usize,
    prepared: bool,
    fetches: BTreeMap<String, Fetch>,
    place: NodeFacts,
}

/// Something that happens to it.
#[derive(Clone, Debug)]
pub(super) enum Happens {
    Exit { container: usize, code: i32 },
    Lost,
    Rebooted,
    NewAgent,
    Delete { grace: i64 },
    ForceDelete,
    Phase(&'static str),
    Time(u64),
    Heed(bool),
}

impl World {
    pub(super) fn new(spec: &Value) -> Self {
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u" }, "spec": spec, "status": { "phase": "Pending" },
        });
        Self {
            pod: Some(serde_json::from_value(pod).unwrap()),
            record: None,
            state: None,
            now: Timestamp::UNIX_EPOCH,
            heed: true,
            writes: 0,
            starts: 0,
            prepared: false,
            fetches: BTreeMap::new(),
            place: NodeFacts { runtime: "r".to_owned(), ..NodeFacts::default() },
        }
    }

    pub(super) fn phase(&self) -> Option<&str> {
        self.pod.as_ref().map(view::phase)
    }

    fn names(&self) -> Vec<String> {
        let spec = self.pod.as_ref().and_then(|pod| pod.spec.as_ref());
        spec.map(|spec| view::containers(spec).map(|one| one.name.clone()).collect()).unwrap_or_default()
    }

    pub(super) fn alive(&self) -> Vec<String> {
        let Some(state) = self.state.as_ref().filter(|state| !state.lost) else { return Vec::new() };
        let running = |(name, state): (&String, &ContainerState)| (!state.is_over()).then(|| name.clone());
        state.containers.iter().filter_map(running).collect()
    }

    fn exit(&mut self, name: &str, exit_code: i32) {
        let now = self.now;
        let Some(state) = self.state.as_mut().filter(|state| !state.lost) else { return };
        if let Some(ContainerState::Running { attempt, id, started_at, .. }) = state.containers.get(name).cloned() {
            let ended = ContainerState::Exited {
                attempt,
                id,
                exit_code,
                signal: None,
                out_of_memory: false,
                started_at: Some(started_at),
                finished_at: now,
                message: String::new(),
            };
            state.containers.insert(name.to_owned(), ended);
        }
    }

    pub(super) fn happens(&mut self, what: &Happens) {
        match what {
            Happens::Exit { container, code } => {
                let alive = self.alive();
                if let Some(name) = alive.get(container % alive.len().max(1)).cloned() {
                    self.exit(&name, *code);
                }
            }
            Happens::Lost => {
                if let Some(state) = &mut self.state {
                    state.lost = true;
                }
            }
            Happens::Rebooted => {
                self.state = None;
                self.new_agent();
            }
            Happens::NewAgent => self.new_agent(),
            Happens::Delete { grace } => {
                let ended = self.phase().is_some_and(view::is_terminal);
                if ended && self.pod.is_some() {
                    // As the API server does: nobody has to confirm the end of what has ended.
                    self.pod = None;
                } else if let Some(pod) = &mut self.pod {
                    let deletion = self.now + Duration::from_secs(grace.unsigned_abs());
                    let known = pod.metadata.deletion_grace_period_seconds;
                    pod.metadata.deletion_timestamp.get_or_insert(Time(deletion));
                    pod.metadata.deletion_grace_period_seconds = Some(known.map_or(*grace, |known| known.min(*grace)));
                }
            }
            Happens::ForceDelete => self.pod = None,
            Happens::Phase(phase) => {
                if let Some(status) = self.pod.as_mut().and_then(|pod| pod.status.as_mut())
                    && !status.phase.as_deref().is_some_and(view::is_terminal)
                {
                    status.phase = Some((*phase).to_owned());
                }
            }
            Happens::Time(seconds) => self.now += Duration::from_secs(*seconds),
            Happens::Heed(heed) => self.heed = *heed,
        }
    }

    fn new_agent(&mut self) {
        self.prepared = false;
        self.fetches.clear();
    }

    fn plan(&mut self) -> Plan {
        if let Some(record) = &mut self.record {
            record.settle(self.state.as_ref(), self.now);
        }
        decide(&Observed {
            pod: self.pod.as_ref(),
            record: self.record.as_ref(),
            state: self.state.as_ref(),
            prepared: self.prepared,
            fetches: &self.fetches,
            troubles: &BTreeMap::new(),
            health: &BTreeMap::new(),
            place: &self.place,
            now: self.now,
        })
    }

    /// Does what there is to do until it comes to rest; tells after how long to look again.
    pub(super) fn settle(&mut self) -> Option<Duration> {
        for _ in 0..MOST_ROUNDS {
            let plan = self.plan();
            if let Some(patch) = &plan.status {
                assert!(plan.actions.is_empty(), "what is told is told last");
                self.write(patch);
                continue;
            }
            if plan.actions.is_empty() {
                return plan.wait;
            }
            plan.actions.into_iter().for_each(|action| self.act(action));
        }
        panic!("it does not come to rest: {:?} {:?}", self.plan(), self.record);
    }

    fn write(&mut self, patch: &Value) {
        self.writes += 1;
        let Some(pod) = &mut self.pod else { panic!("nobody to tell of") };
        let before = view::phase(pod).to_owned();
        let mut status = serde_json::to_value(&pod.status).unwrap();
        merge(&mut status, patch);
        pod.status = serde_json::from_value(status).unwrap();
        assert!(!view::is_terminal(&before) || view::phase(pod) == before, "{before} became {}", view::phase(pod));
    }

    fn act(&mut self, action: Action) {
        let now = self.now;
        let alive = self.alive();
        let names = self.names();
        match action {
            Action::Begin => {
                assert!(self.record.is_none());
                self.record = Some(Record { uid: "u".to_owned(), ..Record::default() });
            }
            Action::Fetch(key) => drop(self.fetches.insert(key, Fetch::Held)),
            Action::PrepareVolumes => self.prepared = true,
            Action::MakeSandbox => {
                let spec = self.pod.as_ref().and_then(|pod| pod.spec.clone()).unwrap();
                let record = self.record.as_mut().unwrap();
                if self.state.as_ref().is_none_or(|state| state.lost) {
                    if record.sandbox {
                        let init: Vec<&str> = view::init_containers(&spec).map(|one| one.name.as_str()).collect();
                        record.renew(&init);
                    }
                    self.state = Some(PodState::default());
                }
                record.sandbox = true;
                record.addresses = Some(Vec::new());
            }
            Action::Start { container, attempt } => self.start(&container, attempt),
            Action::Stop { container, whole, .. } => {
                assert!(alive.contains(&container));
                self.stopped(&container, whole, false);
                if self.heed {
                    self.exit(&container, 0);
                }
            }
            Action::Kill { container, whole } => {
                assert!(alive.contains(&container));
                self.stopped(&container, whole, true);
                self.exit(&container, 137);
            }
            Action::Release => {
                assert!(self.pod.is_none() || alive.is_empty(), "{alive:?} run");
                self.state = None;
                let record = self.record.as_mut().unwrap();
                record.released = true;
                record.sandbox = false;
            }
            Action::Delete => {
                assert!(self.record.as_ref().is_none_or(|record| record.released), "{now}: {names:?}");
                assert!(self.pod.take().is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()));
            }
            Action::Forget => {
                assert!(self.pod.is_none() && self.record.take().is_some_and(|record| record.released));
            }
        }
    }

    fn start(&mut self, container: &str, attempt: u32) {
        self.starts += 1;
        let pod = self.pod.as_ref().unwrap();
        let spec = pod.spec.as_ref().unwrap();
        assert!(pod.metadata.deletion_timestamp.is_none() && !view::is_terminal(view::phase(pod)));
        let record = self.record.as_mut().unwrap();
        let which = view::containers(spec).find(|one| one.name == container).unwrap();
        match view::at(record, self.state.as_ref(), container) {
            At::Absent { attempt: expected } => assert_eq!(attempt, expected),
            At::Ended(end) => assert!(view::restarts(spec, which, end), "it had ended for good"),
            other => panic!("a second start while one is {other:?}"),
        }
        record.starts(container, attempt, Kept { stop_signal: 15, ..Kept::default() });
        record.initialized |= spec.containers.iter().any(|one| one.name == container);
        let id = format!("{container}-{attempt}");
        let running = ContainerState::Running { attempt, id, pid: 1, started_at: self.now };
        self.state.as_mut().unwrap().containers.insert(container.to_owned(), running);
    }

    fn stopped(&mut self, container: &str, whole: bool, killed: bool) {
        let now = self.now;
        let record = self.record.as_mut().unwrap();
        if whole {
            record.stopping.get_or_insert(now);
        }
        let kept = record.containers.get_mut(container).unwrap();
        let stopping = kept.stopping.get_or_insert(Stopping { since: now, killed });
        stopping.killed |= killed;
    }
}
