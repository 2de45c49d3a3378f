//! After the end: what was made for a migration goes, then what kept the migration, then migrations that are too old.

use api::migration::{VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationPhase as Phase};
use api::names::finalizer;
use manager::writing::guarded;
use serde_json::json;
use virt_rules::launchers::{Launcher, Role, role};

use super::waiting::order;
use super::{Making, is_final, phase};
use crate::vmi::{Target, pods};

/// Migrations of one instance that are kept after their end, so that people can read how they went.
const KEPT: usize = 5;

impl Making<'_> {
    pub(super) fn clear_up(&mut self) {
        if self.remove_target() {
            return;
        }
        let metadata = &self.seen.migration.metadata;
        let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
        if finalizers.iter().any(|one| one == finalizer::MIGRATION) {
            let rest: Vec<_> = finalizers.iter().filter(|one| *one != finalizer::MIGRATION).collect();
            self.plan.release = Some(guarded(metadata, json!({ "metadata": { "finalizers": rest } })));
        }
        self.collect();
    }

    /// The target pod of a migration that failed has nothing to do; whether it still has to go. The guest may be in it all the same,
    /// if the instance says so: then it stays.
    fn remove_target(&mut self) -> bool {
        let Some(pod) = self.target.filter(|_| phase(self.seen.migration) == &Phase::Failed) else { return false };
        let is_free = self.seen.vmi.is_none_or(|vmi| role(&Launcher::of(pod), vmi) == Role::Orphan)
            // Never handed over: it is a target only because nobody has said anything of it.
            || self.seen.vmi.is_some_and(|vmi| super::state_of(self.seen.migration, vmi).is_none());
        if !is_free || pods::has_ended(pod) {
            return false;
        }
        if !pods::is_terminating(pod) {
            self.plan.delete.push(pods::target(pod));
        }
        true
    }

    fn collect(&mut self) {
        let mut ended: Vec<&Migration> = self.seen.siblings.iter().copied().filter(|one| is_final(one)).collect();
        ended.push(self.seen.migration);
        ended.sort_by_key(|one| std::cmp::Reverse(order(one).0));
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let old = ended.into_iter().skip(KEPT).filter(|one| one.metadata.deletion_timestamp.is_none());
        let target = |one: &Migration| Target { name: text(&one.metadata.name), uid: text(&one.metadata.uid) };
        self.plan.collect = old.map(target).collect();
    }
}
