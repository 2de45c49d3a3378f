//! The node itself: its labels, its devices, and a heartbeat.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::kubevirt::KubeVirt;
use api::names::{annotation, label};
use hypervisor::accelerator::{self, Finding, Probe};
use hypervisor::programs;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::Cache;
use manager::context::{Chance, Context, Now};
use manager::errors::chain;
use manager::stopping::Stopping;
use manager::writing::{unless_gone, whole_second};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use virt_rules::config::ClusterConfig;

use crate::devices::{self, Devices, Kind};
use crate::folders::{self, Watch};
use crate::handler::Settings;
use crate::labels::{self, Offer, Processor};

/// As KubeVirt's handlers have it; a node that is silent for five minutes is lost.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// How much later a heartbeat may come, so that not all come at once.
const JITTER: f64 = 0.2;
/// How long the first heartbeat waits for the kubelet to know the devices.
const DEVICES: Duration = Duration::from_secs(10);
/// Between a heartbeat that failed and the next.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two attempts to learn what QEMU offers.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Where devices come and go.
const DEVICE_FOLDER: &str = "/dev";
/// The same label as KubeVirt has written it over time.
const CPU_MANAGER: [&str; 2] = ["cpumanager", "kubevirt.io/cpumanager"];

/// What this node is told of, and by whom.
pub(crate) struct NodeKeeper {
    settings: Settings,
    client: Client,
    nodes: Cache<Node>,
    kubevirts: Cache<KubeVirt>,
    now: Now,
    chance: Chance,
    stopping: Stopping,
    found: watch::Sender<Found>,
    doubt: Notify,
    /// Where virt-api reaches this handler.
    door: Option<String>,
}

/// What was found out about this node.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Nobody has looked yet.
    NotYet,
    /// QEMU offers this.
    Offer(Arc<Offer>),
    /// No guest can run here, for this reason.
    Nothing(String),
}

impl Found {
    /// What QEMU offers, if it does.
    pub(crate) fn offer(&self) -> Option<Arc<Offer>> {
        match self {
            Self::Offer(offer) => Some(offer.clone()),
            Self::NotYet | Self::Nothing(_) => None,
        }
    }
}

impl NodeKeeper {
    pub(crate) fn new(context: &Context, settings: &Settings, door: Option<String>) -> Self {
        Self {
            settings: settings.clone(),
            client: context.client.clone(),
            nodes: context.caches.with_fields(&format!("metadata.name={}", settings.node), &[]),
            kubevirts: context.caches.of(&[]),
            now: context.now.clone(),
            chance: context.chance.clone(),
            stopping: context.stopping.clone(),
            found: watch::Sender::new(Found::NotYet),
            doubt: Notify::new(),
            door,
        }
    }

    /// What was found out about this node, now and after every change.
    pub(crate) fn found(&self) -> watch::Receiver<Found> {
        self.found.subscribe()
    }

    /// A guest has shown that KVM does not work as it was found to: it is tried anew.
    pub(crate) fn doubt(&self) {
        self.probe().forget();
        self.doubt.notify_one();
    }

    /// Runs until the end is asked for, and then withdraws the node if that was asked for, too.
    pub(crate) async fn run(&self) {
        tokio::select! {
            biased;
            () = self.stopping.asked() => {}
            () = self.keep() => {}
        }
        if self.settings.withdraw {
            let patch = json!({ "metadata": { "labels": { label::SCHEDULABLE: "false" } } });
            if let Err(error) = self.write(&patch).await {
                tracing::warn!(error = chain(&error), "cannot mark the node as unschedulable");
            }
        }
    }

    /// Offers what is found, and looks again whenever that may have changed.
    async fn keep(&self) {
        self.nodes.synced().await;
        self.kubevirts.synced().await;
        loop {
            // From before the look, which takes a while: a device that goes meanwhile is heard of after it.
            let changes = self.looks().then(watch_devices).flatten();
            if self.looks() {
                self.look().await;
            }
            let present = devices::present();
            tokio::select! {
                biased;
                () = self.offer(&present) => {}
                () = self.outdated(&present, changes) => {}
            }
        }
    }

    /// Whether anybody wants to know what there is on this node.
    fn looks(&self) -> bool {
        self.settings.labels || self.settings.devices
    }

