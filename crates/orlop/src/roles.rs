//! The roles that KubeVirt gives to users of virtual machines. They are parts of `admin`, `edit` and `view`, so that whoever
//! has one of those in a namespace has the same say about its virtual machines.

use anyhow::Context as _;
use apiserver::{ApiServer, Identity};
use futures_util::future::try_join_all;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};

use crate::kubeconfig::OPERATORS;

const SUBRESOURCES: &str = "subresources.kubevirt.io";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Those who run VMs on this machine and are not root on it.
const OPERATOR: &str = "orlop.dev:operator";
const OPERATOR_HERE: &str = "orlop.dev:operator-of-namespace";
/// Everybody who is known may ask for the version.
const DEFAULT: &str = "kubevirt.io:default";

const LOOK: [&str; 3] = ["get", "list", "watch"];
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
const TOLD: [&str; 6] = [
    "virtualmachines/expand-spec",
    "virtualmachines/objectgraph",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/filesystemlist",
    "virtualmachineinstances/userlist",
    "virtualmachineinstances/objectgraph",
];

/// Ways into a machine.
const ENTERED: [&str; 8] = [
    "virtualmachines/portforward",
    "virtualmachineinstances/console",
    "virtualmachineinstances/vnc",
    "virtualmachineinstances/vnc/screenshot",
    "virtualmachineinstances/portforward",
    "virtualmachineinstances/usbredir",
    "virtualmachineinstances/vsock",
    "virtualmachineinstances/sev/fetchcertchain",
];

/// What is done to a machine.
const DONE: [&str; 17] = [
    "virtualmachines/start",
    "virtualmachines/stop",
    "virtualmachines/restart",
    "virtualmachines/addvolume",
    "virtualmachines/removevolume",
    "virtualmachines/memorydump",
    "virtualmachines/removememorydump",
    "virtualmachineinstances/pause",
    "virtualmachineinstances/unpause",
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/reset",
    "virtualmachineinstances/softreboot",
    "virtualmachineinstances/addvolume",
    "virtualmachineinstances/removevolume",
    "virtualmachineinstances/sev/setupsession",
    "virtualmachineinstances/sev/injectlaunchsecret",
];

/// Makes the roles, and brings those up to date that an earlier release made.
pub(crate) async fn install(server: &ApiServer) -> anyhow::Result<()> {
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    let api: Api<ClusterRole> = Api::all(client.clone());
    try_join_all(roles().into_iter().map(|role| put(&api, role))).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    for (name, role, members) in [(DEFAULT, DEFAULT, "system:authenticated"), (OPERATORS, OPERATOR, OPERATORS)] {
        if bindings.get_opt(name).await?.is_none() {
            bindings.create(&PostParams::default(), &binding(name, role, members)).await.context(name)?;
        }
    }
    let here: Api<RoleBinding> = Api::default_namespaced(client);
    if here.get_opt(OPERATORS).await?.is_none() {
        let ClusterRoleBinding { metadata, role_ref, subjects } = binding(OPERATORS, OPERATOR_HERE, OPERATORS);
        here.create(&PostParams::default(), &RoleBinding { metadata, role_ref, subjects }).await.context(OPERATORS)?;
    }
    Ok(())
}

async fn put(api: &Api<ClusterRole>, role: ClusterRole) -> anyhow::Result<()> {
    let name = role.name_any();
    match api.get_opt(&name).await? {
        None => api.create(&PostParams::default(), &role).await.map(drop),
        Some(known) if known.rules == role.rules && known.metadata.labels == role.metadata.labels => Ok(()),
        Some(_) => api.replace(&name, &PostParams::default(), &role).await.map(drop),
    }
    .context(name)
}

