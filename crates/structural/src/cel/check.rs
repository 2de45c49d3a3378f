//! Types and worst costs of expressions, judged when a CRD is created.
//!
//! The first fault is told. Costs follow the model of cel-go: a step costs one, texts cost a tenth per byte, loops cost
//! their body times the largest range; what has no limit in the schema is as large as a request may be.

mod calls;
mod operators;

use super::ast::{Expr, Kind, Literal, Loop, Purpose, Unary};
use super::escape::escape;
use super::types::{Root, Sized, Ty};
use super::{Fault, Program, functions};
use crate::node::Node;

/// What is known of a whole expression.
#[derive(Debug)]
pub(crate) struct Estimate {
    pub(crate) is_bool: bool,
    pub(crate) is_string: bool,
    /// The most that one evaluation can cost.
    pub(crate) cost: u64,
    /// How often a value like `self` fits into one request.
    pub(crate) cardinality: u64,
}

/// Whether rules can see values of a node at all.
pub(crate) fn is_visible(node: &Node) -> bool {
    Sized::of(node, Root::No).is_some()
}

/// Checks an expression on values of a node. `optional_old` makes `oldSelf` an optional.
pub(crate) fn check(
    program: &Program,
    source: &str,
    node: &Node,
    resource: bool,
    optional_old: bool,
) -> Result<Estimate, Fault> {
    let root = if resource { Root::Yes } else { Root::No };
    let Some(this) = Sized::of(node, root) else {
        return Err(Fault("failed to convert to declType for CEL validation rules".to_owned()));
    };
    let old = if optional_old { Sized::scalar(Ty::Optional(Box::new(this.clone()))) } else { this.clone() };
    let mut checker = Checker { source, names: vec![("self", this), ("oldSelf", old)], mixed: false };
    let Costed { value, cost } = checker.expression(&program.expression)?;
    Ok(Estimate {
        is_bool: matches!(value.ty, Ty::Bool),
        is_string: matches!(value.ty, Ty::String),
        cost,
        cardinality: super::types::REQUEST / node.smallest.saturating_add(1),
    })
}

/// A typed value and what it costs to have it.
#[derive(Clone, Debug)]
struct Costed<'a> {
    value: Sized<'a>,
    cost: u64,
}

impl<'a> Costed<'a> {
    fn new(value: Sized<'a>, cost: u64) -> Self {
        Self { value, cost }
    }
}

struct Checker<'a> {
    source: &'a str,
    names: Vec<(&'a str, Sized<'a>)>,
    /// Whether a list may hold values of several types, as the arguments of `format` do.
    mixed: bool,
}

impl<'a> Checker<'a> {
    fn fault(&self, at: &Expr, problem: impl std::fmt::Display) -> Fault {
        Fault::at(self.source, at.at, problem)
    }

    fn expression(&mut self, expression: &'a Expr) -> Result<Costed<'a>, Fault> {
        match &expression.kind {
            Kind::Literal(literal) => Ok(Costed::new(constant(literal), 0)),
            Kind::Ident(name) => self.name(expression, name),
            Kind::Select { of, field, optional } => {
                let of = self.expression(of)?;
                self.select(expression, of, field, *optional)
            }
            Kind::Has { of, field } => {
                let of = self.expression(of)?;
                let found = self.select(expression, of, field, false)?;
                Ok(Costed::new(Sized::scalar(Ty::Bool), found.cost))
            }
            Kind::Index { of, index, optional } => self.index(expression, of, index, *optional),
            Kind::Call { target, function, arguments, .. } => {
                self.call(expression, target.as_deref(), function, arguments)
            }
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Unary(operator, inner) => {
                let inner = self.expression(inner)?;
                let (fits, name) = match operator {
                    Unary::Not => (matches!(inner.value.ty, Ty::Bool | Ty::Dyn), "!_"),
                    Unary::Negate => (matches!(inner.value.ty, Ty::Int | Ty::Double | Ty::Dyn), "-_"),
                };
                if !fits {
                    return Err(self.no_overload(expression, name, &[&inner]));
                }
                Ok(Costed::new(inner.value, inner.cost.saturating_add(1)))
            }
            Kind::Binary(operator, left, right) => {
                let (left, right) = (self.expression(left)?, self.expression(right)?);
                self.operator(expression, *operator, &left, &right)
            }
            Kind::And(parts) | Kind::Or(parts) => self.logic(parts),
            Kind::Choice(condition, yes, no) => self.choice(expression, condition, yes, no),
            Kind::Loop(walk) => self.walk(walk),
            Kind::OptionalMap { of, name, body, flat } => {
                let of = self.expression(of)?;
                let held = match of.value.ty {
                    Ty::Optional(held) => *held,
                    _ => Sized::unbounded(Ty::Dyn),
                };
                let body = self.within([(&**name, held)], |checker| checker.expression(body))?;
                let cost = of.cost.saturating_add(body.cost);
                let value = if *flat { body.value } else { Sized::scalar(Ty::Optional(Box::new(body.value))) };
                Ok(Costed::new(value, cost))
            }
        }
    }

    fn name(&self, at: &Expr, name: &str) -> Result<Costed<'a>, Fault> {
        if let Some((_, value)) = self.names.iter().rev().find(|(known, _)| *known == name) {
            return Ok(Costed::new(value.clone(), 1));
        }
        match functions::type_name(name) {
            Some(_) => Ok(Costed::new(Sized::scalar(Ty::Type), 1)),
            None => Err(self.fault(at, format_args!("undeclared reference to '{name}' (in container '')"))),
        }
    }

