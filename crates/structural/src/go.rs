//! Values as Go prints them, because that is how they stand in Kubernetes' messages.

use std::fmt::Write as _;

use serde_json::Value;

/// The start of a text, of at most so many bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// A value inside a message: strings in quotes, numbers and booleans as they are, the rest as JSON.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.to_string(),
            None => float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => quote(text),
        Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// Go's `%q`.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            control if u32::from(control) < 0x20 || control == '\u{7f}' => {
                // Writing to a string does not fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(control));
            }
            hidden if !printable(hidden) => {
                let code = u32::from(hidden);
                let _ = if code < 0x10000 { write!(quoted, "\\u{code:04x}") } else { write!(quoted, "\\U{code:08x}") };
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether Go shows a character as it is. The spaces other than ASCII's, and what has no glyph, are escaped.
fn printable(character: char) -> bool {
    !character.is_control()
        && (character == ' ' || !character.is_whitespace())
        && !matches!(u32::from(character), 0xad | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff | 0xfff9..=0xfffb)
}

/// Go's `%v` of a `float64`.
pub(crate) fn float(number: f64) -> String {
    let size = number.abs();
    if number != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    number.to_string()
}

/// JSON as Go's `encoding/json` writes it: keys sorted, `<`, `>` and `&` escaped.
pub(crate) fn json(value: &Value) -> String {
    let mut text = String::new();
    write_json(value, &mut text);
    text
}

fn write_json(value: &Value, text: &mut String) {
    match value {
        Value::Null | Value::Bool(_) => text.push_str(&value.to_string()),
        Value::Number(_) => text.push_str(&show(value)),
        Value::String(string) => write_json_string(string, text),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_json(item, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            // The order must not depend on how serde_json was built.
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, field)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_json_string(key, text);
                text.push(':');
                write_json(field, text);
            }
            text.push('}');
        }
    }
}

fn write_json_string(string: &str, text: &mut String) {
    for character in Value::from(string).to_string().chars() {
        match character {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            plain => text.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{float, json, quote};

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        assert_eq!(quote("a\"b\\\n\u{1}é\u{200b}"), r#""a\"b\\\n\x01é\u200b""#);
    }

    #[test]
    fn floats_switch_to_exponents_where_go_does() {
        let shown: Vec<String> = [0.25, 1e20, 1e21, 1.5e300, 0.0001, 0.00001, -2.0].into_iter().map(float).collect();
        assert_eq!(shown, ["0.25", "100000000000000000000", "1e+21", "1.5e+300", "0.0001", "1e-05", "-2"]);
    }

    #[test]
    fn json_has_sorted_keys_and_escapes_html() {
        assert_eq!(json(&json!({ "b": "<&>", "a": [1, 2.5, null] })), r#"{"a":[1,2.5,null],"b":"\u003c\u0026\u003e"}"#);
    }
}
