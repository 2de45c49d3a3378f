//! Running an expression.
//!
//! Errors are values to the logical operators: `true || error` is true. An exhausted budget ends everything.

mod loops;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use super::ast::{Expr, Kind, Literal, Unary};
use super::escape::unescape;
use super::value::{Text, Val};
use super::{functions, ops};
use crate::node::Pattern;

/// What the names of a rule stand for.
#[derive(Clone, Debug)]
pub(crate) struct Activation<'a> {
    pub(crate) this: Val<'a>,
    pub(crate) old: Option<Val<'a>>,
}

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The rule met something it cannot deal with; its text is cel-go's.
    Error(String),
    /// The budget is used up.
    Exhausted,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(problem) => formatter.write_str(problem),
            Self::Exhausted => formatter.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

pub(super) fn error(problem: impl Into<String>) -> Failure {
    Failure::Error(problem.into())
}

pub(super) fn no_overload() -> Failure {
    error("no such overload")
}

/// A budget. One unit is about one step; long texts and lists cost by their size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) left: u64,
}

impl Meter {
    pub(crate) fn charge(&mut self, cost: usize) -> Result<(), Failure> {
        match self.left.checked_sub(u64::try_from(cost).unwrap_or(u64::MAX)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Failure::Exhausted)
            }
        }
    }

    /// Charges for walking a text or bytes: a tenth of a unit per byte.
    pub(super) fn walk(&mut self, length: usize) -> Result<(), Failure> {
        self.charge(length / 10 + 1)
    }
}

pub(super) fn run<'a>(
    expression: &'a Expr,
    activation: &Activation<'a>,
    meter: &mut Meter,
) -> Result<Val<'a>, Failure> {
    Evaluator { activation, meter, bound: Vec::new() }.value(expression)
}

struct Evaluator<'a, 'b> {
    activation: &'b Activation<'a>,
    meter: &'b mut Meter,
    /// What macros have bound, innermost last.
    bound: Vec<(&'a str, Val<'a>)>,
}