    fn select(&self, at: &Expr, of: Costed<'a>, field: &str, optional: bool) -> Result<Costed<'a>, Fault> {
        let cost = of.cost.saturating_add(1);
        let (ty, optional) = match of.value.ty {
            Ty::Optional(held) => (held.ty, true),
            other => (other, optional),
        };
        let found = match ty {
            Ty::Dyn => Some(Sized::unbounded(Ty::Dyn)),
            Ty::Map(_, value) => Some(*value),
            Ty::Object(node, root) => property(node, root, field),
            Ty::Metadata => matches!(field, "name" | "generateName").then_some(Sized { ty: Ty::String, size: 253 }),
            other => return Err(self.fault(at, format_args!("type '{other}' does not support field selection"))),
        };
        let found = found.ok_or_else(|| self.fault(at, format_args!("undefined field '{field}'")))?;
        let value = if optional { Sized::scalar(Ty::Optional(Box::new(found))) } else { found };
        Ok(Costed::new(value, cost))
    }

    fn index(&mut self, at: &Expr, of: &'a Expr, index: &'a Expr, optional: bool) -> Result<Costed<'a>, Fault> {
        let (of, index) = (self.expression(of)?, self.expression(index)?);
        let cost = of.cost.saturating_add(index.cost).saturating_add(1);
        let (ty, optional) = match of.value.ty.clone() {
            Ty::Optional(held) => (held.ty, true),
            other => (other, optional),
        };
        let found = match ty {
            Ty::Dyn => Some(Sized::unbounded(Ty::Dyn)),
            Ty::List(item) if index.value.ty.is_number() => Some(*item),
            Ty::Map(key, value) if key.ty.fits(&index.value.ty) => Some(*value),
            _ => None,
        };
        let found = found.ok_or_else(|| self.no_overload(at, "_[_]", &[&of, &index]))?;
        let value = if optional { Sized::scalar(Ty::Optional(Box::new(found))) } else { found };
        Ok(Costed::new(value, cost))
    }

