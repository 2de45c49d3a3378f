//! Types and costs of calls.

use super::super::ast::{Expr, Kind, Literal};
use super::super::types::{P, SIGNATURES, Signature, Sized, Ty};
use super::super::{Fault, functions};
use super::{Checker, Costed};
use crate::formats::{go_duration, timestamp};

impl<'a> Checker<'a> {
    pub(super) fn call(
        &mut self,
        at: &Expr,
        target: Option<&'a Expr>,
        function: &str,
        arguments: &'a [Expr],
    ) -> Result<Costed<'a>, Fault> {
        let space = target.and_then(|target| match &target.kind {
            Kind::Ident(space) if functions::is_space(space) => Some(format!("{space}.{function}")),
            _ => None,
        });
        let member = target.is_some() && space.is_none();
        let name = space.as_deref().unwrap_or(function);
        let mut known = Vec::with_capacity(arguments.len() + 1);
        for part in target.filter(|_| member).into_iter().chain(arguments) {
            self.mixed = function == "format" && matches!(part.kind, Kind::List(_));
            known.push(self.expression(part)?);
            self.mixed = false;
        }
        let mut named = SIGNATURES.iter().filter(|(candidate, ..)| *candidate == name).peekable();
        if named.peek().is_none() {
            return Err(self.fault(at, format_args!("undeclared reference to '{name}' (in container '')")));
        }
        let Some((.., result)) = named.find(|signature| accepts(signature, member, &known)) else {
            return Err(self.no_function(at, name, member, &known));
        };
        self.literals_hold(name, arguments)?;
        let cost = known.iter().fold(cost(name, &known), |cost, part| cost.saturating_add(part.cost));
        Ok(Costed::new(self::result(*result, name, &known), cost))
    }

    /// Patterns, moments and durations that stand in the rule itself are read now.
    fn literals_hold(&self, name: &str, arguments: &[Expr]) -> Result<(), Fault> {
        let Some(argument) = arguments.first() else { return Ok(()) };
        let Kind::Literal(Literal::String(text)) = &argument.kind else { return Ok(()) };
        let holds = match name {
            "matches" | "find" | "findAll" => crate::node::compile(text).is_ok(),
            "timestamp" => timestamp(text).is_some(),
            "duration" => go_duration(text).is_some(),
            _ => true,
        };
        if holds { Ok(()) } else { Err(self.fault(argument, format_args!("invalid {name} argument"))) }
    }

    fn no_function(&self, at: &Expr, name: &str, member: bool, known: &[Costed<'a>]) -> Fault {
        let types: Vec<String> = known.iter().map(|known| known.value.ty.to_string()).collect();
        let (receiver, arguments) = match types.split_first() {
            Some((receiver, arguments)) if member => (format!("{receiver}."), arguments),
            _ => (String::new(), &types[..]),
        };
        let applied = format!("{receiver}({})", arguments.join(", "));
        self.fault(at, format_args!("found no matching overload for '{name}' applied to '{applied}'"))
    }
}

fn accepts((_, member, parameters, _): &Signature, called_as_member: bool, known: &[Costed<'_>]) -> bool {
    *member == called_as_member
        && parameters.len() == known.len()
        && parameters.iter().zip(known).all(|(parameter, argument)| {
            let held = known.first().and_then(|receiver| held(&receiver.value));
            fits(*parameter, &argument.value.ty, held.as_ref())
        })
}

/// What a list or an optional holds.
fn held<'a>(value: &Sized<'a>) -> Option<Sized<'a>> {
    match &value.ty {
        Ty::List(item) | Ty::Optional(item) => Some((**item).clone()),
        _ => None,
    }
}

