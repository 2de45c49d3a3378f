//! The node itself: its labels, its devices, and a heartbeat.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::kubevirt::KubeVirt;
use api::names::{annotation, label};
use hypervisor::accelerator::{self, Accelerator};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::Cache;
use manager::context::{Chance, Context, Now};
use manager::stopping::Stopping;
use manager::writing::{unless_gone, whole_second};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use virt_rules::config::ClusterConfig;

use crate::chain;
use crate::devices::Devices;
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
    offer: Arc<OnceLock<Offer>>,
}

impl NodeKeeper {
    pub(crate) fn new(context: &Context, settings: &Settings, offer: Arc<OnceLock<Offer>>) -> Self {
        Self {
            settings: settings.clone(),
            client: context.client.clone(),
            nodes: context.caches.with_fields(&format!("metadata.name={}", settings.node), &[]),
            kubevirts: context.caches.of(&[]),
            now: context.now.clone(),
            chance: context.chance.clone(),
            stopping: context.stopping.clone(),
            offer,
        }
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
                tracing::warn!(error = chain(&error), "the node still says that it takes instances");
            }
        }
    }

    async fn keep(&self) {
        self.nodes.synced().await;
        self.kubevirts.synced().await;
        if self.settings.labels || self.settings.devices {
            self.look().await;
        }
        let has_kvm = self.offer.get().is_some_and(|offer| !offer.is_emulated);
        let slots = self.config().instances_per_node();
        let devices = self.settings.devices.then(|| Devices::new(&self.settings.kubelet, slots, has_kvm));
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

    /// Asks QEMU what it offers; a node whose QEMU does not answer runs nothing, and says so.
    async fn look(&self) {
        let Settings { state, guard, qemu, .. } = &self.settings;
        let asked = async {
            std::fs::create_dir_all(state).map_err(|error| error.to_string())?;
            let accelerator = accelerator::probe(guard.as_deref(), qemu, state).await.map_err(|error| chain(&error))?;
            if accelerator == Accelerator::Tcg {
                tracing::info!("KVM does not work here: guests are emulated");
            }
            labels::ask(guard.as_deref(), qemu, accelerator).await.map_err(|error| chain(&error))
        };
        match asked.await {
            Ok(offer) => drop(self.offer.set(offer)),
            Err(error) => tracing::error!(error, "QEMU does not tell what it offers: no guest will come here"),
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
                    tracing::warn!(error = chain(&error), "no heartbeat was written");
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
        let offer = self.offer.get().filter(|_| self.settings.labels);
        let config = self.config();
        let wanted = offer.map(|offer| labels::labels(offer, &Processor::read(), &config.obsolete_cpu_models()));
        let labels = wanted.map(|wanted| labels::change(&node, &wanted)).unwrap_or_default();
        let is_able = has_devices && (offer.is_some() || !self.settings.labels);
        let pins = pins_cpus(&self.settings.kubelet);
        self.write(&heartbeat(labels, is_able, pins, (self.now)())).await
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

fn heartbeat(mut labels: Map<String, Value>, is_able: bool, pins: bool, now: Timestamp) -> Value {
    labels.insert(label::SCHEDULABLE.to_owned(), json!(is_able.to_string()));
    for name in CPU_MANAGER {
        labels.insert(name.to_owned(), json!(pins.to_string()));
    }
    let annotations = json!({ annotation::HEARTBEAT: whole_second(now).0.to_string() });
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
        let written = heartbeat(Map::new(), false, true, now);
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
