//! The compiled form against a judge that looks at every binding and every role anew.

mod judge;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::compiled::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES};
use super::policy::wanted;
use super::{Rbac, cover, told_once};
use crate::identity::{Attributes, Authorizer as _, Decision, Identity, Stored};
use crate::rbac::Rule;
use crate::store::{Key, Snapshot};
use crate::strategy;

const NAMESPACES: [&str; 3] = ["", "a", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];
const USERS: [&str; 4] = ["u", "v", "system:serviceaccount:a:x", "system:serviceaccount:b:y"];

fn words(from: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<&'static str>> + Clone {
    subsequence(from, 0..=most)
}

fn rule() -> impl Strategy<Value = Value> {
    let verbs = words(&["get", "list", "create", "*"], 2);
    let resource = (
        words(&["", "apps", "*"], 2),
        words(&["pods", "pods/log", "deployments", "*/scale", "deployments/scale", "pods/*", "*"], 3),
        words(&["x", "y", ""], 1),
    );
    let path = words(&["/api", "/api/*", "/a*", "*", "/healthz"], 2);
    (verbs, resource, path, any::<bool>()).prop_map(|(verbs, (groups, resources, names), paths, about_paths)| {
        if about_paths {
            json!({ "verbs": verbs, "nonResourceURLs": paths })
        } else if names.is_empty() {
            json!({ "verbs": verbs, "apiGroups": groups, "resources": resources })
        } else {
            json!({ "verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names })
        }
    })
}

fn subject() -> impl Strategy<Value = Value> {
    let named = |kind: &'static str, names: &'static [&'static str]| {
        select(names).prop_map(move |name| json!({ "kind": kind, "name": name }))
    };
    let account = (select(&NAMES[..]), select(&["", "a", "b"][..]));
    prop_oneof![
        named("User", &USERS),
        named("Group", &["g", "h"]),
        account.prop_map(|(name, namespace)| json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })),
    ]
}

