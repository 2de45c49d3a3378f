//! Takes JSON as an object of a built-in kind: drops what the kind does not have, refuses what has the wrong type,
//! leaves out what Kubernetes would not write, and sets defaults.

use serde_json::{Map, Value};

use super::conditional;
use super::{Field, Shape, Type, TypeId, facts};
use crate::bounds::{MOST_TOLD, cut};
use crate::store::LARGEST_OBJECT;

/// What came of it besides the object itself.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// Paths of fields that the kind does not have, as far as they are told; they were dropped.
    pub(crate) unknown: Vec<String>,
}

/// Decodes in place.
///
/// # Errors
/// The first value of a wrong type, in the words that Kubernetes' clients know.
pub(crate) fn decode(id: TypeId, value: &mut Value) -> Result<Decoded, String> {
    let mut decoder = Decoder { decoded: Decoded::default(), path: Vec::new(), room: LARGEST_OBJECT };
    decoder.value(&Shape::Struct(id), value, "")?;
    Ok(decoder.decoded)
}

struct Decoder {
    decoded: Decoded,
    path: Vec<Step>,
    /// Bytes that defaults may still add: an object that has more than the store takes is refused later in any case.
    room: usize,
}

enum Step {
    Field(String),
    /// Of a map.
    Key(String),
    Index(usize),
}

impl Decoder {
    fn value(&mut self, shape: &Shape, value: &mut Value, owner: &str) -> Result<(), String> {
        let fits = match (shape, &mut *value) {
            (Shape::Struct(id), Value::Object(map)) => return self.object(facts().get(*id), map),
            (Shape::Map(inner), Value::Object(map)) => {
                for (key, value) in map.iter_mut() {
                    self.path.push(Step::Key(key.clone()));
                    if value.is_null() {
                        *value = zero(inner);
                    }
                    self.value(inner, value, owner)?;
                    self.path.pop();
                }
                true
            }
            (Shape::List(inner), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.push(Step::Index(index));
                    if item.is_null() {
                        *item = zero(inner);
                    }
                    self.value(inner, item, owner)?;
                    self.path.pop();
                }
                true
            }
            (Shape::Any, _)
            | (Shape::Object, Value::Object(_))
            | (Shape::Boolean, Value::Bool(_))
            | (Shape::Number, Value::Number(_))
            | (Shape::String | Shape::IntOrString, Value::String(_)) => true,
            (Shape::Int32, Value::Number(number)) => {
                number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
            }
            (Shape::Int64 | Shape::IntOrString, Value::Number(number)) => number.as_i64().is_some(),
            (Shape::Bytes, Value::String(text)) => return self.bytes(text),
            (Shape::Quantity, Value::Number(number)) => {
                let text = number.to_string();
                *value = Value::String(text);
                true
            }
            (Shape::Quantity, Value::String(text)) => return quantity(text),
            (Shape::Time, Value::String(text)) => return time(text, "2006-01-02T15:04:05Z07:00"),
            (Shape::MicroTime, Value::String(text)) => return time(text, "2006-01-02T15:04:05.000000Z07:00"),
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.mismatch(shape, value, owner)) }
    }

    fn object(&mut self, of: &Type, map: &mut Map<String, Value>) -> Result<(), String> {
        let mut unknown = Vec::new();
        for (name, value) in map.iter_mut() {
            let Some(field) = of.field(name) else {
                unknown.push(name.clone());
                continue;
            };
            if value.is_null() {
                continue;
            }
            self.path.push(Step::Field(name.clone()));
            self.value(&field.shape, value, short(of.name))?;
            self.path.pop();
        }
        for name in unknown {
            map.remove(&name);
            if self.decoded.unknown.len() < MOST_TOLD {
                self.path.push(Step::Field(name));
                self.decoded.unknown.push(cut(&self.dotted()).into_owned());
                self.path.pop();
            }
        }
        map.retain(|name, value| match of.field(name) {
            Some(field) => !value.is_null() && (field.required || !is_empty(field, value)),
            None => true,
        });
        for field in &of.fields {
            if let Some(default) = &field.default
                && !map.contains_key(field.name)
                && (field.required || !is_omitted(default))
            {
                let mut default = default.clone();
                // What is set by default may have defaults of its own.
                self.value(&field.shape, &mut default, short(of.name))?;
                map.insert(field.name.to_owned(), default);
                // Its name, quotes, colon and comma, and one more for the value.
                self.take(field.name.len() + 5)?;
            }
        }
        let given = map.len();
        conditional::apply(of.name, map);
        // At least a name of one letter each.
        self.take((map.len() - given.min(map.len())) * 6)
    }

    fn take(&mut self, bytes: usize) -> Result<(), String> {
        let too_large = || format!("its defaults have more than {LARGEST_OBJECT} bytes");
        self.room = self.room.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    fn bytes(&self, text: &str) -> Result<(), String> {
        use base64::Engine as _;
        match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(_) => Ok(()),
            Err(base64::DecodeError::InvalidByte(at, _)) => Err(format!("illegal base64 data at input byte {at}")),
            Err(_) => Err(format!("illegal base64 data at input byte {}", text.len().saturating_sub(1) / 4 * 4)),
        }
    }

    fn mismatch(&self, shape: &Shape, value: &Value, owner: &str) -> String {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if matches!(shape, Shape::Int32 | Shape::Int64) => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let field = self.names();
        let expected = go_type(shape);
        if field.is_empty() {
            format!("json: cannot unmarshal {found} into Go value of type {expected}")
        } else {
            format!("json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {expected}")
        }
    }

    /// `spec.containers[0].image`
    fn dotted(&self) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) | Step::Key(name) if out.is_empty() => out.push_str(name),
                Step::Field(name) | Step::Key(name) => {
                    out.push('.');
                    out.push_str(name);
                }
                Step::Index(index) => out.push_str(&format!("[{index}]")),
            }
        }
        out
    }

    /// As Go's decoder names a place: by its fields, without keys and indexes.
    fn names(&self) -> String {
        let names = self.path.iter().filter_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Key(_) | Step::Index(_) => None,
        });
        names.collect::<Vec<_>>().join(".")
    }
}

