//! What queues do, under the names that Kubernetes uses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// The metrics of all queues of a process.
#[derive(Clone)]
pub struct QueueMetrics {
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    waited: Family<Name, Histogram, fn() -> Histogram>,
    worked: Family<Name, Histogram, fn() -> Histogram>,
    running: Running,
}

/// Since when keys are being worked on, by queue. What is stuck shows only here: it never gets to the histograms.
#[derive(Clone, Debug, Default)]
struct Running(Arc<Mutex<BTreeMap<String, Vec<Instant>>>>);

impl Running {
    fn change(&self, queue: &str, change: impl FnOnce(&mut Vec<Instant>)) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(running.entry(queue.to_owned()).or_default());
    }
}

impl Collector for Running {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ages = |since: &[Instant]| -> Vec<f64> { since.iter().map(|at| at.elapsed().as_secs_f64()).collect() };
        let mut show = |name: &str, help: &str, value: fn(&[f64]) -> f64| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (queue, since) in &running {
                let labels = Name { name: queue.clone() };
                ConstGauge::new(value(&ages(since))).encode(metric.encode_family(&labels)?)?;
            }
            Ok(())
        };
        let unfinished = "Total time in seconds that the keys in progress have been processed so far";
        show("workqueue_unfinished_work_seconds", unfinished, |ages| ages.iter().sum())?;
        let longest = "Longest time in seconds that a key in progress has been processed so far";
        show("workqueue_longest_running_processor_seconds", longest, |ages| ages.iter().copied().fold(0.0, f64::max))
    }
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
            running: Running::default(),
        }
    }
}

impl QueueMetrics {
    /// Shows them in a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("workqueue_depth", "Number of waiting keys", self.depth.clone());
        registry.register("workqueue_adds", "Number of keys that were added", self.adds.clone());
        registry.register(
            "workqueue_retries",
            "Number of keys that were added again after a failure",
            self.retries.clone(),
        );
        registry.register("workqueue_queue_duration_seconds", "Time in seconds that keys waited", self.waited.clone());
        registry.register(
            "workqueue_work_duration_seconds",
            "Time in seconds that it took to process keys",
            self.worked.clone(),
        );
        registry.register_collector(Box::new(self.running.clone()));
    }

    pub(super) fn of(&self, queue: &str) -> OfQueue {
        let name = Name { name: queue.to_owned() };
        self.running.change(queue, |_| {});
        OfQueue {
            queue: queue.to_owned(),
            running: self.running.clone(),
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
    queue: String,
    running: Running,
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

    pub(super) fn taken(&self, waited: Duration, now: Instant) {
        self.waited.observe(waited.as_secs_f64());
        self.running.change(&self.queue, |running| running.push(now));
    }

    pub(super) fn done(&self, started: Instant) {
        self.worked.observe(started.elapsed().as_secs_f64());
        self.running.change(&self.queue, |running| {
            if let Some(index) = running.iter().position(|since| *since == started) {
                running.swap_remove(index);
            }
        });
    }
}
