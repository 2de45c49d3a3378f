//! The garbage collector on the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod garbage {
    pub(crate) mod cluster;
    mod faults;
}
use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams, PropagationPolicy};
use serde_json::json;

use garbage::cluster::{
    CONFIG_MAP, Cluster, DEFINITION, DEPLOYMENT, FOO, NAMESPACE, POD, REPLICA_SET, ROLE, SECRET, a_second, blocking,
    names, nobody,
};

#[tokio::test(start_paused = true)]
async fn what_a_deployment_owns_goes_with_it() {
    let cluster = Cluster::start().await;
    let deployment = cluster.make(DEPLOYMENT, "default", "d", &[]).await;
    let set = cluster.make(REPLICA_SET, "default", "s", &[blocking(&deployment)]).await;
    for name in ["a", "b", "c"] {
        cluster.make(POD, "default", name, &[blocking(&set)]).await;
    }
    cluster.make(POD, "default", "stays", &[]).await;
    a_second().await;
    assert_eq!(cluster.names(POD, "default").await.len(), 4);
    cluster.delete(DEPLOYMENT, "default", "d", PropagationPolicy::Background).await;
    a_second().await;
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&[]));
    assert_eq!(cluster.names(POD, "default").await, names(&["stays"]));
}

#[tokio::test(start_paused = true)]
async fn it_starts_on_what_is_there() {
    let cluster = Cluster::idle().await;
    let owner = cluster.make(SECRET, "default", "owner", &[]).await;
    cluster.make(CONFIG_MAP, "default", "owned", &[owner]).await;
    cluster.make(CONFIG_MAP, "default", "lost", &[nobody(SECRET, "1")]).await;
    cluster.run();
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["owned"]));
}

#[tokio::test(start_paused = true)]
async fn custom_objects_own_and_go_with_their_definition() {
    let cluster = Cluster::idle().await;
    cluster.define().await;
    cluster.run();
    cluster.settle().await;
    for name in ["a", "b"] {
        let owner = cluster.make(FOO, "default", name, &[]).await;
        cluster.make(CONFIG_MAP, "default", name, &[owner]).await;
    }
    a_second().await;
    cluster.delete(FOO, "default", "a", PropagationPolicy::Background).await;
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["b"]));
    cluster.delete(DEFINITION, "", "foos.example.com", PropagationPolicy::Background).await;
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_defined_later_joins() {
    let cluster = Cluster::start().await;
    cluster.define().await;
    let owner = cluster.make(SECRET, "default", "owner", &[]).await;
    let foo = cluster.make(FOO, "default", "foo", &[owner]).await;
    cluster.make(CONFIG_MAP, "default", "map", &[foo]).await;
    a_second().await;
    cluster.delete(SECRET, "default", "owner", PropagationPolicy::Background).await;
    a_second().await;
    assert_eq!(cluster.names(FOO, "default").await, names(&[]));
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&[]));
    // And one that is defined again is another one.
    cluster.delete(DEFINITION, "", "foos.example.com", PropagationPolicy::Background).await;
    cluster.settle().await;
    cluster.define().await;
    let foo = cluster.make(FOO, "default", "foo", &[]).await;
    cluster.make(CONFIG_MAP, "default", "map", &[foo]).await;
    cluster.settle().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["map"]));
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_an_unknown_kind_is_in_doubt_until_the_kind_is_known() {
    let cluster = Cluster::start().await;
    cluster.make(CONFIG_MAP, "default", "map", &[nobody(FOO, "1"), nobody(SECRET, "2")]).await;
    cluster.settle().await;
    assert_eq!(cluster.owners(CONFIG_MAP, "default", "map").await, ["1", "2"]);
    cluster.define().await;
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&[]));
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_goes_last_and_only_those_that_block_hold_it() {
    let cluster = Cluster::start().await;
    let owner = cluster.make(REPLICA_SET, "default", "owner", &[]).await;
    cluster.make(CONFIG_MAP, "default", "blocks", &[blocking(&owner)]).await;
    cluster.make(CONFIG_MAP, "default", "held", std::slice::from_ref(&owner)).await;
    let maps = cluster.api(CONFIG_MAP, "default");
    let hold = |held: bool| json!({ "metadata": { "finalizers": held.then_some(["example.com/hold"]) } });
    for name in ["blocks", "held"] {
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&hold(true))).await.unwrap();
    }
    cluster.delete(REPLICA_SET, "default", "owner", PropagationPolicy::Foreground).await;
    a_second().await;
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&["owner"]), "a dependent holds it");
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["blocks", "held"]));
    maps.patch("blocks", &PatchParams::default(), &Patch::Merge(&hold(false))).await.unwrap();
    a_second().await;
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&[]), "the other one does not hold it");
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["held"]));
    maps.patch("held", &PatchParams::default(), &Patch::Merge(&hold(false))).await.unwrap();
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&[]));
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_a_whole_tree_goes_from_the_leaves() {
    let cluster = Cluster::start().await;
    let deployment = cluster.make(DEPLOYMENT, "default", "d", &[]).await;
    let set = cluster.make(REPLICA_SET, "default", "s", &[blocking(&deployment)]).await;
    cluster.make(POD, "default", "p", &[blocking(&set)]).await;
    let pods = cluster.api(POD, "default");
    let hold = |held: bool| json!({ "metadata": { "finalizers": held.then_some(["example.com/hold"]) } });
    pods.patch("p", &PatchParams::default(), &Patch::Merge(&hold(true))).await.unwrap();
    cluster.delete(DEPLOYMENT, "default", "d", PropagationPolicy::Foreground).await;
    a_second().await;
    let set = cluster.api(REPLICA_SET, "default").get("s").await.unwrap();
    assert_eq!(set.metadata.finalizers.unwrap(), ["foregroundDeletion"]);
    pods.patch("p", &PatchParams::default(), &Patch::Merge(&hold(false))).await.unwrap();
    a_second().await;
    for kind in [DEPLOYMENT, REPLICA_SET, POD] {
        assert_eq!(cluster.names(kind, "default").await, names(&[]));
    }
}

