//! The controller: what wakes it, and how one instance is looked at.

mod acting;
mod starting;
mod writing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::names::label;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use hypervisor::accelerator::{Choice, Finding};
use kube::{Api, Client};
use manager::cache::{Cache, Key};
use manager::context::{Context, Now};
use manager::events::Recorder;
use manager::queue::Queue;
use manager::worker::{About, Next, ObjectName, found, work};
use manager::writing::OwnWrites;
use tokio::sync::watch;
use virt_launcher::rpc::{End, State};

use crate::decide::{self, Action, GRACE, Launcher, Memory, Observed, decide};
use crate::launchers::{Launchers, Owner, PATIENCE, Reach, View};
use crate::networks::{Link, Masquerade, Networks};
use crate::node::{Found, NodeKeeper};
use crate::records::{Record, RecordError, Records};

/// What virt-handler is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of this node.
    pub node: String,
    /// The kubelet's folder, with `pods` and `device-plugins` in it.
    pub kubelet: PathBuf,
    /// A folder of virt-handler's own, which outlives it.
    pub state: PathBuf,
    /// This program, for what it does in a process of its own.
    pub program: PathBuf,
    /// The program that QEMU ends with when it is asked something; see `hypervisor::process::guard`.
    pub guard: Option<PathBuf>,
    /// QEMU, to be asked what it offers.
    pub qemu: PathBuf,
    /// What guests are to run with.
    pub accelerator: Choice,
    /// Told what guests run with, whenever that is found out anew.
    pub findings: watch::Sender<Option<Finding>>,
    /// Instances that are looked at at the same time.
    pub workers: usize,
    /// Whether to say at the end that the node takes no more instances. Where virt-handler comes right back, that would only
    /// make guests wait.
    pub withdraw: bool,
    /// Whether to offer devices to the kubelet.
    pub devices: bool,
    /// Whether to label the node with what QEMU and its CPU offer.
    pub labels: bool,
}

impl Settings {
    /// The usual settings of a node.
    #[must_use]
    pub fn of(node: &str, kubelet: PathBuf, state: PathBuf, program: PathBuf) -> Self {
        Self {
            node: node.to_owned(),
            kubelet,
            state,
            guard: Some(program.clone()),
            program,
            qemu: "qemu-system-x86_64".into(),
            accelerator: Choice::Auto,
            findings: watch::Sender::new(None),
            workers: WORKERS,
            withdraw: false,
            devices: true,
            labels: true,
        }
    }

    fn pods(&self) -> PathBuf {
        self.kubelet.join("pods")
    }
}

/// The controller of a node's instances. Clones are the same.
#[derive(Clone)]
pub struct Handler {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    client: Client,
    vmis: Cache<VirtualMachineInstance>,
    queue: Queue<Work>,
    launchers: Launchers,
    records: Records,
    networks: Arc<dyn Networks>,
    recorder: Recorder,
    now: Now,
    /// What QEMU offers, once it was asked.
    found: watch::Receiver<Found>,
    node: NodeKeeper,
    known: Mutex<BTreeMap<String, Known>>,
    writes: Mutex<OwnWrites<String>>,
}

/// What is looked at: one instance, and no other of its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Work {
    key: Key,
    uid: String,
}

impl About for Work {
    fn about(&self) -> ObjectName<'_> {
        ObjectName { uid: &self.uid, ..self.key.about() }
    }
}

/// What this process knows of an instance besides its launcher.
#[derive(Clone, Debug, Default)]
struct Known {
    memory: Memory,
    /// Its network, once it was made.
    links: Option<Vec<Link>>,
    /// Its end was held against KVM.
    has_spoken: bool,
}