fn roles() -> [ClusterRole; 7] {
    let all = |more: &[&'static str]| [&LOOK[..], &CHANGE, more].concat();
    let kinds = |verbs: &[&str]| OWN.iter().map(|(group, kinds)| rule(verbs, group, kinds)).collect::<Vec<_>>();
    let seen = || SEEN.iter().map(|(group, kinds)| rule(&LOOK, group, kinds)).collect::<Vec<_>>();
    let told = || vec![rule(&["get"], SUBRESOURCES, &TOLD), rule(&["update"], SUBRESOURCES, &["expand-vm-spec"])];
    let used = || vec![rule(&["get"], SUBRESOURCES, &ENTERED), rule(&["update"], SUBRESOURCES, &DONE)];
    let config = || vec![rule(&["get", "list"], "kubevirt.io", &["kubevirts"])];
    let migrate = vec![
        rule(&["update"], SUBRESOURCES, &["virtualmachines/migrate"]),
        rule(&all(&["deletecollection"]), "kubevirt.io", &["virtualmachineinstancemigrations"]),
    ];
    let known = vec![rule(&["get", "list"], SUBRESOURCES, &["version", "guestfs"])];
    [
        role(DEFAULT, None, known),
        role("kubevirt.io:admin", Some("admin"), [told(), used(), kinds(&all(&["deletecollection"])), seen()].concat()),
        role("kubevirt.io:edit", Some("edit"), [told(), used(), kinds(&all(&[])), seen(), config()].concat()),
        role("kubevirt.io:view", Some("view"), [told(), kinds(&LOOK), seen()].concat()),
        role("kubevirt.io:migrate", None, migrate),
        operator(),
        operator_here(),
    ]
}

/// What an operator of this machine may do everywhere: all about VMs, and look at what carries them. Nothing that would make
/// one root on the machine: no pods of one's own, no other accounts, no roles.
fn operator() -> ClusterRole {
    let all = [&LOOK[..], &CHANGE, &["deletecollection"]].concat();
    let mut rules: Vec<PolicyRule> = OWN.iter().chain(&SEEN).map(|(group, kinds)| rule(&all, group, kinds)).collect();
    let told = [&TOLD[..], &ENTERED].concat();
    rules.extend([
        rule(&["get"], SUBRESOURCES, &told),
        rule(&["update"], SUBRESOURCES, &[&DONE[..], &["expand-vm-spec", "virtualmachines/migrate"]].concat()),
        rule(&["get", "list"], SUBRESOURCES, &["version", "guestfs"]),
        rule(&LOOK, "kubevirt.io", &["kubevirts"]),
        rule(&LOOK, "", &["events", "namespaces", "nodes", "persistentvolumes", "pods"]),
        rule(&["get"], "", &["pods/log"]),
        rule(&["create", "delete"], "", &["namespaces"]),
        // Requests to start and stop are written there.
        rule(&["patch"], "kubevirt.io", &["virtualmachines/status"]),
        rule(&all, "", &["persistentvolumeclaims"]),
        rule(&LOOK, "storage.k8s.io", &["storageclasses"]),
        rule(&LOOK, "cdi.kubevirt.io", &["datavolumes"]),
    ]);
    role(OPERATOR, None, rules)
}

/// What they may do besides in the namespace that everybody begins in: what guests are configured with.
fn operator_here() -> ClusterRole {
    let all = [&LOOK[..], &CHANGE].concat();
    role(OPERATOR_HERE, None, vec![rule(&all, "", &["configmaps", "secrets"])])
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: words(verbs),
        api_groups: Some(words(&[group])),
        resources: Some(words(resources)),
        ..PolicyRule::default()
    }
}

fn role(name: &str, part_of: Option<&str>, rules: Vec<PolicyRule>) -> ClusterRole {
    let mut metadata = named(name);
    let part = part_of.map(|whole| (format!("{RBAC}/aggregate-to-{whole}"), "true".to_owned()));
    metadata.labels.get_or_insert_default().extend(part);
    ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() }
}

fn binding(name: &str, role: &str, members: &str) -> ClusterRoleBinding {
    let group = Some(RBAC.to_owned());
    let (kind, whom) = ("Group".to_owned(), members.to_owned());
    ClusterRoleBinding {
        metadata: named(name),
        role_ref: RoleRef { api_group: group.clone(), kind: "ClusterRole".to_owned(), name: role.to_owned() },
        subjects: Some(vec![Subject { api_group: group, kind, name: whom, namespace: None }]),
    }
}

