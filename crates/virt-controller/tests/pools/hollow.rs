//! A pool on hollow nodes: real objects, a real scheduler, agents and handlers that only pretend, and nodes that die.

use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use node::hollow::HollowNodes;
use tokio::task::JoinHandle;
use virt_handler::hollow::HollowHandlers;
use virt_server::Component;

use super::*;

const COUNT: usize = 50;
const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];
/// Removes the pods of nodes that are gone.
const POD_COLLECTOR: &str = "pod-garbage-collector-controller";

/// A world with machines in it.
struct Farm {
    world: World,
    machines: BTreeMap<&'static str, Vec<JoinHandle<()>>>,
}

impl Farm {
    async fn start() -> Self {
        let world = World::start().await;
        let scheduler = world.server.program(&Component::Scheduler);
        tokio::spawn(Scheduler::new(&scheduler, DEFAULT_SCHEDULER).run());
        testkit::world::watch(&scheduler);
        run_controller(&world, POD_COLLECTOR);
        run_controller(&world, GARBAGE_COLLECTOR);
        let machines = NODES.map(|name| (name, machine(&world, name))).into();
        Self { world, machines }
    }

    /// The agent, the handler and all guests end at once, and whoever runs the cluster says that the machine is gone for good.
    async fn dies(&mut self, name: &str) {
        self.machines.remove(name).unwrap().iter().for_each(JoinHandle::abort);
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.world.client.clone());
        nodes.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until all VMs are ready on nodes that are there, and what is asked for holds; says how many were unavailable at a time
    /// at most.
    async fn settles(&self, count: usize, done: impl Fn(&[VirtualMachineInstance]) -> bool) -> usize {
        let mut most = 0;
        for _ in 0..1800 {
            let instances = instances(&self.world).await;
            let is_there = |one: &&VirtualMachineInstance| {
                let node = one.status.as_ref().and_then(|status| status.node_name.as_deref());
                is_ready(one) && node.is_some_and(|node| self.machines.contains_key(node))
            };
            let ready = instances.iter().filter(is_there).count();
            if (ready, instances.len()) == (count, count) && done(&instances) {
                return most;
            }
            most = most.max(count.saturating_sub(ready));
            sleep(Duration::from_secs(2)).await;
        }
        let pool = pools(&self.world).get("farm").await.unwrap();
        panic!("it does not settle: {}", json!(pool.status));
    }

    async fn uids(&self) -> BTreeSet<Option<String>> {
        self.world.vms().list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::uid).collect()
    }
}

/// A node with its agent and its handler.
fn machine(world: &World, name: &str) -> Vec<JoinHandle<()>> {
    let agent = world.server.program(&Component::Node(name.to_owned()));
    let nodes = HollowNodes::new(&agent, [name.to_owned()], node::hollow::Behaviour::default());
    let handler = world.server.program(&Component::HollowHandlers);
    let handlers = HollowHandlers::new(&handler, [name.to_owned()], virt_handler::hollow::Behaviour::default());
    let (of_agent, of_handler) = (testkit::world::watch(&agent), testkit::world::watch(&handler));
    let agent = tokio::spawn(async move { nodes.run().await });
    let handler = tokio::spawn(async move { handlers.run().await });
    vec![of_agent, of_handler, agent, handler]
}

#[tokio::test(start_paused = true)]
async fn fifty_vms_are_scaled_and_updated_while_nodes_die() {
    let mut farm = Farm::start().await;
    create(&farm.world, COUNT, &json!({ "maxUnavailable": "20%", "autohealing": { "startUpFailureThreshold": 1 } }))
        .await;
    let all: BTreeSet<String> = (0..COUNT).map(|number| format!("farm-{number}")).collect();
    farm.settles(COUNT, |_| true).await;
    assert_eq!(names(&farm.world, COUNT).await, all);
    let shown = status(&farm.world, |status| status.ready_replicas == Some(50)).await;
    assert_eq!((shown.replicas, shown.label_selector.as_deref()), (Some(50), Some("app=farm")));
    let seen = pools(&farm.world).get_scale("farm").await.unwrap();
    assert_eq!(seen.status.as_ref().map(|status| status.replicas), Some(50));

    // A new template reaches all of them, and no more than a fifth are down at a time.
    change(&farm.world, &another_template("second")).await;
    let has_changed = |one: &VirtualMachineInstance| one.spec.hostname.as_deref() == Some("second");
    let most = farm.settles(COUNT, |all| all.iter().all(has_changed)).await;
    assert!(most <= 10, "{most} were unavailable at a time");

    // Two of three nodes die: their VMs come back elsewhere by themselves, and the pool stays what it is.
    let before = farm.uids().await;
    farm.dies("node-b").await;
    farm.dies("node-c").await;
    let most = farm.settles(COUNT, |_| true).await;
    assert!((1..COUNT).contains(&most), "{most} were lost with their nodes");
    assert_eq!(farm.uids().await, before);

    // One guest cannot start: its VM is made again from the template, and no other is.
    let fate = json!({ "metadata": { "annotations": { "orlop.io/hollow-fate": "fail-to-start" } } });
    farm.world.patch_vm("farm-7", &json!({ "spec": { "template": fate } })).await;
    farm.world.vmis().delete("farm-7", &DeleteParams::default()).await.unwrap();
    let cursed = farm.world.vms().get("farm-7").await.unwrap().uid();
    until("another VM", async || {
        let found = farm.world.vms().get_opt("farm-7").await.unwrap();
        found.filter(|vm| vm.uid() != cursed)
    })
    .await;
    farm.settles(COUNT, |_| true).await;
    let after = farm.uids().await;
    assert_eq!(before.difference(&after).collect::<Vec<_>>(), [&cursed]);

    // Smaller and larger again: the lowest numbers are used again.
    scale(&farm.world, 20).await;
    let left = names(&farm.world, 20).await;
    // Until they are gone, their numbers are taken.
    farm.settles(20, |_| true).await;
    scale(&farm.world, COUNT).await;
    farm.settles(COUNT, |_| true).await;
    assert_eq!(names(&farm.world, COUNT).await, all);
    assert!(left.is_subset(&all));
    status(&farm.world, |status| status.ready_replicas == Some(50)).await;
    farm.world.writes();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(farm.world.writes(), Vec::<String>::new(), "at rest nobody writes");
}
