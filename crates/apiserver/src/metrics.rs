//! Counts and latencies under the names that dashboards of Kubernetes know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::StoreSize;
use crate::audit;

/// What a request was, as labels. All come from the table of resources or from small sets: nothing a client invents. What
/// definitions add goes with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) scope: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct WithCode {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: String,
    code: u16,
}

impl WithCode {
    fn labels(&self) -> Labels {
        let Self { verb, group, version, resource, subresource, scope, code: _ } = self.clone();
        Labels { verb, group, version, resource, subresource, scope }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    resource: String,
}

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<WithCode, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    objects: Family<OfResource, Gauge>,
    bytes: Gauge,
    quota: Gauge,
    running: Gauge,
    watches: Gauge,
    /// What was counted, by group, version and resource: definitions come and go, and with them what was counted for them.
    counted: Mutex<BTreeMap<(String, String, String), BTreeSet<WithCode>>>,
}

/// One of what is counted as long as it lasts: a request that is worked on, an open watch.
pub(crate) struct Lasting(Gauge);

impl Drop for Lasting {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new(audit: &audit::Counts) -> Self {
        let histogram: fn() -> Histogram =
            || Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0]);
        let metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            objects: Family::default(),
            bytes: Gauge::default(),
            quota: Gauge::default(),
            running: Gauge::default(),
            watches: Gauge::default(),
            counted: Mutex::default(),
        };
        let mut registry = Registry::default();
        registry.register(
            "apiserver_request",
            "Number of requests by verb, resource and status code",
            metrics.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Time in seconds to answer requests, without watches",
            metrics.durations.clone(),
        );
        registry.register("apiserver_storage_objects", "Number of objects in the store", metrics.objects.clone());
        registry.register(
            "apiserver_storage_bytes",
            "Total size of all objects in bytes, as JSON",
            metrics.bytes.clone(),
        );
        registry.register(
            "apiserver_storage_quota_bytes",
            "Maximum total size of all objects in bytes; 0 means no limit",
            metrics.quota.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Number of requests in progress",
            metrics.running.clone(),
        );
        registry.register("apiserver_longrunning_requests", "Number of open watches", metrics.watches.clone());
        registry.register("apiserver_audit_event", "Number of audit events", audit.events.clone());
        registry.register(
            "apiserver_audit_error",
            "Number of audit events that could not be written",
            audit.lost.clone(),
        );
        Self { registry, ..metrics }
    }

    /// Counts a watch for as long as what it gives is kept.
    pub(crate) fn watching(&self) -> Lasting {
        self.watches.inc();
        Lasting(self.watches.clone())
    }

    /// Counts a request for as long as what it gives is kept.
    pub(crate) fn running(&self) -> Lasting {
        self.running.inc();
        Lasting(self.running.clone())
    }

    pub(crate) fn record(&self, labels: &Labels, code: u16, took: Duration) {
        let Labels { verb, group, version, resource, subresource, scope } = labels.clone();
        let counted = WithCode { verb, group, version, resource, subresource, scope, code };
        let is_new = self.requests.get(&counted).is_none();
        self.requests.get_or_create(&counted).inc();
        if is_new {
            let of = (counted.group.clone(), counted.version.clone(), counted.resource.clone());
            self.counted().entry(of).or_default().insert(counted);
        }
        if labels.verb != "WATCH" {
            self.durations.get_or_create(labels).observe(took.as_secs_f64());
        }
    }

    fn counted(&self) -> MutexGuard<'_, BTreeMap<(String, String, String), BTreeSet<WithCode>>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was counted for resources that are no longer served, by group, version and name.
    pub(crate) fn keep(&self, is_served: impl Fn(&str, &str, &str) -> bool) {
        self.counted().retain(|(group, version, resource), series| {
            // Pages are no resources.
            let keeps = resource.is_empty() || is_served(group, version, resource);
            for one in series.iter().filter(|_| !keeps) {
                self.requests.remove(one);
                self.durations.remove(&one.labels());
            }
            keeps
        });
    }

    /// All of it as text.
    pub(crate) fn text<'a>(&self, size: StoreSize, objects: impl Iterator<Item = (&'a str, usize)>) -> String {
        let number = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.bytes.set(number(size.bytes));
        self.quota.set(size.quota.map_or(0, number));
        self.objects.clear();
        for (resource, count) in objects {
            let of = OfResource { resource: resource.to_owned() };
            self.objects.get_or_create(&of).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            // Writing into a string cannot fail; an empty page says that it did.
            text.clear();
        }
        text
    }
}