impl<'a> Evaluator<'a, '_> {
    fn value(&mut self, expression: &'a Expr) -> Result<Val<'a>, Failure> {
        match &expression.kind {
            Kind::Literal(literal) => Ok(constant(literal)),
            Kind::Ident(name) => self.name(name),
            Kind::Select { of, field, optional } => {
                let of = self.value(of)?;
                self.meter.charge(1)?;
                select(&of, field, *optional)
            }
            Kind::Has { of, field } => {
                let of = self.value(of)?;
                self.meter.charge(1)?;
                has(&of, field)
            }
            Kind::Index { of, index, optional } => {
                let (of, index) = (self.value(of)?, self.value(index)?);
                self.meter.charge(1)?;
                ops::index(&of, &index, *optional)
            }
            Kind::Call { target, function, arguments, pattern } => {
                self.call(target.as_deref(), function, arguments, pattern.as_deref())
            }
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Unary(operator, inner) => {
                let inner = self.value(inner)?;
                self.meter.charge(1)?;
                match (operator, inner) {
                    (Unary::Not, Val::Bool(truth)) => Ok(Val::Bool(!truth)),
                    (Unary::Negate, inner) => ops::negate(&inner),
                    (Unary::Not, _) => Err(no_overload()),
                }
            }
            Kind::Binary(operator, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                self.meter.charge(1)?;
                ops::binary(*operator, &left, &right, self.meter)
            }
            Kind::And(parts) => self.logic(parts, false),
            Kind::Or(parts) => self.logic(parts, true),
            Kind::Choice(condition, yes, no) => match self.value(condition)? {
                Val::Bool(true) => self.value(yes),
                Val::Bool(false) => self.value(no),
                _ => Err(no_overload()),
            },
            Kind::Loop(walk) => self.walk(walk),
            Kind::OptionalMap { of, name, body, flat } => match self.value(of)? {
                Val::Optional(Some(inner)) => {
                    self.bound.push((name, (*inner).clone()));
                    let result = self.value(body);
                    self.bound.pop();
                    result.map(|value| if *flat { value } else { Val::some(value) })
                }
                Val::Optional(None) => Ok(Val::Optional(None)),
                _ => Err(no_overload()),
            },
        }
    }

    fn name(&mut self, name: &str) -> Result<Val<'a>, Failure> {
        self.meter.charge(1)?;
        if let Some((_, value)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(value.clone());
        }
        match name {
            "self" => Ok(self.activation.this.clone()),
            "oldSelf" => self.activation.old.clone().ok_or_else(|| error("no such attribute(s): oldSelf")),
            _ => {
                functions::type_name(name).map(Val::Type).ok_or_else(|| error(format!("no such attribute(s): {name}")))
            }
        }
    }

    /// `&&` and `||`: the deciding value wins over errors on either side.
    fn logic(&mut self, parts: &'a [Expr], deciding: bool) -> Result<Val<'a>, Failure> {
        let mut failure = None;
        for part in parts {
            match self.value(part) {
                Ok(Val::Bool(truth)) if truth == deciding => return Ok(Val::Bool(deciding)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => failure = failure.or(Some(no_overload())),
                Err(Failure::Exhausted) => return Err(Failure::Exhausted),
                Err(other) => failure = failure.or(Some(other)),
            }
        }
        failure.map_or(Ok(Val::Bool(!deciding)), Err)
    }

    fn call(
        &mut self,
        target: Option<&'a Expr>,
        function: &str,
        arguments: &'a [Expr],
        pattern: Option<&Pattern>,
    ) -> Result<Val<'a>, Failure> {
        // `math.least` and its like are functions with a dot in their names.
        let space = target.and_then(|target| match &target.kind {
            Kind::Ident(space) if functions::is_space(space) => Some(&**space),
            _ => None,
        });
        if let Some(result) = self.short_circuit(target, function, arguments) {
            return result;
        }
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for part in target.filter(|_| space.is_none()).into_iter().chain(arguments) {
            values.push(self.value(part)?);
        }
        self.meter.charge(1)?;
        if let (Some(pattern), Some(Val::String(text))) = (pattern, values.first()) {
            return functions::with_pattern(function, text.as_str(), pattern, &values[1..], self.meter);
        }
        functions::call(space, function, target.is_some() && space.is_none(), &values, self.meter)
    }

    /// `or` and `orValue` of optionals look at their argument only when they need it.
    fn short_circuit(
        &mut self,
        target: Option<&'a Expr>,
        function: &str,
        arguments: &'a [Expr],
    ) -> Option<Result<Val<'a>, Failure>> {
        let (Some(target), [argument], "or" | "orValue") = (target, arguments, function) else { return None };
        Some(match self.value(target) {
            Ok(Val::Optional(Some(inner))) if function == "orValue" => Ok((*inner).clone()),
            Ok(Val::Optional(None)) => self.value(argument),
            Ok(value @ Val::Optional(_)) => Ok(value),
            Ok(_) => Err(no_overload()),
            Err(failure) => Err(failure),
        })
    }

    fn list(&mut self, items: &'a [(Expr, bool)]) -> Result<Val<'a>, Failure> {
        self.meter.charge(10)?;
        let mut list = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.value(item)?, optional) {
                (value, false) => list.push(value),
                (Val::Optional(inner), true) => list.extend(inner.map(|inner| (*inner).clone())),
                (_, true) => return Err(no_overload()),
            }
        }
        Ok(Val::list(list))
    }

    fn map(&mut self, entries: &'a [(Expr, Expr, bool)]) -> Result<Val<'a>, Failure> {
        self.meter.charge(30)?;
        let mut map = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.value(key)?.key().ok_or_else(no_overload)?;
            let value = match (self.value(value)?, optional) {
                (value, false) => value,
                (Val::Optional(Some(inner)), true) => (*inner).clone(),
                (Val::Optional(None), true) => continue,
                (_, true) => return Err(no_overload()),
            };
            map.insert(key, value);
        }
        Ok(Val::Map(Rc::new(map)))
    }
}

fn constant(literal: &Literal) -> Val<'_> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(truth) => Val::Bool(*truth),
        Literal::Int(number) => Val::Int(*number),
        Literal::Uint(number) => Val::Uint(*number),
        Literal::Double(number) => Val::Double(*number),
        Literal::String(text) => Val::String(Text::Borrowed(text)),
        Literal::Bytes(bytes) => Val::Bytes(bytes.as_ref().into()),
    }
}

fn select<'a>(of: &Val<'a>, field: &str, optional: bool) -> Result<Val<'a>, Failure> {
    let (of, optional) = match of {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => (&**inner, true),
        other => (other, optional),
    };
    match (ops::field(of, &spelled(of, field))?, optional) {
        (Some(value), false) => Ok(value),
        (Some(value), true) => Ok(Val::some(value)),
        (None, true) => Ok(Val::Optional(None)),
        (None, false) => Err(error(format!("no such key: {field}"))),
    }
}

fn has<'a>(of: &Val<'a>, field: &str) -> Result<Val<'a>, Failure> {
    let of = match of {
        Val::Optional(None) => return Ok(Val::Bool(false)),
        Val::Optional(Some(inner)) => inner,
        other => other,
    };
    let found = ops::field(of, &spelled(of, field))?;
    // A property that is null counts as absent; a key of a map is there whatever its value.
    let property = matches!(of, Val::Object(_, Some(node)) if !node.properties.is_empty());
    Ok(Val::Bool(found.is_some_and(|value| !property || !matches!(value, Val::Null))))
}

/// Fields of typed objects are spelled with escapes, keys of maps are not.
fn spelled<'f>(of: &Val<'_>, field: &'f str) -> Cow<'f, str> {
    match of {
        Val::Object(_, Some(node)) if !node.properties.is_empty() => unescape(field).map(Cow::Owned),
        _ => None,
    }
    .unwrap_or(Cow::Borrowed(field))
}
