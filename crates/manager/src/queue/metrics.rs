//! What queues do, under the names that Kubernetes uses.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The metrics of all queues of a process.
#[derive(Clone)]
pub struct QueueMetrics {
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    waited: Family<Name, Histogram, fn() -> Histogram>,
    worked: Family<Name, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: String,
}

impl Default for QueueMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram =
            || Histogram::new([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0]);
        Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(histogram),
            worked: Family::new_with_constructor(histogram),
        }
    }
}

impl QueueMetrics {
    /// Shows them in a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("workqueue_depth", "Keys that wait", self.depth.clone());
        registry.register("workqueue_adds", "Keys that were added", self.adds.clone());
        registry.register("workqueue_retries", "Keys that were added again after a failure", self.retries.clone());
        registry.register("workqueue_queue_duration_seconds", "How long keys waited", self.waited.clone());
        registry.register("workqueue_work_duration_seconds", "How long keys were worked on", self.worked.clone());
    }

    pub(super) fn of(&self, name: &str) -> OfQueue {
        let name = Name { name: name.to_owned() };
        OfQueue {
            depth: self.depth.get_or_create_owned(&name),
            adds: self.adds.get_or_create_owned(&name),
            retries: self.retries.get_or_create_owned(&name),
            waited: self.waited.get_or_create_owned(&name),
            worked: self.worked.get_or_create_owned(&name),
        }
    }
}

/// Those of one queue.
pub(super) struct OfQueue {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
}

impl OfQueue {
    pub(super) fn depth(&self, depth: usize) {
        self.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    pub(super) fn added(&self) {
        self.adds.inc();
    }

    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    pub(super) fn taken(&self, waited: Duration) {
        self.waited.observe(waited.as_secs_f64());
    }

    pub(super) fn done(&self, worked: Duration) {
        self.worked.observe(worked.as_secs_f64());
    }
}