    /// Devices and a heartbeat, for ever.
    async fn offer(&self, present: &[Kind]) {
        let has_kvm = self.found.borrow().offer().is_some_and(|offer| !offer.is_emulated);
        let slots = self.config().instances_per_node();
        let devices = self.settings.devices.then(|| Devices::new(&self.settings.kubelet, slots, present, has_kvm));
        let registered = devices.as_ref().map_or_else(|| watch::Sender::new(true).subscribe(), Devices::registered);
        let offering = async {
            match &devices {
                Some(devices) => devices.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = offering => {}
            () = self.beat(registered) => {}
        }
    }

    fn probe(&self) -> Probe {
        Probe::new(self.settings.guard.as_deref(), &self.qemu(), &self.settings.state)
    }

    /// Where QEMU is, whatever this distribution calls it.
    fn qemu(&self) -> PathBuf {
        programs::qemu(&self.settings.qemu).unwrap_or_else(|| self.settings.qemu.clone())
    }

    /// What guests run with.
    async fn find(&self) -> Result<Finding, String> {
        let Settings { state, accelerator, .. } = &self.settings;
        std::fs::create_dir_all(state).map_err(|error| error.to_string())?;
        accelerator::find(*accelerator, &self.probe()).await.map_err(|error| chain(&error))
    }

    /// Asks QEMU what it offers; a node whose QEMU does not answer runs nothing, and says so.
    async fn look(&self) {
        let Settings { guard, findings, .. } = &self.settings;
        let asked = async {
            let finding = self.find().await?;
            let offer = labels::ask(guard.as_deref(), &self.qemu(), finding.accelerator).await;
            Ok((finding, offer.map_err(|error| chain(&error))?))
        };
        match asked.await {
            Ok((finding, offer)) => {
                tracing::info!(%finding, "found the accelerator");
                findings.send_replace(Some(finding));
                self.found.send_replace(Found::Offer(Arc::new(offer)));
            }
            Err(error) => {
                let error: String = error;
                tracing::error!(error, "cannot query QEMU, so no guest can run here");
                self.found.send_replace(Found::Nothing(format!("cannot query QEMU: {error}")));
            }
        }
    }

    /// Resolves when what was found may be true no more: KVM came, went, changed hands, or failed a guest; another device
    /// came; or nothing was found at all, and some time has passed.
    async fn outdated(&self, present: &[Kind], mut changes: Option<Watch>) {
        if !self.looks() {
            return std::future::pending().await;
        }
        if matches!(*self.found.borrow(), Found::Nothing(_)) {
            return sleep(ASK_AGAIN).await;
        }
        // One that goes is noticed by whoever offers it.
        while devices::present().iter().all(|kind| present.contains(kind)) {
            let is_lost = tokio::select! {
                biased;
                () = self.doubt.notified() => false,
                is_lost = next(changes.as_ref()) => is_lost,
            };
            if is_lost {
                changes = watch_devices();
            }
            // The same answer, remembered or found anew, changes nothing.
            let now = self.find().await.ok();
            if now != *self.settings.findings.borrow() {
                return;
            }
        }
    }

    async fn beat(&self, mut registered: watch::Receiver<bool>) {
        // What is not known within this time is told later.
        let _ = timeout(DEVICES, registered.wait_for(|all| *all)).await;
        let mut nodes = self.nodes.subscribe();
        let mut kubevirts = self.kubevirts.subscribe();
        loop {
            let is_ready = *registered.borrow_and_update();
            let wait = match self.tell(is_ready).await {
                Ok(()) => self.chance.jitter(HEARTBEAT, JITTER),
                Err(error) => {
                    tracing::warn!(error = chain(&error), "cannot write the heartbeat");
                    AGAIN
                }
            };
            let made_anew = async {
                loop {
                    let change = nodes.next().await;
                    let uids = (change.old.and_then(|node| node.uid()), change.new.and_then(|node| node.uid()));
                    if uids.1.is_some() && uids.0 != uids.1 {
                        return;
                    }
                }
            };
            let registered_anew = async {
                if registered.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = registered_anew => {}
                () = made_anew => {}
                _ = kubevirts.next() => {}
                () = sleep(wait) => {}
            }
        }
    }

    async fn tell(&self, has_devices: bool) -> Result<(), kube::Error> {
        let Some(node) = self.nodes.all().into_iter().find(|node| node.name_any() == self.settings.node) else {
            return Ok(());
        };
        let offer = self.found.borrow().offer().filter(|_| self.settings.labels);
        let config = self.config();
        let wanted =
            offer.as_deref().map(|offer| labels::labels(offer, &Processor::read(), &config.obsolete_cpu_models()));
        let labels = wanted.map(|wanted| labels::change(&node, &wanted)).unwrap_or_default();
        let is_able = has_devices && (offer.is_some() || !self.settings.labels);
        let pins = pins_cpus(&self.settings.kubelet);
        self.write(&heartbeat(labels, is_able, pins, self.door.as_deref(), (self.now)())).await
    }

    async fn write(&self, patch: &Value) -> Result<(), kube::Error> {
        let api: Api<Node> = Api::all(self.client.clone());
        unless_gone(api.patch(&self.settings.node, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    /// What the KubeVirt object says; with several, the oldest counts.
    fn config(&self) -> ClusterConfig {
        let object = self.kubevirts.all().into_iter().min_by_key(|one| (one.creation_timestamp(), one.uid()));
        ClusterConfig::new(object.as_deref())
    }
}

/// Hears of devices that come and go from now on, if this machine can tell: the kernel gives each user a number of watches.
fn watch_devices() -> Option<Watch> {
    let watch = folders::open_own(Path::new(DEVICE_FOLDER)).and_then(|folder| Watch::on(folder.as_fd()));
    watch.inspect_err(|error| tracing::warn!(%error, "cannot watch /dev for changes; looking from time to time")).ok()
}

/// Waits until devices may have come or gone; true if the next change would not be heard of by this watch.
async fn next(changes: Option<&Watch>) -> bool {
    match changes {
        Some(changes) => changes.changed().await.is_err(),
        None => {
            sleep(ASK_AGAIN).await;
            true
        }
    }
}

fn heartbeat(mut labels: Map<String, Value>, is_able: bool, pins: bool, door: Option<&str>, now: Timestamp) -> Value {
    labels.insert(label::SCHEDULABLE.to_owned(), json!(is_able.to_string()));
    for name in CPU_MANAGER {
        labels.insert(name.to_owned(), json!(pins.to_string()));
    }
    let mut annotations = json!({ annotation::HEARTBEAT: whole_second(now).0.to_string() });
    if let Some(door) = door {
        annotations[annotation::VIRT_HANDLER] = door.into();
    }
    json!({ "metadata": { "labels": labels, "annotations": annotations } })
}

/// Whether the kubelet gives containers CPUs of their own.
fn pins_cpus(kubelet: &Path) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct State {
        policy_name: String,
    }
    let state = std::fs::read(kubelet.join("cpu_manager_state")).ok();
    state
        .and_then(|text| serde_json::from_slice::<State>(&text).ok())
        .is_some_and(|state| state.policy_name == "static")
}

/// What a machine type of an instance stands for here.
pub(crate) fn machine<'a>(offer: &'a Offer, wanted: Option<&str>) -> Option<&'a str> {
    offer.machine(wanted.unwrap_or("q35"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_a_time_of_whole_seconds_and_says_whether_guests_may_come() {
        let now: Timestamp = "2026-07-01T10:00:00.75Z".parse().unwrap();
        let written = heartbeat(Map::new(), false, true, None, now);
        assert_eq!(written["metadata"]["annotations"].as_object().unwrap().len(), 1);
        let reached = heartbeat(Map::new(), true, true, Some("10.0.0.1:8186"), now);
        assert_eq!(reached["metadata"]["annotations"]["orlop.dev/virt-handler"], "10.0.0.1:8186");
        assert_eq!(written["metadata"]["annotations"]["kubevirt.io/heartbeat"], "2026-07-01T10:00:00Z");
        assert_eq!(written["metadata"]["labels"]["kubevirt.io/schedulable"], "false");
        assert_eq!(written["metadata"]["labels"]["cpumanager"], "true");
    }

    #[test]
    fn cpus_are_pinned_by_the_static_policy_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!pins_cpus(folder.path()));
        let state = folder.path().join("cpu_manager_state");
        std::fs::write(&state, r#"{"policyName":"none","checksum":1}"#).unwrap();
        assert!(!pins_cpus(folder.path()));
        std::fs::write(&state, r#"{"policyName":"static","entries":{}}"#).unwrap();
        assert!(pins_cpus(folder.path()));
    }
}
