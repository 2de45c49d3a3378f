//! A node's lease: as long as it is renewed, the node is there.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use manager::context::Now;
use manager::errors::chain;
use serde_json::json;
use tokio::time::sleep;

/// As a kubelet renews its lease.
const RENEWAL: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;

/// Renews the node's lease for ever; what fails is tried again the next time.
pub(crate) async fn keep(client: &Client, name: &str, now: &Now) {
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    loop {
        if let Err(error) = renew(&api, name, now()).await {
            tracing::warn!(node = name, error = chain(&error), "cannot renew the lease of a node");
        }
        sleep(RENEWAL).await;
    }
}

async fn renew(api: &Api<Lease>, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let spec = json!({ "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": MicroTime(now) });
    match api.patch(name, &PatchParams::default(), &Patch::Merge(&json!({ "spec": spec }))).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let lease = json!({ "metadata": { "name": name }, "spec": spec });
            let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            api.create(&PostParams::default(), &lease).await.map(drop)
        }
        renewed => renewed.map(drop),
    }
}
