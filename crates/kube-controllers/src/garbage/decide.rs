//! What becomes of an object, by what is known of its owners and dependents.

use std::collections::BTreeSet;

use kube::api::PropagationPolicy;

use super::graph::{Item, Uid};

/// What was found out about an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// There is no such object in that place, or another one with its name.
    Absent,
    /// It is there.
    Solid,
    /// It is there and waits until its dependents are gone.
    WaitingForDependents,
    /// Nobody knows: its kind is not served.
    Unknown,
    /// Its kind lives in namespaces and the dependent does not: neither is to be touched.
    Misplaced,
}

/// What the object itself asks for when it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) orphan: bool,
    pub(super) foreground: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// Nothing, until something changes.
    Leave,
    /// It waits for these dependents: look at them.
    Press(Vec<Uid>),
    /// It has waited for its dependents, and none is left: let it go.
    LetGo,
    /// Remove the references to these owners, the others stay.
    Release(BTreeSet<Uid>),
    Delete {
        /// What becomes of its dependents.
        policy: PropagationPolicy,
        /// First stop it from holding its owners, which may wait for each other.
        unblock: bool,
    },
}

/// # Guarantees
/// - It is deleted only if not one of its owners may be there to stay: each is absent, or waits for this very deletion.
/// - A reference is removed only if its owner is absent or goes, and another owner stays.
/// - An owner that waits for its dependents is let go only when none of those that hold it is left.
pub(super) fn decide(item: &Item, wishes: Wishes, answers: &[(Uid, Answer)]) -> Plan {
    if item.stage.foreground {
        return wait_for_dependents(item);
    }
    // Whatever goes already goes; its dependents come after it.
    if item.stage.deleting || answers.is_empty() {
        return Plan::Leave;
    }
    let any = |wanted: Answer| answers.iter().any(|(_, answer)| *answer == wanted);
    if any(Answer::Unknown) || any(Answer::Misplaced) {
        return Plan::Leave;
    }
    if any(Answer::Solid) {
        // Also those that wait, or they would wait for ever for one that stays.
        let solid: BTreeSet<_> = uids(answers, |answer| answer == Answer::Solid);
        let other: BTreeSet<_> = uids(answers, |answer| answer != Answer::Solid);
        let other: BTreeSet<Uid> = other.difference(&solid).cloned().collect();
        return if other.is_empty() { Plan::Leave } else { Plan::Release(other) };
    }
    if any(Answer::WaitingForDependents) && item.has_dependents {
        return Plan::Delete { policy: PropagationPolicy::Foreground, unblock: item.dependent_waits };
    }
    let policy = match wishes {
        Wishes { orphan: true, .. } => PropagationPolicy::Orphan,
        Wishes { foreground: true, .. } => PropagationPolicy::Foreground,
        Wishes { .. } => PropagationPolicy::Background,
    };
    Plan::Delete { policy, unblock: false }
}

fn wait_for_dependents(item: &Item) -> Plan {
    if item.blocking.is_empty() {
        return Plan::LetGo;
    }
    // Those that wait for their own dependents are on their way.
    let idle = item.blocking.iter().filter(|(_, waits)| !waits);
    Plan::Press(idle.map(|(uid, _)| uid.clone()).collect())
}

