//! Types and costs of operators.

use super::super::Fault;
use super::super::ast::{Binary, Expr};
use super::super::types::{Sized, Ty};
use super::{Checker, Costed};

impl<'a> Checker<'a> {
    pub(super) fn operator(
        &self,
        at: &Expr,
        operator: Binary,
        left: &Costed<'a>,
        right: &Costed<'a>,
    ) -> Result<Costed<'a>, Fault> {
        let (one, other) = (&left.value.ty, &right.value.ty);
        let value = match operator {
            Binary::Equal | Binary::NotEqual => one.fits(other).then_some(Sized::scalar(Ty::Bool)),
            Binary::Less | Binary::LessEqual | Binary::Greater | Binary::GreaterEqual => {
                ordered(one, other).then_some(Sized::scalar(Ty::Bool))
            }
            Binary::In => match other {
                Ty::Dyn => true,
                Ty::List(item) => one.fits(&item.ty),
                Ty::Map(key, _) => one.fits(&key.ty),
                _ => false,
            }
            .then_some(Sized::scalar(Ty::Bool)),
            Binary::Add => sum(&left.value, &right.value),
            Binary::Subtract => match (one, other) {
                (Ty::Timestamp, Ty::Timestamp) | (Ty::Duration, Ty::Duration) => Some(Sized::scalar(Ty::Duration)),
                (Ty::Timestamp, Ty::Duration) => Some(Sized::scalar(Ty::Timestamp)),
                _ => number(one, other),
            },
            Binary::Multiply | Binary::Divide => number(one, other),
            Binary::Modulo if matches!(one, Ty::Double) || matches!(other, Ty::Double) => None,
            Binary::Modulo => number(one, other),
        };
        let value = value.ok_or_else(|| self.no_overload(at, operator.name(), &[left, right]))?;
        let walked = match operator {
            Binary::In => right.value.size.saturating_mul(1 + left.value.size / 10),
            Binary::Add => match one {
                Ty::List(_) => 1,
                _ => left.value.size.saturating_add(right.value.size) / 10,
            },
            _ => left.value.size.min(right.value.size) / 10,
        };
        let cost = left.cost.saturating_add(right.cost).saturating_add(walked).saturating_add(1);
        Ok(Costed::new(value, cost))
    }
}

fn ordered(one: &Ty<'_>, other: &Ty<'_>) -> bool {
    let comparable =
        |ty: &Ty<'_>| ty.is_number() || matches!(ty, Ty::Bool | Ty::String | Ty::Bytes | Ty::Timestamp | Ty::Duration);
    comparable(one) && comparable(other) && ((one.is_number() && other.is_number()) || one.fits(other))
}

fn number<'a>(one: &Ty<'a>, other: &Ty<'a>) -> Option<Sized<'a>> {
    (one.is_number() && other.is_number() && one.fits(other))
        .then(|| Sized::scalar(if matches!(one, Ty::Dyn) { other.clone() } else { one.clone() }))
}

fn sum<'a>(left: &Sized<'a>, right: &Sized<'a>) -> Option<Sized<'a>> {
    let size = left.size.saturating_add(right.size);
    match (&left.ty, &right.ty) {
        (Ty::String | Ty::Dyn, Ty::String) | (Ty::String, Ty::Dyn) => Some(Sized { ty: Ty::String, size }),
        (Ty::Bytes, Ty::Bytes) => Some(Sized { ty: Ty::Bytes, size }),
        (Ty::List(_), Ty::List(_) | Ty::Dyn) if left.ty.fits(&right.ty) => Some(Sized { ty: left.ty.clone(), size }),
        (Ty::Timestamp, Ty::Duration) | (Ty::Duration, Ty::Timestamp) => Some(Sized::scalar(Ty::Timestamp)),
        (Ty::Duration, Ty::Duration) => Some(Sized::scalar(Ty::Duration)),
        (Ty::Dyn, Ty::Dyn) => Some(Sized { ty: Ty::Dyn, size }),
        (one, other) => number(one, other),
    }
}
