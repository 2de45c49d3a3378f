//! When each object was first seen, and first seen as it should be.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use tokio::time::Instant;

use crate::controllers::load::{Change, Watch};
use crate::watched::{Object, Status};

use super::objects::{INSTANCES, MACHINES};
use super::{Kind, Waits};

fn runs(status: &Status, kind: Kind) -> bool {
    match kind {
        Kind::Vm => status.printable_status == "Running" && status.ready,
        Kind::Vmi => status.phase == "Running",
    }
}

/// Both kinds, as two watches see them.
pub(crate) struct Times {
    vms: Watch<Object>,
    vmis: Watch<Object>,
    of_vms: Seen,
    of_vmis: Seen,
}

#[derive(Default)]
struct Seen {
    created: BTreeMap<String, Instant>,
    running: BTreeMap<String, Instant>,
}

impl Times {
    /// From now on.
    pub(crate) fn start(client: &Client) -> Self {
        let json = "application/json";
        let (vms, vmis) = (Watch::start(client, MACHINES, json), Watch::start(client, INSTANCES, json));
        Self { vms, vmis, of_vms: Seen::default(), of_vmis: Seen::default() }
    }

    /// What was seen so far does not count.
    pub(crate) fn forget(&mut self) {
        (self.of_vms, self.of_vmis) = (Seen::default(), Seen::default());
    }

    /// Until so many run; of VMs, the VM and its instance.
    pub(crate) async fn all(&mut self, count: usize, kind: Kind) -> Result<()> {
        let done =
            |times: &Self| times.of_vmis.finished() >= count && (kind == Kind::Vmi || times.of_vms.finished() >= count);
        while !done(self) {
            self.next().await.with_context(|| {
                let (vms, vmis) = (self.of_vms.finished(), self.of_vmis.finished());
                format!("{vmis} of {count} instances run, and {vms} VMs say so")
            })?;
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<()> {
        tokio::select! {
            biased;
            change = self.vmis.next() => self.of_vmis.note(change?, Kind::Vmi),
            change = self.vms.next() => self.of_vms.note(change?, Kind::Vm),
        }
        Ok(())
    }

    pub(super) fn instances(&self) -> Waits {
        self.of_vmis.waits()
    }

    pub(super) fn machines(&self) -> Waits {
        self.of_vms.waits()
    }
}

impl Seen {
    fn note(&mut self, change: Change<Object>, kind: Kind) {
        let Change { at, gone, object } = change;
        let name = object.metadata.name;
        self.created.entry(name.clone()).or_insert(at);
        if !gone && runs(&object.status, kind) {
            self.running.entry(name).or_insert(at);
        }
    }

    /// Those that were seen from their beginning, and run.
    fn finished(&self) -> usize {
        self.running.len()
    }

    fn waits(&self) -> Waits {
        let since = |name: &String| self.created.get(name).copied();
        let mut all: Vec<Duration> =
            self.running.iter().filter_map(|(name, running)| Some(running.duration_since(since(name)?))).collect();
        all.sort();
        let of = |percentile: usize| {
            let index = (all.len() * percentile / 100).min(all.len().saturating_sub(1));
            all.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
        };
        Waits { p50_ms: of(50), p95_ms: of(95) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: Instant, name: &str, status: &serde_json::Value) -> Change<Object> {
        let object = serde_json::json!({ "metadata": { "name": name, "resourceVersion": "1" }, "status": status });
        Change { at, gone: false, object: serde_json::from_value(object).unwrap() }
    }

    #[test]
    fn a_wait_is_from_the_first_sight_to_the_first_run() {
        let start = Instant::now();
        let mut seen = Seen::default();
        for number in 0_u32..100 {
            let (name, at) = (format!("{number:03}"), start + Duration::from_millis(10) * number);
            seen.note(change(at, &name, &serde_json::json!({ "phase": "Pending" })), Kind::Vmi);
            let runs = at + Duration::from_millis(u64::from(number));
            seen.note(change(runs, &name, &serde_json::json!({ "phase": "Running" })), Kind::Vmi);
            seen.note(
                change(runs + Duration::from_secs(9), &name, &serde_json::json!({ "phase": "Running" })),
                Kind::Vmi,
            );
        }
        let Waits { p50_ms, p95_ms } = seen.waits();
        assert!((p50_ms - 50.0).abs() < 0.1 && (p95_ms - 95.0).abs() < 0.1, "{p50_ms} {p95_ms}");
    }

    #[test]
    fn a_vm_runs_when_it_says_so_and_is_ready() {
        let runs = |status: &serde_json::Value| runs(&change(Instant::now(), "a", status).object.status, Kind::Vm);
        assert!(runs(&serde_json::json!({ "printableStatus": "Running", "ready": true })));
        assert!(!runs(&serde_json::json!({ "printableStatus": "Running" })));
        assert!(!runs(&serde_json::json!({ "printableStatus": "Starting", "ready": true })));
    }
}
