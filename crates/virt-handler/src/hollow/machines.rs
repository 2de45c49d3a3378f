//! The launchers of hollow nodes, by pod. They outlive the handlers: a handler that is started again finds them as they are.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use launcher_api::{Greeting, Outcome};
use manager::cache::Key;
use manager::queue::Queue;
use network::mac::Mac;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::launcher::{Moment, Simulated, Spoken, Stage};
use super::ledger::{Ledger, Who};
use super::status::{has_ended, phase_of};
use super::{Behaviour, Work};
use crate::host::{Doing, Host};
use crate::instances::digest;
use crate::launchers::{Entry, LauncherId, Reach, Session};
use crate::networks::Link;
use crate::records::Record;
use crate::relay::{Channel, Question, RelayError, Reply, Target};

/// The versions of the guest's model that a simulated launcher knows.
const MODELS: std::ops::RangeInclusive<u32> = 1..=1;

/// Simulated launchers. Clones share them.
#[derive(Clone)]
pub struct Machines {
    inner: Arc<Inner>,
}

struct Inner {
    behaviour: Arc<Behaviour>,
    /// Which guests have which luck.
    luck: u64,
    ledger: Option<Arc<dyn Ledger>>,
    launchers: Mutex<BTreeMap<String, Arc<Simulated>>>,
    /// What handlers have written down: it outlives them, too.
    records: Arc<Mutex<BTreeMap<LauncherId, Record>>>,
}

impl Machines {
    /// None yet.
    #[must_use]
    pub fn new(behaviour: Behaviour, luck: u64, ledger: Option<Arc<dyn Ledger>>) -> Self {
        let (launchers, records) = (Mutex::default(), Arc::default());
        Self { inner: Arc::new(Inner { behaviour: Arc::new(behaviour), luck, ledger, launchers, records }) }
    }

    /// A pod is there: its launcher is what a kubelet would make of it.
    pub fn see(&self, pod: &Pod) {
        self.see_with(pod, None, Timestamp::UNIX_EPOCH);
    }

    /// The same, where the launchers of an earlier process are lost: what its instance says of its guest is believed.
    pub(super) fn see_with(&self, pod: &Pod, vmi: Option<&VirtualMachineInstance>, now: Timestamp) {
        let Some(who) = who(pod) else { return };
        if has_ended(pod) {
            return self.gone(pod);
        }
        if phase_of(pod) != "Running" {
            return;
        }
        let launcher = self.launcher(&who);
        let ran = vmi.filter(|vmi| vmi.is_running() || vmi.is_final());
        launcher.appear(addresses(pod), ran.map(|vmi| (vmi, since(vmi, now), digest(vmi))));
        if pod.metadata.deletion_timestamp.is_some() {
            launcher.terminate();
        }
    }

    /// A pod has ended or is gone, and its launcher with it.
    pub fn gone(&self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let known = self.launchers().remove(uid);
        if let Some(launcher) = known {
            launcher.vanish();
        }
    }

    /// Pauses the guest of an instance, or lets it go on, as virt-api would ask for. False if there was nothing to do.
    pub fn pause(&self, instance: &str, paused: bool) -> bool {
        let all: Vec<_> = self.launchers().values().filter(|one| one.instance() == instance).cloned().collect();
        // Each of them, also after the first.
        all.iter().filter(|launcher| launcher.pause(paused)).count() > 0
    }

