//! A machine that only pretends: containers run until they are told otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use manager::context::Now;
use node::agent::parts::{
    Answer, Attachment, Failure, Held, Identities, ImageFailure, ImageStore, PodNetwork, PodRuntime, PodShim,
};
use node::runtime::spec::{Container, ContainerState, Executed, PodState, Sandbox};
use storage::cache::PullPolicy;
use storage::image::Reference;
use storage::images::{Account, Config};
use storage::pull::Registries;
use tokio::sync::watch;

/// What survives an agent.
#[derive(Clone)]
pub(crate) struct FakeHost(pub(crate) Arc<Inside>);

pub(crate) struct Inside {
    now: Now,
    pub(crate) pods: Mutex<BTreeMap<String, (Sandbox, Arc<Shim>)>>,
    /// All that ever happened, in order.
    pub(crate) log: Mutex<Vec<String>>,
    /// Images that cannot be had.
    pub(crate) absent: Mutex<BTreeSet<String>>,
    /// Containers that do not heed the first signal.
    pub(crate) stubborn: Mutex<BTreeSet<String>>,
    /// How long a pull takes.
    pub(crate) pull: Mutex<Duration>,
    /// Pods that are connected.
    pub(crate) connected: Mutex<BTreeMap<String, Attachment>>,
    /// What commands in containers answer.
    pub(crate) answers: Mutex<BTreeMap<String, i32>>,
    /// What was started, by container.
    pub(crate) started: Mutex<BTreeMap<String, Container>>,
    /// Name servers that pods may ask.
    pub(crate) name_servers: Mutex<Vec<IpAddr>>,
    /// Which images were to be kept, each time that others were removed.
    pub(crate) kept: Mutex<Vec<BTreeSet<String>>>,
    /// Addresses that pods have claimed.
    pub(crate) claimed: watch::Sender<BTreeMap<String, Vec<IpAddr>>>,
}

pub(crate) struct Shim {
    machine: FakeHost,
    uid: String,
    states: watch::Sender<PodState>,
}

impl FakeHost {
    pub(crate) fn new(now: Now) -> Self {
        Self(Arc::new(Inside {
            now,
            pods: Mutex::default(),
            log: Mutex::default(),
            absent: Mutex::default(),
            stubborn: Mutex::default(),
            pull: Mutex::default(),
            connected: Mutex::default(),
            answers: Mutex::default(),
            started: Mutex::default(),
            name_servers: Mutex::default(),
            kept: Mutex::default(),
            claimed: watch::Sender::default(),
        }))
    }

    fn note(&self, what: String) {
        self.0.log.lock().unwrap().push(what);
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }

    pub(crate) fn started(&self, container: &str) -> Container {
        self.0.started.lock().unwrap().get(container).cloned().expect("it was started")
    }

    /// The only pod's shim.
    pub(crate) fn shim(&self) -> Arc<Shim> {
        let pods = self.0.pods.lock().unwrap();
        assert_eq!(pods.len(), 1);
        pods.values().next().unwrap().1.clone()
    }

    pub(crate) fn exit(&self, container: &str, code: i32) {
        self.shim().exit(container, code, None);
    }
}

impl Shim {
    fn now(&self) -> Timestamp {
        (self.machine.0.now)()
    }

    pub(crate) fn exit(&self, container: &str, exit_code: i32, signal: Option<i32>) {
        let now = self.now();
        self.states.send_modify(|state| {
            let Some(ContainerState::Running { attempt, id, started_at, .. }) = state.containers.get(container) else {
                panic!("{container} does not run");
            };
            let ended = ContainerState::Exited {
                attempt: *attempt,
                id: id.clone(),
                exit_code,
                signal,
                out_of_memory: false,
                started_at: Some(*started_at),
                finished_at: now,
                message: String::new(),
            };
            state.containers.insert(container.to_owned(), ended);
        });
    }

    pub(crate) fn lose(&self) {
        self.states.send_modify(|state| state.lost = true);
    }
}

impl PodRuntime for FakeHost {
    fn name(&self) -> String {
        "fake".to_owned()
    }

    fn version(&self) -> String {
        "1".to_owned()
    }

    fn sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> Answer<'a, Arc<dyn PodShim>> {
        Box::pin(async move {
            let mut pods = self.0.pods.lock().unwrap();
            if let Some((_, shim)) = pods.get(&sandbox.uid) {
                return Ok(shim.clone() as Arc<dyn PodShim>);
            }
            self.note(format!("sandbox {}", sandbox.name));
            let shim =
                Arc::new(Shim { machine: self.clone(), uid: sandbox.uid.clone(), states: watch::Sender::default() });
            pods.insert(sandbox.uid.clone(), (sandbox.clone(), shim.clone()));
            Ok(shim as Arc<dyn PodShim>)
        })
    }

    fn existing(&self) -> Answer<'_, Vec<(Sandbox, Arc<dyn PodShim>)>> {
        let pods = self.0.pods.lock().unwrap();
        let all = pods.values().map(|(sandbox, shim)| (sandbox.clone(), shim.clone() as Arc<dyn PodShim>)).collect();
        Box::pin(async move { Ok(all) })
    }
}

