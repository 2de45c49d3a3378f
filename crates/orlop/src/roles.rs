//! The roles that KubeVirt gives to users of virtual machines. They are parts of `admin`, `edit` and `view`, so that whoever
//! has one of those in a namespace has the same say about its virtual machines.

use anyhow::Context as _;
use apiserver::{ApiServer, Identity};
use futures_util::future::try_join_all;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};

const SUBRESOURCES: &str = "subresources.kubevirt.io";
const RBAC: &str = "rbac.authorization.k8s.io";
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
    let bindings: Api<ClusterRoleBinding> = Api::all(client);
    if bindings.get_opt(DEFAULT).await?.is_none() {
        bindings.create(&PostParams::default(), &binding()).await.context(DEFAULT)?;
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

fn roles() -> [ClusterRole; 5] {
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
    ]
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

fn binding() -> ClusterRoleBinding {
    let group = Some(RBAC.to_owned());
    let everybody = Subject {
        api_group: group.clone(),
        kind: "Group".to_owned(),
        name: "system:authenticated".to_owned(),
        namespace: None,
    };
    ClusterRoleBinding {
        metadata: named(DEFAULT),
        role_ref: RoleRef { api_group: group, kind: "ClusterRole".to_owned(), name: DEFAULT.to_owned() },
        subjects: Some(vec![everybody]),
    }
}

fn named(name: &str) -> ObjectMeta {
    let labels = [("kubevirt.io".to_owned(), String::new())].into();
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    use apiserver::Place;

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
