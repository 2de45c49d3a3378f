//! The roles of our own programs: what each needs, and nothing else. Kubernetes' controllers and its scheduler have those that
//! every cluster gives them.
//!
//! Programs write what they have seen with `patch`, so few of them update; what they read they mostly read from caches, which
//! list and watch.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Subject};

use super::{Grant, LOOK, group, role, rule, user, words};
use crate::components::{CACHES, Component, HOLLOW, LOCAL_VOLUMES, NODES, SETUP, STATUS};

const CORE: &str = "";
const VIRT: &str = "kubevirt.io";
const SNAPSHOT: &str = "snapshot.kubevirt.io";
const SNAPSHOT_STATUSES: [&str; 3] =
    ["virtualmachinerestores/status", "virtualmachinesnapshotcontents/status", "virtualmachinesnapshots/status"];
const EXPORT: &str = "export.kubevirt.io";
const VOLUME_SNAPSHOT: &str = "snapshot.storage.k8s.io";
const QUIET: [&str; 5] = [
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/pause",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/unpause",
    "virtualmachines/stop",
];
const LEASES: &str = "coordination.k8s.io";
/// The namespace of leaders' leases, and of nodes'.
const LEADERS: &str = "kube-system";
const NODE_LEASES: &str = "kube-node-lease";

const CONTROLLER: &str = "kubevirt-controller";
const APISERVER: &str = "kubevirt-apiserver";
/// To know who the front proxy is.
const FRONT_PROXY: &str = "orlop.dev:front-proxy-reader";
const HANDLER: &str = "kubevirt-handler";
const LEADING: &str = "orlop.dev:leader-locking-virt-controller";
const NODE: &str = "orlop.dev:node";
const NODE_LEASE: &str = "orlop.dev:node-lease";
const VOLUMES: &str = "orlop.dev:local-volumes";
const DATA_VOLUMES: &str = "orlop.dev:data-volumes";
const CDI: &str = "cdi.kubevirt.io";

/// What caches ask for.
const FOLLOW: [&str; 2] = ["list", "watch"];

pub(super) fn roles() -> [ClusterRole; 13] {
    [
        role(CONTROLLER, None, controller()),
        role(LEADING, None, leading("virt-controller")),
        role(APISERVER, None, virt_api()),
        role(FRONT_PROXY, None, vec![named(&LOOK, CORE, "configmaps", "extension-apiserver-authentication")]),
        role(HANDLER, None, handler()),
        role(HOLLOW, None, hollow_handler()),
        role(NODE, None, node()),
        role(NODE_LEASE, None, vec![rule(&["create", "patch"], LEASES, &["leases"])]),
        role(VOLUMES, None, volumes()),
        role(DATA_VOLUMES, None, data_volumes()),
        role(CACHES, None, caches()),
        role(SETUP, None, setup()),
        role(STATUS, None, vec![rule(&FOLLOW, CORE, &["nodes", "pods"])]),
    ]
}

/// Who has which of them.
pub(super) fn grants() -> [Grant; 13] {
    let everywhere = |role: &'static str, whom: Subject| Grant { name: role, role, whom, namespace: None };
    let only_in = |namespace: &'static str, role: &'static str, whom: Subject| {
        let namespace = Some(namespace);
        Grant { name: role, role, whom, namespace }
    };
    let controller = || user(&Component::VirtController.identity().user);
    let volumes = Component::Node(String::new()).controller(LOCAL_VOLUMES).user;
    [
        everywhere(CONTROLLER, controller()),
        only_in(LEADERS, LEADING, controller()),
        everywhere(APISERVER, user(&Component::VirtApi.identity().user)),
        only_in(LEADERS, FRONT_PROXY, user(&Component::VirtApi.identity().user)),
        everywhere(HANDLER, user(&Component::VirtHandler.identity().user)),
        everywhere(HOLLOW, group(HOLLOW)),
        everywhere(NODE, group(NODES)),
        only_in(NODE_LEASES, NODE_LEASE, group(NODES)),
        everywhere(VOLUMES, user(&volumes)),
        everywhere(DATA_VOLUMES, user(&Component::DataVolumes.identity().user)),
        everywhere(CACHES, user(CACHES)),
        everywhere(SETUP, user(SETUP)),
        everywhere(STATUS, user(STATUS)),
    ]
}

/// Those of the programs that also run on Kubernetes. The others do what a cluster has somebody else for.
const ON_KUBERNETES: [&str; 5] = [CONTROLLER, LEADING, APISERVER, FRONT_PROXY, HANDLER];

pub(super) fn roles_on_kubernetes() -> impl Iterator<Item = ClusterRole> {
    let is_there = |role: &ClusterRole| role.metadata.name.as_deref().is_some_and(|name| ON_KUBERNETES.contains(&name));
    roles().into_iter().filter(is_there)
}

