use std::collections::BTreeSet;

use apiserver::{ApiServer, Identity, Place};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use manager::context::Chance;

use super::super::{RBAC, install};
use super::*;
use crate::Settings;

const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

#[tokio::test]
async fn roles_are_made_once_and_brought_up_to_date() {
    let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    let api: Api<ClusterRole> = Api::all(client.clone());
    install(&client).await.unwrap();
    let version = async |name: &str| api.get(name).await.unwrap().resource_version();
    let (view, edit) = (version("kubevirt.io:view").await, version("kubevirt.io:edit").await);
    let mut old = api.get("kubevirt.io:edit").await.unwrap();
    old.rules.as_mut().unwrap().pop();
    api.replace("kubevirt.io:edit", &PostParams::default(), &old).await.unwrap();
    install(&client).await.unwrap();
    assert_eq!(version("kubevirt.io:view").await, view);
    assert_ne!(version("kubevirt.io:edit").await, edit);
    let rules = api.get("kubevirt.io:edit").await.unwrap().rules.unwrap();
    assert_eq!(rules.last(), Some(&rule(&["get", "list"], "kubevirt.io", &["kubevirts"])));
}

#[tokio::test]
async fn an_operator_runs_vms_and_does_not_own_the_machine() {
    let settings = Settings::new(Chance::seeded(1)).unwrap();
    let server = crate::start(ApiServer::builder(Place::Memory).seed(1), settings).await.unwrap();
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
        // `orlop import`
        ("create", "cdi.kubevirt.io", "datavolumes", "default"),
        ("watch", "cdi.kubevirt.io", "datavolumes", "default"),
        ("create", "cdi.kubevirt.io", "datasources", "default"),
        ("get", "cdi.kubevirt.io", "cdiconfigs", ""),
        ("list", "snapshot.storage.k8s.io", "volumesnapshots", "other"),
        ("list", "snapshot.storage.k8s.io", "volumesnapshotcontents", ""),
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
        ("update", "cdi.kubevirt.io", "cdiconfigs", ""),
        ("delete", "snapshot.storage.k8s.io", "volumesnapshots", "default"),
        ("delete", "snapshot.storage.k8s.io", "volumesnapshotcontents", ""),
    ] {
        assert!(!may(verb, group, resource, namespace).await, "{verb} {resource}");
    }
}

