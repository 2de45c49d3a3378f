//! The roles that KubeVirt gives to users of virtual machines. They are parts of `admin`, `edit` and `view`, so that whoever
//! has one of those in a namespace has the same say about its virtual machines.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::{Grant, LOOK, group, role, rule};

/// The group whose members run VMs on this machine.
pub const OPERATORS: &str = "orlop.dev:operators";

const SUBRESOURCES: &str = "subresources.kubevirt.io";
/// Those who run VMs on this machine and are not root on it.
const OPERATOR: &str = "orlop.dev:operator";
const OPERATOR_HERE: &str = "orlop.dev:operator-of-namespace";
/// Everybody who is known may ask for the version.
const DEFAULT: &str = "kubevirt.io:default";
/// And see which sizes there are.
const OFFER: &str = "instancetype.kubevirt.io:view";

const CHANGE: [&str; 4] = ["create", "delete", "patch", "update"];

/// Groups and their kinds that users of a namespace make, change and delete.
const OWN: [(&str, &[&str]); 7] = [
    (
        "kubevirt.io",
        &[
            "virtualmachines",
            "virtualmachineinstances",
            "virtualmachineinstancepresets",
            "virtualmachineinstancereplicasets",
        ],
    ),
    ("snapshot.kubevirt.io", &["virtualmachinesnapshots", "virtualmachinesnapshotcontents", "virtualmachinerestores"]),
    ("export.kubevirt.io", &["virtualmachineexports"]),
    ("clone.kubevirt.io", &["virtualmachineclones"]),
    ("backup.kubevirt.io", &["virtualmachinebackups", "virtualmachinebackuptrackers"]),
    (
        "instancetype.kubevirt.io",
        &[
            "virtualmachineinstancetypes",
            "virtualmachineclusterinstancetypes",
            "virtualmachinepreferences",
            "virtualmachineclusterpreferences",
        ],
    ),
    ("pool.kubevirt.io", &["virtualmachinepools"]),
];

/// Kinds that they may look at: moving a machine is for those who keep the nodes.
const SEEN: [(&str, &[&str]); 2] =
    [("kubevirt.io", &["virtualmachineinstancemigrations"]), ("migrations.kubevirt.io", &["migrationpolicies"])];

/// What every viewer may ask of a machine.
const TOLD: [&str; 8] = [
    "virtualmachines/expand-spec",
    "virtualmachines/objectgraph",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/filesystemlist",
    "virtualmachineinstances/userlist",
    "virtualmachineinstances/objectgraph",
    "virtualmachineinstances/sev/fetchcertchain",
    "virtualmachineinstances/sev/querylaunchmeasurement",
];

/// Ways into a machine.
const ENTERED: [&str; 5] = [
    "virtualmachines/portforward",
    "virtualmachineinstances/console",
    "virtualmachineinstances/vnc",
    "virtualmachineinstances/portforward",
    "virtualmachineinstances/usbredir",
];

/// A picture of what others see there. Only administrators have it in KubeVirt.
const SCREENSHOT: &str = "virtualmachineinstances/vnc/screenshot";

/// What is done to a machine.
const DONE: [&str; 19] = [
    "virtualmachines/start",
    "virtualmachines/stop",
    "virtualmachines/restart",
    "virtualmachines/addvolume",
    "virtualmachines/removevolume",
    "virtualmachines/memorydump",
    "virtualmachines/removememorydump",
    "virtualmachines/evacuate/cancel",
    "virtualmachineinstances/pause",
    "virtualmachineinstances/unpause",
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/reset",
    "virtualmachineinstances/softreboot",
    "virtualmachineinstances/addvolume",
    "virtualmachineinstances/removevolume",
    "virtualmachineinstances/evacuate/cancel",
    "virtualmachineinstances/sev/setupsession",
    "virtualmachineinstances/sev/injectlaunchsecret",
];

/// The first segment of what has two: all that Kubernetes asks about, which KubeVirt's own roles do not grant.
const FIRST_SEGMENTS: [&str; 3] =
    ["virtualmachines/evacuate", "virtualmachineinstances/evacuate", "virtualmachineinstances/sev"];

/// What is offered to everybody who makes VMs.
const OFFERED: [&str; 2] = ["virtualmachineclusterinstancetypes", "virtualmachineclusterpreferences"];

/// The group of what CDI serves, and Orlop in its place.
const CDI: &str = "cdi.kubevirt.io";
/// Its kinds that users of a namespace make, change and delete.
const IMPORTED: [&str; 2] = ["datasources", "datavolumes"];
/// Its kinds that say how imports are made here. Everybody who is known may look at them, as with CDI.
const CONFIGURED: [&str; 2] = ["cdiconfigs", "storageprofiles"];
const CONFIG_READER: &str = "cdi.kubevirt.io:config-reader";
/// What a VM's snapshot consists of, and where that of a claim can be followed.
const COPIES: &str = "snapshot.storage.k8s.io";

/// Who has which of them from the beginning.
pub(super) fn grants() -> [Grant; 4] {
    [
        Grant { name: DEFAULT, role: DEFAULT, whom: group("system:authenticated"), namespace: None },
        Grant { name: OFFER, role: OFFER, whom: group("system:authenticated"), namespace: None },
        Grant { name: OPERATORS, role: OPERATOR, whom: group(OPERATORS), namespace: None },
        Grant { name: OPERATORS, role: OPERATOR_HERE, whom: group(OPERATORS), namespace: Some("default") },
    ]
}