fn uids(answers: &[(Uid, Answer)], wanted: impl Fn(Answer) -> bool) -> BTreeSet<Uid> {
    answers.iter().filter(|(_, answer)| wanted(*answer)).map(|(uid, _)| uid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::graph::{Identity, Kind, Stage};
    use super::*;

    fn item() -> Item {
        let kind = Arc::new(Kind { api_version: "v1".to_owned(), kind: "Pod".to_owned() });
        Item {
            identity: Identity { kind, namespace: "n".into(), name: "a".into(), uid: "u".into() },
            owners: Box::default(),
            stage: Stage::default(),
            misplaced: BTreeSet::new(),
            blocking: Vec::new(),
            has_dependents: false,
            dependent_waits: false,
        }
    }

    fn answers(list: &[Answer]) -> Vec<(Uid, Answer)> {
        list.iter().enumerate().map(|(number, answer)| (number.to_string().into(), *answer)).collect()
    }

    fn plan(item: &Item, list: &[Answer]) -> Plan {
        decide(item, Wishes::default(), &answers(list))
    }

    use Answer::{Absent, Misplaced, Solid, Unknown, WaitingForDependents};
    const BACKGROUND: Plan = Plan::Delete { policy: PropagationPolicy::Background, unblock: false };

    #[test]
    fn whoever_has_lost_all_owners_goes() {
        assert_eq!(plan(&item(), &[Absent]), BACKGROUND);
        assert_eq!(plan(&item(), &[Absent, Absent]), BACKGROUND);
        assert_eq!(plan(&item(), &[Absent, WaitingForDependents]), BACKGROUND);
        assert_eq!(plan(&item(), &[]), Plan::Leave);
    }

    #[test]
    fn one_owner_that_stays_is_enough() {
        assert_eq!(plan(&item(), &[Solid]), Plan::Leave);
        let rest = BTreeSet::from(["1".into(), "2".into()]);
        assert_eq!(plan(&item(), &[Solid, Absent, WaitingForDependents]), Plan::Release(rest));
    }

    #[test]
    fn nothing_is_done_while_an_owner_is_in_doubt() {
        for doubt in [Unknown, Misplaced] {
            assert_eq!(plan(&item(), &[Absent, doubt]), Plan::Leave);
            assert_eq!(plan(&item(), &[doubt, Solid, Absent]), Plan::Leave);
        }
    }

    #[test]
    fn one_whose_owner_waits_takes_its_own_dependents_first() {
        let parent = Item { has_dependents: true, ..item() };
        let foreground = |unblock| Plan::Delete { policy: PropagationPolicy::Foreground, unblock };
        assert_eq!(plan(&parent, &[WaitingForDependents]), foreground(false));
        assert_eq!(plan(&parent, &[Absent]), BACKGROUND);
        let in_circle = Item { dependent_waits: true, ..parent };
        assert_eq!(plan(&in_circle, &[WaitingForDependents]), foreground(true));
    }

    #[test]
    fn a_wish_of_its_own_counts() {
        let orphan = Wishes { orphan: true, foreground: true };
        let plan = decide(&item(), orphan, &answers(&[Absent]));
        assert_eq!(plan, Plan::Delete { policy: PropagationPolicy::Orphan, unblock: false });
        let foreground = Wishes { orphan: false, foreground: true };
        let plan = decide(&item(), foreground, &answers(&[Absent]));
        assert_eq!(plan, Plan::Delete { policy: PropagationPolicy::Foreground, unblock: false });
    }

    #[test]
    fn one_that_waits_for_dependents_is_held_by_those_that_block() {
        let stage = Stage { deleting: true, foreground: true, orphaning: false };
        let waiting = Item { stage, has_dependents: true, ..item() };
        assert_eq!(plan(&waiting, &[]), Plan::LetGo);
        let held = Item { blocking: vec![("a".into(), false), ("b".into(), true)], ..waiting };
        assert_eq!(plan(&held, &[]), Plan::Press(vec!["a".into()]));
    }

    fn any_answer() -> impl Strategy<Value = Answer> {
        prop::sample::select(vec![Absent, Solid, WaitingForDependents, Unknown, Misplaced])
    }

    proptest! {
        #[test]
        fn what_may_have_an_owner_is_never_deleted_and_keeps_that_owner(
            found in prop::collection::vec((0..3_u8, any_answer()), 0..6),
            (deleting, has_dependents, dependent_waits) in any::<(bool, bool, bool)>(),
            (orphan, foreground) in any::<(bool, bool)>(),
        ) {
            let stage = Stage { deleting, ..Stage::default() };
            let item = Item { stage, has_dependents, dependent_waits, ..item() };
            let found: Vec<(Uid, Answer)> = found.iter().map(|(uid, answer)| (uid.to_string().into(), *answer)).collect();
            let stays: BTreeSet<Uid> = uids(&found, |answer| matches!(answer, Solid | Unknown | Misplaced));
            match decide(&item, Wishes { orphan, foreground }, &found) {
                Plan::Delete { .. } => prop_assert!(stays.is_empty() && !found.is_empty() && !deleting),
                Plan::Release(removed) => {
                    prop_assert!(removed.is_disjoint(&stays) && !stays.is_empty() && !removed.is_empty());
                }
                Plan::Leave => {}
                plan => prop_assert!(false, "{:?} is for those that wait for dependents", plan),
            }
        }
    }
}