/// Why an instance was not looked at to the end; it is looked at again.
#[derive(Debug, thiserror::Error)]
enum HandlerError {
    #[error("speak with the API server")]
    Server(#[source] kube::Error),
    #[error("speak with the launcher")]
    Launcher(#[source] tonic::Status),
    #[error("take the disks of containers away")]
    Unmount(#[source] std::io::Error),
    #[error("write down what is on this node")]
    Record(#[from] RecordError),
}

/// Instances that are looked at at the same time, unless told otherwise.
const WORKERS: usize = 10;
/// Until what was written should have come back. It comes by itself, unless the watch is silent.
const OWN_WRITE: Duration = Duration::from_secs(1);
/// Between a conflict and the next look: what another has written is on its way to the cache.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Handler {
    /// The handler of a node; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context, settings: Settings) -> Self {
        let networks = Arc::new(Masquerade::new(settings.program.clone()));
        Self::with_networks(context, settings, networks)
    }

    /// The same with networks made in another way.
    #[must_use]
    pub fn with_networks(context: &Context, settings: Settings, networks: Arc<dyn Networks>) -> Self {
        let queue: Queue<Work> = context.queue("virt-handler");
        let told = queue.clone();
        let launchers = Launchers::new(settings.pods(), move |owner: &Owner| {
            told.add(Work { key: owner.key.clone(), uid: owner.uid.clone() });
        });
        let node = NodeKeeper::new(context, &settings);
        let inner = Inner {
            found: node.found(),
            node,
            client: context.client.clone(),
            vmis: context.caches.selected(&format!("{}={}", label::NODE_NAME, settings.node), &[]),
            queue,
            launchers,
            records: Records::new(settings.state.join("instances")),
            networks,
            recorder: context.recorder.clone(),
            now: context.now.clone(),
            known: Mutex::default(),
            writes: Mutex::default(),
            settings,
        };
        Self { inner: Arc::new(inner) }
    }

    /// What keeps guests from this node, if something does.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        match &*self.inner.found.borrow() {
            Found::Nothing(why) => Some(why.clone()),
            Found::NotYet | Found::Offer(_) => None,
        }
    }

    /// Runs until the end is asked for.
    pub async fn run(&self) {
        tokio::join!(self.inner.run(), self.inner.node.run());
    }
}

