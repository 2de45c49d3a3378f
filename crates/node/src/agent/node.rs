//! The node as the cluster sees it: its object, and what keeps it in order.

mod machine;
mod object;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use manager::cache::Key;
use manager::errors::{chain, is_race};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::parts::Failure;
use super::record::Record;
use super::{PAUSE, Shared};
use crate::lease;
pub(super) use machine::Machine;
use object::Described;

/// How often pressure is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// A status that does not change is written again after this long, as a kubelet does.
const REPORT: Duration = Duration::from_secs(300);
/// How often room on the disk is looked at.
const COLLECT: Duration = Duration::from_secs(300);
/// Images are removed above the first, down to the second, in percent of the disk.
const FULL: u64 = 85;
const ENOUGH: u64 = 80;

/// Registers the node and keeps it and its lease up to date, for ever.
pub(super) async fn keep(shared: &Arc<Shared>) {
    let (client, name) = (&shared.client, &shared.settings.node);
    while let Err(error) = register(shared).await {
        tracing::warn!(node = name, error = chain(&error), "cannot register the node");
        sleep(PAUSE).await;
    }
    tokio::select! {
        biased;
        () = report(shared) => {}
        () = lease::keep(client, name, &shared.now) => {}
    }
}

fn described(shared: &Shared) -> Value {
    let known = shared.nodes.get(&Key { namespace: String::new(), name: shared.settings.node.clone() });
    object::object(&Described {
        settings: &shared.settings,
        machine: &shared.machine,
        pressure: shared.machine.pressure(&shared.settings.root),
        devices: &shared.devices.amounts(),
        known: known.as_deref(),
        now: (shared.now)(),
    })
}

/// Makes the node, or brings one of that name up to date.
async fn register(shared: &Shared) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(shared.client.clone());
    let object = described(shared);
    let node = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let labels = json!({ "metadata": { "labels": object["metadata"]["labels"] } });
            let patch = Patch::Merge(&labels);
            api.patch(&shared.settings.node, &PatchParams::default(), &patch).await?;
            write(shared, &object["status"]).await
        }
        made => made.map(drop),
    }
}

async fn write(shared: &Shared, status: &Value) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(shared.client.clone());
    // Conditions and amounts that it does not name are others'.
    let mut patch = json!({ "status": status });
    // Addresses are merged by their type, of which there is one per family: the whole list takes the place of the old.
    if let Some(addresses) = patch["status"]["addresses"].as_array_mut() {
        addresses.push(json!({ "$patch": "replace" }));
    }
    api.patch_status(&shared.settings.node, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop)
}

/// Writes the status when it changes, when somebody has written another, and now and then.
async fn report(shared: &Arc<Shared>) {
    let mut devices = shared.devices.changes();
    let mut nodes = shared.nodes.subscribe();
    let mut written: Option<(Value, Instant)> = None;
    shared.nodes.synced().await;
    loop {
        let known = shared.nodes.get(&Key { namespace: String::new(), name: shared.settings.node.clone() });
        let status = described(shared)["status"].take();
        let fresh = written.as_ref().is_some_and(|(last, at)| {
            object::without_times(last) == object::without_times(&status) && at.elapsed() < REPORT
        });
        let good = known.as_ref().is_some_and(|node| object::is_as_told(node, &status));
        let result = match &known {
            Some(_) if fresh && good => Ok(()),
            Some(_) => write(shared, &status).await,
            // Somebody has deleted it. There is no other node that could take its place.
            None => register(shared).await,
        };
        match result {
            Ok(()) if !(fresh && good) => written = Some((status, Instant::now())),
            Ok(()) => {}
            Err(error) => {
                // Somebody was faster, or has deleted it: the next look tells.
                if is_race(&error) {
                    tracing::debug!(error = chain(&error), "cannot write the status of the node");
                } else {
                    tracing::warn!(error = chain(&error), "cannot write the status of the node");
                }
                sleep(PAUSE).await;
            }
        }
        tokio::select! {
            biased;
            _ = devices.changed() => {}
            _ = nodes.next() => {}
            () = sleep(LOOK) => {}
        }
    }
}

/// Removes images that no pod uses, when the disk is nearly full.
pub(super) async fn collect_images(shared: &Arc<Shared>) {
    loop {
        sleep(COLLECT).await;
        let Some((total, available)) = machine::room(&shared.settings.root) else { continue };
        let used = total.saturating_sub(available);
        if used.saturating_mul(100) < total.saturating_mul(FULL) {
            continue;
        }
        let free = total.saturating_mul(100 - ENOUGH) / 100;
        let keep = used_images(shared).await;
        match shared.settings.images.collect(&keep, free).await {
            Ok(removed) => tracing::info!(images = removed.len(), "removed images to free disk space"),
            Err(Failure(error)) => tracing::warn!(error, "cannot remove images"),
        }
    }
}

async fn used_images(shared: &Shared) -> BTreeSet<String> {
    let entries: Vec<_> = shared.entries().values().cloned().collect();
    let mut used = BTreeSet::new();
    for entry in entries {
        let entry = entry.lock().await;
        used.extend(entry.record.iter().flat_map(Record::contents).cloned());
    }
    used
}

/// What a node has, by name.
pub(super) type Amounts = BTreeMap<String, api::quantity::Amount>;
