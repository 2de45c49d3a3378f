//! The graph by its rules, and against one that is built anew from what is left.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use proptest::prelude::*;

use super::dot::dot;
use super::graph::{Effect, FOREGROUND, Graph, Kind, ORPHAN};

fn kind(name: &str) -> Kind {
    Kind { api_version: "v1".to_owned(), kind: name.to_owned() }
}

fn owner(uid: &str, kind: &str, blocks: bool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: format!("name-{uid}"),
        uid: uid.to_owned(),
        block_owner_deletion: Some(blocks),
        controller: None,
    }
}

fn object(uid: &str, owners: &[OwnerReference]) -> ObjectMeta {
    ObjectMeta {
        uid: Some(uid.to_owned()),
        name: Some(format!("name-{uid}")),
        namespace: Some("n".to_owned()),
        owner_references: Some(owners.to_vec()),
        ..ObjectMeta::default()
    }
}

fn deleting(object: ObjectMeta, finalizer: &str) -> ObjectMeta {
    let deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    ObjectMeta { deletion_timestamp, finalizers: Some(vec![finalizer.to_owned()]), ..object }
}

fn attempt(uid: &str) -> Effect {
    Effect::Attempt(uid.into())
}

#[test]
fn an_owner_that_was_not_seen_is_looked_for_and_is_forgotten_with_its_last_dependent() {
    let mut graph = Graph::default();
    let effects = graph.observe(&kind("A"), &object("child", &[owner("parent", "A", false)]));
    assert_eq!(effects, [Effect::Verify("parent".into())]);
    assert_eq!((graph.len(), graph.claims("parent").len()), (2, 1));
    assert!(dot(&graph).contains("virtual=\"true\""));
    assert_eq!(graph.observe(&kind("A"), &object("child", &[owner("parent", "A", false)])), [], "nothing is new");
    graph.forget("child");
    assert_eq!(graph, Graph::default());
}

#[test]
fn dependents_of_one_that_goes_are_looked_at() {
    let mut graph = Graph::default();
    graph.observe(&kind("A"), &object("parent", &[]));
    assert_eq!(graph.observe(&kind("A"), &object("child", &[owner("parent", "A", false)])), []);
    assert_eq!(graph.forget("parent"), [attempt("child")]);
    assert_eq!(graph.claims("parent").len(), 1, "its dependents still name it");
}

#[test]
fn who_names_its_owner_wrongly_is_looked_at_whichever_came_first() {
    let mut graph = Graph::default();
    graph.observe(&kind("A"), &object("parent", &[]));
    let wrong = object("child", &[owner("parent", "B", false)]);
    assert_eq!(graph.observe(&kind("A"), &wrong), [attempt("child")]);
    let far = ObjectMeta { namespace: Some("m".to_owned()), ..object("far", &[owner("parent", "A", false)]) };
    assert_eq!(graph.observe(&kind("A"), &far), [attempt("far")]);
    assert_eq!(graph.item("far").unwrap().misplaced, BTreeSet::from(["parent".into()]));
    let mut graph = Graph::default();
    graph.observe(&kind("A"), &wrong);
    graph.observe(&kind("A"), &far);
    assert_eq!(graph.observe(&kind("A"), &object("parent", &[])), [attempt("child"), attempt("far")]);
}

#[test]
fn one_that_waits_for_its_dependents_hears_when_the_last_that_holds_it_is_gone() {
    let mut graph = Graph::default();
    graph.observe(&kind("A"), &object("parent", &[]));
    let child = |uid, blocks| object(uid, &[owner("parent", "A", blocks)]);
    for (uid, blocks) in [("1", true), ("2", true), ("3", false)] {
        graph.observe(&kind("A"), &child(uid, blocks));
    }
    let effects = graph.observe(&kind("A"), &deleting(object("parent", &[]), FOREGROUND));
    assert_eq!(effects, [attempt("1"), attempt("2"), attempt("3"), attempt("parent")]);
    assert_eq!(graph.item("parent").unwrap().blocking.len(), 2);
    assert_eq!(graph.forget("1"), []);
    assert_eq!(graph.observe(&kind("A"), &child("2", false)), [attempt("parent")], "it does not hold it any more");
    assert_eq!(graph.observe(&kind("A"), &child("late", true)), [attempt("late")]);
}

#[test]
fn one_that_orphans_hears_when_the_last_dependent_has_let_go() {
    let mut graph = Graph::default();
    graph.observe(&kind("A"), &object("1", &[owner("parent", "A", true)]));
    graph.observe(&kind("A"), &object("2", &[owner("parent", "A", true)]));
    let orphan = [Effect::Orphan("parent".into())];
    assert_eq!(graph.observe(&kind("A"), &deleting(object("parent", &[]), ORPHAN)), orphan);
    assert_eq!(graph.observe(&kind("A"), &object("1", &[])), []);
    assert_eq!(graph.forget("2"), orphan);
}