#[tokio::test(start_paused = true)]
async fn owners_in_a_circle_do_not_wait_for_each_other() {
    let cluster = Cluster::idle().await;
    cluster.define().await;
    cluster.run();
    for kind in [SECRET, FOO] {
        let first = cluster.make(kind, "default", "first", &[]).await;
        let second = cluster.make(kind, "default", "second", &[blocking(&first)]).await;
        let patch = json!({ "metadata": { "ownerReferences": [blocking(&second)] } });
        cluster.api(kind, "default").patch("first", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        a_second().await;
        cluster.delete(kind, "default", "first", PropagationPolicy::Foreground).await;
        a_second().await;
        assert_eq!(cluster.names(kind, "default").await, names(&[]), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_stay() {
    let cluster = Cluster::start().await;
    cluster.define().await;
    let owner = cluster.make(REPLICA_SET, "default", "owner", &[]).await;
    let other = cluster.make(SECRET, "default", "other", &[]).await;
    cluster.make(CONFIG_MAP, "default", "a", &[blocking(&owner), other]).await;
    cluster.make(FOO, "default", "a", std::slice::from_ref(&owner)).await;
    for number in 0..50 {
        cluster.make(POD, "default", &number.to_string(), std::slice::from_ref(&owner)).await;
    }
    cluster.delete(REPLICA_SET, "default", "owner", PropagationPolicy::Orphan).await;
    cluster.settle().await;
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&[]));
    assert_eq!(cluster.owners(CONFIG_MAP, "default", "a").await, ["other"]);
    assert_eq!(cluster.owners(FOO, "default", "a").await, Vec::<String>::new());
    assert_eq!(cluster.names(POD, "default").await.len(), 50);
}

#[tokio::test(start_paused = true)]
async fn one_owner_that_stays_is_enough_and_the_others_are_struck_out() {
    let cluster = Cluster::start().await;
    cluster.define().await;
    let stays = cluster.make(SECRET, "default", "stays", &[]).await;
    let goes = cluster.make(SECRET, "default", "goes", &[]).await;
    let last = cluster.make(REPLICA_SET, "default", "last", &[]).await;
    for kind in [CONFIG_MAP, FOO] {
        cluster.make(kind, "default", "a", &[stays.clone(), goes.clone(), blocking(&last)]).await;
    }
    a_second().await;
    cluster.delete(SECRET, "default", "goes", PropagationPolicy::Background).await;
    a_second().await;
    for kind in [CONFIG_MAP, FOO] {
        assert_eq!(cluster.owners(kind, "default", "a").await, ["stays", "last"]);
    }
    cluster.delete(REPLICA_SET, "default", "last", PropagationPolicy::Foreground).await;
    a_second().await;
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&[]));
    for kind in [CONFIG_MAP, FOO] {
        assert_eq!(cluster.owners(kind, "default", "a").await, ["stays"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_namesake_of_the_owner_is_not_the_owner() {
    let cluster = Cluster::start().await;
    cluster.make(CONFIG_MAP, "default", "never", &[nobody(SECRET, "1")]).await;
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&[]));
    let old = cluster.make(SECRET, "default", "owner", &[]).await;
    cluster.make(CONFIG_MAP, "default", "a", std::slice::from_ref(&old)).await;
    cluster.delete(SECRET, "default", "owner", PropagationPolicy::Background).await;
    let new = cluster.make(SECRET, "default", "owner", &[]).await;
    cluster.make(CONFIG_MAP, "default", "b", std::slice::from_ref(&new)).await;
    cluster.make(CONFIG_MAP, "default", "late", &[old]).await;
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["b"]));
    // The right UID in another kind, or by another name, is nobody.
    let wrong = |field: &str, value: &str| {
        let mut reference = new.clone();
        reference[field] = value.into();
        reference
    };
    cluster.make(CONFIG_MAP, "default", "kind", &[wrong("kind", "Pod")]).await;
    cluster.make(CONFIG_MAP, "default", "name", &[wrong("name", "other")]).await;
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["b"]));
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_in_the_namespace_of_its_dependent_or_in_none() {
    let cluster = Cluster::start().await;
    let namespace = cluster.make(NAMESPACE, "", "far", &[]).await;
    let owner = cluster.make(SECRET, "default", "owner", &[]).await;
    cluster.make(CONFIG_MAP, "far", "a", std::slice::from_ref(&owner)).await;
    cluster.make(CONFIG_MAP, "far", "b", &[namespace]).await;
    cluster.make(ROLE, "", "wide", std::slice::from_ref(&owner)).await;
    cluster.make(ROLE, "", "lost", &[nobody(SECRET, "1")]).await;
    cluster.settle().await;
    assert_eq!(cluster.names(CONFIG_MAP, "far").await, names(&["b"]));
    let roles = cluster.names(ROLE, "").await;
    assert!(roles.contains("wide") && roles.contains("lost"), "what is not in a namespace is not touched");
    let uid = owner["uid"].as_str().unwrap();
    let told: BTreeSet<_> = cluster.events().await.into_iter().collect();
    let message = |namespace: &str| {
        format!(
            "ownerRef [v1/Secret, namespace: {namespace}, name: owner, uid: {uid}] does not exist in namespace \"{namespace}\""
        )
    };
    for namespace in ["far", ""] {
        assert!(told.contains(&("OwnerRefInvalidNamespace".to_owned(), message(namespace))), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_long_chains_go_link_by_link() {
    let cluster = Cluster::start().await;
    for (chain, policy) in [("back", PropagationPolicy::Background), ("fore", PropagationPolicy::Foreground)] {
        let mut owners = Vec::new();
        for number in 0..200 {
            let owner = cluster.make(CONFIG_MAP, "default", &format!("{chain}-{number}"), &owners).await;
            owners = vec![blocking(&owner)];
        }
        cluster.delete(CONFIG_MAP, "default", &format!("{chain}-0"), policy).await;
    }
    cluster.settle().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&[]));
}

#[tokio::test(start_paused = true)]
async fn the_graph_is_shown() {
    let cluster = Cluster::start().await;
    let owner = cluster.make(SECRET, "default", "owner", &[]).await;
    cluster.make(CONFIG_MAP, "default", "owned", std::slice::from_ref(&owner)).await;
    a_second().await;
    let graph = cluster.collector.debug("graph").unwrap();
    let uid = owner["uid"].as_str().unwrap();
    assert!(graph.starts_with("strict digraph full {\n") && graph.ends_with("}\n"));
    assert!(graph.contains(&format!("-> \"{uid}\";")) && graph.contains("name=\"owned\""), "{graph}");
    assert!(!graph.contains("kube-system"), "those alone are left out");
    assert!(cluster.collector.debug("").unwrap().ends_with(" nodes\n"));
    assert_eq!(cluster.collector.debug("else"), None);
}
