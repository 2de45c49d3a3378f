//! Owners that the server said are not there: what one dependent learned, the next need not ask.

use std::collections::BTreeMap;

use super::graph::Identity;

/// One owner that goes serves all its dependents, but they come only after all that went before them: with Kubernetes' 500,
/// a tree of a thousand inner nodes asks about half of its owners again. These are one or two megabytes at most.
const MOST: usize = 5000;

/// The owners asked about last, and absent. A UID never comes back, so that an answer stays true; the place counts too,
/// because a reference may name an existing UID in the wrong place.
#[derive(Debug, Default)]
pub(super) struct Absent {
    used: BTreeMap<Identity, u64>,
    order: BTreeMap<u64, Identity>,
    uses: u64,
}

impl Absent {
    /// Remembers one; the one that was not needed for longest is forgotten.
    pub(super) fn add(&mut self, owner: Identity) {
        self.uses += 1;
        if let Some(before) = self.used.insert(owner.clone(), self.uses) {
            self.order.remove(&before);
        }
        self.order.insert(self.uses, owner);
        if self.order.len() > MOST
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
    }

    /// Whether it is known to be absent.
    pub(super) fn has(&mut self, owner: &Identity) -> bool {
        let known = self.used.contains_key(owner);
        if known {
            self.add(owner.clone());
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::graph::Kind;
    use super::*;

    fn owner(number: usize) -> Identity {
        let kind = Arc::new(Kind { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned() });
        Identity { kind, namespace: "n".into(), name: "a".into(), uid: number.to_string().into() }
    }

    #[test]
    fn the_one_not_needed_for_longest_is_forgotten() {
        let mut absent = Absent::default();
        absent.add(owner(0));
        for number in 1..=MOST {
            assert!(absent.has(&owner(0)));
            absent.add(owner(number));
        }
        assert!(absent.has(&owner(0)) && !absent.has(&owner(1)) && absent.has(&owner(2)));
        assert_eq!((absent.used.len(), absent.order.len()), (MOST, MOST));
    }

    #[test]
    fn another_place_is_another_owner() {
        let mut absent = Absent::default();
        absent.add(owner(1));
        assert!(!absent.has(&Identity { namespace: "m".into(), ..owner(1) }));
    }
}
