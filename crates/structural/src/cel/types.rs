//! Static types of expressions, and the signatures of functions.

use std::fmt;

use crate::formats::{Check, Format};
use crate::node::{Additional, Node, Type};

/// The largest request that Kubernetes takes; nothing in an object is larger.
pub(super) const REQUEST: u64 = 3 * 1024 * 1024;

/// A type. Lists, maps and optionals know what they hold, objects know their schema.
#[derive(Clone, Debug)]
pub(super) enum Ty<'a> {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Type,
    Ip,
    Cidr,
    Quantity,
    Url,
    List(Box<Sized<'a>>),
    Map(Box<Sized<'a>>, Box<Sized<'a>>),
    Object(&'a Node, Root),
    /// The metadata of a resource: its names are all that rules may see.
    Metadata,
    Optional(Box<Sized<'a>>),
}

/// Whether an object has `apiVersion`, `kind` and `metadata` whatever its schema says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Root {
    Yes,
    No,
}

/// A type and how large a value of it can be.
#[derive(Clone, Debug)]
pub(super) struct Sized<'a> {
    pub(super) ty: Ty<'a>,
    pub(super) size: u64,
}

impl<'a> Sized<'a> {
    pub(super) fn scalar(ty: Ty<'a>) -> Self {
        Self { ty, size: 1 }
    }

    /// Nothing is known of the size.
    pub(super) fn unbounded(ty: Ty<'a>) -> Self {
        Self { ty, size: u64::MAX }
    }

    /// What rules see of a value with a schema; `None` when they may not see it.
    pub(super) fn of(node: &'a Node, root: Root) -> Option<Self> {
        let limit = |limit: Option<i64>| limit.map(|limit| u64::try_from(limit).unwrap_or(0));
        let limits = node.limits.as_deref();
        Some(match node.kind? {
            Type::Boolean => Self::scalar(Ty::Bool),
            Type::Integer => Self::scalar(Ty::Int),
            Type::Number => Self::scalar(Ty::Double),
            Type::IntOrString => Self { ty: Ty::Dyn, size: REQUEST },
            Type::String => string(node),
            Type::Array => {
                let item = Self::of(node.items.as_deref()?, root_of(node.items.as_deref()?))?;
                let most = node.items.as_deref().map_or(1, |items| items.smallest).saturating_add(1);
                let size = limits.and_then(|limits| limit(limits.max_items)).unwrap_or(REQUEST / most);
                Self { ty: Ty::List(Box::new(item)), size }
            }
            Type::Object => match &node.additional {
                Additional::Schema(inner) if node.properties.is_empty() => {
                    let value = Self::of(inner, root_of(inner))?;
                    let most = inner.smallest.saturating_add(6);
                    let size = limits.and_then(|limits| limit(limits.max_properties)).unwrap_or(REQUEST / most);
                    let key = Self { ty: Ty::String, size: REQUEST };
                    Self { ty: Ty::Map(Box::new(key), Box::new(value)), size }
                }
                Additional::Bool(_) if node.properties.is_empty() => return None,
                _ => Self { ty: Ty::Object(node, if node.embedded { Root::Yes } else { root }), size: REQUEST },
            },
        })
    }
}

fn root_of(node: &Node) -> Root {
    if node.embedded { Root::Yes } else { Root::No }
}

fn string(node: &Node) -> Sized<'_> {
    let limits = node.limits.as_deref();
    let ty = match limits.and_then(|limits| limits.format.as_ref()).map(Format::check) {
        Some(Check::Byte) => Ty::Bytes,
        Some(Check::Date | Check::DateTime) => return Sized::scalar(Ty::Timestamp),
        Some(Check::Duration) => return Sized::scalar(Ty::Duration),
        _ => Ty::String,
    };
    let enumerated = limits.map_or(&[][..], |limits| &limits.allowed).iter().filter_map(|value| value.as_str());
    let longest = enumerated.map(|text| u64::try_from(text.len()).unwrap_or(u64::MAX)).max();
    // A character takes up to four bytes.
    let limit = limits.and_then(|limits| limits.max_length).map(|most| u64::try_from(most).unwrap_or(0));
    let size = limit.map(|most| most.saturating_mul(4)).or(longest).unwrap_or(REQUEST - 2);
    Sized { ty, size }
}

impl fmt::Display for Ty<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::List(item) => return write!(formatter, "list({})", item.ty),
            Self::Map(key, value) => return write!(formatter, "map({}, {})", key.ty, value.ty),
            Self::Optional(inner) => return write!(formatter, "optional_type({})", inner.ty),
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
            Self::Type => "type",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
            Self::Quantity => "kubernetes.Quantity",
            Self::Url => "kubernetes.URL",
            Self::Object(..) | Self::Metadata => "object",
        })
    }
}

