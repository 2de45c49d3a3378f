//! Who owns whom: a graph of all objects, by UID. No clock, no client.
//!
//! A node is an object that a watch has shown, or one that others name as their owner and no watch has shown yet. Of the
//! second kind nothing is known but who refers to it; such a virtual node is there exactly as long as somebody refers to
//! it. So the graph is a function of the objects that are known now, whatever came before.
//!
//! Every change gives effects: what should be looked at because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::pool::Pool;

/// Keeps an object until its dependents are gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Keeps an object until its dependents do not refer to it any more.
pub(super) const ORPHAN: &str = "orphan";

/// Tells objects apart, for ever.
pub(super) type Uid = Arc<str>;

/// A kind in a version, as references name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    /// Group and version.
    pub(super) api_version: String,
    pub(super) kind: String,
}

impl From<&Kind> for Arc<Kind> {
    fn from(kind: &Kind) -> Self {
        Self::new(kind.clone())
    }
}

/// Which object, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) kind: Arc<Kind>,
    /// Empty for cluster-wide kinds.
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    pub(super) uid: Uid,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, uid } = self;
        let Kind { api_version, kind } = &**kind;
        write!(f, "[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]")
    }
}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: Uid,
    pub(super) kind: Arc<Kind>,
    pub(super) name: Box<str>,
    /// An owner that waits for its dependents waits for this one.
    pub(super) blocks: bool,
}

/// How far the deletion of an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) deleting: bool,
    /// It waits until its dependents are gone.
    pub(super) foreground: bool,
    /// It waits until its dependents have let go of it. Comes before the other.
    pub(super) orphaning: bool,
}

impl Stage {
    fn of(metadata: &ObjectMeta) -> Self {
        let deleting = metadata.deletion_timestamp.is_some();
        let orphaning = deleting && has_finalizer(metadata, ORPHAN);
        Self { deleting, orphaning, foreground: deleting && !orphaning && has_finalizer(metadata, FOREGROUND) }
    }
}

pub(super) fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == finalizer)
}

/// What should be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// Whether this object may stay.
    Attempt(Uid),
    /// Whether this owner, which no watch has shown, is there.
    Verify(Uid),
    /// This object's dependents are to be let go, or are.
    Orphan(Uid),
}

/// All that is kept of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    kind: Arc<Kind>,
    namespace: Arc<str>,
    name: Box<str>,
    owners: Box<[Owner]>,
    stage: Stage,
}

impl Object {
    /// Whether a reference from this namespace names this object rightly.
    fn is_named_by(&self, owner: &Owner, namespace: &str) -> bool {
        let near = self.namespace.is_empty() || &*self.namespace == namespace;
        near && self.kind == owner.kind && self.name == owner.name
    }

    fn refers_to<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Owner> {
        self.owners.iter().filter(move |owner| &*owner.uid == uid)
    }

    fn blocks(&self, uid: &str) -> bool {
        self.refers_to(uid).any(|owner| owner.blocks)
    }
}

/// None is known of a virtual node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    object: Option<Object>,
    dependents: BTreeSet<Uid>,
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: BTreeMap<Uid, Node>,
    kinds: Pool<Kind>,
    namespaces: Pool<str>,
}

impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
    }
}

/// An object as a decision sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) identity: Identity,
    pub(super) owners: Box<[Owner]>,
    pub(super) stage: Stage,
    /// Owners that were seen in a namespace from which they cannot own it.
    pub(super) misplaced: BTreeSet<Uid>,
    /// Dependents that hold it while it waits for them, and whether each waits for its own.
    pub(super) blocking: Vec<(Uid, bool)>,
    pub(super) has_dependents: bool,
    /// One of its dependents waits for its own dependents, to which this one may belong in a circle.
    pub(super) dependent_waits: bool,
}

