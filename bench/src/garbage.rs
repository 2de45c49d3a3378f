//! How fast what has lost its owners goes: config maps in trees of three levels, and a watch that tells when each is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::Method;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::controllers::load::{Versioned, Watch, ask, each, namespace, send};
use crate::controllers::plane::Plane;
use crate::controllers::process::Usage;
use crate::controllers::program::{Subject, Whose};
use crate::controllers::requests::Requests;

/// Children of an owner.
const CHILDREN: usize = 10;
/// Children of a child.
const GRANDCHILDREN: usize = 9;

/// What is deleted, and how.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Trees.
    pub owners: usize,
    /// Whether an owner goes before its dependents or after them.
    pub policy: Policy,
}

/// In which order a tree goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// From the top.
    Background,
    /// From the leaves.
    Foreground,
}

impl Policy {
    /// As the table has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Foreground => "foreground",
        }
    }
}

impl Load {
    /// Objects of all trees.
    #[must_use]
    pub fn objects(self) -> usize {
        self.owners * (1 + CHILDREN * (1 + GRANDCHILDREN))
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// From the first owner's deletion until the last object was gone.
    pub seconds: f64,
    /// What the collector took meanwhile, with all that is in its process.
    pub usage: Usage,
    /// What it keeps for each object, before anything is deleted.
    pub bytes_per_object: f64,
    /// CPU of a server that is a process of its own, with its store.
    pub server_cpu_seconds: f64,
    /// Without the deletion of the owners.
    pub requests: Requests,
}

/// An object, as far as the watch reads it.
#[derive(Clone, Debug, Deserialize)]
struct Meta {
    metadata: Named,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    name: String,
    resource_version: String,
    uid: String,
}

impl Versioned for Meta {
    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Collected before the load comes: then the collector runs.
const CANARY: &str = "canary";

/// Runs one load on a server that has had none.
///
/// # Errors
/// When something does not start, or objects stay.
pub async fn measure(plane: &Plane, load: Load, whose: Whose) -> Result<Measured> {
    let client = plane.client().await?;
    namespace(&client).await?;
    let mut watch = Watch::start(&client, MAPS, METADATA);
    let mut empty = None;
    if whose != Whose::Inside {
        let collector = Subject::Garbage.start(whose, plane).await?;
        canary(&client, &mut watch, "first").await.context("the collector does not start")?;
        empty = Some(collector.usage());
    }
    make(&client, load.owners).await?;
    // In this process all else is there already.
    let empty = empty.unwrap_or_else(Usage::own);
    let collector = Subject::Garbage.start(whose, plane).await?;
    canary(&client, &mut watch, "second").await.context("the collector does not start")?;
    let idle = collector.usage();
    let before = Requests::so_far(&client).await?;
    let server = plane.cpu_seconds();
    let start = Instant::now();
    let (deleted, last) = tokio::try_join!(delete(&client, load), until_gone(&mut watch, load.objects()))?;
    let () = deleted;
    let requests = Requests::answered(&client, &before, "DELETE configmaps", load.objects()).await?;
    let requests = requests.without("DELETE configmaps", load.owners);
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let bytes_per_object = (idle.resident_mib - empty.resident_mib) * 1024.0 * 1024.0 / load.objects() as f64;
    Ok(Measured {
        seconds: (last - start).as_secs_f64(),
        usage: collector.usage() - idle,
        bytes_per_object,
        server_cpu_seconds: plane.cpu_seconds() - server,
        requests,
    })
}

/// Until so many are gone; when the last one was.
async fn until_gone(watch: &mut Watch<Meta>, objects: usize) -> Result<Instant> {
    let mut gone = BTreeSet::new();
    loop {
        let change = watch.next().await.with_context(|| format!("{} of {objects} objects are gone", gone.len()))?;
        if change.gone && !change.object.metadata.name.starts_with(CANARY) {
            gone.insert(change.object.metadata.uid);
        }
        if gone.len() == objects {
            return Ok(change.at);
        }
    }
}

/// Waits until an object goes because its owner did.
async fn canary(client: &Client, watch: &mut Watch<Meta>, which: &str) -> Result<()> {
    let (owner, child) = (format!("{CANARY}-{which}"), format!("{CANARY}-{which}-child"));
    let uid = map(client, &owner, None).await?;
    map(client, &child, Some((&owner, &uid))).await?;
    send(client, Method::DELETE, &format!("{MAPS}/{owner}"), None).await?;
    loop {
        let change = watch.next().await?;
        if change.gone && change.object.metadata.name == child {
            return Ok(());
        }
    }
}

/// Makes a config map and gives its UID.
async fn map(client: &Client, name: &str, owner: Option<(&str, &str)>) -> Result<String> {
    let owners = owner.map(|(name, uid)| {
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true }])
    });
    let body = json!({ "metadata": { "name": name, "ownerReferences": owners }, "data": { "key": "value" } });
    let answer = ask(client, Method::POST, MAPS, Some(&body)).await?;
    let made: Meta = serde_json::from_str(&answer).context("read what was made")?;
    Ok(made.metadata.uid)
}

/// Makes all trees, one level after the other.
async fn make(client: &Client, owners: usize) -> Result<()> {
    let mut level: Vec<(String, String)> = Vec::new();
    for (depth, children) in [owners, CHILDREN, GRANDCHILDREN].into_iter().enumerate() {
        let above = Arc::new(level);
        let made = Arc::new(Mutex::new(Vec::new()));
        let count = above.len().max(1) * children;
        let (client, parents, sink) = (client.clone(), above.clone(), made.clone());
        each(count, move |number| {
            let (client, parents, sink) = (client.clone(), parents.clone(), sink.clone());
            async move {
                let name = format!("level{depth}-{number}");
                let owner = parents.get(number / children).map(|(name, uid)| (name.as_str(), uid.as_str()));
                let uid = map(&client, &name, owner).await?;
                sink.lock().await.push((name, uid));
                Ok(())
            }
        })
        .await?;
        level = std::mem::take(&mut *made.lock().await);
    }
    Ok(())
}

async fn delete(client: &Client, load: Load) -> Result<()> {
    let policy = match load.policy {
        Policy::Background => "Background",
        Policy::Foreground => "Foreground",
    };
    let options: Value = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy });
    let (client, options) = (client.clone(), Arc::new(options));
    each(load.owners, move |number| {
        let (client, options) = (client.clone(), options.clone());
        async move { send(&client, Method::DELETE, &format!("{MAPS}/level0-{number}"), Some(&options)).await }
    })
    .await
}