pub(super) fn grants_on_kubernetes() -> impl Iterator<Item = Grant> {
    grants().into_iter().filter(|grant| ON_KUBERNETES.contains(&grant.role))
}

fn events() -> PolicyRule {
    rule(&["create", "patch"], CORE, &["events"])
}

/// To be elected under a lease of this name.
fn leading(lease: &str) -> Vec<PolicyRule> {
    vec![rule(&["create"], LEASES, &["leases"]), named(&["get", "update"], LEASES, "leases", lease)]
}

/// About one object.
fn named(verbs: &[&str], group: &str, resource: &str, name: &str) -> PolicyRule {
    PolicyRule { resource_names: Some(words(&[name])), ..rule(verbs, group, &[resource]) }
}

fn controller() -> Vec<PolicyRule> {
    let instancetypes = [
        "virtualmachineclusterinstancetypes",
        "virtualmachineclusterpreferences",
        "virtualmachineinstancetypes",
        "virtualmachinepreferences",
    ];
    vec![
        rule(&FOLLOW, VIRT, &["kubevirts"]),
        rule(&["patch"], VIRT, &["kubevirts/status"]),
        rule(&["get", "list", "watch", "create", "delete", "patch"], VIRT, &["virtualmachines"]),
        rule(&["patch"], VIRT, &["virtualmachines/status"]),
        rule(&["get", "list", "watch", "create", "delete", "patch"], VIRT, &["virtualmachineinstances"]),
        rule(&FOLLOW, "pool.kubevirt.io", &["virtualmachinepools"]),
        rule(&["patch"], "pool.kubevirt.io", &["virtualmachinepools/status"]),
        rule(&["get", "list", "watch"], VIRT, &["virtualmachineinstancereplicasets"]),
        rule(&["patch"], VIRT, &["virtualmachineinstancereplicasets/status"]),
        rule(&["get", "list", "watch", "create", "patch", "delete"], VIRT, &["virtualmachineinstancemigrations"]),
        rule(&["patch"], VIRT, &["virtualmachineinstancemigrations/status"]),
        rule(&FOLLOW, "migrations.kubevirt.io", &["migrationpolicies"]),
        rule(&["list", "watch", "create", "delete", "patch"], SNAPSHOT, &["virtualmachinesnapshots"]),
        rule(&["list", "watch", "create", "delete", "patch"], SNAPSHOT, &["virtualmachinesnapshotcontents"]),
        rule(&["list", "watch", "create", "delete", "patch"], SNAPSHOT, &["virtualmachinerestores"]),
        rule(&["patch"], SNAPSHOT, &SNAPSHOT_STATUSES),
        rule(&["list", "watch", "delete"], "clone.kubevirt.io", &["virtualmachineclones"]),
        rule(&["patch"], "clone.kubevirt.io", &["virtualmachineclones/status"]),
        rule(&["list", "watch", "delete"], EXPORT, &["virtualmachineexports"]),
        rule(&["patch"], EXPORT, &["virtualmachineexports/status"]),
        rule(&["list", "watch", "create"], CORE, &["services"]),
        // Tokens and certificates of exports. It reads none, not even its own.
        rule(&["create"], CORE, &["secrets"]),
        rule(&["get", "list", "watch", "create"], VOLUME_SNAPSHOT, &["volumesnapshots"]),
        rule(&FOLLOW, VOLUME_SNAPSHOT, &["volumesnapshotclasses"]),
        // A guest whose disks are copied is quiet for that moment; and one whose disks are restored is stopped.
        rule(&["update"], "subresources.kubevirt.io", &QUIET),
        rule(&FOLLOW, "instancetype.kubevirt.io", &instancetypes),
        rule(&["get", "list", "watch", "create", "delete", "patch"], CORE, &["pods"]),
        rule(&["patch"], CORE, &["pods/status"]),
        rule(&["create"], CORE, &["pods/eviction"]),
        rule(&["list", "watch", "patch"], CORE, &["nodes"]),
        rule(&FOLLOW, CORE, &["namespaces", "resourcequotas"]),
        rule(&["list", "watch", "create", "delete", "patch"], CORE, &["persistentvolumeclaims"]),
        rule(&["list", "watch", "delete"], "policy", &["poddisruptionbudgets"]),
        rule(&FOLLOW, "storage.k8s.io", &["storageclasses"]),
        rule(&["list", "watch", "create", "delete", "patch"], "apps", &["controllerrevisions"]),
        rule(&FOLLOW, "apiextensions.k8s.io", &["customresourcedefinitions"]),
        rule(&["list", "watch", "create", "delete", "patch"], CDI, &["datavolumes"]),
        events(),
    ]
}