impl Graph {
    /// Takes in an object that was seen.
    pub(super) fn observe(&mut self, kind: &Kind, metadata: &ObjectMeta) -> Vec<Effect> {
        let uid = self.uid(metadata.uid.as_deref().unwrap_or_default());
        let object = self.object(kind, metadata);
        let node = self.nodes.entry(uid.clone()).or_default();
        if node.object.as_ref() == Some(&object) {
            return Vec::new();
        }
        let old = node.object.replace(object.clone());
        let mut effects = Vec::new();
        if old.as_ref().is_none_or(|old| old.kind != object.kind) {
            self.misnamed(&uid, &object, &mut effects);
        }
        let before = old.as_ref().map_or(&[][..], |old| &old.owners);
        for owner in before.iter().filter(|owner| object.refers_to(&owner.uid).next().is_none()) {
            self.unlink(&uid, &owner.uid, &mut effects);
        }
        for owner in &object.owners {
            let known = before.iter().any(|old| Owner { blocks: owner.blocks, ..old.clone() } == *owner);
            if !known {
                self.link(&uid, &object, owner, &mut effects);
            } else if !object.blocks(&owner.uid) && old.as_ref().is_some_and(|old| old.blocks(&owner.uid)) {
                self.settle(&owner.uid, &mut effects);
            }
        }
        let was = old.map(|old| old.stage).unwrap_or_default();
        if object.stage.orphaning && !was.orphaning {
            effects.push(Effect::Orphan(uid));
        } else if object.stage.foreground && !was.foreground {
            effects.extend(self.dependents_of(&uid).map(|dependent| Effect::Attempt(dependent.clone())));
            effects.push(Effect::Attempt(uid));
        }
        effects
    }

    /// Takes in that an object is gone.
    pub(super) fn forget(&mut self, uid: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some((uid, _)) = self.nodes.get_key_value(uid) else { return effects };
        let uid = uid.clone();
        let Some(node) = self.nodes.get_mut(&uid) else { return effects };
        let Some(object) = node.object.take() else { return effects };
        let dependents = node.dependents.iter().filter(|dependent| **dependent != uid);
        effects.extend(dependents.map(|dependent| Effect::Attempt(dependent.clone())));
        if node.dependents.is_empty() {
            self.nodes.remove(&uid);
        }
        for owner in &object.owners {
            self.unlink(&uid, &owner.uid, &mut effects);
        }
        effects
    }

    /// Takes in that of a kind there are only these.
    pub(super) fn keep_only(&mut self, kind: &Kind, there: &BTreeSet<Uid>) -> Vec<Effect> {
        let of_kind = |node: &Node| node.object.as_ref().is_some_and(|object| *object.kind == *kind);
        let gone = self.nodes.iter().filter(|(uid, node)| of_kind(node) && !there.contains(*uid));
        let gone: Vec<Uid> = gone.map(|(uid, _)| uid.clone()).collect();
        gone.iter().flat_map(|uid| self.forget(uid)).collect()
    }

    /// What to look at when these kinds can be asked about, and could not before.
    pub(super) fn referring_to(&self, kinds: &BTreeSet<&Kind>) -> BTreeSet<Effect> {
        let mut effects = BTreeSet::new();
        for (uid, node) in &self.nodes {
            let owners = node.object.iter().flat_map(|object| &object.owners);
            for owner in owners.filter(|owner| kinds.contains(&*owner.kind)) {
                effects.insert(Effect::Attempt(uid.clone()));
                if self.object_of(&owner.uid).is_none() {
                    effects.insert(Effect::Verify(owner.uid.clone()));
                }
            }
        }
        effects
    }

    /// An object that was seen.
    pub(super) fn item(&self, uid: &str) -> Option<Item> {
        let (identity, object) = (self.identity(uid)?, self.object_of(uid)?);
        let mut item = Item {
            identity,
            owners: object.owners.clone(),
            stage: object.stage,
            misplaced: BTreeSet::new(),
            blocking: Vec::new(),
            has_dependents: self.dependents_of(uid).next().is_some(),
            dependent_waits: false,
        };
        for owner in &object.owners {
            let seen_at = self.object_of(&owner.uid).map(|owner| &*owner.namespace);
            if seen_at.is_some_and(|namespace| !namespace.is_empty() && *namespace != *object.namespace) {
                item.misplaced.insert(owner.uid.clone());
            }
        }
        for dependent in self.dependents_of(uid) {
            let Some(object) = self.object_of(dependent) else { continue };
            item.dependent_waits |= object.stage.foreground;
            // One that owns itself does not wait for itself.
            if object.blocks(uid) && **dependent != *uid {
                item.blocking.push((dependent.clone(), object.stage.foreground));
            }
        }
        Some(item)
    }

    /// The objects that refer to this one.
    pub(super) fn dependents(&self, uid: &str) -> Vec<Identity> {
        self.dependents_of(uid).filter_map(|dependent| self.identity(dependent)).collect()
    }

    /// As what an owner that was not seen is named, each with the dependents that name it so. The namespace is theirs.
    pub(super) fn claims(&self, uid: &str) -> BTreeMap<Identity, Vec<Uid>> {
        let mut claims: BTreeMap<Identity, Vec<Uid>> = BTreeMap::new();
        if self.object_of(uid).is_some() {
            return claims;
        }
        for dependent in self.dependents_of(uid) {
            let Some(object) = self.object_of(dependent) else { continue };
            for Owner { uid, kind, name, .. } in object.refers_to(uid) {
                let (kind, namespace) = (kind.clone(), object.namespace.clone());
                let claim = Identity { kind, namespace, name: name.clone(), uid: uid.clone() };
                claims.entry(claim).or_default().push(dependent.clone());
            }
        }
        claims
    }