pub(super) fn roles() -> [ClusterRole; 8] {
    let all = |more: &[&'static str]| [&LOOK[..], &CHANGE, more].concat();
    let kinds = |verbs: &[&str]| OWN.iter().map(|(group, kinds)| rule(verbs, group, kinds)).collect::<Vec<_>>();
    let seen = || SEEN.iter().map(|(group, kinds)| rule(&LOOK, group, kinds)).collect::<Vec<_>>();
    let told = || vec![rule(&["get"], SUBRESOURCES, &TOLD), rule(&["update"], SUBRESOURCES, &["expand-vm-spec"])];
    let used = || vec![rule(&["get"], SUBRESOURCES, &ENTERED), rule(&["update"], SUBRESOURCES, &DONE)];
    let config = || vec![rule(&["get", "list"], "kubevirt.io", &["kubevirts"])];
    let plugins = |verbs: &[&str]| vec![rule(verbs, "plugin.kubevirt.io", &["plugins"])];
    let everything = all(&["deletecollection"]);
    let migrate = vec![
        rule(&["update"], SUBRESOURCES, &["virtualmachines/migrate"]),
        rule(&everything, "kubevirt.io", &["virtualmachineinstancemigrations"]),
    ];
    let known = [config(), vec![rule(&["get", "list"], SUBRESOURCES, &["version", "guestfs"])]].concat();
    let seen_too = vec![rule(&["get"], SUBRESOURCES, &[SCREENSHOT])];
    let admin = [told(), used(), seen_too, kinds(&everything), plugins(&everything), seen()].concat();
    [
        role(DEFAULT, None, known),
        role(OFFER, None, vec![rule(&LOOK, "instancetype.kubevirt.io", &OFFERED)]),
        role("kubevirt.io:admin", Some("admin"), admin),
        role("kubevirt.io:edit", Some("edit"), [told(), used(), kinds(&all(&[])), seen(), config()].concat()),
        role("kubevirt.io:view", Some("view"), [told(), kinds(&LOOK), plugins(&LOOK), seen(), config()].concat()),
        role("kubevirt.io:migrate", None, migrate),
        operator(),
        operator_here(),
    ]
}

/// The roles that users have of CDI, which stands in for itself on a cluster, and of volumes. `datavolumes/source` is not among
/// them: it is the right to have a claim copied to another namespace, which is refused to everybody here.
pub(super) fn storage_roles() -> [ClusterRole; 5] {
    let everything = [&LOOK[..], &CHANGE, &["deletecollection"]].concat();
    let own = || vec![rule(&everything, CDI, &IMPORTED)];
    let seen = vec![rule(&LOOK, CDI, &[&CONFIGURED[..], &IMPORTED].concat())];
    [
        role("cdi.kubevirt.io:admin", Some("admin"), own()),
        role("cdi.kubevirt.io:edit", Some("edit"), own()),
        role("cdi.kubevirt.io:view", Some("view"), seen),
        role(CONFIG_READER, None, vec![rule(&LOOK, CDI, &CONFIGURED)]),
        role("snapshot.storage.k8s.io:view", Some("view"), vec![rule(&LOOK, COPIES, &["volumesnapshots"])]),
    ]
}

/// Who has which of those from the beginning.
pub(super) fn storage_grants() -> [Grant; 1] {
    [Grant { name: CONFIG_READER, role: CONFIG_READER, whom: group("system:authenticated"), namespace: None }]
}

/// What an operator of this machine may do everywhere: all about VMs, and look at what carries them. Nothing that would make
/// one root on the machine: no pods of one's own, no other accounts, no roles.
fn operator() -> ClusterRole {
    let all = [&LOOK[..], &CHANGE, &["deletecollection"]].concat();
    let mut rules: Vec<PolicyRule> = OWN.iter().chain(&SEEN).map(|(group, kinds)| rule(&all, group, kinds)).collect();
    let told = [&TOLD[..], &ENTERED, &[SCREENSHOT], &FIRST_SEGMENTS].concat();
    let done = [&DONE[..], &["expand-vm-spec", "virtualmachines/migrate"], &FIRST_SEGMENTS].concat();
    rules.extend([
        rule(&["get"], SUBRESOURCES, &told),
        rule(&["update"], SUBRESOURCES, &done),
        rule(&["get", "list"], SUBRESOURCES, &["version", "guestfs"]),
        rule(&LOOK, "kubevirt.io", &["kubevirts"]),
        rule(&LOOK, "", &["events", "namespaces", "nodes", "persistentvolumes", "pods"]),
        rule(&["get"], "", &["pods/log"]),
        rule(&["create", "delete"], "", &["namespaces"]),
        rule(&all, "", &["persistentvolumeclaims"]),
        rule(&LOOK, "storage.k8s.io", &["storageclasses"]),
        rule(&all, CDI, &IMPORTED),
        rule(&LOOK, CDI, &CONFIGURED),
        rule(&LOOK, COPIES, &["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"]),
    ]);
    role(OPERATOR, None, rules)
}

/// What they may do besides in the namespace that everybody begins in: what guests are configured with.
fn operator_here() -> ClusterRole {
    let all = [&LOOK[..], &CHANGE].concat();
    role(OPERATOR_HERE, None, vec![rule(&all, "", &["configmaps", "secrets"])])
}

#[cfg(test)]
mod tests;