/// What is done to virtual machines in the name of users, each of whom is asked about before.
fn virt_api() -> Vec<PolicyRule> {
    let instancetypes = [
        "virtualmachineclusterinstancetypes",
        "virtualmachineclusterpreferences",
        "virtualmachineinstancetypes",
        "virtualmachinepreferences",
    ];
    vec![
        rule(&["create"], "authorization.k8s.io", &["subjectaccessreviews"]),
        // Who may see its pages.
        rule(&["create"], "authentication.k8s.io", &["tokenreviews"]),
        rule(&FOLLOW, VIRT, &["kubevirts", "virtualmachineinstancepresets"]),
        rule(&["get", "list", "patch"], VIRT, &["virtualmachines", "virtualmachineinstances"]),
        rule(&["patch"], VIRT, &["virtualmachines/status"]),
        rule(&["create", "list"], VIRT, &["virtualmachineinstancemigrations"]),
        rule(&["list"], SNAPSHOT, &["virtualmachinerestores"]),
        // Where the handlers of guests are.
        rule(&["get"], CORE, &["nodes"]),
        named(&["get"], "apiextensions.k8s.io", "customresourcedefinitions", "datavolumes.cdi.kubevirt.io"),
        rule(&["get"], "instancetype.kubevirt.io", &instancetypes),
        rule(&["get"], "apps", &["controllerrevisions"]),
        // Whose guest is moved when its launcher is to be evicted.
        rule(&["get"], CORE, &["pods"]),
    ]
}

fn handler() -> Vec<PolicyRule> {
    vec![
        rule(&FOLLOW, VIRT, &["kubevirts"]),
        rule(&["get"], VIRT, &["virtualmachines"]),
        rule(&["get", "list", "watch", "patch"], VIRT, &["virtualmachineinstances"]),
        rule(&["list", "watch", "patch"], CORE, &["nodes"]),
        events(),
    ]
}

/// What a handler does besides that only pretends: a kubelet would tell of the guest's end, and of devices.
fn hollow_handler() -> Vec<PolicyRule> {
    vec![rule(&FOLLOW, CORE, &["pods"]), rule(&["patch"], CORE, &["nodes/status", "pods/status"])]
}

/// Less than Kubernetes lets its nodes do (`system:node`), of which a part goes by names that a role cannot know.
fn node() -> Vec<PolicyRule> {
    vec![
        rule(&["list", "watch", "create", "patch"], CORE, &["nodes"]),
        rule(&["list", "watch", "delete"], CORE, &["pods"]),
        rule(&["patch"], CORE, &["nodes/status", "pods/status"]),
        rule(&LOOK, CORE, &["configmaps", "secrets"]),
        rule(&["get"], CORE, &["persistentvolumeclaims", "persistentvolumes"]),
        rule(&["create"], CORE, &["serviceaccounts/token"]),
        events(),
    ]
}

fn volumes() -> Vec<PolicyRule> {
    vec![
        rule(&["get", "list", "watch", "patch"], CORE, &["persistentvolumeclaims"]),
        rule(&["get", "list", "watch", "create", "delete", "patch"], CORE, &["persistentvolumes"]),
        rule(&["patch"], CORE, &["persistentvolumeclaims/status", "persistentvolumes/status"]),
        rule(&FOLLOW, CORE, &["pods"]),
        rule(&FOLLOW, "storage.k8s.io", &["storageclasses"]),
        rule(&["list", "watch", "patch"], VOLUME_SNAPSHOT, &["volumesnapshots"]),
        rule(&["list", "watch", "create", "delete", "patch"], VOLUME_SNAPSHOT, &["volumesnapshotcontents"]),
        rule(&["patch"], VOLUME_SNAPSHOT, &["volumesnapshots/status", "volumesnapshotcontents/status"]),
        rule(&FOLLOW, VOLUME_SNAPSHOT, &["volumesnapshotclasses"]),
        events(),
    ]
}

/// To make claims and to fill them.
fn data_volumes() -> Vec<PolicyRule> {
    vec![
        rule(&FOLLOW, CDI, &["datasources", "datavolumes"]),
        rule(&["list", "watch", "create"], CDI, &["cdiconfigs", "storageprofiles"]),
        rule(
            &["patch"],
            CDI,
            &["cdiconfigs/status", "datasources/status", "datavolumes/status", "storageprofiles/status"],
        ),
        rule(&["list", "watch", "create", "patch"], CORE, &["persistentvolumeclaims"]),
        rule(&["list", "watch", "create", "delete"], CORE, &["pods"]),
        rule(&FOLLOW, "storage.k8s.io", &["storageclasses"]),
        rule(&FOLLOW, VOLUME_SNAPSHOT, &["volumesnapshots"]),
        events(),
    ]
}