    /// All nodes in order: what is known, and the owners that each names.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Uid, Option<Identity>, Stage, &[Owner])> {
        self.nodes.iter().map(|(uid, node)| match &node.object {
            Some(object) => (uid, self.identity(uid), object.stage, &*object.owners),
            None => (uid, None, Stage::default(), &[][..]),
        })
    }

    /// How many nodes there are, virtual ones too.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether anybody refers to this one.
    pub(super) fn has_dependents(&self, uid: &str) -> bool {
        self.dependents_of(uid).next().is_some()
    }

    fn object_of(&self, uid: &str) -> Option<&Object> {
        self.nodes.get(uid)?.object.as_ref()
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &Uid> {
        self.nodes.get(uid).into_iter().flat_map(|node| &node.dependents)
    }

    fn identity(&self, uid: &str) -> Option<Identity> {
        let (uid, node) = self.nodes.get_key_value(uid)?;
        let Object { kind, namespace, name, .. } = node.object.as_ref()?;
        Some(Identity { kind: kind.clone(), namespace: namespace.clone(), name: name.clone(), uid: uid.clone() })
    }

    fn uid(&self, uid: &str) -> Uid {
        self.nodes.get_key_value(uid).map_or_else(|| uid.into(), |(uid, _)| uid.clone())
    }

    fn object(&mut self, kind: &Kind, metadata: &ObjectMeta) -> Object {
        let owners = metadata.owner_references.iter().flatten();
        let owners = owners.map(|owner| {
            let kind = Kind { api_version: owner.api_version.clone(), kind: owner.kind.clone() };
            Owner {
                uid: self.uid(&owner.uid),
                kind: self.kinds.get(&kind),
                name: owner.name.as_str().into(),
                blocks: owner.block_owner_deletion == Some(true),
            }
        });
        Object {
            owners: owners.collect(),
            kind: self.kinds.get(kind),
            namespace: self.namespaces.get(metadata.namespace.as_deref().unwrap_or_default()),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            stage: Stage::of(metadata),
        }
    }

    fn link(&mut self, uid: &Uid, object: &Object, owner: &Owner, effects: &mut Vec<Effect>) {
        let node = self.nodes.entry(owner.uid.clone()).or_default();
        node.dependents.insert(uid.clone());
        match &node.object {
            None => effects.push(Effect::Verify(owner.uid.clone())),
            // Whoever names its owner wrongly may have none, and whoever comes late must go with the others.
            Some(known) if !known.is_named_by(owner, &object.namespace) || known.stage.foreground => {
                effects.push(Effect::Attempt(uid.clone()));
            }
            Some(known) if known.stage.orphaning => effects.push(Effect::Orphan(owner.uid.clone())),
            Some(_) => {}
        }
    }

    fn unlink(&mut self, uid: &Uid, owner: &Uid, effects: &mut Vec<Effect>) {
        let Some(node) = self.nodes.get_mut(owner) else { return };
        node.dependents.remove(uid);
        if node.object.is_none() && node.dependents.is_empty() {
            self.nodes.remove(owner);
        } else {
            self.settle(owner, effects);
        }
    }

    /// An owner holds less than before; if it waited for that, it can go on.
    fn settle(&self, owner: &Uid, effects: &mut Vec<Effect>) {
        let Some(object) = self.object_of(owner) else { return };
        let mut others = self.dependents_of(owner).filter(|dependent| *dependent != owner);
        if object.stage.orphaning && others.next().is_none() {
            effects.push(Effect::Orphan(owner.clone()));
        } else if object.stage.foreground
            && !others.any(|dependent| self.object_of(dependent).is_some_and(|one| one.blocks(owner)))
        {
            effects.push(Effect::Attempt(owner.clone()));
        }
    }

    /// Now that it is known what this is: those who name it otherwise may have no owner.
    fn misnamed(&self, uid: &Uid, object: &Object, effects: &mut Vec<Effect>) {
        for dependent in self.dependents_of(uid) {
            let Some(known) = self.object_of(dependent) else { continue };
            if !known.refers_to(uid).all(|owner| object.is_named_by(owner, &known.namespace)) {
                effects.push(Effect::Attempt(dependent.clone()));
            }
        }
    }
}