fn fits(parameter: P, ty: &Ty<'_>, held: Option<&Sized<'_>>) -> bool {
    match (parameter, ty) {
        (P::Any | P::Same, _)
        | (_, Ty::Dyn)
        | (P::Bool, Ty::Bool)
        | (P::Int, Ty::Int)
        | (P::Uint, Ty::Uint)
        | (P::Double, Ty::Double)
        | (P::Str, Ty::String)
        | (P::Bytes, Ty::Bytes)
        | (P::Time, Ty::Timestamp)
        | (P::Span, Ty::Duration)
        | (P::Type, Ty::Type)
        | (P::Ip, Ty::Ip)
        | (P::Cidr, Ty::Cidr)
        | (P::Qty, Ty::Quantity)
        | (P::Url, Ty::Url)
        | (P::List, Ty::List(_))
        | (P::Map, Ty::Map(..))
        | (P::Optional, Ty::Optional(_)) => true,
        (P::Strings, Ty::List(item)) => matches!(item.ty, Ty::String | Ty::Dyn),
        (P::Held, ty) => held.is_none_or(|held| held.ty.fits(ty)),
        _ => false,
    }
}

fn result<'a>(result: P, name: &str, known: &[Costed<'a>]) -> Sized<'a> {
    let first = known.first().map(|known| &known.value);
    let size = first.map_or(u64::MAX, |first| first.size);
    let text = Sized { ty: Ty::String, size };
    match result {
        P::Any => first.map_or(Sized::unbounded(Ty::Dyn), |first| Sized { ty: Ty::Dyn, size: first.size }),
        P::Bool => Sized::scalar(Ty::Bool),
        P::Int => Sized::scalar(Ty::Int),
        P::Uint => Sized::scalar(Ty::Uint),
        P::Double => Sized::scalar(Ty::Double),
        // How long the text of another value is, or of several, is not known.
        P::Str if name == "replace" => {
            let replacement = known.get(2).map_or(1, |known| known.value.size.max(1));
            Sized { ty: Ty::String, size: size.saturating_mul(replacement) }
        }
        P::Str if matches!(name, "string" | "format" | "join") => Sized::unbounded(Ty::String),
        P::Str => text,
        P::Bytes => Sized { ty: Ty::Bytes, size },
        P::Time => Sized::scalar(Ty::Timestamp),
        P::Span => Sized::scalar(Ty::Duration),
        P::Type => Sized::scalar(Ty::Type),
        P::Ip => Sized::scalar(Ty::Ip),
        P::Cidr => Sized::scalar(Ty::Cidr),
        P::Qty => Sized::scalar(Ty::Quantity),
        P::Url => Sized { ty: Ty::Url, size },
        // There are at most as many parts as characters, which were counted as four bytes each.
        P::List | P::Strings => Sized { ty: Ty::List(Box::new(text)), size: size.div_ceil(4) },
        P::Map => {
            let values = Sized { ty: Ty::List(Box::new(text.clone())), size };
            Sized { ty: Ty::Map(Box::new(text), Box::new(values)), size }
        }
        P::Optional => Sized::scalar(Ty::Optional(Box::new(first.cloned().unwrap_or(Sized::unbounded(Ty::Dyn))))),
        P::Held => first.and_then(held).unwrap_or(Sized::unbounded(Ty::Dyn)),
        P::Same => first.cloned().unwrap_or(Sized::unbounded(Ty::Dyn)),
    }
}

/// The cost of a call without that of its arguments.
fn cost(name: &str, known: &[Costed<'_>]) -> u64 {
    let size = |index: usize| known.get(index).map_or(0, |known: &Costed<'_>| known.value.size);
    let walk = |size: u64| size / 10 + 1;
    match name {
        "size" | "type" | "dyn" | "hasValue" | "value" | "orValue" | "or" => 1,
        "startsWith" | "endsWith" => walk(size(1)),
        "contains" | "indexOf" | "lastIndexOf" => walk(size(0)).saturating_mul(walk(size(1))),
        "matches" | "find" | "findAll" => walk(size(0)).saturating_mul(size(1) / 4 + 1),
        "sets.contains" | "sets.intersects" | "sets.equivalent" | "distinct" => {
            size(0).saturating_mul(size(known.len().saturating_sub(1)))
        }
        "isSorted" | "sum" | "min" | "max" | "reverse" | "join" => {
            let item = known.first().and_then(|list| held(&list.value)).map_or(1, |item| item.size);
            size(0).saturating_mul(walk(item))
        }
        _ => walk(size(0)),
    }
}
