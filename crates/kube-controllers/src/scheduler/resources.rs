//! What a node has and what a pod asks for, as numbers.
//!
//! CPU is counted in thousandths, everything else in whole units, each rounded up once when it is read. Sums stay exact:
//! a quantity is at most 2^63 units, so that 128 bits hold any number of pods.

use std::collections::BTreeMap;

use api::quantity::Amount;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Named amounts; `pods` is no part of it, since pods are counted and not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources {
    pub(super) milli_cpu: i128,
    pub(super) memory: i128,
    pub(super) ephemeral_storage: i128,
    /// Everything else: extended resources and huge pages. Never holds a zero.
    pub(super) extended: BTreeMap<String, i128>,
}

/// CPU and memory as scores see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) milli_cpu: i128,
    pub(super) memory: i128,
}

/// What a container that asks for nothing counts as in scores, so that such pods do not all go to one node.
const UNSAID: Demand = Demand { milli_cpu: 100, memory: 200 * 1024 * 1024 };

type Quantities = BTreeMap<String, Quantity>;

impl Resources {
    pub(super) fn read(quantities: Option<&Quantities>) -> Self {
        let mut read = Self::default();
        for (name, quantity) in quantities.into_iter().flatten() {
            read.set(name, quantity);
        }
        read
    }

    /// What a pod needs at its peak: all that runs side by side, or one stage of its start if that is more.
    ///
    /// An init container that restarts (a sidecar) runs on, so it counts beside the containers and beside each init
    /// container after it.
    pub(super) fn of_pod(spec: &PodSpec) -> Self {
        pod_requests(spec, Demand::default())
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.combine(other, |mine, theirs| mine + theirs);
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.combine(other, |mine, theirs| mine - theirs);
    }

    fn raise_to(&mut self, other: &Self) {
        self.combine(other, i128::max);
    }

    fn combine(&mut self, other: &Self, merge: impl Fn(i128, i128) -> i128) {
        self.milli_cpu = merge(self.milli_cpu, other.milli_cpu);
        self.memory = merge(self.memory, other.memory);
        self.ephemeral_storage = merge(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.extended {
            let merged = merge(self.extended(name), *amount);
            self.set_extended(name, merged);
        }
    }

    pub(super) fn extended(&self, name: &str) -> i128 {
        self.extended.get(name).copied().unwrap_or_default()
    }

    fn set(&mut self, name: &str, quantity: &Quantity) {
        match name {
            "cpu" => self.milli_cpu = amount(quantity).milli_units(),
            "memory" => self.memory = amount(quantity).units(),
            "ephemeral-storage" => self.ephemeral_storage = amount(quantity).units(),
            "pods" => {}
            _ => self.set_extended(name, amount(quantity).units()),
        }
    }

    fn set_extended(&mut self, name: &str, amount: i128) {
        if amount == 0 {
            self.extended.remove(name);
        } else {
            self.extended.insert(name.to_owned(), amount);
        }
    }
}

impl Demand {
    pub(super) fn of_pod(spec: &PodSpec) -> Self {
        let Resources { milli_cpu, memory, .. } = pod_requests(spec, UNSAID);
        Self { milli_cpu, memory }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.milli_cpu += other.milli_cpu;
        self.memory += other.memory;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.milli_cpu -= other.milli_cpu;
        self.memory -= other.memory;
    }
}

pub(super) fn restarts_always(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The API server admits only quantities that parse.
pub(super) fn amount(quantity: &Quantity) -> Amount {
    quantity.0.parse().unwrap_or_default()
}

fn pod_requests(spec: &PodSpec, unsaid: Demand) -> Resources {
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&container_requests(container, unsaid));
    }
    let mut sidecars = Resources::default();
    let mut highest_stage = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut stage = container_requests(container, unsaid);
        if restarts_always(container) {
            running.add(&stage);
            sidecars.add(&stage);
            stage = sidecars.clone();
        } else {
            stage.add(&sidecars);
        }
        highest_stage.raise_to(&stage);
    }
    running.raise_to(&highest_stage);
    for (name, quantity) in spec.resources.iter().flat_map(|pod_level| &pod_level.requests).flatten() {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            running.set(name, quantity);
        }
    }
    running.add(&Resources::read(spec.overhead.as_ref()));
    running
}

fn container_requests(container: &Container, unsaid: Demand) -> Resources {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let says = |name: &str| requests.is_some_and(|requests| requests.contains_key(name));
    let mut read = Resources::read(requests);
    if !says("cpu") {
        read.milli_cpu = unsaid.milli_cpu;
    }
    if !says("memory") {
        read.memory = unsaid.memory;
    }
    read
}
