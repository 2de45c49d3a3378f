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
            Self::Flag => f.write_str("it was disabled by --controllers"),
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

/// A controller that the real program has and this one does not have yet.
#[derive(Clone, Copy, Debug)]
pub struct Unwritten {
    /// Its name there.
    pub name: &'static str,
    /// Names that it had there, or is also known by.
    pub aliases: &'static [&'static str],
}

/// A name that cannot be chosen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SelectionError {
    /// No controller has it.
    #[error("unknown controller {name:?}; use one of {}", known.join(", "))]
    Unknown {
        name: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// The real program has it.
    #[error("the controller {name} is not supported yet; remove it from the list")]
    Unwritten { name: &'static str },
}

/// What `--help` says of the flag `--controllers`: each controller by its name and, in brackets, its other names.
#[must_use]
pub fn help<S>(descriptors: &[Descriptor<S>], unwritten: &[Unwritten]) -> String {
    let named = |name: &str, aliases: &[&str]| match aliases {
        [] => name.to_owned(),
        aliases => format!("{name} ({})", aliases.join(", ")),
    };
    let list = |off: bool| {
        let chosen = descriptors.iter().filter(|one| one.off_by_default == off);
        let names: Vec<String> = chosen.map(|one| named(one.name, one.aliases)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let missing: Vec<String> = unwritten.iter().map(|one| named(one.name, one.aliases)).collect();
    format!(
        "Controllers to run: `*` enables all that are on by default, `foo` enables foo, `-foo` disables foo.\n\nOn by default: {}.\n\nOff \
         by default: {}.\n\nNot supported yet, and refused by name: {}.",
        list(false),
        list(true),
        missing.join(", "),
    )
}

impl Selection {
    /// Reads the flag's values.
    ///
    /// # Errors
    /// When a name is not known, or that of a controller that is not written yet. Such a one can be switched off: it does not run.
    pub fn parse<'a, S>(
        values: impl IntoIterator<Item = &'a str>,
        descriptors: &[Descriptor<S>],
        unwritten: &[Unwritten],
    ) -> Result<Self, SelectionError> {
        let mut selection = Self { all: false, on: BTreeSet::new(), off: BTreeSet::new() };
        for value in values {
            let (off, name) = value.strip_prefix('-').map_or((false, value), |name| (true, name));
            if value == "*" {
                selection.all = true;
                continue;
            }
            let found = descriptors.iter().find(|one| one.name == name || one.aliases.contains(&name));
            let Some(found) = found else {
                let missing = unwritten.iter().find(|one| one.name == name || one.aliases.contains(&name));
                match missing {
                    Some(_) if off => continue,
                    Some(missing) => return Err(SelectionError::Unwritten { name: missing.name }),
                    None => {
                        let known = descriptors.iter().map(|one| one.name).collect();
                        return Err(SelectionError::Unknown { name: name.to_owned(), known });
                    }
                }
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

    const UNWRITTEN: [Unwritten; 1] = [Unwritten { name: "late-controller", aliases: &["late"] }];

    fn running(values: &[&str], gates: bool) -> Vec<&'static str> {
        let selection = Selection::parse(values.iter().copied(), &TABLE, &UNWRITTEN).unwrap();
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
        let selection = Selection::parse(["*", "-replicaset"], &TABLE, &UNWRITTEN).unwrap();
        let why: Vec<String> =
            TABLE.iter().filter_map(|one| selection.allows(one, |_| false).err()).map(|off| off.to_string()).collect();
        assert_eq!(why, ["it was disabled by --controllers", "it is off by default", "its feature gate New is off"]);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Selection::parse(["-foo"], &TABLE, &UNWRITTEN).unwrap_err().to_string();
        let expected = "unknown controller \"foo\"; use one of replicaset-controller, bootstrap-signer, new-controller";
        assert_eq!(error, expected);
    }

    #[test]
    fn what_is_not_written_yet_is_refused_by_name_and_can_be_switched_off() {
        let error = Selection::parse(["*", "late"], &TABLE, &UNWRITTEN).unwrap_err().to_string();
        assert_eq!(error, "the controller late-controller is not supported yet; remove it from the list");
        assert_eq!(Selection::parse(["*", "-late-controller"], &TABLE, &UNWRITTEN), Ok(Selection::all()));
    }

    #[test]
    fn help_names_every_controller_once() {
        let text = help(&TABLE, &UNWRITTEN);
        assert!(text.contains("\n\nOn by default: replicaset-controller (replicaset), new-controller.\n\n"), "{text}");
        assert!(text.contains("\n\nOff by default: bootstrap-signer.\n\n"), "{text}");
        assert!(text.ends_with("refused by name: late-controller (late)."), "{text}");
    }
}