impl Inner {
    /// Looks at instances until the queue is closed.
    async fn run(self: &Arc<Self>) {
        self.vmis.synced().await;
        for record in self.records.all() {
            self.queue.add(Work { key: record.key(), uid: record.uid });
        }
        let work = work("virt-handler", &self.queue, self.settings.workers, |work: Work| {
            let inner = self.clone();
            async move { inner.reconcile(&work).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed() => {}
        }
    }

    async fn feed(&self) {
        let mut changes = self.vmis.subscribe();
        loop {
            let change = changes.next().await;
            let (old, new) = (change.old.as_ref().and_then(uid_of), change.new.as_ref().and_then(uid_of));
            let other = old.filter(|old| new.as_ref() != Some(old));
            for uid in other.into_iter().chain(new) {
                self.queue.add(Work { key: change.key.clone(), uid });
            }
        }
    }

    async fn reconcile(&self, work: &Work) -> Result<Next, HandlerError> {
        let cached = self.vmis.get(&work.key).filter(|vmi| vmi.metadata.uid.as_ref() == Some(&work.uid));
        let Some(vmi) = cached else { return self.reconcile_missing(work).await };
        found(&*vmi);
        if self.writes(|writes| writes.is_behind(&work.uid, vmi.metadata.resource_version.as_deref())) {
            return Ok(Next::After(OWN_WRITE));
        }
        self.approach(work, &vmi)?;
        self.hold_against_kvm(work);
        let plan = self.decide(work, Some(&vmi), GRACE);
        self.act(work, Some(&vmi), plan.action).await?;
        // What the action has brought about is told with it.
        let plan = if plan.action == Action::Nothing { plan } else { self.decide(work, Some(&vmi), GRACE) };
        if let Some(next) = self.write_status(work, &vmi, plan.phase.as_ref()).await? {
            return Ok(next);
        }
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    /// An instance that the cache does not have. The cache has only this node's: whether it is gone, the server knows.
    async fn reconcile_missing(&self, work: &Work) -> Result<Next, HandlerError> {
        let record = self.records.get(&work.uid);
        if record.is_none() && self.launchers.view(&work.uid).is_none() {
            self.forget(&work.uid);
            return Ok(Next::Wait);
        }
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &work.key.namespace);
        let found = api.get_opt(&work.key.name).await.map_err(HandlerError::Server)?;
        if let Some(vmi) = found.filter(|vmi| vmi.metadata.uid.as_ref() == Some(&work.uid)) {
            // Another node's by now, or the cache is late; then it will tell.
            let late = decide::is_of(&vmi, &self.settings.node);
            return Ok(if late { Next::After(OWN_WRITE) } else { Next::Wait });
        }
        if let Some(record) = &record {
            self.launchers.follow(&owner(work, &record.pod_uid), Duration::ZERO);
        }
        let now = (self.now)();
        self.known(&work.uid, |known| known.memory.gone_since.get_or_insert(now).to_owned());
        let grace = record.map_or(GRACE, |record| record.grace());
        let plan = self.decide(work, None, grace);
        self.act(work, None, plan.action).await?;
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    /// Makes sure that the launcher of an instance is spoken to, and that this is on record.
    fn approach(&self, work: &Work, vmi: &VirtualMachineInstance) -> Result<(), HandlerError> {
        let is_done = self.known(&work.uid, |known| known.memory.done);
        let ours = decide::is_of(vmi, &self.settings.node);
        let phase = vmi.phase();
        let is_live = matches!(phase, Phase::Scheduled | Phase::Running);
        if is_done || !ours || !(is_live || phase.is_final()) {
            return Ok(());
        }
        let Some(pod) = self.pod_of(vmi) else { return Ok(()) };
        if is_live {
            self.records.put(&Record {
                namespace: work.key.namespace.clone(),
                name: work.key.name.clone(),
                uid: work.uid.clone(),
                pod_uid: pod.clone(),
                grace_seconds: decide::grace_of(vmi).as_secs(),
            })?;
        }
        // The socket of one that ran was there already.
        let is_new = phase.is_scheduled() && !vmi.is_marked_for_deletion();
        self.launchers.follow(&owner(work, &pod), if is_new { PATIENCE } else { Duration::ZERO });
        Ok(())
    }

    /// A guest that KVM could not run speaks against KVM, once.
    fn hold_against_kvm(&self, work: &Work) {
        let end = self.launchers.view(&work.uid).and_then(|view| view.domain).map(|domain| domain.end());
        let is_news = end == Some(End::KvmFailed)
            && !self.known(&work.uid, |known| std::mem::replace(&mut known.has_spoken, true));
        if is_news {
            tracing::warn!(instance = ?work.key, "KVM did not run this guest: it is tried anew");
            self.node.doubt();
        }
    }

    /// The UID of an instance's pod on this node.
    fn pod_of(&self, vmi: &VirtualMachineInstance) -> Option<String> {
        let pods = vmi.status.as_ref()?.active_pods.as_ref()?;
        pods.iter().find(|(_, node)| **node == self.settings.node).map(|(uid, _)| uid.clone())
    }

    fn decide(&self, work: &Work, vmi: Option<&VirtualMachineInstance>, grace: Duration) -> decide::Plan {
        let memory = self.known(&work.uid, |known| known.memory.clone());
        let launcher = launcher(self.launchers.view(&work.uid).as_ref());
        let seen = Observed { node: &self.settings.node, vmi, launcher, memory: &memory, grace };
        decide(&seen, (self.now)())
    }

    fn known<R>(&self, uid: &str, look: impl FnOnce(&mut Known) -> R) -> R {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        look(all.entry(uid.to_owned()).or_default())
    }

    fn writes<R>(&self, look: impl FnOnce(&mut OwnWrites<String>) -> R) -> R {
        look(&mut self.writes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Nothing is left of an instance, here or there.
    fn forget(&self, uid: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        self.writes(|writes| writes.forget(&uid.to_owned()));
    }
}

fn owner(work: &Work, pod: &str) -> Owner {
    Owner { key: work.key.clone(), uid: work.uid.clone(), pod: pod.to_owned() }
}

fn uid_of(vmi: &Arc<VirtualMachineInstance>) -> Option<String> {
    vmi.metadata.uid.clone()
}

/// A launcher as the decision sees it.
fn launcher(view: Option<&View>) -> Launcher {
    let Some(view) = view else { return Launcher::None };
    let domain = view.domain.as_ref();
    match (&view.reach, domain) {
        (Reach::Gone { .. }, domain) => {
            let end = domain.filter(|domain| domain.state() == State::Ended).map(virt_launcher::rpc::Domain::end);
            Launcher::Gone { end }
        }
        (Reach::Connected, Some(domain)) => Launcher::Connected { state: domain.state(), end: domain.end() },
        (Reach::Connected | Reach::Connecting, _) => Launcher::Connecting,
    }
}

#[cfg(test)]
mod tests {
    use virt_launcher::rpc::Domain;

    use super::*;

    #[test]
    fn how_a_guest_ended_is_known_after_its_launcher_is_gone() {
        let ended = Domain { state: State::Ended.into(), end: End::PoweredOff.into(), ..Domain::default() };
        let running = Domain { state: State::Running.into(), ..Domain::default() };
        let gone = |domain| View { reach: Reach::Gone { why: String::new() }, domain, guest: None };
        assert_eq!(launcher(Some(&gone(Some(ended)))), Launcher::Gone { end: Some(End::PoweredOff) });
        assert_eq!(launcher(Some(&gone(Some(running)))), Launcher::Gone { end: None });
        assert_eq!(launcher(Some(&gone(None))), Launcher::Gone { end: None });
        assert_eq!(launcher(None), Launcher::None);
    }
}
