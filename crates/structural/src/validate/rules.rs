//! CEL rules of an object.
//!
//! Guarantees: one rule costs at most [`PER_RULE`], all rules of one request [`PER_REQUEST`], as in Kubernetes. Once the
//! budget is used up no further rule runs, and the object is refused.

use serde_json::Value;

use super::objects::child;
use super::{MOST_ERRORS, NOWHERE};
use crate::cel::{Activation, Failure, Meter, Val};
use crate::correlate;
use crate::error::{FieldError, Reason};
use crate::field_path;
use crate::node::{Node, Rule, Type};
use crate::place::below;

const PER_RULE: u64 = 1_000_000;
const PER_REQUEST: u64 = 10_000_000;
/// The longest message that an expression may make.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// Runs all rules on a value and below it; `old` is what stood in its place.
pub(super) fn check(node: &Node, value: &Value, old: Option<&Value>, path: &str) -> Vec<FieldError> {
    let mut run = Run { errors: Vec::new(), left: PER_REQUEST, over: false };
    let ratchet = Ratchet { current: old.map(|old| (value, old)), nearest: None };
    run.walk(node, value, old, ratchet, path);
    run.errors
}

/// Which old value decides whether an error is tolerated: the value's own, or that of the nearest part above it whose
/// old value can be told.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    current: Option<(&'a Value, &'a Value)>,
    nearest: Option<(&'a Value, &'a Value)>,
}

impl<'a> Ratchet<'a> {
    fn tolerates(&self) -> bool {
        self.current.or(self.nearest).is_some_and(|(new, old)| correlate::equal(new, old))
    }

    fn field(self, name: &str) -> Self {
        let Some((new, old)) = self.current else { return self };
        if self.nearest.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self { current: None, nearest: None };
        }
        Self { current: new.get(name).zip(old.get(name)), nearest: self.current }
    }

    fn item(self, new: &'a Value, old: Option<&'a Value>) -> Self {
        if self.current.is_none() {
            return self;
        }
        Self { current: old.map(|old| (new, old)), nearest: self.current }
    }
}

struct Run {
    errors: Vec<FieldError>,
    left: u64,
    /// Nothing more is run.
    over: bool,
}

impl Run {
    fn walk(&mut self, node: &Node, value: &Value, old: Option<&Value>, ratchet: Ratchet<'_>, path: &str) {
        if !node.below.rules || value.is_null() || self.over || self.errors.len() >= MOST_ERRORS {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        for rule in &node.rules {
            self.rule(rule, node, value, old, ratchet, path);
            if self.over {
                return;
            }
        }
        match value {
            Value::Object(map) => {
                for (name, field) in map {
                    let old = old.and_then(|old| old.get(name));
                    if let Some(property) = node.property(name) {
                        self.walk(property, field, old, ratchet.field(name), &child(path, name));
                    } else if let Some(additional) = node.additional_schema() {
                        self.walk(additional, field, old, ratchet.field(name), &below(path, format_args!("[{name}]")));
                    }
                }
            }
            Value::Array(items) => {
                let Some(inner) = &node.items else { return };
                let known = correlate::OldItems::new(node, old);
                for (index, item) in items.iter().enumerate() {
                    let old = known.find(item);
                    self.walk(inner, item, old, ratchet.item(item, old), &format!("{path}[{index}]"));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn rule(&mut self, rule: &Rule, node: &Node, value: &Value, old: Option<&Value>, ratchet: Ratchet<'_>, path: &str) {
        let place = if path.is_empty() { NOWHERE } else { path };
        let kind = Value::from(node.type_name());
        let program = match rule.program() {
            Ok(program) => program,
            Err(fault) => {
                let detail = format!("rule compile error: {fault}");
                self.errors.push(FieldError::invalid(place, &kind, detail));
                return;
            }
        };
        // A transition has to have a beginning.
        if program.uses_old && old.is_none() && !rule.optional_old {
            return;
        }
        let before = old.map(|old| Val::of(old, Some(node)));
        let old_self = if rule.optional_old { Some(before.map_or(Val::Optional(None), Val::some)) } else { before };
        let activation = Activation { this: Val::of(value, Some(node)), old: old_self };
        let outcome = self.metered(|meter| program.run(&activation, meter));
        let shown = rule.shown();
        let detail = match outcome {
            Ok(Val::Bool(true)) => return,
            Ok(_) => None,
            Err(Failure::Exhausted) if self.left == 0 => Some(
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned(),
            ),
            Err(failure @ Failure::Exhausted) => Some(format!(
                "'{failure}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
            )),
            Err(Failure::Error(problem)) if problem.starts_with("no such overload") => Some(format!(
                "'{problem}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
            )),
            Err(Failure::Error(problem)) => Some(format!("{problem} evaluating rule: {shown}")),
        };
        match detail {
            Some(detail) => self.errors.push(FieldError::invalid(place, &kind, detail)),
            None if !program.uses_old && ratchet.tolerates() => {}
            None => {
                let error = self.failed(rule, node, value, &activation, path);
                self.errors.push(error);
            }
        }
    }

    /// The error of a rule that said no.
    fn failed(
        &mut self,
        rule: &Rule,
        node: &Node,
        value: &Value,
        activation: &Activation<'_>,
        path: &str,
    ) -> FieldError {
        let inner = rule.field_path.as_deref().and_then(|inner| field_path::resolve(node, inner));
        let path = match inner {
            Some(inner) if !inner.is_empty() => child(path, &inner),
            _ if path.is_empty() => NOWHERE.to_owned(),
            _ => path.to_owned(),
        };
        let detail = self.message(rule, activation).unwrap_or_else(|| match &rule.message {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.shown()),
        });
        let composed = matches!(node.kind, Some(Type::Object | Type::Array));
        match rule.reason {
            Reason::Forbidden => FieldError::forbidden(path, detail),
            Reason::Required => FieldError::required(path, detail),
            Reason::Duplicate if composed => FieldError::plain(path, Reason::Duplicate, ""),
            Reason::Duplicate => FieldError::duplicate(path, value),
            _ if composed => FieldError::invalid_without_value(path, detail),
            _ => FieldError::invalid(path, value, detail),
        }
    }

    /// What the rule's message expression says, if it says something fit to be told.
    fn message(&mut self, rule: &Rule, activation: &Activation<'_>) -> Option<String> {
        let program = rule.message_program()?.as_ref().ok()?;
        let Ok(Val::String(text)) = self.metered(|meter| program.run(activation, meter)) else { return None };
        let text = text.as_str().trim();
        (!text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
    }

    /// Runs a program on what is left of the budget, and ends the run when a limit was hit.
    fn metered<'a>(
        &mut self,
        program: impl FnOnce(&mut Meter) -> Result<Val<'a>, Failure>,
    ) -> Result<Val<'a>, Failure> {
        let granted = self.left.min(PER_RULE);
        let mut meter = Meter { left: granted };
        let result = program(&mut meter);
        self.left -= granted - meter.left;
        self.over |= matches!(result, Err(Failure::Exhausted));
        result
    }
}
