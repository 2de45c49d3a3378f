//! DataSources: whether what they stand for is there.
//!
//! Watches: DataSource, PersistentVolumeClaim. Owns: nothing. Emits: the status of DataSources. Absent on purpose: looking for
//! snapshots, which are believed to be there.

use api::cdi::{DataSource, DataSourceCondition, DataSourceSource};
use api::conditions::{self, ConditionStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};
use manager::cache::{Cache, Key};
use manager::context::{Context, Now, Started};
use manager::kit::{Kit, Reconciler, Written};
use manager::worker::Next;
use manager::writing::{difference, guarded, whole_second};
use serde_json::{Value, json};

use crate::volume::is_complete;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "datasource-controller";
const WORKERS: usize = 1;

/// The controller.
#[must_use]
pub fn start(context: &Context) -> Started {
    let kit = Kit::new(NAME, context);
    let controller = DataSources {
        client: context.client.clone(),
        sources: context.caches.of(&[]),
        claims: context.caches.of(&[("namespace", manager::cache::namespace_of)]),
        written: kit.written(),
        now: context.now.clone(),
    };
    let (sources, claims, all) = (controller.sources.clone(), controller.claims.clone(), controller.sources.clone());
    let others = sources.clone();
    kit.reconciles(&sources)
        .watch(&claims, move |change| {
            let stands_for = |source: &DataSource| claim_of(source).as_ref() == Some(&change.key);
            let these = all.all().into_iter().filter(|source| stands_for(source));
            these.map(|source| Key::of(&*source)).collect::<Vec<_>>()
        })
        .watch(&sources, move |change| {
            let names = |source: &DataSource| next_of(source).as_ref() == Some(&change.key);
            let these = others.all().into_iter().filter(|source| names(source));
            these.map(|source| Key::of(&*source)).collect::<Vec<_>>()
        })
        .run(WORKERS, controller)
}

struct DataSources {
    client: Client,
    sources: Cache<DataSource>,
    claims: Cache<PersistentVolumeClaim>,
    written: Written,
    now: Now,
}

impl Reconciler for DataSources {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(source) = self.sources.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*source) {
            return Ok(Next::Wait);
        }
        let claim = claim_of(&source).and_then(|key| self.claims.get(&key));
        let next = next_of(&source).and_then(|key| self.sources.get(&key));
        if let Some(patch) = decide(&source, claim.as_deref(), next.as_deref(), (self.now)()) {
            let api: Api<DataSource> = Api::namespaced(self.client.clone(), &key.namespace);
            self.written.patch_status(&api, key, &patch).await?;
        }
        Ok(Next::Wait)
    }
}

fn claim_of(source: &DataSource) -> Option<Key> {
    let claim = source.spec.source.pvc.as_ref()?;
    Some(Key { namespace: claim.namespace.clone(), name: claim.name.clone() })
}

fn next_of(source: &DataSource) -> Option<Key> {
    let next = source.spec.source.data_source.as_ref()?;
    Some(Key { namespace: next.namespace.clone(), name: next.name.clone() })
}

/// A patch of the status; none if it shows what it should.
///
/// # Guarantees
/// - A DataSource is ready only if the claim that it stands for is bound and has its data, or it stands for a snapshot, or for a DataSource that is
///   ready.
fn decide(
    source: &DataSource,
    claim: Option<&PersistentVolumeClaim>,
    next: Option<&DataSource>,
    now: Timestamp,
) -> Option<Value> {
    let DataSourceSource { pvc, snapshot, data_source } = &source.spec.source;
    let bound =
        claim.is_some_and(|claim| claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound")));
    let behind = next.and_then(|next| next.status.as_ref());
    let is_ready = |of: Option<&[DataSourceCondition]>| conditions::has(of, "Ready", &ConditionStatus::True);
    let (ready, reason, message) = match (pvc, snapshot, data_source) {
        (Some(_), None, None) if bound && !claim.is_some_and(is_complete) => {
            (false, "NotReady", "the claim does not have its data yet")
        }
        (Some(_), None, None) if bound => (true, "Ready", "DataSource is ready to be consumed"),
        (Some(_), None, None) if claim.is_some() => (false, "NotReady", "the claim is not bound"),
        (Some(_), None, None) => (false, "NotFound", "the claim does not exist"),
        (None, Some(_), None) => (true, "Ready", "DataSource is ready to be consumed"),
        (None, None, Some(_)) if behind.is_some_and(|status| is_ready(status.conditions.as_deref())) => {
            (true, "Ready", "DataSource is ready to be consumed")
        }
        (None, None, Some(_)) => (false, "NotReady", "the DataSource that it names is not ready"),
        _ => (false, "NoSource", "set one source"),
    };
    let old = source.status.clone().unwrap_or_default();
    let mut new = old.clone();
    new.source = match data_source {
        Some(_) => behind.and_then(|status| status.source.clone()),
        None => Some(source.spec.source.clone()),
    };
    let condition = DataSourceCondition {
        type_: "Ready".to_owned(),
        status: if ready { ConditionStatus::True } else { ConditionStatus::False },
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..DataSourceCondition::default()
    };
    conditions::set(&mut new.conditions, condition, whole_second(now).0);
    difference(&json!(old), &json!(new)).map(|patch| guarded(&source.metadata, json!({ "status": patch })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_source_is_ready_when_its_claim_is_bound_and_full() {
        let spec = json!({ "source": { "pvc": { "namespace": "n", "name": "c" } } });
        let source: DataSource = serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource", "metadata": { "name": "s" }, "spec": spec,
        }))
        .unwrap();
        let ready = |claim: Option<(&str, &str)>| {
            let claim = claim.map(|(phase, populated)| {
                let metadata = json!({ "annotations": { crate::names::POPULATED: populated } });
                serde_json::from_value(json!({ "metadata": metadata, "status": { "phase": phase } })).unwrap()
            });
            let patch = decide(&source, claim.as_ref(), None, Timestamp::UNIX_EPOCH).unwrap();
            patch["status"]["conditions"][0]["status"] == "True"
        };
        assert!(ready(Some(("Bound", "true"))));
        assert!(!ready(Some(("Bound", "false"))));
        assert!(!ready(Some(("Pending", "true"))));
        assert!(!ready(None));
    }
}