impl Ty<'_> {
    /// Whether a value of one type may stand where the other is expected.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => {
                one.ty.fits(&other.ty)
            }
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.ty.fits(&other_key.ty) && value.ty.fits(&other_value.ty)
            }
            // Only what is not a plain value can be null.
            (Self::Null, other) | (other, Self::Null) => {
                !matches!(other, Self::Bool | Self::Int | Self::Uint | Self::Double | Self::String | Self::Bytes)
            }
            (Self::Object(one, _), Self::Object(other, _)) => std::ptr::eq(*one, *other),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double | Self::Dyn)
    }
}

/// A parameter or result of a function.
#[derive(Clone, Copy, Debug)]
pub(super) enum P {
    Any,
    Bool,
    Int,
    Uint,
    Double,
    Str,
    Bytes,
    Time,
    Span,
    Type,
    Ip,
    Cidr,
    Qty,
    Url,
    List,
    Map,
    Optional,
    Strings,
    /// What the receiver holds.
    Held,
    /// The receiver's own type.
    Same,
}

/// Name, whether it is called on its first parameter, parameters, result.
pub(super) type Signature = (&'static str, bool, &'static [P], P);

pub(super) const SIGNATURES: &[Signature] = &[
    ("size", true, &[P::Str], P::Int),
    ("size", true, &[P::Bytes], P::Int),
    ("size", true, &[P::List], P::Int),
    ("size", true, &[P::Map], P::Int),
    ("size", false, &[P::Str], P::Int),
    ("size", false, &[P::Bytes], P::Int),
    ("size", false, &[P::List], P::Int),
    ("size", false, &[P::Map], P::Int),
    ("type", false, &[P::Any], P::Type),
    ("dyn", false, &[P::Any], P::Any),
    ("int", false, &[P::Any], P::Int),
    ("uint", false, &[P::Any], P::Uint),
    ("double", false, &[P::Any], P::Double),
    ("string", false, &[P::Any], P::Str),
    ("bytes", false, &[P::Str], P::Bytes),
    ("bytes", false, &[P::Bytes], P::Bytes),
    ("bool", false, &[P::Str], P::Bool),
    ("bool", false, &[P::Bool], P::Bool),
    ("duration", false, &[P::Str], P::Span),
    ("duration", false, &[P::Int], P::Span),
    ("duration", false, &[P::Span], P::Span),
    ("timestamp", false, &[P::Str], P::Time),
    ("timestamp", false, &[P::Int], P::Time),
    ("timestamp", false, &[P::Time], P::Time),
    ("quantity", false, &[P::Str], P::Qty),
    ("isQuantity", false, &[P::Str], P::Bool),
    ("ip", false, &[P::Str], P::Ip),
    ("isIP", false, &[P::Str], P::Bool),
    ("cidr", false, &[P::Str], P::Cidr),
    ("isCIDR", false, &[P::Str], P::Bool),
    ("url", false, &[P::Str], P::Url),
    ("isURL", false, &[P::Str], P::Bool),
    ("contains", true, &[P::Str, P::Str], P::Bool),
    ("startsWith", true, &[P::Str, P::Str], P::Bool),
    ("endsWith", true, &[P::Str, P::Str], P::Bool),
    ("matches", true, &[P::Str, P::Str], P::Bool),
    ("find", true, &[P::Str, P::Str], P::Str),
    ("findAll", true, &[P::Str, P::Str], P::Strings),
    ("findAll", true, &[P::Str, P::Str, P::Int], P::Strings),
    ("lowerAscii", true, &[P::Str], P::Str),
    ("upperAscii", true, &[P::Str], P::Str),
    ("trim", true, &[P::Str], P::Str),
    ("reverse", true, &[P::Str], P::Str),
    ("charAt", true, &[P::Str, P::Int], P::Str),
    ("indexOf", true, &[P::Str, P::Str], P::Int),
    ("indexOf", true, &[P::Str, P::Str, P::Int], P::Int),
    ("lastIndexOf", true, &[P::Str, P::Str], P::Int),
    ("lastIndexOf", true, &[P::Str, P::Str, P::Int], P::Int),
    ("substring", true, &[P::Str, P::Int], P::Str),
    ("substring", true, &[P::Str, P::Int, P::Int], P::Str),
    ("replace", true, &[P::Str, P::Str, P::Str], P::Str),
    ("replace", true, &[P::Str, P::Str, P::Str, P::Int], P::Str),
    ("split", true, &[P::Str, P::Str], P::Strings),
    ("split", true, &[P::Str, P::Str, P::Int], P::Strings),
    ("format", true, &[P::Str, P::List], P::Str),
    ("join", true, &[P::Strings], P::Str),
    ("join", true, &[P::Strings, P::Str], P::Str),
    ("isSorted", true, &[P::List], P::Bool),
    ("sum", true, &[P::List], P::Held),
    ("min", true, &[P::List], P::Held),
    ("max", true, &[P::List], P::Held),
    ("indexOf", true, &[P::List, P::Held], P::Int),
    ("lastIndexOf", true, &[P::List, P::Held], P::Int),
    ("reverse", true, &[P::List], P::Same),
    ("distinct", true, &[P::List], P::Same),
    ("slice", true, &[P::List, P::Int, P::Int], P::Same),
    ("hasValue", true, &[P::Optional], P::Bool),
    ("value", true, &[P::Optional], P::Held),
    ("orValue", true, &[P::Optional, P::Held], P::Held),
    ("or", true, &[P::Optional, P::Optional], P::Same),
    ("optional.none", false, &[], P::Optional),
    ("optional.of", false, &[P::Any], P::Optional),
    ("optional.ofNonZeroValue", false, &[P::Any], P::Optional),
    ("sets.contains", false, &[P::List, P::List], P::Bool),
    ("sets.equivalent", false, &[P::List, P::List], P::Bool),
    ("sets.intersects", false, &[P::List, P::List], P::Bool),
    ("base64.encode", false, &[P::Bytes], P::Str),
    ("base64.decode", false, &[P::Str], P::Bytes),
    ("ip.isCanonical", false, &[P::Str], P::Bool),
    ("family", true, &[P::Ip], P::Int),
    ("isUnspecified", true, &[P::Ip], P::Bool),
    ("isLoopback", true, &[P::Ip], P::Bool),
    ("isLinkLocalMulticast", true, &[P::Ip], P::Bool),
    ("isLinkLocalUnicast", true, &[P::Ip], P::Bool),
    ("isGlobalUnicast", true, &[P::Ip], P::Bool),
    ("containsIP", true, &[P::Cidr, P::Ip], P::Bool),
    ("containsIP", true, &[P::Cidr, P::Str], P::Bool),
    ("containsCIDR", true, &[P::Cidr, P::Cidr], P::Bool),
    ("containsCIDR", true, &[P::Cidr, P::Str], P::Bool),
    ("ip", true, &[P::Cidr], P::Ip),
    ("masked", true, &[P::Cidr], P::Cidr),
    ("prefixLength", true, &[P::Cidr], P::Int),
    ("isGreaterThan", true, &[P::Qty, P::Qty], P::Bool),
    ("isLessThan", true, &[P::Qty, P::Qty], P::Bool),
    ("compareTo", true, &[P::Qty, P::Qty], P::Int),
    ("add", true, &[P::Qty, P::Qty], P::Qty),
    ("add", true, &[P::Qty, P::Int], P::Qty),
    ("sub", true, &[P::Qty, P::Qty], P::Qty),
    ("sub", true, &[P::Qty, P::Int], P::Qty),
    ("sign", true, &[P::Qty], P::Int),
    ("isInteger", true, &[P::Qty], P::Bool),
    ("asInteger", true, &[P::Qty], P::Int),
    ("asApproximateFloat", true, &[P::Qty], P::Double),
    ("getScheme", true, &[P::Url], P::Str),
    ("getHost", true, &[P::Url], P::Str),
    ("getHostname", true, &[P::Url], P::Str),
    ("getPort", true, &[P::Url], P::Str),
    ("getEscapedPath", true, &[P::Url], P::Str),
    ("getQuery", true, &[P::Url], P::Map),
    ("getFullYear", true, &[P::Time], P::Int),
    ("getMonth", true, &[P::Time], P::Int),
    ("getDate", true, &[P::Time], P::Int),
    ("getDayOfMonth", true, &[P::Time], P::Int),
    ("getDayOfWeek", true, &[P::Time], P::Int),
    ("getDayOfYear", true, &[P::Time], P::Int),
    ("getHours", true, &[P::Time], P::Int),
    ("getMinutes", true, &[P::Time], P::Int),
    ("getSeconds", true, &[P::Time], P::Int),
    ("getMilliseconds", true, &[P::Time], P::Int),
    ("getHours", true, &[P::Time, P::Str], P::Int),
    ("getMinutes", true, &[P::Time, P::Str], P::Int),
    ("getDayOfWeek", true, &[P::Time, P::Str], P::Int),
    ("getHours", true, &[P::Span], P::Int),
    ("getMinutes", true, &[P::Span], P::Int),
    ("getSeconds", true, &[P::Span], P::Int),
    ("getMilliseconds", true, &[P::Span], P::Int),
];
