//! Conversions between types.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::eval::{Failure, Meter, error, no_overload};
use super::super::ops::entries;
use super::super::value::{Val, truncated};
use super::{net, quantity};
use crate::formats::{go_duration, timestamp, uri};
use crate::go;

pub(super) fn call<'a>(name: &str, values: &[Val<'a>]) -> Option<Result<Val<'a>, Failure>> {
    let [value] = values else { return None };
    let known = match (name, value) {
        ("type", value) => Ok(Val::Type(value.type_name())),
        ("dyn", value) => Ok(value.clone()),
        ("int", value) => int(value),
        ("uint", value) => uint(value),
        ("double", value) => double(value),
        ("string", value) => string(value).map(Val::text).ok_or_else(no_overload),
        ("bytes", Val::String(text)) => Ok(Val::Bytes(text.as_str().as_bytes().into())),
        ("bytes", Val::Bytes(_)) | ("bool", Val::Bool(_)) | ("duration", Val::Duration(_)) => Ok(value.clone()),
        ("bool", Val::String(text)) => match text.as_str() {
            "1" | "t" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => Err(error("type conversion error from 'string' to 'bool'")),
        },
        ("duration", Val::String(text)) => go_duration(text.as_str())
            .map(Val::Duration)
            .ok_or_else(|| error("type conversion error from 'string' to 'google.protobuf.Duration'")),
        // As in Go, where a duration is a number of nanoseconds.
        ("duration", Val::Int(number)) => Ok(Val::Duration(jiff::SignedDuration::from_nanos(*number))),
        ("timestamp", Val::Timestamp(_)) => Ok(value.clone()),
        ("timestamp", Val::String(text)) => timestamp(text.as_str())
            .map(Val::Timestamp)
            .ok_or_else(|| error("type conversion error from 'string' to 'google.protobuf.Timestamp'")),
        ("timestamp", Val::Int(second)) => {
            jiff::Timestamp::from_second(*second).map(Val::Timestamp).map_err(|_| error("timestamp overflow"))
        }
        ("quantity", Val::String(text)) => quantity::parse(text.as_str()).map(Val::Quantity).ok_or_else(|| {
            error(
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            )
        }),
        ("isQuantity", Val::String(text)) => Ok(Val::Bool(quantity::parse(text.as_str()).is_some())),
        ("ip", Val::String(text)) => net::parse_ip(text.as_str()),
        ("isIP", Val::String(text)) => Ok(Val::Bool(net::parse_ip(text.as_str()).is_ok())),
        ("cidr", Val::String(text)) => net::parse_cidr(text.as_str()),
        ("isCIDR", Val::String(text)) => Ok(Val::Bool(net::parse_cidr(text.as_str()).is_ok())),
        ("url", Val::String(text)) if uri(text.as_str()) => Ok(Val::Url(text.as_str().into())),
        ("url", Val::String(text)) => {
            let shown = go::quote(text.as_str());
            Err(error(format!("URL parse error during conversion from string: parse {shown}: invalid URI for request")))
        }
        ("isURL", Val::String(text)) => Ok(Val::Bool(uri(text.as_str()))),
        _ => return None,
    };
    Some(known)
}

pub(super) fn base64<'a>(name: &str, value: &Val<'a>) -> Result<Val<'a>, Failure> {
    match (name, value) {
        ("encode", Val::Bytes(bytes)) => Ok(Val::text(STANDARD.encode(bytes))),
        ("decode", Val::String(text)) => STANDARD
            .decode(text.as_str())
            .map(|bytes| Val::Bytes(bytes.into()))
            .map_err(|_| error("illegal base64 data")),
        _ => Err(no_overload()),
    }
}

/// A value as `%s` shows it.
pub(super) fn shown(value: &Val<'_>, meter: &mut Meter) -> Result<Rc<str>, Failure> {
    meter.walk(value.size())?;
    let list = |parts: Vec<Rc<str>>, open: char, close: char| -> Rc<str> {
        format!("{open}{}{close}", parts.join(", ")).into()
    };
    match value {
        Val::Null => Ok("null".into()),
        Val::List(_) | Val::Array(..) => {
            let items = (0..value.size()).filter_map(|position| value.item(position));
            let parts: Vec<Rc<str>> = items.map(|item| shown(&item, meter)).collect::<Result<_, _>>()?;
            Ok(list(parts, '[', ']'))
        }
        Val::Map(_) | Val::Object(..) => {
            let mut parts: Vec<Rc<str>> = Vec::new();
            for (key, field) in entries(value) {
                parts.push(format!("{}: {}", shown(&key.value(), meter)?, shown(&field, meter)?).into());
            }
            Ok(list(parts, '{', '}'))
        }
        Val::Type(name) => Ok((*name).into()),
        other => string(other).ok_or_else(no_overload),
    }
}

fn string(value: &Val<'_>) -> Option<Rc<str>> {
    Some(match value {
        Val::String(text) => text.as_str().into(),
        Val::Bool(truth) => truth.to_string().into(),
        Val::Int(number) => number.to_string().into(),
        Val::Uint(number) => number.to_string().into(),
        Val::Double(number) => go::float(*number).into(),
        Val::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.into(),
        Val::Timestamp(moment) => moment.to_string().into(),
        Val::Duration(span) => super::time::shown(*span).into(),
        Val::Ip(address) => address.to_string().into(),
        Val::Cidr(address, length) => format!("{address}/{length}").into(),
        Val::Url(text) => Rc::clone(text),
        _ => return None,
    })
}

fn int<'a>(value: &Val<'_>) -> Result<Val<'a>, Failure> {
    let number = match value {
        Val::Int(number) => Some(*number),
        Val::Uint(number) => i64::try_from(*number).ok(),
        Val::Double(number) if number.abs() < 9.223_372_036_854_775e18 => Some(truncated(*number)),
        Val::Double(_) => None,
        Val::String(text) => {
            return text
                .as_str()
                .parse()
                .map(Val::Int)
                .map_err(|_| error("type conversion error from 'string' to 'int'"));
        }
        Val::Timestamp(moment) => Some(moment.as_second()),
        _ => return Err(no_overload()),
    };
    number.map(Val::Int).ok_or_else(|| error("integer overflow"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value was checked to be in range")]
fn uint<'a>(value: &Val<'_>) -> Result<Val<'a>, Failure> {
    let number = match value {
        Val::Uint(number) => Some(*number),
        Val::Int(number) => u64::try_from(*number).ok(),
        Val::Double(number) if (0.0..1.8e19).contains(number) => Some(*number as u64),
        Val::Double(_) => None,
        Val::String(text) => {
            return text
                .as_str()
                .parse()
                .map(Val::Uint)
                .map_err(|_| error("type conversion error from 'string' to 'uint'"));
        }
        _ => return Err(no_overload()),
    };
    number.map(Val::Uint).ok_or_else(|| error("unsigned integer overflow"))
}

#[expect(clippy::cast_precision_loss, reason = "that is what the conversion does")]
fn double<'a>(value: &Val<'_>) -> Result<Val<'a>, Failure> {
    match value {
        Val::Double(number) => Ok(Val::Double(*number)),
        Val::Int(number) => Ok(Val::Double(*number as f64)),
        Val::Uint(number) => Ok(Val::Double(*number as f64)),
        Val::String(text) => {
            text.as_str().parse().map(Val::Double).map_err(|_| error("type conversion error from 'string' to 'double'"))
        }
        _ => Err(no_overload()),
    }
}