/// Go leaves out empty lists and maps; an empty struct is a value.
fn is_empty(field: &Field, value: &Value) -> bool {
    match (&field.shape, value) {
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

/// Schemas name zero values as defaults of fields that Go leaves out when they are zero.
fn is_omitted(default: &Value) -> bool {
    default.is_null() || default.as_str().is_some_and(str::is_empty)
}

fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime => Value::String(String::new()),
        Shape::Boolean => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Number | Shape::IntOrString => 0.into(),
        Shape::Quantity => Value::String("0".to_owned()),
        Shape::List(_) => Value::Array(Vec::new()),
        Shape::Object | Shape::Struct(_) | Shape::Map(_) => Value::Object(Map::new()),
        Shape::Any => Value::Null,
    }
}

fn quantity(text: &str) -> Result<(), String> {
    const PROBLEM: &str = "quantities must match the regular expression \
                           '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let unsigned = text.trim_start_matches(['+', '-']);
    let digits = unsigned.len() - unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, suffix) = unsigned.split_at(digits);
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|rest| rest.parse::<i16>().is_ok());
    let known = matches!(
        suffix,
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
    );
    let dots = number.matches('.').count();
    if digits == 0 || dots > 1 || number == "." || text.len() - unsigned.len() > 1 {
        return Err(PROBLEM.to_owned());
    }
    if known || exponent { Ok(()) } else { Err("unable to parse quantity's suffix".to_owned()) }
}

fn time(text: &str, layout: &str) -> Result<(), String> {
    match text.parse::<jiff::Timestamp>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{text}\" as \"2006\"")),
    }
}

/// As Go prints its types.
fn go_type(shape: &Shape) -> String {
    match shape {
        Shape::String => "string".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Int32 => "int32".to_owned(),
        Shape::Int64 => "int64".to_owned(),
        Shape::Number => "float64".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::Object => "map[string]interface {}".to_owned(),
        Shape::Any => "interface {}".to_owned(),
        Shape::Time => "v1.Time".to_owned(),
        Shape::MicroTime => "v1.MicroTime".to_owned(),
        Shape::Quantity => "resource.Quantity".to_owned(),
        Shape::IntOrString => "intstr.IntOrString".to_owned(),
        Shape::Struct(id) => {
            let name = facts().get(*id).name;
            name.split_once('.').map_or(name, |(_, rest)| rest).to_owned()
        }
        Shape::List(inner) => format!("[]{}", go_type(inner)),
        Shape::Map(inner) => format!("map[string]{}", go_type(inner)),
    }
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