    /// Whether the launcher of a pod has ended, which its pod does not say yet.
    pub(super) fn has_exited(&self, pod: &Pod) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.launchers().get(uid).is_some_and(|launcher| launcher.stage() == Stage::Exited)
    }

    pub(super) fn records(&self) -> Arc<Mutex<BTreeMap<LauncherId, Record>>> {
        self.inner.records.clone()
    }

    fn launcher(&self, who: &Who) -> Arc<Simulated> {
        let Inner { behaviour, luck, ledger, .. } = &*self.inner;
        let make = || Arc::new(Simulated::new(who.clone(), behaviour.clone(), *luck, ledger.clone()));
        self.launchers().entry(who.pod.clone()).or_insert_with(make).clone()
    }

    fn launchers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Simulated>>> {
        self.inner.launchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The machines, as the handlers of one process see them.
pub(super) struct HollowHost {
    pub(super) machines: Machines,
    /// Where pods are looked at whose launchers have ended.
    pub(super) queue: Queue<Work>,
    /// The name of a pod, by its UID.
    pub(super) name_of: Box<NameOf>,
}

/// Finds the pod of a launcher.
type NameOf = dyn Fn(&LauncherId) -> Option<Key> + Send + Sync;

impl HollowHost {
    fn of(&self, id: &LauncherId) -> Arc<Simulated> {
        let who = Who {
            namespace: id.key.namespace.clone(),
            name: id.key.name.clone(),
            instance: id.uid.clone(),
            pod: id.pod.clone(),
        };
        self.machines.launcher(&who)
    }
}

impl Host for HollowHost {
    fn keep(self: Arc<Self>, entry: Arc<Entry>, patience: Duration) -> Doing<'static, ()> {
        Box::pin(async move {
            let launcher = self.of(&entry.id);
            let mut moments = launcher.watch();
            let is_there = |now: &Moment| now.stage != Stage::Awaited;
            let has_come = matches!(timeout(patience, moments.wait_for(is_there)).await, Ok(Ok(_)));
            if has_come {
                let (host, id) = (self.clone(), entry.id.clone());
                let let_go = move || {
                    if let Some(key) = (host.name_of)(&id) {
                        host.queue.add(Work::Pod(key));
                    }
                };
                let speaker = Arc::new(Spoken { launcher: launcher.clone(), let_go });
                *entry.session() = Some(Session { speaker, greeting: Greeting::of_this_release(MODELS) });
                loop {
                    let moment = moments.borrow_and_update().clone();
                    let news = entry.take(moment.domain);
                    if moment.stage != Stage::Up {
                        break;
                    }
                    if entry.reach(Reach::Connected) || news {
                        entry.tell();
                    }
                    if moments.changed().await.is_err() {
                        break;
                    }
                }
                *entry.session() = None;
            } else if launcher.stage() == Stage::Awaited {
                self.machines.launchers().remove(&entry.id.pod);
            }
            entry.reach(Reach::Gone { why: "the launcher is not there".to_owned() });
            entry.tell();
        })
    }

    fn bring_disks<'a>(&'a self, _: &'a LauncherId, _: &'a VirtualMachineInstance) -> Doing<'a, Result<(), Outcome>> {
        Box::pin(async { Ok(()) })
    }

    /// Where the pod is reached, so is its guest.
    fn connect_network<'a>(
        &'a self,
        id: &'a LauncherId,
        vmi: &'a VirtualMachineInstance,
    ) -> Doing<'a, Result<Vec<Link>, Outcome>> {
        Box::pin(async move {
            let addresses = self.of(id).watch().borrow().addresses.clone();
            let networks = vmi.spec.networks.as_deref().unwrap_or_default();
            let wanted = vmi.spec.domain.devices.interfaces.as_deref().unwrap_or_default();
            let link = |interface: &api::networks::Interface| {
                let on_pod_network = networks.iter().any(|one| one.name == interface.name && one.pod.is_some());
                let mac = interface.mac_address.clone();
                Link {
                    name: interface.name.clone(),
                    mac: mac.unwrap_or_else(|| Mac::stable(&id.uid, &interface.name).to_string()),
                    addresses: if on_pod_network { addresses.clone() } else { Vec::new() },
                    pod_link: String::new(),
                }
            };
            Ok(wanted.iter().map(link).collect())
        })
    }

    fn give_devices(&self, _: &LauncherId) -> io::Result<()> {
        Ok(())
    }

    fn clean_up(&self, _: &LauncherId) -> io::Result<()> {
        Ok(())
    }

    /// Simulated guests stay where they are.
    fn reached_at(&self) -> Option<SocketAddr> {
        None
    }

    fn isolates_claims(&self) -> bool {
        false
    }

    fn claim_addresses<'a>(&'a self, _: &'a LauncherId) -> Doing<'a, Result<Option<Vec<IpAddr>>, String>> {
        Box::pin(async { Ok(None) })
    }

    fn ask<'a>(&'a self, _: &'a Target, _: Question) -> Doing<'a, Result<Reply, RelayError>> {
        Box::pin(async { Err(RelayError::Absent) })
    }

    fn carry<'a>(&'a self, _: &'a LauncherId, _: &'a Target, _: Channel) -> Doing<'a, Result<(), RelayError>> {
        Box::pin(async { Err(RelayError::Absent) })
    }

    fn arriving<'a>(&'a self, _: &'a LauncherId, _: &'a Channel) -> Doing<'a, io::Result<UnixStream>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// The launcher in a pod, if there is one: a pod that only has claims bound has none.
fn who(pod: &Pod) -> Option<Who> {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    let launches =
        owner.kind == "VirtualMachineInstance" && !pod.annotations().contains_key(annotation::EPHEMERAL_PROVISIONING);
    launches.then(|| Who {
        namespace: pod.namespace().unwrap_or_default(),
        name: owner.name.clone(),
        instance: owner.uid.clone(),
        pod: pod.uid().unwrap_or_default(),
    })
}

fn addresses(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else { return Vec::new() };
    let mut all: Vec<String> = status.pod_ips.iter().flatten().map(|one| one.ip.clone()).collect();
    if all.is_empty() {
        all.extend(status.pod_ip.clone());
    }
    all
}

/// For how long an instance is in its phase.
fn since(vmi: &VirtualMachineInstance, now: Timestamp) -> Duration {
    let listed = vmi.status.as_ref().and_then(|status| status.phase_transition_timestamps.as_deref());
    let entered = listed.unwrap_or_default().iter().rfind(|one| one.phase.as_ref() == Some(vmi.phase()));
    let entered = entered.and_then(|one| one.phase_transition_timestamp.as_ref()).map_or(now, |Time(at)| *at);
    Duration::try_from(now.duration_since(entered)).unwrap_or_default()
}
