//! The workers: they look at one object, ask the server about its owners, and do what was decided.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::events::Kind::Warning;
use manager::worker::Next;

use super::decide::{Answer, Plan, Wishes, decide};
use super::graph::{FOREGROUND, Identity, Item, Kind, ORPHAN, Owner, Uid, has_finalizer};
use super::requests::{Outcome, Remote};
use super::served::Served;
use super::state::Lookup;
use super::{Check, GarbageCollector, GarbageError};

/// Dependents of one owner that are let go at the same time.
const AT_ONCE: usize = 20;
const INVALID_NAMESPACE: &str = "OwnerRefInvalidNamespace";

impl GarbageCollector {
    pub(super) async fn check(&self, check: &Check) -> Result<Next, GarbageError> {
        match check {
            Check::Item(uid) => self.attempt(uid).await?,
            Check::Owner(uid) => self.verify(uid).await?,
        }
        Ok(Next::Wait)
    }

    /// Looks whether an object may stay, and carries out what was decided.
    async fn attempt(&self, uid: &Uid) -> Result<(), GarbageError> {
        let (item, resource) = {
            let mut state = self.state();
            let Some(item) = state.graph.item(uid) else { return Ok(()) };
            let looks = item.stage.foreground || !item.stage.deleting;
            // A new kind that is served brings it here again; until then there is nothing to ask.
            let in_doubt = |owner: &Owner| matches!(state.look_up(&claim(&item, owner)), Lookup::Unknown);
            if !looks || (!item.stage.foreground && item.owners.iter().any(in_doubt)) {
                return Ok(());
            }
            let Some(resource) = state.served.get(&item.identity.kind).cloned() else { return Ok(()) };
            (item, resource)
        };
        let remote = Remote::new(&self.client, &resource, &item.identity);
        let Outcome::Done(latest) = remote.get().await? else {
            self.is_gone(&item.identity);
            return Ok(());
        };
        let answers = if item.stage.foreground { Vec::new() } else { self.ask(&item, &latest).await? };
        // Time has passed, and dependents may have come or gone.
        let Some(item) = self.state().graph.item(uid) else { return Ok(()) };
        let wishes = Wishes { orphan: has_finalizer(&latest, ORPHAN), foreground: has_finalizer(&latest, FOREGROUND) };
        let plan = decide(&item, wishes, &answers);
        tracing::debug!(item = %item.identity, ?plan, "looked at");
        self.carry_out(&remote, &item.identity, latest, plan).await
    }

    async fn carry_out(
        &self,
        remote: &Remote<'_>,
        identity: &Identity,
        latest: ObjectMeta,
        plan: Plan,
    ) -> Result<(), GarbageError> {
        let outcome = match plan {
            Plan::Leave => return Ok(()),
            Plan::Press(dependents) => {
                dependents.into_iter().for_each(|uid| self.deletions.add(Check::Item(uid)));
                return Ok(());
            }
            Plan::LetGo => return Ok(remote.remove_finalizer(&latest, FOREGROUND).await?),
            Plan::Release(owners) => remote.release(&owners).await?,
            Plan::Delete { policy, unblock } => {
                let latest = if unblock { remote.unblock(&latest).await? } else { Outcome::Done(latest) };
                match latest {
                    Outcome::Gone => Outcome::Gone,
                    Outcome::Done(latest) => match remote.delete(&latest, &policy).await? {
                        Outcome::Gone => Outcome::Gone,
                        Outcome::Done(()) => Outcome::Done(latest),
                    },
                }
            }
        };
        if let Outcome::Gone = outcome {
            self.is_gone(identity);
        }
        Ok(())
    }

    /// Asks about all owners that an object has now.
    async fn ask(&self, item: &Item, latest: &ObjectMeta) -> Result<Vec<(Uid, Answer)>, GarbageError> {
        let mut answers = Vec::new();
        for owner in latest.owner_references.iter().flatten() {
            let claim = Identity {
                kind: Kind { api_version: owner.api_version.clone(), kind: owner.kind.clone() }.into(),
                namespace: item.identity.namespace.clone(),
                name: owner.name.as_str().into(),
                uid: owner.uid.as_str().into(),
            };
            let answer = self.ask_about(&claim).await?;
            if answer == Answer::Misplaced || item.misplaced.contains(&claim.uid) {
                let message = format!("ownerRef {claim} does not exist in namespace {:?}", claim.namespace);
                self.recorder.record_about(about(&item.identity), Warning, INVALID_NAMESPACE, message);
            }
            answers.push((claim.uid, answer));
        }
        Ok(answers)
    }

