//! The rights of virt-controller, and what it does with them. That it has enough, every other seed shows.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use apiserver::{ApiServer, Identity, Place};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{Api, Client};
use manager::context::Chance;
use simulation::{Options, run};
use virt_server::{Component, Settings};

/// In so many seeds each right is used, most of them in the first.
const SEEDS: u64 = 40;

/// What seeds hardly ever come to: a launcher's name is taken, since an answer was lost and the cache is late; and a VM brings the
/// template of a data volume along while the kind is there.
const RARE: [(&str, &str, &str); 2] = [("get", "", "pods"), ("create", "cdi.kubevirt.io", "datavolumes")];

/// What only pools of VMs, migrations, evacuations, workload updates, snapshots, restores, clones and exports need, which are not in the scene.
const WITHOUT_SCENE: [(&str, &str, &str); 53] = [
    ("update", "subresources.kubevirt.io", "virtualmachineinstances/freeze"),
    ("update", "subresources.kubevirt.io", "virtualmachineinstances/pause"),
    ("update", "subresources.kubevirt.io", "virtualmachineinstances/unfreeze"),
    ("update", "subresources.kubevirt.io", "virtualmachineinstances/unpause"),
    ("update", "subresources.kubevirt.io", "virtualmachines/stop"),
    ("watch", "snapshot.kubevirt.io", "virtualmachinesnapshots"),
    ("create", "snapshot.kubevirt.io", "virtualmachinesnapshots"),
    ("delete", "snapshot.kubevirt.io", "virtualmachinesnapshots"),
    ("patch", "snapshot.kubevirt.io", "virtualmachinesnapshots"),
    ("patch", "snapshot.kubevirt.io", "virtualmachinesnapshots/status"),
    ("watch", "snapshot.kubevirt.io", "virtualmachinesnapshotcontents"),
    ("create", "snapshot.kubevirt.io", "virtualmachinesnapshotcontents"),
    ("delete", "snapshot.kubevirt.io", "virtualmachinesnapshotcontents"),
    ("patch", "snapshot.kubevirt.io", "virtualmachinesnapshotcontents"),
    ("patch", "snapshot.kubevirt.io", "virtualmachinesnapshotcontents/status"),
    ("watch", "snapshot.kubevirt.io", "virtualmachinerestores"),
    ("create", "snapshot.kubevirt.io", "virtualmachinerestores"),
    ("delete", "snapshot.kubevirt.io", "virtualmachinerestores"),
    ("patch", "snapshot.kubevirt.io", "virtualmachinerestores"),
    ("patch", "snapshot.kubevirt.io", "virtualmachinerestores/status"),
    ("watch", "export.kubevirt.io", "virtualmachineexports"),
    ("delete", "export.kubevirt.io", "virtualmachineexports"),
    ("patch", "export.kubevirt.io", "virtualmachineexports/status"),
    ("create", "", "secrets"),
    ("watch", "", "services"),
    ("create", "", "services"),
    ("watch", "clone.kubevirt.io", "virtualmachineclones"),
    ("delete", "clone.kubevirt.io", "virtualmachineclones"),
    ("patch", "clone.kubevirt.io", "virtualmachineclones/status"),
    ("get", "snapshot.storage.k8s.io", "volumesnapshots"),
    ("watch", "snapshot.storage.k8s.io", "volumesnapshots"),
    ("create", "snapshot.storage.k8s.io", "volumesnapshots"),
    ("watch", "snapshot.storage.k8s.io", "volumesnapshotclasses"),
    ("create", "", "persistentvolumeclaims"),
    ("delete", "", "persistentvolumeclaims"),
    ("patch", "", "persistentvolumeclaims"),
    ("patch", "apps", "controllerrevisions"),
    ("delete", "cdi.kubevirt.io", "datavolumes"),
    ("create", "", "pods/eviction"),
    ("patch", "", "pods"),
    ("patch", "kubevirt.io", "kubevirts/status"),
    ("create", "kubevirt.io", "virtualmachineinstancemigrations"),
    ("get", "kubevirt.io", "virtualmachineinstancemigrations"),
    ("watch", "kubevirt.io", "virtualmachineinstancemigrations"),
    ("patch", "kubevirt.io", "virtualmachineinstancemigrations"),
    ("delete", "kubevirt.io", "virtualmachineinstancemigrations"),
    ("patch", "kubevirt.io", "virtualmachineinstancemigrations/status"),
    ("watch", "migrations.kubevirt.io", "migrationpolicies"),
    ("create", "kubevirt.io", "virtualmachines"),
    ("delete", "kubevirt.io", "virtualmachines"),
    ("watch", "pool.kubevirt.io", "virtualmachinepools"),
    ("patch", "pool.kubevirt.io", "virtualmachinepools/status"),
    ("patch", "cdi.kubevirt.io", "datavolumes"),
];

/// Verb, group and resource.
type Use = (String, String, String);

/// All that a role allows.
fn granted(role: &str) -> BTreeSet<Use> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let role = runtime.block_on(async {
        let settings = Settings { kinds: Vec::new(), chance: Chance::seeded(1), machine_image: None, guests: None };
        let server = virt_server::start(ApiServer::builder(Place::Memory), settings).await.unwrap();
        let roles: Api<ClusterRole> = Api::all(Client::new(server.for_identity(Identity::admin()), "default"));
        roles.get(role).await.unwrap()
    });
    let mut all = BTreeSet::new();
    for rule in role.rules.unwrap() {
        for group in rule.api_groups.unwrap() {
            for resource in rule.resources.iter().flatten() {
                all.extend(rule.verbs.iter().map(|verb| (verb.clone(), group.clone(), resource.clone())));
            }
        }
    }
    all
}

#[test]
fn virt_controller_uses_every_right_that_it_has() {
    let mut unused = granted("kubevirt-controller");
    // Caches begin with a watch that lists. Whoever may watch may as well list, and older servers ask for it.
    unused.retain(|(verb, ..)| verb != "list");
    for (verb, group, resource) in RARE.into_iter().chain(WITHOUT_SCENE) {
        assert!(unused.remove(&(verb.to_owned(), group.to_owned(), resource.to_owned())), "{verb} {resource}");
    }
    let user = Component::VirtController.identity().user;
    for seed in 0..SEEDS {
        let rights = run(&Options::virtual_machines(seed)).unwrap().rights;
        for right in rights.into_iter().filter(|right| right.user == user) {
            unused.remove(&(right.verb, right.group, right.resource));
        }
        if unused.is_empty() {
            return;
        }
    }
    panic!("{unused:#?}");
}