#[test]
fn one_that_owns_itself_does_not_hold_itself() {
    let mut graph = Graph::default();
    graph.observe(&kind("A"), &deleting(object("self", &[owner("self", "A", true)]), FOREGROUND));
    assert_eq!(graph.item("self").unwrap().blocking, []);
    graph.forget("self");
    assert_eq!(graph, Graph::default());
}

const UIDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const NAMESPACES: [&str; 3] = ["", "n", "m"];
const KINDS: [&str; 2] = ["A", "B"];

/// A change, as a watch may show it.
#[derive(Clone, Debug)]
enum Change {
    Seen { kind: usize, object: Box<ObjectMeta> },
    Gone(usize),
    Listed { kind: usize, there: BTreeSet<usize> },
}

fn any_object() -> impl Strategy<Value = Box<ObjectMeta>> {
    let owners = prop::collection::vec((0..UIDS.len(), 0..KINDS.len(), any::<bool>()), 0..4);
    let finalizer = prop::sample::select(vec![None, Some(""), Some(FOREGROUND), Some(ORPHAN)]);
    (0..UIDS.len(), 0..NAMESPACES.len(), owners, finalizer).prop_map(|(uid, namespace, owners, finalizer)| {
        let owners: Vec<_> =
            owners.into_iter().map(|(uid, kind, blocks)| owner(UIDS[uid], KINDS[kind], blocks)).collect();
        let plain = ObjectMeta { namespace: Some(NAMESPACES[namespace].to_owned()), ..object(UIDS[uid], &owners) };
        Box::new(match finalizer {
            Some(finalizer) => deleting(plain, finalizer),
            None => plain,
        })
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..KINDS.len(), any_object()).prop_map(|(kind, object)| Change::Seen { kind, object }),
        2 => (0..UIDS.len()).prop_map(Change::Gone),
        1 => (0..KINDS.len(), prop::collection::btree_set(0..UIDS.len(), 0..5))
            .prop_map(|(kind, there)| Change::Listed { kind, there }),
    ]
}

proptest! {
    #[test]
    fn the_graph_is_what_one_built_anew_would_be(changes in prop::collection::vec(any_change(), 0..40)) {
        let mut graph = Graph::default();
        let mut left: BTreeMap<String, (usize, ObjectMeta)> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Seen { kind: number, object } => {
                    let before: BTreeSet<String> = owners_of(left.get(object.uid.as_ref().unwrap()));
                    let effects = graph.observe(&kind(KINDS[number]), &object);
                    left.insert(object.uid.clone().unwrap(), (number, (*object).clone()));
                    for new in owners_of(Some(&(number, *object))).difference(&before) {
                        let looked_for = effects.contains(&Effect::Verify(new.as_str().into()));
                        prop_assert_eq!(looked_for, !left.contains_key(new), "an owner is looked for if it was not seen");
                    }
                }
                Change::Gone(uid) => {
                    let effects = graph.forget(UIDS[uid]);
                    let was = left.remove(UIDS[uid]).is_some();
                    for (dependent, _) in left.iter().filter(|(_, one)| owners_of(Some(one)).contains(UIDS[uid])) {
                        prop_assert_eq!(effects.contains(&attempt(dependent)), was, "its dependents are looked at");
                    }
                }
                Change::Listed { kind: number, there } => {
                    let there: BTreeSet<&str> = there.into_iter().map(|uid| UIDS[uid]).collect();
                    let listed = there.iter().map(|uid| (*uid).into()).collect();
                    graph.keep_only(&kind(KINDS[number]), &listed);
                    left.retain(|uid, (of, _)| *of != number || there.contains(uid.as_str()));
                }
            }
            let (mut forth, mut back) = (Graph::default(), Graph::default());
            left.values().for_each(|(number, object)| drop(forth.observe(&kind(KINDS[*number]), object)));
            left.values().rev().for_each(|(number, object)| drop(back.observe(&kind(KINDS[*number]), object)));
            prop_assert_eq!(&graph, &forth);
            prop_assert_eq!(&graph, &back);
        }
    }
}

fn owners_of(object: Option<&(usize, ObjectMeta)>) -> BTreeSet<String> {
    let references = object.iter().flat_map(|(_, object)| object.owner_references.iter().flatten());
    references.map(|reference| reference.uid.clone()).collect()
}
