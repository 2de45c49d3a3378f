//! Addresses that pods have claimed while they ran: what is told of a pod follows them.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Shared, Which, record};

/// Takes in what the network says, from before this agent began as well.
pub(super) async fn follow(shared: &Arc<Shared>) {
    let Some(network) = &shared.settings.network else { return pending().await };
    let mut claimed = network.claimed();
    loop {
        let now = claimed.borrow_and_update().clone();
        take_in(shared, &now).await;
        if claimed.changed().await.is_err() {
            return pending().await;
        }
    }
}

async fn take_in(shared: &Arc<Shared>, claimed: &BTreeMap<String, Vec<IpAddr>>) {
    let known: Vec<Which> = shared.entries().keys().filter(|which| claimed.contains_key(&which.uid)).cloned().collect();
    for which in known {
        let (Some(addresses), Some(entry)) = (claimed.get(&which.uid), shared.entries().get(&which).cloned()) else {
            continue;
        };
        let mut entry = entry.lock().await;
        // Before it is connected, it is told its addresses when it is.
        let Some(record) = entry.record.as_mut().filter(|record| record.addresses.is_some()) else { continue };
        // One that has lost its addresses to another pod is about to end; where it was reached stays on record.
        if addresses.is_empty() || record.addresses.as_ref() == Some(addresses) {
            continue;
        }
        tracing::info!(pod = which.name, namespace = which.namespace, ?addresses, "the pod has other addresses now");
        record.addresses = Some(addresses.clone());
        if let Err(error) = record::write(&shared.settings.root, record) {
            tracing::warn!(%error, pod = which.name, "cannot write the pod's record");
        }
        shared.queue.add(which);
    }
}
