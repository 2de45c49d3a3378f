//! Who may do what: users of virtual machines, and our own programs.

mod components;
mod users;

use futures_util::future::try_join_all;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};

use crate::StartError;

pub use users::OPERATORS;

const RBAC: &str = "rbac.authorization.k8s.io";
const LOOK: [&str; 3] = ["get", "list", "watch"];

/// A role that is given to somebody.
struct Grant {
    /// What the binding is called.
    name: &'static str,
    role: &'static str,
    whom: Subject,
    /// Where it holds; everywhere, if nowhere in particular.
    namespace: Option<&'static str>,
}

/// Makes the roles, and brings those up to date that an earlier release made. Who has them is only said where nobody has said
/// so yet: an administrator may take one away.
pub(crate) async fn install(client: &Client) -> Result<(), StartError> {
    let roles = users::roles().into_iter().chain(users::storage_roles()).chain(components::roles());
    let grants = users::grants().into_iter().chain(users::storage_grants()).chain(components::grants());
    write(client, roles, grants).await
}

/// The same for a cluster that has nodes, storage and controllers of its own: the roles of users and of the programs that replace
/// KubeVirt's.
pub(crate) async fn install_on_kubernetes(client: &Client) -> Result<(), StartError> {
    let roles = users::roles().into_iter().chain(components::roles_on_kubernetes());
    let grants = users::grants().into_iter().chain(components::grants_on_kubernetes());
    write(client, roles, grants).await
}

async fn write(
    client: &Client,
    roles: impl Iterator<Item = ClusterRole>,
    grants: impl Iterator<Item = Grant>,
) -> Result<(), StartError> {
    let api: Api<ClusterRole> = Api::all(client.clone());
    try_join_all(roles.map(|role| put(&api, role))).await?;
    try_join_all(grants.map(|grant| bind(client, grant))).await.map(drop)
}

async fn put(api: &Api<ClusterRole>, role: ClusterRole) -> Result<(), StartError> {
    let name = role.name_any();
    let written = match api.get_opt(&name).await {
        Ok(None) => api.create(&PostParams::default(), &role).await.map(drop),
        Ok(Some(known)) if known.rules == role.rules && known.metadata.labels == role.metadata.labels => Ok(()),
        Ok(Some(_)) => api.replace(&name, &PostParams::default(), &role).await.map(drop),
        Err(error) => Err(error),
    };
    written.map_err(|source| StartError::Role { name, source: Box::new(source) })
}

async fn bind(client: &Client, Grant { name, role, whom, namespace }: Grant) -> Result<(), StartError> {
    let role_ref = RoleRef { api_group: Some(RBAC.to_owned()), kind: "ClusterRole".to_owned(), name: role.to_owned() };
    let (metadata, subjects) = (named(name), Some(vec![whom]));
    let made = match namespace {
        None => {
            let binding = ClusterRoleBinding { metadata, role_ref, subjects };
            Api::<ClusterRoleBinding>::all(client.clone()).create(&PostParams::default(), &binding).await.map(drop)
        }
        Some(namespace) => {
            let binding = RoleBinding { metadata, role_ref, subjects };
            let api: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
            api.create(&PostParams::default(), &binding).await.map(drop)
        }
    };
    match made {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        made => made.map_err(|source| StartError::Role { name: name.to_owned(), source: Box::new(source) }),
    }
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

fn named(name: &str) -> ObjectMeta {
    let labels = [("kubevirt.io".to_owned(), String::new())].into();
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

/// All members of a group.
fn group(name: &str) -> Subject {
    Subject { api_group: Some(RBAC.to_owned()), kind: "Group".to_owned(), name: name.to_owned(), namespace: None }
}

/// Somebody by name.
fn user(name: &str) -> Subject {
    Subject { kind: "User".to_owned(), ..group(name) }
}
