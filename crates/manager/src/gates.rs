//! Feature gates: parts that can be switched on or off by name.

use std::collections::BTreeMap;

/// A gate and what it is unless it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    /// Whether it is on.
    pub on: bool,
}

/// How all gates are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates(BTreeMap<&'static str, bool>);

/// A setting that cannot be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GateError {
    /// No gate has that name.
    #[error("unknown feature gate {name:?}; use one of {}", list(known))]
    Unknown {
        name: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// It is not `NAME=true` or `NAME=false`.
    #[error("{text:?} is not of the form NAME=true or NAME=false")]
    Malformed {
        /// What was said.
        text: String,
    },
}

fn list(known: &[&str]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

impl Gates {
    /// Reads settings such as `Foo=true`.
    ///
    /// # Errors
    /// When a gate is not known, or a setting is malformed.
    pub fn parse<'a>(settings: impl IntoIterator<Item = &'a str>, known: &[Gate]) -> Result<Self, GateError> {
        let mut gates: BTreeMap<&'static str, bool> = known.iter().map(|gate| (gate.name, gate.on)).collect();
        for text in settings.into_iter().filter(|text| !text.is_empty()) {
            let malformed = || GateError::Malformed { text: text.to_owned() };
            let (name, value) = text.split_once('=').ok_or_else(malformed)?;
            let value = value.parse().map_err(|_| malformed())?;
            let Some(gate) = known.iter().find(|gate| gate.name == name) else {
                let known = known.iter().map(|gate| gate.name).collect();
                return Err(GateError::Unknown { name: name.to_owned(), known });
            };
            gates.insert(gate.name, value);
        }
        Ok(Self(gates))
    }

    /// Whether a gate is on; one that is not known is off.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Gate; 2] = [Gate { name: "Old", on: true }, Gate { name: "New", on: false }];

    #[test]
    fn what_is_not_set_is_as_it_is_by_default() {
        let gates = Gates::parse(["New=true"], &KNOWN).unwrap();
        assert!(gates.is_on("Old") && gates.is_on("New") && !gates.is_on("Other"));
        assert!(!Gates::parse(["Old=false"], &KNOWN).unwrap().is_on("Old"));
    }

    #[test]
    fn a_wrong_setting_says_what_would_be_right() {
        let error = |text| Gates::parse([text], &KNOWN).unwrap_err().to_string();
        assert_eq!(error("Nwe=true"), "unknown feature gate \"Nwe\"; use one of Old, New");
        assert_eq!(error("New"), "\"New\" is not of the form NAME=true or NAME=false");
        assert_eq!(error("New=1"), "\"New=1\" is not of the form NAME=true or NAME=false");
    }
}
