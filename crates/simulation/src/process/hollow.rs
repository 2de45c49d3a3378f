//! Hollow nodes and handlers: nobody elects them, and they lead nobody.

use std::time::Duration;

use manager::caches::Caches;
use manager::context::Context;
use manager::events::Recorder;
use manager::fence::Fence;
use manager::queue::QueueMetrics;
use manager::stopping::Stopping;
use node::hollow::{Behaviour, HollowNodes};
use tokio::task::JoinHandle;
use virt_handler::hollow::{HollowHandlers, Twin};
use virt_server::Component;

use super::{NODES, Start};
use crate::chance::Chance;
use crate::{Scene, wire};

pub(super) fn nodes(start: Start<'_>) -> JoinHandle<()> {
    let behaviour = match start.options.scene {
        Scene::Deployments | Scene::Services => {
            let (start_delay, stop_delay) = (Duration::from_secs(1), Duration::from_secs(2));
            Behaviour { start_delay, stop_delay, ..Behaviour::default() }
        }
        Scene::VirtualMachines(_) | Scene::Pools(_) => {
            let mut chance = Chance::new(start.seed, 4);
            let (start_delay, stop_delay) = (some_seconds(&mut chance, 3), some_seconds(&mut chance, 8));
            Behaviour { start_delay, stop_delay, ..Behaviour::default() }
        }
    };
    run(start, &Component::Node("hollow".to_owned()), "kubelet", |context| {
        let nodes = HollowNodes::new(context, NODES.map(ToOwned::to_owned), behaviour);
        async move { nodes.run().await }
    })
}

pub(super) fn handlers(start: Start<'_>, nodes: &'static [&'static str]) -> JoinHandle<()> {
    let twin = start.options.scene.guests().map_or(Twin::None, |guests| guests.handlers);
    let machines = start.machines.clone();
    run(start, &Component::HollowHandlers, "virt-handler", |context| {
        let handlers = HollowHandlers::over(context, nodes.iter().map(ToString::to_string), machines, twin);
        async move { handlers.run().await }
    })
}

fn some_seconds(chance: &mut Chance, most: u64) -> Duration {
    chance.between(Duration::ZERO, Duration::from_secs(most))
}

fn run<F, R>(start: Start<'_>, component: &Component, tells: &'static str, hollow: F) -> JoinHandle<()>
where
    F: FnOnce(&Context) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let now = start.now();
    let Start { server, world, identity, chance, .. } = start;
    let service = server.for_identity(component.identity());
    let client = |name: &str| wire::client(service.clone(), world, &identity, name, None, &Fence::default());
    let (recorder, writer) = Recorder::new(client("events"), tells, now.clone());
    let caches = Caches::new(client("shared-caches"), chance.clone());
    let context = Context {
        client: client("hollow"),
        caches: caches.clone(),
        recorder,
        now,
        queues: QueueMetrics::default(),
        chance,
        stopping: Stopping::default(),
    };
    let (hollow, world) = (hollow(&context), world.clone());
    tokio::spawn(async move {
        // Its recorder keeps the writer of events.
        let _context = context;
        tokio::select! {
            biased;
            () = hollow => world.note(format!("{identity} has ended")),
            () = caches.run() => {}
            () = writer => {}
        }
    })
}
