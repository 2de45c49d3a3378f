//! The handler of this machine's node: its instances, and the node itself.

use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use api::names::label;
use hypervisor::accelerator::{Choice, Finding};
use manager::context::Context;
use manager::errors::chain;
use manager::stopping::Stopping;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::NodeGuests;
use crate::guests::door::{Door, DoorSettings};
use crate::host::Machine;
use crate::instances::{Instances, Nodes, Setup};
use crate::networks::{Addresses, Masquerade, Networks};
use crate::node::{Found, NodeKeeper};
use crate::records::Records;
use crate::relay::{self, Relay};

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
    /// Through which others reach this node's guests, once the handler has started.
    pub guests: NodeGuests,
    /// Where virt-api reaches them from another machine; none where it is in this process.
    pub door: Option<DoorSettings>,
    /// How guests come from other nodes and go there; none where there are no others.
    pub relay: Option<Relay>,
    /// Lets addresses come along with guests; none where the pods' network cannot do that.
    pub addresses: Option<Arc<dyn Addresses>>,
    /// Whether a claim belongs to the one launcher that has it: where launchers have users of their own, no other can use its files.
    pub isolates_claims: bool,
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
            guests: NodeGuests::default(),
            door: None,
            relay: None,
            addresses: None,
            isolates_claims: false,
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
    instances: Arc<Instances>,
    node: Arc<NodeKeeper>,
    found: watch::Receiver<Found>,
    /// Where other nodes connect, until somebody serves them.
    door: Arc<Mutex<Option<(TcpListener, Relay)>>>,
    /// Where virt-api connects, likewise, and what it reaches.
    virt_api: Arc<Mutex<Option<Door>>>,
    guests: NodeGuests,
    name: String,
    stopping: Stopping,
}

/// Instances that are looked at at the same time, unless told otherwise.
const WORKERS: usize = 10;

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
        let virt_api = settings.door.clone().and_then(open_to_virt_api);
        let told = virt_api.as_ref().map(|door| door.address().to_owned());
        let node = Arc::new(NodeKeeper::new(context, &settings, told));
        let (guests, name, stopping) = (settings.guests.clone(), settings.node.clone(), context.stopping.clone());
        let state = settings.state.join("networks");
        let door = settings.relay.clone().and_then(open);
        let relay = door.as_ref().and_then(|(listener, relay)| Some((relay.clone(), listener.local_addr().ok()?)));
        let host = Machine::new(settings.pods(), state, context.client.clone(), networks)
            .with_relay(relay, settings.addresses.clone())
            .isolating_claims(settings.isolates_claims);
        let host = Arc::new(host);
        settings.guests.are_of(&settings.node, host.clone());
        let selected = |label: &str| context.caches.selected(&format!("{label}={}", settings.node), &[]);
        // Those that are here, and those that come here.
        let vmis = vec![selected(label::NODE_NAME), selected(label::MIGRATION_TARGET_NODE_NAME)];
        let records = Records::new(settings.state.join("instances"), &settings.node);
        let doubted = node.clone();
        let setup = Setup {
            nodes: Nodes::One(settings.node),
            vmis,
            host,
            records,
            recorder: Some(context.recorder.clone()),
            found: node.found(),
            doubt: Box::new(move || doubted.doubt()),
            workers: settings.workers,
            decide: crate::decide::decide,
        };
        let instances = Arc::new(Instances::new(context, setup));
        let (door, virt_api) = (Arc::new(Mutex::new(door)), Arc::new(Mutex::new(virt_api)));
        Self { instances, found: node.found(), node, door, virt_api, guests, name, stopping }
    }

    /// What keeps guests from this node, if something does.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        match &*self.found.borrow() {
            Found::Nothing(why) => Some(why.clone()),
            Found::NotYet | Found::Offer(_) => None,
        }
    }

    /// Runs until the end is asked for.
    pub async fn run(&self) {
        let door = self.door.lock().unwrap_or_else(PoisonError::into_inner).take();
        let others = async {
            match door {
                Some((listener, relay)) => {
                    relay::serve(listener, relay.credentials.clone(), self.instances.clone()).await;
                }
                None => pending().await,
            }
        };
        let door = self.virt_api.lock().unwrap_or_else(PoisonError::into_inner).take();
        let asked = async {
            if let Some(door) = door {
                door.serve(&self.name, Arc::new(self.guests.clone()), &self.stopping).await;
            }
        };
        tokio::select! {
            biased;
            _ = async { tokio::join!(self.instances.run(), self.node.run(), asked) } => {}
            () = others => {}
        }
    }
}

/// Listens for virt-api. Where that does not work, guests run all the same, and the node does not say that it can be asked.
fn open_to_virt_api(settings: DoorSettings) -> Option<Door> {
    let opened = Door::open(settings);
    opened.inspect_err(|error| tracing::error!(error = chain(error), "virt-api cannot reach this node's guests")).ok()
}

/// Listens for other nodes. Where that does not work, this node's guests stay where they are.
fn open(relay: Relay) -> Option<(TcpListener, Relay)> {
    match relay.listen() {
        Ok(listener) => Some((listener, relay)),
        Err(error) => {
            tracing::error!(%error, ?relay, "cannot listen for migrations; guests cannot come to this node");
            None
        }
    }
}
