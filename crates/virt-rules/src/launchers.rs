//! What a launcher is to its instance: derived from the two each time, and never stored.
//!
//! An instance usually has one launcher. While it moves, it has two: one that the guest leaves, and one that it comes to. What
//! `status.migrationState` says about the last migration decides:
//!
//! | last migration | the pod that the guest leaves | the pod that it comes to | a pod of another migration | any other |
//! |---|---|---|---|---|
//! | none | | | target | sole |
//! | under way | source | target | orphan | orphan |
//! | the guest has arrived | orphan | sole | target, once the migration is over | orphan |
//! | failed | sole | orphan | target | orphan |
//!
//! The launcher of another instance is an orphan, also if the instance has the same name.
//!
//! A node does not read pods. It knows a launcher by its UID and by `status.activePods`, where virt-controller lists the launcher
//! that holds the guest and those that await it; one that is not listed is an orphan. Target pods keep away from the node of the
//! source, so that the node tells the two apart. Where two launchers of one instance are on one node all the same, neither is taken
//! for the one that holds the guest.
//!
//! # Guarantees
//! - Of the launchers of one instance, at most one holds the guest (sole or source).
//! - A launcher that waits for a guest is never taken for the one that holds it.

pub mod name;
#[cfg(test)]
mod tests;

use api::migration::VirtualMachineInstanceMigrationState as MigrationState;
use api::names::label;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;

/// What a launcher is to its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It holds the guest, and no migration is under way.
    Sole,
    /// It holds the guest, which is about to leave.
    Source,
    /// It holds nothing yet: the guest may come to it.
    Target,
    /// It holds nothing, and nothing will come to it.
    Orphan,
}

impl Role {
    /// Whether the guest is this launcher's: it alone says in which phase the instance is.
    #[must_use]
    pub fn holds(self) -> bool {
        match self {
            Self::Sole | Self::Source => true,
            Self::Target | Self::Orphan => false,
        }
    }
}

/// A launcher, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Launcher<'a> {
    /// The UID of the instance that it was made for.
    pub instance: &'a str,
    /// The UID of its pod.
    pub uid: &'a str,
    /// The node that it is on; empty if it is on none.
    pub node: &'a str,
    /// What its pod says of it; none on a node, which does not read pods.
    pub pod: Option<Identity<'a>>,
}

/// What a pod says of the launcher in it.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The pod's name.
    pub name: &'a str,
    /// The UID of the migration that it was made for, if it was made for one.
    pub migration: Option<&'a str>,
}

impl<'a> Launcher<'a> {
    /// The launcher in a pod.
    #[must_use]
    pub fn of(pod: &'a Pod) -> Self {
        let metadata = &pod.metadata;
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true));
        let migration = metadata.labels.as_ref().and_then(|labels| labels.get(label::MIGRATION_JOB_UID));
        Self {
            instance: owner.map(|owner| owner.uid.as_str()).unwrap_or_default(),
            uid: metadata.uid.as_deref().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default(),
            pod: Some(Identity {
                name: metadata.name.as_deref().unwrap_or_default(),
                migration: migration.map(String::as_str),
            }),
        }
    }
}

/// What a launcher is to an instance.
#[must_use]
pub fn role(launcher: &Launcher<'_>, vmi: &VirtualMachineInstance) -> Role {
    if vmi.metadata.uid.as_deref() != Some(launcher.instance) || !is_listed(launcher, vmi) {
        return Role::Orphan;
    }
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let course = Course::of(state, node_of(vmi));
    match (course, side(launcher, state, vmi)) {
        (Course::None | Course::Failed, Side::Holder) | (Course::Arrived { .. }, Side::Awaiter) => Role::Sole,
        (Course::UnderWay, Side::Holder) => Role::Source,
        (Course::UnderWay, Side::Awaiter) => Role::Target,
        // It waits for its turn.
        (Course::None | Course::Failed | Course::Arrived { is_over: true }, Side::OfAnother) => Role::Target,
        (Course::Arrived { .. }, Side::Holder)
        | (Course::None | Course::Failed, Side::Awaiter)
        | (Course::UnderWay | Course::Arrived { is_over: false }, Side::OfAnother)
        | (_, Side::Neither) => Role::Orphan,
    }
}

/// The node that an instance is on.
fn node_of(vmi: &VirtualMachineInstance) -> Option<&str> {
    vmi.status.as_ref().and_then(|status| status.node_name.as_deref())
}

/// How far the last migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    None,
    UnderWay,
    /// The guest is where it was to go; whether everything about the migration is done.
    Arrived {
        is_over: bool,
    },
    Failed,
}

impl Course {
    fn of(state: Option<&MigrationState>, node: Option<&str>) -> Self {
        let Some(state) = state else { return Self::None };
        let failed = state.failed == Some(true);
        let is_over = failed || state.completed == Some(true) || state.end_timestamp.as_ref().is_some();
        // Whoever has taken the guest says first where it is, and then that all is done.
        let has_moved =
            node.is_some() && node == state.target_node.as_deref() && state.target_node != state.source_node;
        match (is_over, failed) {
            (true, true) => Self::Failed,
            (true, false) => Self::Arrived { is_over },
            (false, _) if has_moved => Self::Arrived { is_over },
            (false, _) => Self::UnderWay,
        }
    }
}

/// Which launcher it is in the last migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The one that the guest leaves; without a migration, the only one.
    Holder,
    /// The one that it comes to.
    Awaiter,
    /// One that was made for another migration.
    OfAnother,
    Neither,
}

fn side(launcher: &Launcher<'_>, state: Option<&MigrationState>, vmi: &VirtualMachineInstance) -> Side {
    match (&launcher.pod, state) {
        (Some(pod), None) if pod.migration.is_some() => Side::OfAnother,
        (Some(_), None) => Side::Holder,
        (Some(pod), Some(state)) => side_of_pod(pod, state),
        (None, None) if node_of(vmi).map_or_else(|| is_alone(vmi), |node| node == launcher.node) => Side::Holder,
        // virt-controller knows what it was made for.
        (None, None) => Side::OfAnother,
        (None, Some(state)) if state.source_node.as_deref() == Some(launcher.node) => Side::Holder,
        (None, Some(state)) if state.target_node.as_deref() == Some(launcher.node) => Side::Awaiter,
        (None, Some(_)) => Side::OfAnother,
    }
}

fn side_of_pod(pod: &Identity<'_>, state: &MigrationState) -> Side {
    match (pod.migration, &state.source_pod) {
        (Some(migration), _) if state.migration_uid.as_deref() == Some(migration) => Side::Awaiter,
        (_, Some(source)) if source == pod.name => Side::Holder,
        // A state that does not name its source is about the first launcher.
        (None, None) => Side::Holder,
        (Some(_), _) => Side::OfAnother,
        (None, Some(_)) => Side::Neither,
    }
}

/// Whether virt-controller lists one launcher at most, anywhere.
fn is_alone(vmi: &VirtualMachineInstance) -> bool {
    vmi.status.as_ref().and_then(|status| status.active_pods.as_ref()).is_none_or(|listed| listed.len() <= 1)
}

/// Whether virt-controller lists a launcher of a node, as the only one there. Of a pod nobody needs to ask.
fn is_listed(launcher: &Launcher<'_>, vmi: &VirtualMachineInstance) -> bool {
    if launcher.pod.is_some() {
        return true;
    }
    let listed = vmi.status.as_ref().and_then(|status| status.active_pods.as_ref());
    let mut here = listed.into_iter().flatten().filter(|(_, node)| *node == launcher.node);
    here.next().is_some_and(|(uid, _)| uid == launcher.uid) && here.next().is_none()
}