/// All that the programs of one process watch together.
fn caches() -> Vec<PolicyRule> {
    let core = [
        "configmaps",
        "endpoints",
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "serviceaccounts",
        "services",
    ];
    let instancetypes = [
        "virtualmachineclusterinstancetypes",
        "virtualmachineclusterpreferences",
        "virtualmachineinstancetypes",
        "virtualmachinepreferences",
    ];
    vec![
        rule(&FOLLOW, CORE, &core),
        rule(&FOLLOW, "apps", &["controllerrevisions", "deployments", "replicasets", "statefulsets"]),
        rule(&FOLLOW, "discovery.k8s.io", &["endpointslices"]),
        rule(&FOLLOW, "apiextensions.k8s.io", &["customresourcedefinitions"]),
        rule(&LOOK, LEASES, &["leases"]),
        rule(&FOLLOW, "policy", &["poddisruptionbudgets"]),
        rule(&FOLLOW, "rbac.authorization.k8s.io", &["clusterroles"]),
        rule(&FOLLOW, "storage.k8s.io", &["storageclasses"]),
        rule(
            &FOLLOW,
            VIRT,
            &[
                "kubevirts",
                "virtualmachineinstancemigrations",
                "virtualmachineinstancereplicasets",
                "virtualmachineinstances",
                "virtualmachines",
            ],
        ),
        rule(&FOLLOW, "migrations.kubevirt.io", &["migrationpolicies"]),
        rule(&FOLLOW, "instancetype.kubevirt.io", &instancetypes),
        rule(&FOLLOW, "pool.kubevirt.io", &["virtualmachinepools"]),
        rule(
            &FOLLOW,
            SNAPSHOT,
            &["virtualmachinerestores", "virtualmachinesnapshotcontents", "virtualmachinesnapshots"],
        ),
        rule(&FOLLOW, "clone.kubevirt.io", &["virtualmachineclones"]),
        rule(&FOLLOW, EXPORT, &["virtualmachineexports"]),
        rule(&FOLLOW, VOLUME_SNAPSHOT, &["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"]),
        rule(&FOLLOW, CDI, &["cdiconfigs", "datasources", "datavolumes", "storageprofiles"]),
    ]
}

fn setup() -> Vec<PolicyRule> {
    vec![
        rule(&["get", "create"], CORE, &["namespaces", "serviceaccounts"]),
        rule(&["get", "create"], "storage.k8s.io", &["storageclasses"]),
        rule(&["get", "create"], VOLUME_SNAPSHOT, &["volumesnapshotclasses"]),
        rule(&["get", "list", "watch", "create", "patch"], VIRT, &["kubevirts"]),
        rule(&["patch"], VIRT, &["kubevirts/status"]),
    ]
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;

    /// What makes whoever has it root, or lets them read what everybody keeps.
    #[test]
    fn no_program_has_a_wildcard_or_grants_rights() {
        for role in roles() {
            let name = role.name_any();
            for rule in role.rules.unwrap_or_default() {
                let (groups, resources) = (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default());
                let all = || rule.verbs.iter().chain(&groups).chain(&resources);
                assert!(all().all(|word| !word.contains('*')), "{name}: {resources:?}");
                let grants = ["escalate", "bind", "impersonate"];
                assert!(!rule.verbs.iter().any(|verb| grants.contains(&verb.as_str())), "{name}: {resources:?}");
                let reads = rule.verbs.iter().all(|verb| LOOK.contains(&verb.as_str()));
                let of_roles = groups.iter().any(|group| group == "rbac.authorization.k8s.io");
                let is_secret = resources.iter().any(|one| one == "secrets");
                let only_makes = rule.verbs == ["create"] && name == CONTROLLER;
                assert!(reads || !of_roles, "{name} writes {resources:?}");
                assert!(reads || !is_secret || only_makes, "{name} changes secrets");
                let may_read_secrets = [NODE, CACHES].contains(&name.as_str());
                assert!(may_read_secrets || !is_secret || only_makes, "{name} reads secrets");
            }
        }
    }

    /// A cluster's own nodes and users get nothing from us.
    #[test]
    fn on_kubernetes_only_our_own_accounts_have_roles_of_programs() {
        assert_eq!((roles_on_kubernetes().count(), grants_on_kubernetes().count()), (5, 5));
        for grant in grants_on_kubernetes() {
            assert!(grant.whom.name.starts_with("system:serviceaccount:kubevirt:"), "{}", grant.name);
        }
    }

    #[test]
    fn every_role_is_somebodys_and_nobody_has_one_that_is_not_there() {
        let mut made: Vec<String> = roles().iter().map(kube::ResourceExt::name_any).collect();
        let mut given: Vec<String> = grants().iter().map(|grant| grant.role.to_owned()).collect();
        made.sort();
        given.sort();
        assert_eq!(made, given);
    }
}
