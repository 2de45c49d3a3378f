//! The machines behind hollow nodes: launchers that live as long as their pods, whatever becomes of the handlers.
//!
//! A kubelet takes a pod out of the API when its processes have ended. So launchers follow what the API has, at once and without
//! faults: what nobody could see is not simulated.

use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client};
use virt_handler::hollow::{Behaviour, Machines};

use crate::chance::Chance;
use crate::world::World;

/// The launchers of a run, and how their guests behave.
pub(crate) fn of(world: &World) -> Machines {
    let mut chance = Chance::new(world.seed, 5);
    let mut some_seconds = |most: u64| chance.between(Duration::ZERO, Duration::from_secs(most));
    let (start_delay, stop_delay) = (some_seconds(4), some_seconds(8));
    let behaviour = Behaviour { start_delay, stop_delay, ..Behaviour::default() };
    Machines::new(behaviour, world.seed, Some(world.ledger.clone()))
}

/// Lets launchers follow their pods; ends with the runtime.
pub(crate) fn start(machines: &Machines, client: &Client) {
    let (machines, pods) = (machines.clone(), Api::<Pod>::all(client.clone()));
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()));
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => machines.see(&pod),
                Ok(watcher::Event::Delete(pod)) => machines.gone(&pod),
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
            }
        }
    });
}