    fn list(&mut self, items: &'a [(Expr, bool)]) -> Result<Costed<'a>, Fault> {
        let mixed = std::mem::take(&mut self.mixed);
        let mut cost: u64 = 10;
        let mut item: Option<Sized<'a>> = None;
        for (expression, _) in items {
            let known = self.expression(expression)?;
            cost = cost.saturating_add(known.cost);
            if let Some(first) = item.as_ref().filter(|first| !mixed && !first.ty.fits(&known.value.ty)) {
                let (first, other) = (&first.ty, &known.value.ty);
                return Err(self.fault(expression, format_args!("expected type '{first}' but found '{other}'")));
            }
            item = Some(joined(item, known.value));
        }
        let size = u64::try_from(items.len()).unwrap_or(u64::MAX);
        let item = item.unwrap_or(Sized::scalar(Ty::Dyn));
        Ok(Costed::new(Sized { ty: Ty::List(Box::new(item)), size }, cost))
    }

    fn map(&mut self, entries: &'a [(Expr, Expr, bool)]) -> Result<Costed<'a>, Fault> {
        let mut cost: u64 = 30;
        let (mut keys, mut values) = (None, None);
        for (key, value, _) in entries {
            let (key, value) = (self.expression(key)?, self.expression(value)?);
            cost = cost.saturating_add(key.cost).saturating_add(value.cost);
            keys = Some(joined(keys, key.value));
            values = Some(joined(values, value.value));
        }
        let part = |part: Option<Sized<'a>>| Box::new(part.unwrap_or(Sized::scalar(Ty::Dyn)));
        let size = u64::try_from(entries.len()).unwrap_or(u64::MAX);
        Ok(Costed::new(Sized { ty: Ty::Map(part(keys), part(values)), size }, cost))
    }

    fn logic(&mut self, parts: &'a [Expr]) -> Result<Costed<'a>, Fault> {
        let mut cost: u64 = 0;
        for part in parts {
            let known = self.expression(part)?;
            self.expect_bool(part, &known)?;
            cost = cost.saturating_add(known.cost).saturating_add(1);
        }
        Ok(Costed::new(Sized::scalar(Ty::Bool), cost))
    }

    fn choice(&mut self, at: &Expr, condition: &'a Expr, yes: &'a Expr, no: &'a Expr) -> Result<Costed<'a>, Fault> {
        let condition = self.expression(condition)?;
        let (yes, no) = (self.expression(yes)?, self.expression(no)?);
        if !matches!(condition.value.ty, Ty::Bool | Ty::Dyn) || !yes.value.ty.fits(&no.value.ty) {
            return Err(self.no_overload(at, "_?_:_", &[&condition, &yes, &no]));
        }
        let cost = condition.cost.saturating_add(yes.cost.max(no.cost));
        Ok(Costed::new(joined(Some(yes.value), no.value), cost))
    }

    fn walk(&mut self, walk: &'a Loop) -> Result<Costed<'a>, Fault> {
        let range = self.expression(&walk.range)?;
        let (key, item) = match range.value.ty {
            Ty::List(item) => (Sized::scalar(Ty::Int), *item),
            Ty::Map(key, value) => (*key, *value),
            Ty::Dyn => (Sized::unbounded(Ty::Dyn), Sized::unbounded(Ty::Dyn)),
            other => {
                let problem = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return Err(Fault::at(self.source, walk.range.at, problem));
            }
        };
        let is_map = !matches!(key.ty, Ty::Int);
        let first = if walk.second.is_some() || is_map { key.clone() } else { item.clone() };
        let bound =
            [(&*walk.name, first.clone())].into_iter().chain(walk.second.as_deref().map(|second| (second, item)));
        let (filter, body) = self.within(bound, |checker| {
            let filter = walk.filter.as_ref().map(|filter| checker.expression(filter)).transpose()?;
            Ok((filter, checker.expression(&walk.body)?))
        })?;
        let truth = !matches!(walk.purpose, Purpose::Map | Purpose::TransformMap);
        if truth {
            self.expect_bool(&walk.body, &body)?;
        }
        let round = body.cost.saturating_add(filter.map_or(0, |filter| filter.cost)).saturating_add(3);
        let cost = range.cost.saturating_add(range.value.size.saturating_mul(round)).saturating_add(1);
        let size = range.value.size;
        let value = match walk.purpose {
            Purpose::All | Purpose::Exists | Purpose::ExistsOne => Sized::scalar(Ty::Bool),
            Purpose::Map => Sized { ty: Ty::List(Box::new(body.value)), size },
            Purpose::Filter => Sized { ty: Ty::List(Box::new(first)), size },
            Purpose::TransformMap => Sized { ty: Ty::Map(Box::new(key), Box::new(body.value)), size },
        };
        Ok(Costed::new(value, cost))
    }

    /// Runs with some names bound.
    fn within<T>(
        &mut self,
        bound: impl IntoIterator<Item = (&'a str, Sized<'a>)>,
        then: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let outer = self.names.len();
        self.names.extend(bound);
        let result = then(self);
        self.names.truncate(outer);
        result
    }

    fn expect_bool(&self, at: &Expr, known: &Costed<'a>) -> Result<(), Fault> {
        match &known.value.ty {
            Ty::Bool | Ty::Dyn => Ok(()),
            other => Err(self.fault(at, format_args!("expected type 'bool' but found '{other}'"))),
        }
    }

    fn no_overload(&self, at: &Expr, name: &str, operands: &[&Costed<'a>]) -> Fault {
        let types: Vec<String> = operands.iter().map(|operand| operand.value.ty.to_string()).collect();
        self.fault(at, format_args!("found no matching overload for '{name}' applied to '({})'", types.join(", ")))
    }
}

fn constant<'a>(literal: &Literal) -> Sized<'a> {
    let length = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    match literal {
        Literal::Null => Sized::scalar(Ty::Null),
        Literal::Bool(_) => Sized::scalar(Ty::Bool),
        Literal::Int(_) => Sized::scalar(Ty::Int),
        Literal::Uint(_) => Sized::scalar(Ty::Uint),
        Literal::Double(_) => Sized::scalar(Ty::Double),
        Literal::String(text) => Sized { ty: Ty::String, size: length(text.len()) },
        Literal::Bytes(bytes) => Sized { ty: Ty::Bytes, size: length(bytes.len()) },
    }
}

/// A field of an object by the name that rules spell.
fn property<'a>(node: &'a Node, root: Root, field: &str) -> Option<Sized<'a>> {
    if root == Root::Yes {
        match field {
            "apiVersion" | "kind" => return Some(Sized { ty: Ty::String, size: super::types::REQUEST }),
            "metadata" => return Some(Sized::scalar(Ty::Metadata)),
            _ => {}
        }
    }
    // Words that CEL keeps for itself may be spelled as they are, too: after a dot nothing else can stand.
    let inner = match node.property(field) {
        Some(inner) => inner,
        None => {
            node.properties.iter().find(|(name, _)| escape(name).as_deref() == Some(field)).map(|(_, inner)| inner)?
        }
    };
    Sized::of(inner, if inner.embedded { Root::Yes } else { Root::No })
}

/// The type of values that may be of either type.
fn joined<'a>(one: Option<Sized<'a>>, other: Sized<'a>) -> Sized<'a> {
    match one {
        None => other,
        Some(one) => {
            let size = one.size.max(other.size);
            let ty = if one.ty.fits(&other.ty) && !matches!(one.ty, Ty::Null) { one.ty } else { Ty::Dyn };
            Sized { ty, size }
        }
    }
}
