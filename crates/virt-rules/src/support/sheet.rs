//! The sheet that every field is placed on.

use super::{Entry, Placement, Refusal};
use crate::config::{ClusterConfig, Gate};

/// The longest text of a user that reaches QEMU: names, serials and the like are far shorter, kernel arguments fit.
const MOST_TEXT: usize = 2048;

/// What a walk over an instance is for.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// To list every field.
    List,
    /// To find what no launcher does.
    Launch,
    /// To find what a cluster must not accept.
    Admit(&'a ClusterConfig),
}

/// Where fields are placed, each by a method that says what becomes of it. Every method is given the field's value, or what was found
/// in it: so a field that is taken out of its type and not placed is an unused variable, which the lints refuse.
pub(super) struct Sheet<'a> {
    purpose: Purpose<'a>,
    path: String,
    entries: Vec<Entry>,
    refusals: Vec<Refusal>,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(purpose: Purpose<'a>) -> Self {
        Self { purpose, path: String::new(), entries: Vec::new(), refusals: Vec::new() }
    }

    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    pub(super) fn into_refusals(self) -> Vec<Refusal> {
        self.refusals
    }

    /// The field does what it says, or whoever acts on it checks it.
    pub(super) fn works<T: ?Sized>(&mut self, field: &str, _value: &T) {
        self.list(field, Placement::Works);
    }

    /// The field does what it says where a node can.
    pub(super) fn needs_node<T: ?Sized>(&mut self, field: &str, what: &'static str, _value: &T) {
        self.list(field, Placement::NeedsNode(what));
    }

    /// Nobody acts on the field, which does no harm.
    pub(super) fn not_acted_on<T: ?Sized>(&mut self, field: &str, why: &'static str, _value: &T) {
        self.list(field, Placement::NotActedOn(why));
    }

    /// Nobody acts on the field: refused if it asks for anything.
    pub(super) fn unsupported(&mut self, field: &str, instead: &'static str, asks: bool) {
        self.list(field, Placement::Unsupported(instead));
        if asks {
            let path = self.at(field);
            self.refusals.push(Refusal::Unsupported { path, instead });
        }
    }

    /// `orlop run` alone acts on the field: a cluster refuses it.
    pub(super) fn in_run_only(&mut self, field: &str, instead: &'static str, asks: bool) {
        self.list(field, Placement::InRunOnly(instead));
        if asks && matches!(self.purpose, Purpose::Admit(_)) {
            let path = self.at(field);
            self.refusals.push(Refusal::Unsupported { path, instead });
        }
    }

    /// The field does what it says where a gate is on.
    pub(super) fn gated(&mut self, field: &str, gate: Gate, asks: bool) {
        self.list(field, Placement::WorksWith(gate));
        if let Purpose::Admit(config) = self.purpose
            && asks
            && !config.enabled(gate)
        {
            let path = self.at(field);
            self.refusals.push(Refusal::Gated { path, gate: gate.name() });
        }
    }

    /// The field is one of these words, or empty, which is as good as absent.
    pub(super) fn words(&mut self, field: &str, value: Option<&str>, known: &'static [&'static str]) {
        self.list(field, Placement::Values(known));
        if let Some(value) = value.filter(|value| !value.is_empty() && !known.contains(value)) {
            self.refuse(field, format!("{value:?} is not supported; use one of {}", known.join(", ")));
        }
    }

    /// The field does what it says within bounds; what is beyond them is a problem that says what would be right.
    pub(super) fn within(&mut self, field: &str, bounds: &'static str, problem: Option<String>) {
        self.list(field, Placement::Within(bounds));
        if let Some(problem) = problem {
            self.refuse(field, problem);
        }
    }

    /// A text that may reach QEMU. Control characters end lines and strings somewhere further down.
    pub(super) fn text(&mut self, field: &str, value: Option<&str>) {
        self.list(field, Placement::Works);
        let Some(value) = value else { return };
        if value.chars().any(char::is_control) {
            self.refuse(field, "must not contain control characters; remove them");
        } else if value.len() > MOST_TEXT {
            self.refuse(field, format!("has {} bytes; use at most {MOST_TEXT}", value.len()));
        }
    }

    /// Refuses what is wrong with a field, or with several of them together. An empty field is the part that is being placed.
    pub(super) fn refuse(&mut self, field: &str, problem: impl Into<String>) {
        let path = self.at(field);
        self.refusals.push(Refusal::Value { path, problem: problem.into() });
    }

    /// Places the fields of a part. Its table is listed even where the part is not there.
    pub(super) fn part<T: Default>(&mut self, field: &str, part: Option<&T>, place: fn(&mut Self, &T)) {
        let path = self.at(field);
        match part {
            Some(part) => self.go(path, part, place),
            None if self.is_listing() => self.go(path, &T::default(), place),
            None => {}
        }
    }

    /// Places the fields of each part of a list.
    pub(super) fn each<T: Default>(&mut self, field: &str, parts: Option<&Vec<T>>, place: fn(&mut Self, &T)) {
        let path = self.at(field);
        if self.is_listing() {
            return self.go(format!("{path}[]"), &T::default(), place);
        }
        for (index, part) in parts.into_iter().flatten().enumerate() {
            self.go(format!("{path}[{index}]"), part, place);
        }
    }

    fn go<T>(&mut self, path: String, part: &T, place: fn(&mut Self, &T)) {
        let above = std::mem::replace(&mut self.path, path);
        place(self, part);
        self.path = above;
    }

    fn list(&mut self, field: &str, placement: Placement) {
        if self.is_listing() {
            let path = self.at(field);
            self.entries.push(Entry { path, placement });
        }
    }

    fn is_listing(&self) -> bool {
        matches!(self.purpose, Purpose::List)
    }

    fn at(&self, field: &str) -> String {
        match (self.path.as_str(), field) {
            ("", field) => field.to_owned(),
            (path, "") => path.to_owned(),
            (path, field) if field.starts_with('[') => format!("{path}{field}"),
            (path, field) => format!("{path}.{field}"),
        }
    }
}
