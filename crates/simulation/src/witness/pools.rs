//! A pool makes no more VMs than it was ever asked for, and takes no more of them down at a time than it ever might. All that holds for
//! virtual machines holds for those of pools, too.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::Value;
use tokio::time::Instant;

use super::{Heard, POOL, controller, virtual_machines};
use crate::world::World;

/// Who has been ready for so long is known to be ready, however late a cache is.
const KNOWN: Duration = Duration::from_secs(80);
/// The controller whose requests count, as its client is called.
const CONTROLLER: &str = "pool-controller";

/// What is known so far, by UID.
pub(super) struct Seen {
    pub(super) machines: virtual_machines::Seen,
    pools: BTreeMap<String, Pool>,
    /// Those that are there.
    vms: BTreeMap<String, Vm>,
    /// Those that are there.
    instances: BTreeMap<String, Instance>,
}

#[derive(Default)]
struct Pool {
    /// The most VMs that it was ever asked for.
    most: u64,
    /// The most that it ever might take down at a time.
    limit: u64,
    /// VMs that it no longer controls: a request that was on its way knew nothing of it.
    let_go: u64,
}

struct Vm {
    pool: Option<String>,
    marked: bool,
    /// The process that has taken it down, until it is ready again.
    down: Option<String>,
}

struct Instance {
    ready_since: Option<Instant>,
    marked: bool,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self {
            machines: virtual_machines::Seen::new(false),
            pools: BTreeMap::new(),
            vms: BTreeMap::new(),
            instances: BTreeMap::new(),
        }
    }

    pub(super) fn look(&mut self, heard: &Heard, world: &World) -> Option<String> {
        if heard.kind == POOL {
            self.pool(&heard.object);
            return None;
        }
        let of_machines = self.machines.look(heard, world);
        let of_pools = match heard.kind {
            "VirtualMachine" => self.vm(&heard.object, heard.deleted),
            super::VMI => self.instance(&heard.object, heard.deleted, heard.at, world),
            _ => None,
        };
        of_machines.or(of_pools)
    }

    fn pool(&mut self, object: &DynamicObject) {
        let pool = self.pools.entry(object.uid().unwrap_or_default()).or_default();
        let spec = &object.data["spec"];
        pool.most = pool.most.max(spec["replicas"].as_u64().unwrap_or(1));
        let limit = match &spec["maxUnavailable"] {
            Value::Null => pool.most,
            Value::String(text) => pool.most * text.trim_end_matches('%').parse().unwrap_or(0) / 100,
            number => number.as_u64().unwrap_or(0),
        };
        pool.limit = pool.limit.max(limit).max(1);
    }

    /// Never more VMs than asked for, those included that go.
    fn vm(&mut self, object: &DynamicObject, deleted: bool) -> Option<String> {
        let uid = object.uid()?;
        let known = self.vms.remove(&uid);
        if deleted {
            return None;
        }
        let pool = controller(object).filter(|owner| owner.kind == POOL).map(|owner| owner.uid);
        let marked = object.metadata.deletion_timestamp.is_some();
        let (is_new, before, down) = known.map_or((true, None, None), |known| (false, known.pool, known.down));
        if let Some(before) = before.filter(|before| pool.as_ref() != Some(before)) {
            self.pools.entry(before).or_default().let_go += 1;
        }
        let others = self.vms.values().filter(|vm| vm.pool == pool).count();
        let known = pool.as_ref().filter(|_| is_new).and_then(|pool| self.pools.get(pool));
        let broken =
            known.filter(|known| u64::try_from(others).is_ok_and(|others| others >= known.most + known.let_go));
        let broken = broken.map(|known| {
            let (name, most) = (object.name_any(), known.most);
            format!("VM {name} was made beside {others} others, for a pool that was never asked for more than {most}")
        });
        self.vms.insert(uid, Vm { pool, marked, down });
        broken
    }

    /// For an update, a process takes no more down than the pool allows: those that it took down before are ready again, or gone.
    fn instance(&mut self, object: &DynamicObject, deleted: bool, at: Instant, world: &World) -> Option<String> {
        let uid = object.uid()?;
        let known = self.instances.remove(&uid);
        let owner = controller(object)?.uid;
        let marked = deleted || object.metadata.deletion_timestamp.is_some();
        let was_marked = known.as_ref().is_some_and(|known| known.marked);
        let was_ready = known.and_then(|known| known.ready_since);
        let ready_since = (!marked && is_ready(&object.data)).then(|| was_ready.unwrap_or(at));
        if !deleted {
            self.instances.insert(uid.clone(), Instance { ready_since, marked });
        }
        let vm = self.vms.get_mut(&owner)?;
        if ready_since.is_some() {
            vm.down = None;
        }
        let taker = world.taker(&uid).filter(|taker| taker.ends_with(CONTROLLER));
        let was_known = was_ready.is_some_and(|since| at.saturating_duration_since(since) >= KNOWN);
        if !marked || was_marked || vm.marked || !was_known {
            return None;
        }
        vm.down = Some(taker?);
        let (down, pool) = (vm.down.clone(), vm.pool.clone()?);
        let all = self.vms.values().filter(|vm| !vm.marked && vm.down == down && vm.pool.as_ref() == Some(&pool));
        let (all, limit) = (all.count(), self.pools.get(&pool)?.limit);
        u64::try_from(all).is_ok_and(|all| all > limit).then(|| {
            format!(
                "VMI {} is number {all} that its pool has taken down, and it never might take more than {limit}",
                object.name_any()
            )
        })
    }
}

fn is_ready(vmi: &Value) -> bool {
    let conditions = vmi["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    vmi["status"]["phase"] == "Running"
        && conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