/// A table, a key, and the object that is to be there from now on.
type Step = (&'static str, Key, Option<Value>);

fn step() -> impl Strategy<Value = Step> {
    let place = (select(&NAMESPACES[..]), select(&NAMES[..]));
    let role = prop::collection::vec(rule(), 0..3).prop_map(|rules| json!({ "metadata": {}, "rules": rules }));
    let named = (select(&["Role", "ClusterRole"][..]), select(&NAMES[..]));
    let binding = (prop::collection::vec(subject(), 0..3), named).prop_map(|(subjects, (kind, name))| {
        json!({ "metadata": {}, "subjects": subjects, "roleRef": { "kind": kind, "name": name } })
    });
    let role = (place.clone(), prop::option::weighted(0.8, role)).prop_map(|((namespace, name), role)| {
        (if namespace.is_empty() { CLUSTER_ROLES } else { ROLES }, Key::new(namespace, name), role)
    });
    let binding = (place, prop::option::weighted(0.8, binding)).prop_map(|((namespace, name), binding)| {
        (if namespace.is_empty() { CLUSTER_BINDINGS } else { BINDINGS }, Key::new(namespace, name), binding)
    });
    prop_oneof![role, binding]
}

/// Who asks for what.
#[derive(Clone, Debug)]
struct Ask {
    who: Identity,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    namespace: &'static str,
    name: &'static str,
    path: &'static str,
}

impl Ask {
    fn what(&self) -> Attributes<'_> {
        let &Self { verb, group, resource, subresource, namespace, name, path, .. } = self;
        Attributes { verb, group, version: "v1", resource, subresource, namespace, name, path }
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    let who = (select(&USERS[..]), words(&["g", "h", "system:authenticated"], 2));
    let who = who.prop_map(|(user, groups)| Identity {
        user: user.to_owned(),
        groups: groups.into_iter().map(str::to_owned).collect(),
        ..Identity::default()
    });
    let verb = select(&["get", "list", "create", "update"][..]);
    let resource = (select(&["", "apps"][..]), select(&["pods", "deployments"][..]), select(&["", "log", "scale"][..]));
    let place = (select(&NAMESPACES[..]), select(&["", "x", "y"][..]));
    let on_resource = (who.clone(), verb.clone(), resource, place).prop_map(
        |(who, verb, (group, resource, subresource), (namespace, name))| Ask {
            who,
            verb,
            group,
            resource,
            subresource,
            namespace,
            name,
            path: "",
        },
    );
    let paths = select(&["/api", "/api/v1", "/apis", "/healthz", "/"][..]);
    let on_path = (who, verb, paths).prop_map(|(who, verb, path)| Ask {
        who,
        verb,
        group: "",
        resource: "",
        subresource: "",
        namespace: "",
        name: "",
        path,
    });
    prop_oneof![3 => on_resource, 1 => on_path]
}

proptest! {
    #[test]
    fn the_compiled_form_decides_as_a_look_at_everything_does(
        steps in prop::collection::vec((step(), prop::collection::vec(ask(), 1..6)), 1..25),
    ) {
        let rbac = Rbac::default();
        let mut snapshot = Snapshot::default();
        for ((table, key, object), asks) in steps {
            snapshot.set(table, key, object.as_ref()).unwrap();
            for ask in asks {
                let decided = rbac.decide(&ask.who, ask.what(), Stored(&snapshot));
                prop_assert_eq!(&decided, &judge::decide(&snapshot, &ask), "{:?}", ask);
                if decided.allowed {
                    let (rules, _) = rbac.rules(&ask.who, ask.namespace, &snapshot);
                    prop_assert!(rules.iter().any(|rule| rule.allows(ask.what())));
                }
            }
        }
    }

    #[test]
    fn whoever_holds_all_parts_of_a_rule_is_allowed_all_that_it_allows(
        held in prop::collection::vec(rule(), 0..3), wanted in rule(), ask in ask(),
    ) {
        let read = |rule: &Value| -> Rule { serde_json::from_value(rule.clone()).unwrap() };
        let held: Vec<Rule> = held.iter().map(read).collect();
        let wanted = read(&wanted);
        prop_assert!(cover::missing(std::slice::from_ref(&wanted), std::slice::from_ref(&wanted)).is_empty());
        if cover::missing(&held, std::slice::from_ref(&wanted)).is_empty() && wanted.allows(ask.what()) {
            prop_assert!(held.iter().any(|rule| rule.allows(ask.what())), "{:?}", ask);
        }
    }
}

#[test]
fn masters_may_do_everything_whatever_is_stored() {
    let ask = Attributes {
        verb: "delete",
        group: "",
        version: "v1",
        resource: "nodes",
        subresource: "",
        namespace: "",
        name: "n",
        path: "",
    };
    let decided = Rbac::default().decide(&Identity::admin(), ask, Stored(&Snapshot::default()));
    assert_eq!(decided, Decision::allowed(""));
}

#[test]
fn nothing_is_compiled_again_while_nothing_changed() {
    let rbac = Rbac::default();
    let mut snapshot = Snapshot::default();
    let role = json!({ "metadata": {}, "rules": [{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }] });
    snapshot.set(CLUSTER_ROLES, Key::new("", "r"), Some(&role)).unwrap();
    let first = rbac.compiled(&snapshot);
    snapshot.set("pods", Key::new("a", "p"), Some(&json!({ "metadata": {} }))).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &rbac.compiled(&snapshot)));
    snapshot.set(CLUSTER_ROLES, Key::new("", "r"), None).unwrap();
    assert!(!std::sync::Arc::ptr_eq(&first, &rbac.compiled(&snapshot)));
}

#[test]
fn the_policy_of_a_new_cluster_is_valid_and_whole() {
    let all = wanted();
    let count = |table: &str| all.iter().filter(|one| one.table == table).count();
    assert_eq!([CLUSTER_ROLES, CLUSTER_BINDINGS, ROLES, BINDINGS].map(count), [69, 50, 7, 7]);
    for one in &all {
        let (plural, group) = one.table.split_once('.').unwrap();
        let errors = strategy::of(group, plural).validate_create(&one.object);
        assert!(errors.is_empty(), "{}: {errors:?}", one.key.name);
        let role = &one.object["roleRef"]["name"];
        let there =
            |other: &super::policy::Wanted| role == &*other.key.name && other.key.namespace == one.key.namespace;
        assert!(role.is_null() || all.iter().any(there), "{}", one.key.name);
    }
}

/// Each was compared with each before it, for every request of whoever has such bindings.
#[test]
fn roles_that_are_missing_are_told_once_and_some_of_them() {
    let missing = |count: usize| told_once((0..count * 2).map(|turn| format!("role {} not found", turn / 2)));
    assert_eq!((missing(0), missing(1)), (None, Some("role 0 not found".to_owned())));
    assert_eq!(missing(2).unwrap(), "[role 0 not found, role 1 not found]");
    assert_eq!(missing(200_000).unwrap().matches("not found").count(), 100);
}