    async fn ask_about(&self, claim: &Identity) -> Result<Answer, GarbageError> {
        let looked_up = self.state().look_up(claim);
        let (resource, owner) = match looked_up {
            Lookup::Absent => return Ok(Answer::Absent),
            Lookup::Unknown => return Ok(Answer::Unknown),
            Lookup::Misplaced => return Ok(Answer::Misplaced),
            Lookup::Ask(resource, owner) => (resource, owner),
        };
        match Remote::new(&self.client, &resource, &owner).get().await? {
            Outcome::Gone => {
                self.state().absent.add(owner);
                Ok(Answer::Absent)
            }
            Outcome::Done(found) if found.deletion_timestamp.is_some() && has_finalizer(&found, FOREGROUND) => {
                Ok(Answer::WaitingForDependents)
            }
            Outcome::Done(_) => Ok(Answer::Solid),
        }
    }

    /// Looks whether an owner is there that no watch has shown. If it is, it is looked for again until a watch shows it:
    /// it may have come and gone while no watch looked.
    async fn verify(&self, uid: &Uid) -> Result<(), GarbageError> {
        let claims = self.state().graph.claims(uid);
        let mut found = None;
        for (claim, dependents) in claims {
            match self.ask_about(&claim).await? {
                // Its dependents are told what is wrong with their reference.
                Answer::Absent | Answer::Misplaced => {
                    dependents.into_iter().for_each(|uid| self.deletions.add(Check::Item(uid)));
                }
                Answer::Solid | Answer::WaitingForDependents => found = Some(claim),
                Answer::Unknown => {}
            }
        }
        match found {
            Some(claim) if self.state().graph.item(uid).is_none() => Err(GarbageError::NotSeen(claim.to_string())),
            _ => Ok(()),
        }
    }

    /// Takes the references to an owner from its dependents. When the watches have shown that none is left it comes again,
    /// and is let go.
    pub(super) async fn orphan(&self, uid: &Uid) -> Result<Next, GarbageError> {
        // Whoever was not seen would be deleted, when seen, for its owner's absence.
        let mut synced = self.synced.subscribe();
        // The sender lives as long as this collector.
        drop(synced.wait_for(|synced| *synced).await);
        let (item, dependents, served) = {
            let state = self.state();
            let Some(item) = state.graph.item(uid).filter(|item| item.stage.orphaning) else { return Ok(Next::Wait) };
            (item, state.graph.dependents(uid), state.served.clone())
        };
        let others: Vec<Identity> = dependents.into_iter().filter(|dependent| dependent.uid != *uid).collect();
        if others.is_empty() {
            let Some(resource) = served.get(&item.identity.kind) else { return Ok(Next::Wait) };
            let remote = Remote::new(&self.client, resource, &item.identity);
            match remote.get().await? {
                Outcome::Done(latest) => remote.remove_finalizer(&latest, ORPHAN).await?,
                Outcome::Gone => self.is_gone(&item.identity),
            }
            return Ok(Next::Wait);
        }
        let releases = others.into_iter().map(|dependent| self.release(dependent, &served, uid));
        let done: Vec<Result<(), kube::Error>> =
            stream::iter(releases.collect::<Vec<_>>()).buffered(AT_ONCE).collect().await;
        done.into_iter().collect::<Result<(), _>>()?;
        Ok(Next::Wait)
    }

    async fn release(&self, dependent: Identity, served: &Served, owner: &Uid) -> Result<(), kube::Error> {
        // A kind that is not served any more leaves the graph soon.
        let Some(resource) = served.get(&dependent.kind) else { return Ok(()) };
        let owners = BTreeSet::from([owner.clone()]);
        if let Outcome::Gone = Remote::new(&self.client, resource, &dependent).release(&owners).await? {
            self.is_gone(&dependent);
        }
        Ok(())
    }

    /// The server said so, before any watch.
    fn is_gone(&self, identity: &Identity) {
        let effects = self.state().gone(identity.clone());
        self.tell(effects);
    }
}

/// An owner as its dependent names it.
fn claim(item: &Item, owner: &Owner) -> Identity {
    let Owner { uid, kind, name, .. } = owner;
    let namespace = item.identity.namespace.clone();
    Identity { kind: kind.clone(), namespace, name: name.clone(), uid: uid.clone() }
}

/// What an event is about: an object of any kind.
fn about(Identity { kind, namespace, name, uid }: &Identity) -> ObjectReference {
    ObjectReference {
        api_version: Some(kind.api_version.clone()),
        kind: Some(kind.kind.clone()),
        namespace: Some(namespace.to_string()).filter(|namespace| !namespace.is_empty()),
        name: Some(name.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}
