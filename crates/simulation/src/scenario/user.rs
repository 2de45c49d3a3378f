//! A user who never stops, and meets no faults.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, Client};
use serde_json::{Value, json};
use virt_handler::hollow::Machines;

use crate::chance::Chance;
use crate::process::NODES;
use crate::witness::Witness;
use crate::world::World;
use crate::{Options, Scene};

mod deployments;
mod pools;
mod services;
mod virtual_machines;

const NAMESPACES: [&str; 2] = ["blue", "green"];

/// A user, by what it works with.
pub(super) enum User {
    Deployments(deployments::User),
    Services(services::User),
    VirtualMachines(virtual_machines::User),
    Pools(pools::User),
}

impl User {
    pub(super) fn new(
        client: Client,
        witness: Witness,
        machines: Machines,
        world: &Arc<World>,
        options: &Options,
    ) -> Self {
        match options.scene {
            Scene::Deployments => Self::Deployments(deployments::User::new(client, witness, options.seed)),
            Scene::Services => Self::Services(services::User::new(client, witness, world.clone(), options.seed)),
            Scene::VirtualMachines(scene) => Self::VirtualMachines(virtual_machines::User::new(
                client,
                witness,
                machines,
                scene.by_force,
                options.seed,
            )),
            Scene::Pools(_) => Self::Pools(pools::User::new(client, witness, options.seed)),
        }
    }

    pub(super) async fn begin(&mut self) -> Result<(), kube::Error> {
        match self {
            Self::Deployments(user) => user.begin().await,
            Self::Services(user) => user.begin().await,
            Self::VirtualMachines(user) => user.begin().await,
            Self::Pools(user) => user.begin().await,
        }
    }

    /// Does something, and tells what.
    pub(super) async fn act(&mut self) -> Result<String, kube::Error> {
        match self {
            Self::Deployments(user) => user.act().await,
            Self::Services(user) => user.act().await,
            Self::VirtualMachines(user) => user.act().await,
            Self::Pools(user) => user.act().await,
        }
    }

    /// Lets go of everything that would not come to rest by itself.
    pub(super) async fn let_go(&mut self) -> Result<(), kube::Error> {
        match self {
            Self::Deployments(user) => user.let_go().await,
            Self::Services(user) => user.let_go().await,
            Self::VirtualMachines(user) => user.let_go().await,
            Self::Pools(user) => user.let_go().await,
        }
    }

    /// Does what others wait for, again and again, and tells what, if anything was left to do.
    pub(super) async fn tend(&mut self) -> Result<Option<String>, kube::Error> {
        match self {
            Self::Deployments(user) => user.tend().await,
            Self::Services(user) => user.tend().await,
            Self::VirtualMachines(user) => user.tend().await,
            Self::Pools(user) => user.tend().await,
        }
    }

    /// Changes something once more when all has come to rest, and tells what. None, if there is nothing left to change.
    pub(super) async fn change_at_rest(&mut self) -> Result<Option<String>, kube::Error> {
        match self {
            Self::Deployments(_) | Self::Services(_) | Self::VirtualMachines(_) => Ok(None),
            Self::Pools(user) => user.change_at_rest().await,
        }
    }

    /// Whether somebody waits for a time that is still to come.
    pub(super) async fn sees_patience(&self, now: Timestamp) -> Result<bool, kube::Error> {
        match self {
            Self::Deployments(_) => Ok(false),
            Self::Services(user) => user.sees_patience(now).await,
            Self::VirtualMachines(user) => user.sees_patience(now).await,
            Self::Pools(user) => user.sees_patience(now).await,
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, kube::Error> {
    serde_json::from_value(value).map_err(kube::Error::SerdeError)
}

/// A user may be told no, but neither that it cannot be understood nor that the server is broken.
fn tolerate<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if (401..500).contains(&status.code) => Ok(None),
        result => result.map(Some),
    }
}

fn told<T>(done: &Option<T>) -> &'static str {
    if done.is_some() { "done" } else { "refused" }
}

fn policy(chance: &mut Chance) -> PropagationPolicy {
    match chance.below(4) {
        0 => PropagationPolicy::Orphan,
        1 => PropagationPolicy::Foreground,
        _ => PropagationPolicy::Background,
    }
}

async fn make_namespaces(client: &Client) -> Result<(), kube::Error> {
    for name in NAMESPACES {
        make_namespace(client, name).await?;
    }
    Ok(())
}

async fn make_namespace(client: &Client, name: &str) -> Result<Option<Namespace>, kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    tolerate(api.create(&PostParams::default(), &read(json!({ "metadata": { "name": name } }))?).await)
}

/// Deletes the namespace, or makes it again if it is gone.
async fn renew_namespace(client: &Client, name: &str) -> Result<String, kube::Error> {
    if make_namespace(client, name).await?.is_some() {
        return Ok(format!("make namespace {name}"));
    }
    let api: Api<Namespace> = Api::all(client.clone());
    tolerate(api.delete(name, &DeleteParams::default()).await)?;
    Ok(format!("delete namespace {name}"))
}

async fn cordon(client: &Client, chance: &mut Chance) -> Result<String, kube::Error> {
    let node = chance.one_of(&NODES).copied().unwrap_or(NODES[0]);
    let cordoned = chance.permille(500);
    set_unschedulable(client, node, cordoned).await?;
    Ok(format!("cordon {node}: {cordoned}"))
}

async fn uncordon(client: &Client) -> Result<(), kube::Error> {
    for node in NODES {
        set_unschedulable(client, node, false).await?;
    }
    Ok(())
}

async fn set_unschedulable(client: &Client, node: &str, value: bool) -> Result<(), kube::Error> {
    let patch = json!({ "spec": { "unschedulable": value } });
    let api: Api<Node> = Api::all(client.clone());
    tolerate(api.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await).map(drop)
}