fn named(name: &str) -> ObjectMeta {
    let labels = [("kubevirt.io".to_owned(), String::new())].into();
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    use apiserver::Place;
    use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;

    use super::*;

    #[tokio::test]
    async fn roles_are_made_once_and_brought_up_to_date() {
        let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
        let api: Api<ClusterRole> = Api::all(Client::new(server.for_identity(Identity::admin()), "default"));
        install(&server).await.unwrap();
        let version = async |name: &str| api.get(name).await.unwrap().resource_version();
        let (view, edit) = (version("kubevirt.io:view").await, version("kubevirt.io:edit").await);
        let mut old = api.get("kubevirt.io:edit").await.unwrap();
        old.rules.as_mut().unwrap().pop();
        api.replace("kubevirt.io:edit", &PostParams::default(), &old).await.unwrap();
        install(&server).await.unwrap();
        assert_eq!(version("kubevirt.io:view").await, view);
        assert_ne!(version("kubevirt.io:edit").await, edit);
        let rules = api.get("kubevirt.io:edit").await.unwrap().rules.unwrap();
        assert_eq!(rules.last(), Some(&rule(&["get", "list"], "kubevirt.io", &["kubevirts"])));
    }

    #[tokio::test]
    async fn an_operator_runs_vms_and_does_not_own_the_machine() {
        let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
        crate::crds::install(&server).await.unwrap();
        install(&server).await.unwrap();
        let may = async |verb: &str, group: &str, resource: &str, namespace: &str| {
            let identity = Identity::new("somebody", [OPERATORS.to_owned()]);
            let api: Api<SelfSubjectAccessReview> = Api::all(Client::new(server.for_identity(identity), "default"));
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let attributes = serde_json::json!({
                "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace,
            });
            let review = serde_json::json!({ "metadata": {}, "spec": { "resourceAttributes": attributes } });
            let review = serde_json::from_value(review).unwrap();
            api.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
        };
        for (verb, group, resource, namespace) in [
            ("create", "kubevirt.io", "virtualmachines", "default"),
            ("deletecollection", "kubevirt.io", "virtualmachineinstances", "other"),
            ("update", SUBRESOURCES, "virtualmachines/start", "other"),
            ("get", "", "pods/log", "other"),
            ("list", "", "nodes", ""),
            ("create", "", "secrets", "default"),
            ("create", "", "persistentvolumeclaims", "other"),
        ] {
            assert!(may(verb, group, resource, namespace).await, "{verb} {resource}");
        }
        for (verb, group, resource, namespace) in [
            ("create", "", "pods", "default"),
            ("patch", "", "pods", "default"),
            ("create", "", "pods/exec", "default"),
            ("create", "apps", "deployments", "default"),
            ("get", "", "secrets", "kube-system"),
            ("create", "", "serviceaccounts/token", "default"),
            ("impersonate", "", "users", ""),
            ("create", RBAC, "clusterrolebindings", ""),
            ("update", "kubevirt.io", "kubevirts", "kubevirt"),
            ("create", "", "persistentvolumes", ""),
            ("update", "", "nodes", ""),
        ] {
            assert!(!may(verb, group, resource, namespace).await, "{verb} {resource}");
        }
    }

    #[test]
    fn a_viewer_changes_nothing_and_enters_nothing() {
        let view = roles().into_iter().find(|role| role.name_any() == "kubevirt.io:view").unwrap();
        for rule in view.rules.unwrap() {
            let resources = rule.resources.unwrap();
            let asks = resources == ["expand-vm-spec"];
            assert!(asks || rule.verbs.iter().all(|verb| LOOK.contains(&verb.as_str())), "{resources:?}");
            assert!(!resources.iter().any(|one| ENTERED.contains(&one.as_str()) || DONE.contains(&one.as_str())));
        }
    }

    #[test]
    fn every_kind_but_those_of_administrators_belongs_to_somebody() {
        let covered = |group: &str, plural: &str| {
            OWN.iter().chain(&SEEN).any(|(own, kinds)| *own == group && kinds.contains(&plural))
                || ["kubevirts", "plugins"].contains(&plural)
        };
        for crd in api::crd::all().unwrap() {
            assert!(covered(&crd.spec.group, &crd.spec.names.plural), "{}", crd.name_any());
        }
    }
}
