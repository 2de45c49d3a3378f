//! The table of controllers, and which of them run.

use std::collections::BTreeSet;
use std::error::Error;

use crate::context::{Context, Started};

/// Starts a controller: it asks for its caches and does not act yet.
pub type Start<S> = fn(&Context, &S) -> Result<Started, Box<dyn Error + Send + Sync>>;

/// What is known of a controller before it starts. `S` are the settings that all controllers of a program share.
#[derive(Clone)]
pub struct Descriptor<S> {
    /// Its name, such as `replicaset-controller`.
    pub name: &'static str,
    /// Its service account, where each controller has its own: not always of its name.
    pub account: &'static str,
    /// Names that it had, or is also known by.
    pub aliases: &'static [&'static str],
    /// Feature gates that must all be on.
    pub required_gates: &'static [&'static str],
    /// Runs only if it is asked for by name.
    pub off_by_default: bool,
    /// Is started before all others and with the program's own rights; nothing else starts if it cannot.
    pub special_handling: bool,
    /// How it starts.
    pub start: Start<S>,
}

impl<S> Descriptor<S> {
    /// A controller that is on by default and needs nothing special.
    #[must_use]
    pub const fn new(name: &'static str, aliases: &'static [&'static str], start: Start<S>) -> Self {
        Self {
            name,
            account: name,
            aliases,
            required_gates: &[],
            off_by_default: false,
            special_handling: false,
            start,
        }
    }
}

/// Why a controller does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Off {
    /// A feature gate is off.
    Gate(&'static str),
    /// The flag says so.
    Flag,
    /// It is off unless asked for.
    Default,
}

impl std::fmt::Display for Off {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gate(gate) => write!(f, "its feature gate {gate} is off"),
            Self::Flag => f.write_str("it was switched off by --controllers"),
            Self::Default => f.write_str("it is off by default"),
        }
    }
}

/// What `--controllers` says: `*` is all that are on by default, `foo` is foo, `-foo` is not foo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    all: bool,
    on: BTreeSet<&'static str>,
    off: BTreeSet<&'static str>,
}

/// A name that no controller has.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no controller {name:?}; there are {}", known.join(", "))]
pub struct UnknownController {
    /// The name.
    pub name: String,
    /// Those that there are.
    pub known: Vec<&'static str>,
}

impl Selection {
    /// Reads the flag's values.
    ///
    /// # Errors
    /// When a name is not known.
    pub fn parse<'a, S>(
        values: impl IntoIterator<Item = &'a str>,
        descriptors: &[Descriptor<S>],
    ) -> Result<Self, UnknownController> {
        let mut selection = Self { all: false, on: BTreeSet::new(), off: BTreeSet::new() };
        for value in values {
            let (off, name) = value.strip_prefix('-').map_or((false, value), |name| (true, name));
            if value == "*" {
                selection.all = true;
                continue;
            }
            let found = descriptors.iter().find(|one| one.name == name || one.aliases.contains(&name));
            let Some(found) = found else {
                let known = descriptors.iter().map(|one| one.name).collect();
                return Err(UnknownController { name: name.to_owned(), known });
            };
            if off {
                selection.off.insert(found.name)
            } else {
                selection.on.insert(found.name)
            };
        }
        Ok(selection)
    }

    /// All that are on by default.
    #[must_use]
    pub const fn all() -> Self {
        Self { all: true, on: BTreeSet::new(), off: BTreeSet::new() }
    }

    /// Whether a controller runs, and if not, why. What is said by name counts more than what is said of all.
    ///
    /// # Errors
    /// The reason for which it does not.
    pub fn allows<S>(&self, descriptor: &Descriptor<S>, gates: impl Fn(&str) -> bool) -> Result<(), Off> {
        if let Some(gate) = descriptor.required_gates.iter().find(|gate| !gates(gate)) {
            return Err(Off::Gate(gate));
        }
        if self.on.contains(descriptor.name) {
            return Ok(());
        }
        if self.off.contains(descriptor.name) {
            return Err(Off::Flag);
        }
        match (self.all, descriptor.off_by_default) {
            (true, false) => Ok(()),
            (true, true) => Err(Off::Default),
            (false, _) => Err(Off::Flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(_: &Context, (): &()) -> Result<Started, Box<dyn Error + Send + Sync>> {
        Ok(Started::new(async {}))
    }

    const TABLE: [Descriptor<()>; 3] = [
        Descriptor::new("replicaset-controller", &["replicaset"], start),
        Descriptor { off_by_default: true, ..Descriptor::new("bootstrap-signer", &[], start) },
        Descriptor { required_gates: &["New"], ..Descriptor::new("new-controller", &[], start) },
    ];

    fn running(values: &[&str], gates: bool) -> Vec<&'static str> {
        let selection = Selection::parse(values.iter().copied(), &TABLE).unwrap();
        TABLE.iter().filter(|one| selection.allows(one, |_| gates).is_ok()).map(|one| one.name).collect()
    }

    #[test]
    fn what_is_said_by_name_counts_more_than_what_is_said_of_all() {
        assert_eq!(running(&["*"], true), ["replicaset-controller", "new-controller"]);
        assert_eq!(running(&["*", "-replicaset"], true), ["new-controller"]);
        assert_eq!(
            running(&["*", "bootstrap-signer"], true),
            ["replicaset-controller", "bootstrap-signer", "new-controller"]
        );
        assert_eq!(running(&["replicaset"], true), ["replicaset-controller"]);
        assert_eq!(running(&["*"], false), ["replicaset-controller"]);
        assert_eq!(running(&[], true), Vec::<&str>::new());
    }

    #[test]
    fn each_that_does_not_run_says_why() {
        let selection = Selection::parse(["*", "-replicaset"], &TABLE).unwrap();
        let why: Vec<String> =
            TABLE.iter().filter_map(|one| selection.allows(one, |_| false).err()).map(|off| off.to_string()).collect();
        assert_eq!(
            why,
            ["it was switched off by --controllers", "it is off by default", "its feature gate New is off"]
        );
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Selection::parse(["-foo"], &TABLE).unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no controller \"foo\"; there are replicaset-controller, bootstrap-signer, new-controller"
        );
    }
}