impl PodShim for Shim {
    fn netns(&self) -> PathBuf {
        PathBuf::from("/proc/1/ns/net")
    }

    fn states(&self) -> watch::Receiver<PodState> {
        self.states.subscribe()
    }

    fn start<'a>(&'a self, container: &'a Container) -> Answer<'a, ()> {
        Box::pin(async move {
            self.machine.note(format!("start {} {}", container.name, container.attempt));
            self.machine.0.started.lock().unwrap().insert(container.name.clone(), container.clone());
            let running = ContainerState::Running {
                attempt: container.attempt,
                id: format!("{}-{}-{}", self.uid, container.name, container.attempt),
                pid: 7,
                started_at: self.now(),
            };
            let known = self.states.borrow().containers.get(&container.name).cloned();
            assert!(known.as_ref().is_none_or(ContainerState::is_over), "a second start: {known:?}");
            self.states.send_modify(|state| {
                state.containers.insert(container.name.clone(), running);
            });
            Ok(())
        })
    }

    fn signal<'a>(&'a self, container: &'a str, signal: i32) -> Answer<'a, ()> {
        Box::pin(async move {
            self.machine.note(format!("signal {container} {signal}"));
            let runs = matches!(self.states.borrow().containers.get(container), Some(ContainerState::Running { .. }));
            let heeds = signal == 9 || !self.machine.0.stubborn.lock().unwrap().contains(container);
            if runs && heeds {
                self.exit(container, if signal == 9 { 137 } else { 0 }, (signal == 9).then_some(9));
            }
            Ok(())
        })
    }

    fn exec<'a>(&'a self, container: &'a str, _command: &'a [String], _timeout: Duration) -> Answer<'a, Executed> {
        Box::pin(async move {
            let exit_code = self.machine.0.answers.lock().unwrap().get(container).copied().unwrap_or(0);
            Ok(Executed { exit_code, output: b"said so".to_vec(), timed_out: false })
        })
    }

    fn end(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.machine.note("end".to_owned());
            self.machine.0.pods.lock().unwrap().remove(&self.uid);
            Ok(())
        })
    }
}

impl ImageStore for FakeHost {
    fn image<'a>(
        &'a self,
        reference: &'a Reference,
        policy: PullPolicy,
        _registries: &'a Registries,
    ) -> BoxFuture<'a, Result<Held, ImageFailure>> {
        Box::pin(async move {
            let Reference::Registry { repository, .. } = reference else {
                return Err(ImageFailure::Pull("a layout".to_owned()));
            };
            let pull = *self.0.pull.lock().unwrap();
            if policy == PullPolicy::Never && !pull.is_zero() {
                return Err(ImageFailure::NeverPull(repository.clone()));
            }
            tokio::time::sleep(pull).await;
            if self.0.absent.lock().unwrap().contains(repository) {
                return Err(ImageFailure::Pull("not found".to_owned()));
            }
            let config = Config { cmd: vec!["/run".to_owned()], ..Config::default() };
            let account = Arc::new(|_: &str| Ok(Account::default()));
            let root = PathBuf::from("/nonexistent");
            Ok(Held { id: format!("sha256:of-{repository}"), digest: "sha256:m".to_owned(), root, config, account })
        })
    }

    fn collect<'a>(&'a self, keep: &'a BTreeSet<String>, _bytes: u64) -> Answer<'a, Vec<String>> {
        self.0.kept.lock().unwrap().push(keep.clone());
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl Identities for FakeHost {
    fn of<'a>(&'a self, pod: &'a Pod) -> Answer<'a, Option<String>> {
        Box::pin(
            async move { Ok(Some(format!("who {} belongs to", pod.metadata.name.as_deref().unwrap_or_default()))) },
        )
    }
}

impl PodNetwork for FakeHost {
    fn add<'a>(&'a self, pod: &'a Attachment) -> Answer<'a, Vec<IpAddr>> {
        Box::pin(async move {
            self.note(format!("connect {}", pod.name));
            self.0.connected.lock().unwrap().insert(pod.id.clone(), pod.clone());
            let address = "10.0.0.9".parse().map_err(|_| Failure("no address".to_owned()))?;
            Ok(vec![address])
        })
    }

    fn let_ask<'a>(&'a self, servers: &'a [IpAddr]) -> Answer<'a, ()> {
        self.0.name_servers.lock().unwrap().extend(servers);
        Box::pin(async { Ok(()) })
    }

    fn remove<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            if self.0.connected.lock().unwrap().remove(id).is_some() {
                self.note("disconnect".to_owned());
            }
            Ok(())
        })
    }

    fn claimed(&self) -> watch::Receiver<BTreeMap<String, Vec<IpAddr>>> {
        self.0.claimed.subscribe()
    }

    fn retain<'a>(&'a self, living: &'a BTreeSet<String>) -> Answer<'a, ()> {
        self.0.connected.lock().unwrap().retain(|id, _| living.contains(id));
        Box::pin(async { Ok(()) })
    }
}
