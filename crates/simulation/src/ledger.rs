//! Who runs, who may write and who could go on: outside of the API, by what simulated launchers say at the moment that it happens.
//!
//! # What must hold
//! - Never two launchers that may write to the disks of one instance, nor of two instances of one name.
//! - In the end, each instance that says it runs has one launcher whose guest could go on, and no guest goes on without one.
//! - An instance does not end while its guest goes on.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use virt_handler::hollow::{Ledger, Standing, Who};

use crate::About;

/// What launchers have said.
#[derive(Default)]
pub(crate) struct Book {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that may write.
    holders: BTreeMap<Who, Standing>,
    /// What did not hold, and was not told yet.
    broken: Vec<(About, String)>,
}

impl Book {
    /// The pod in which the guest of an instance could go on, if there is one.
    pub(crate) fn holder(&self, instance: &str) -> Option<String> {
        self.state().holders.keys().find(|who| who.instance == instance).map(|who| who.pod.clone())
    }

    /// All launchers that may write.
    pub(crate) fn holders(&self) -> Vec<Who> {
        self.state().holders.keys().cloned().collect()
    }

    /// What did not hold since the last time.
    pub(crate) fn take_broken(&self) -> Vec<(About, String)> {
        std::mem::take(&mut self.state().broken)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger for Book {
    fn note(&self, who: &Who, standing: Standing) {
        let mut state = self.state();
        let State { holders, broken } = &mut *state;
        match standing {
            Standing::Empty | Standing::Waits | Standing::Gone => {
                holders.remove(who);
            }
            Standing::Holds { .. } => {
                holders.insert(who.clone(), standing);
                let same_disks = |other: &&Who| (&other.namespace, &other.name) == (&who.namespace, &who.name);
                let pods: Vec<&str> = holders.keys().filter(same_disks).map(|who| who.pod.as_str()).collect();
                if pods.len() > 1 {
                    let Who { namespace, name, instance, .. } = who.clone();
                    let what =
                        format!("{} launchers may write to the disks of {namespace}/{name}: {pods:?}", pods.len());
                    broken.push((About { namespace, name, uid: instance }, what));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str, instance: &str, pod: &str) -> Who {
        let text = |text: &str| text.to_owned();
        Who { namespace: text("n"), name: text(name), instance: text(instance), pod: text(pod) }
    }

    #[test]
    fn two_that_may_write_to_one_disk_are_told_once() {
        let book = Book::default();
        let holds = Standing::Holds { runs: true };
        book.note(&who("a", "1", "p"), holds);
        book.note(&who("b", "2", "q"), holds);
        book.note(&who("a", "1", "t"), Standing::Waits);
        assert!(book.take_broken().is_empty());
        book.note(&who("a", "3", "r"), holds);
        assert_eq!(book.take_broken()[0].1, "2 launchers may write to the disks of n/a: [\"p\", \"r\"]");
        assert!(book.take_broken().is_empty());
        book.note(&who("a", "1", "p"), Standing::Gone);
        assert_eq!((book.holder("1"), book.holder("3")), (None, Some("r".to_owned())));
    }
}
