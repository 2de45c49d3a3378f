//! Who asked for what: what a role must allow, and what it need not.

use std::collections::BTreeSet;
use std::fmt;

use apiserver::{Attributes, Identity, MASTERS};

/// Something that a process did, or tried to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub user: String,
    /// Such as `patch`.
    pub verb: String,
    /// The group of what it is about.
    pub group: String,
    /// Such as `pods` or `pods/status`.
    pub resource: String,
}

impl Right {
    /// None of those who may do everything, nor of what is not about objects.
    pub(crate) fn of(who: &Identity, what: Attributes<'_>) -> Option<Self> {
        if what.resource.is_empty() || who.groups.iter().any(|group| group == MASTERS) {
            return None;
        }
        let resource = match what.subresource {
            "" => what.resource.to_owned(),
            sub => format!("{}/{sub}", what.resource),
        };
        Some(Self { user: who.user.clone(), verb: what.verb.to_owned(), group: what.group.to_owned(), resource })
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, verb, group, resource } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{user}: {verb} {resource}{dot}{group}")
    }
}

/// All that was asked for.
#[derive(Default)]
pub(crate) struct Rights(BTreeSet<Right>);

impl Rights {
    pub(crate) fn note(&mut self, right: Right) {
        self.0.insert(right);
    }

    pub(crate) fn take(&mut self) -> BTreeSet<Right> {
        std::mem::take(&mut self.0)
    }
}