#[test]
fn a_viewer_changes_nothing_and_enters_nothing() {
    let part = format!("{AGGREGATE}view");
    let views: Vec<ClusterRole> =
        roles().into_iter().chain(storage_roles()).filter(|role| role.labels().contains_key(&part)).collect();
    let names: Vec<String> = views.iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(names, ["kubevirt.io:view", "cdi.kubevirt.io:view", "snapshot.storage.k8s.io:view"]);
    for rule in views.into_iter().flat_map(|view| view.rules.unwrap()) {
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

/// What KubeVirt's own roles say about running machines, role by role and verb by verb.
#[test]
fn each_role_has_what_kubevirts_has_and_no_more() {
    let told = "get vm/expand-spec vm/objectgraph vmi/guestosinfo vmi/filesystemlist vmi/userlist vmi/objectgraph \
        vmi/sev/fetchcertchain vmi/sev/querylaunchmeasurement";
    let expand = "update expand-vm-spec";
    let used = "get vm/portforward vmi/console vmi/vnc vmi/portforward vmi/usbredir";
    let done = "update vm/start vm/stop vm/restart vm/addvolume vm/removevolume vm/memorydump vm/removememorydump \
        vm/evacuate/cancel vmi/pause vmi/unpause vmi/freeze vmi/unfreeze vmi/reset vmi/softreboot vmi/addvolume \
        vmi/removevolume vmi/evacuate/cancel vmi/sev/setupsession vmi/sev/injectlaunchsecret";
    let expected: [(&str, &[&str]); 6] = [
        ("kubevirt.io:default", &["get version guestfs", "list version guestfs"]),
        ("instancetype.kubevirt.io:view", &[]),
        ("kubevirt.io:admin", &[told, expand, used, done, "get vmi/vnc/screenshot"]),
        ("kubevirt.io:edit", &[told, expand, used, done]),
        ("kubevirt.io:view", &[told, expand]),
        ("kubevirt.io:migrate", &["update vm/migrate"]),
    ];
    let all = roles();
    for (name, lines) in expected {
        let role = all.iter().find(|role| role.name_any() == name).unwrap();
        let rules = role.rules.iter().flatten();
        let own = rules.filter(|rule| rule.api_groups.as_deref() == Some(&[SUBRESOURCES.to_owned()]));
        let has: BTreeSet<(String, String)> = own
            .flat_map(|rule| {
                let pairs = |verb: &String| {
                    rule.resources.iter().flatten().map(|one| (verb.clone(), one.clone())).collect::<Vec<_>>()
                };
                rule.verbs.iter().flat_map(pairs).collect::<Vec<_>>()
            })
            .collect();
        let long = |short: &str| match short.split_once('/') {
            Some(("vm", sub)) => format!("virtualmachines/{sub}"),
            Some(("vmi", sub)) => format!("virtualmachineinstances/{sub}"),
            _ => short.to_owned(),
        };
        let wanted: BTreeSet<(String, String)> = lines
            .iter()
            .flat_map(|line| {
                let mut words = line.split_whitespace();
                let verb = words.next().unwrap();
                words.map(|word| (verb.to_owned(), long(word))).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(has, wanted, "{name}");
    }
}

/// Everybody who proved who they are sees the cluster's sizes, and the sizes alone.
#[tokio::test]
async fn every_user_sees_the_sizes_of_the_cluster() {
    let settings = Settings::new(Chance::seeded(1)).unwrap();
    let server = crate::start(ApiServer::builder(Place::Memory).seed(1), settings).await.unwrap();
    let client = Client::new(server.for_identity(Identity::new("somebody", [])), "default");
    let sizes: Api<api::instancetype::VirtualMachineClusterInstancetype> = Api::all(client.clone());
    sizes.list(&Default::default()).await.unwrap();
    let kubevirts: Api<api::kubevirt::KubeVirt> = Api::all(client.clone());
    kubevirts.list(&Default::default()).await.unwrap();
    let vms: Api<api::vm::VirtualMachine> = Api::all(client);
    assert!(matches!(vms.list(&Default::default()).await, Err(kube::Error::Api(status)) if status.code == 403));
}

/// What CDI's own roles say about the kinds that are served here.
#[test]
fn each_role_of_imports_has_what_cdis_has_and_no_more() {
    let change = "get list watch create delete patch update deletecollection datasources datavolumes";
    let expected = [
        ("cdi.kubevirt.io:admin", Some("admin"), change),
        ("cdi.kubevirt.io:edit", Some("edit"), change),
        ("cdi.kubevirt.io:view", Some("view"), "get list watch cdiconfigs storageprofiles datasources datavolumes"),
        ("cdi.kubevirt.io:config-reader", None, "get list watch cdiconfigs storageprofiles"),
        ("snapshot.storage.k8s.io:view", Some("view"), "get list watch volumesnapshots"),
    ];
    let roles = storage_roles();
    assert_eq!(roles.len(), expected.len());
    for (role, (name, part_of, words)) in roles.iter().zip(expected) {
        let labels: Vec<&str> = role.labels().keys().filter_map(|key| key.strip_prefix(AGGREGATE)).collect();
        assert_eq!((role.name_any().as_str(), labels), (name, Vec::from_iter(part_of)));
        let rules = role.rules.as_ref().unwrap();
        let has: Vec<&String> =
            rules.iter().flat_map(|rule| rule.verbs.iter().chain(rule.resources.iter().flatten())).collect();
        assert_eq!(has, words.split_whitespace().collect::<Vec<_>>(), "{name}");
    }
}

/// Asked on a server, of somebody who has in a namespace what one of Kubernetes' own roles is gathered from.
#[tokio::test]
async fn users_of_a_namespace_import_follow_and_look_as_their_role_says() {
    let settings = Settings::new(Chance::seeded(1)).unwrap();
    let server = crate::start(ApiServer::builder(Place::Memory).seed(1), settings).await.unwrap();
    let admin = Client::new(server.for_identity(Identity::admin()), "default");
    let bindings: Api<RoleBinding> = Api::namespaced(admin, "default");
    // As Kubernetes has them, an administrator has all of an editor, and an editor all of a viewer.
    for role in storage_roles() {
        let name = role.name_any();
        let whole = role.labels().keys().find_map(|key| key.strip_prefix(AGGREGATE));
        let who: &[&str] = match whole {
            Some("view") => &["view", "edit", "admin"],
            Some("edit") => &["edit", "admin"],
            Some(_) => &["admin"],
            None => continue,
        };
        let role_ref = RoleRef { api_group: Some(RBAC.to_owned()), kind: "ClusterRole".to_owned(), name: name.clone() };
        let subjects = Some(who.iter().map(|who| group(who)).collect());
        let binding = RoleBinding { metadata: super::super::named(&name), role_ref, subjects };
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    }
    for (verb, kind, namespace, whose) in [
        ("create", "cdi.kubevirt.io/datavolumes", "default", "admin edit"),
        ("deletecollection", "cdi.kubevirt.io/datavolumes", "default", "admin edit"),
        ("update", "cdi.kubevirt.io/datasources", "default", "admin edit"),
        ("watch", "cdi.kubevirt.io/datavolumes", "default", "admin edit view"),
        ("watch", "cdi.kubevirt.io/datavolumes", "other", ""),
        ("get", "cdi.kubevirt.io/storageprofiles", "", "admin edit view stranger"),
        ("get", "cdi.kubevirt.io/cdiconfigs", "", "admin edit view stranger"),
        ("update", "cdi.kubevirt.io/cdiconfigs", "", ""),
        ("list", "snapshot.storage.k8s.io/volumesnapshots", "default", "admin edit view"),
        ("list", "snapshot.storage.k8s.io/volumesnapshots", "other", ""),
        ("delete", "snapshot.storage.k8s.io/volumesnapshots", "default", ""),
    ] {
        let (api_group, resource) = kind.split_once('/').unwrap();
        for who in ["admin", "edit", "view", "stranger"] {
            let identity = Identity::new("somebody", [who.to_owned()]);
            let reviews: Api<SelfSubjectAccessReview> = Api::all(Client::new(server.for_identity(identity), "default"));
            let attributes =
                serde_json::json!({ "verb": verb, "group": api_group, "resource": resource, "namespace": namespace });
            let review = serde_json::json!({ "metadata": {}, "spec": { "resourceAttributes": attributes } });
            let review = serde_json::from_value(review).unwrap();
            let allowed = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed;
            assert_eq!(allowed, whose.split_whitespace().any(|one| one == who), "{who}: {verb} {kind} {namespace}");
        }
    }
}
