//! JSON and YAML from clients: bounded in depth and size, with fields that were given twice told.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::bounds::{DEEPEST, LARGEST_BODY, MOST_TOLD, cut};

/// A document, and the paths of fields that it gives more than once (the last wins), as far as they are told.
#[derive(Debug, PartialEq)]
pub(crate) struct Document {
    pub(crate) value: Value,
    pub(crate) duplicates: Vec<String>,
}

/// Reads JSON.
pub(crate) fn parse(text: &[u8]) -> Result<Document, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let document = read(&mut reader)?;
    reader.end()?;
    Ok(document)
}

/// Reads one YAML document as JSON.
pub(crate) fn parse_yaml(text: &[u8]) -> Result<Document, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    // By the rules of YAML 1.1, as Kubernetes reads it: `y` and `no` are booleans. The reader's own bound on depth is 64: it
    // takes much more of the stack for each level than that of JSON.
    serde_saphyr::with_deserializer_from_str(text, |reader| read(reader))
        .map_err(|error| cut(&error.to_string()).into_owned())
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Document, D::Error> {
    let mut reading = Reading { path: String::new(), duplicates: Vec::new(), depth: 0, room: LARGEST_BODY };
    let value = Node(&mut reading).deserialize(deserializer)?;
    Ok(Document { value, duplicates: reading.duplicates })
}

/// Where in a document the reader is, and what it found.
struct Reading {
    path: String,
    duplicates: Vec<String>,
    /// Objects and lists around it.
    depth: usize,
    /// Bytes that may still come: what YAML refers to twice is there twice.
    room: usize,
}

impl Reading {
    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > DEEPEST {
            Err(E::custom(format!("it is nested deeper than {DEEPEST} levels")))
        } else {
            self.take(1)
        }
    }

    fn take<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        let too_large = || E::custom(format!("it has more than {LARGEST_BODY} bytes once its references are followed"));
        self.room = self.room.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }
}

struct Node<'a>(&'a mut Reading);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // A whole number is one, however it was written: it will be written without its fraction.
        if value.fract() == 0.0 && value.abs() <= LARGEST_WHOLE {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough for its bits")]
            return Ok(Value::Number((value as i64).into()));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("an invalid number"))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.take(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.0.take(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self(reading) = self;
        reading.enter()?;
        let mut items = Vec::new();
        let length = reading.path.len();
        loop {
            reading.path.push_str(&format!("[{}]", items.len()));
            let item = access.next_element_seed(Node(&mut *reading))?;
            reading.path.truncate(length);
            reading.take(1)?;
            match item {
                Some(item) => items.push(item),
                None => break,
            }
        }
        reading.depth -= 1;
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self(reading) = self;
        reading.enter()?;
        let mut map = Map::new();
        let length = reading.path.len();
        while let Some(key) = access.next_key::<String>()? {
            reading.take(key.len())?;
            if !reading.path.is_empty() {
                reading.path.push('.');
            }
            reading.path.push_str(&key);
            let value = access.next_value_seed(Node(&mut *reading))?;
            if put(&mut map, key, value) {
                if reading.duplicates.len() >= MOST_TOLD {
                    return Err(A::Error::custom("too many fields are given twice"));
                }
                reading.duplicates.push(cut(&reading.path).into_owned());
            }
            reading.path.truncate(length);
        }
        reading.depth -= 1;
        Ok(Value::Object(map))
    }
}

/// Adds a field, and tells whether it was there. What is given twice is put together as Go does it: maps are merged.
fn put(map: &mut Map<String, Value>, key: String, value: Value) -> bool {
    match (map.get_mut(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            for (key, value) in new {
                put(old, key, value);
            }
            true
        }
        (_, value) => map.insert(key, value).is_some(),
    }
}

/// Above it, not every whole number has a float of its own.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_given_twice_are_told_and_the_last_wins() {
        let document = parse(br#"{"a":1,"b":[{"c":1,"c":2}],"a":3}"#).unwrap();
        assert_eq!(document.value, json!({ "a": 3, "b": [{ "c": 2 }] }));
        assert_eq!(document.duplicates, ["b[0].c", "a"]);
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(DEEPEST).as_bytes()).is_ok() && parse_yaml(nested(60).as_bytes()).is_ok());
        for levels in [DEEPEST + 1, 100_000] {
            let problem = parse(nested(levels).as_bytes()).unwrap_err().to_string();
            assert!(problem.contains("nested deeper than 100 levels"), "{problem}");
            assert!(parse_yaml(nested(levels).as_bytes()).is_err());
        }
    }

    #[test]
    fn what_yaml_refers_to_counts_as_often_as_it_does() {
        let text = "x".repeat(100_000);
        let twice = format!("a: &a {text}\nb: [*a, *a]\n");
        assert_eq!(parse_yaml(twice.as_bytes()).unwrap().value["b"][1], text);
        let often = format!("a: &a {text}\nb: [{}]\n", "*a,".repeat(99));
        let problem = parse_yaml(often.as_bytes()).unwrap_err();
        assert!(problem.contains("bytes once its references are followed"), "{problem}");
    }

    #[test]
    fn a_path_is_told_as_far_as_anyone_reads() {
        let key = "k".repeat(100_000);
        let document = parse(format!("{{\"{key}\":{{\"a\":1,\"a\":2}}}}").as_bytes()).unwrap();
        assert!(document.duplicates[0].len() < 5000);
    }

    #[test]
    fn yaml_is_read_as_json() {
        assert_eq!(parse_yaml(b"a: {b: [1, x]}\n").unwrap().value, json!({ "a": { "b": [1, "x"] } }));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text);
            let _ = parse_yaml(&text);
        }

        #[test]
        fn it_reads_what_serde_json_reads(text in "[\\[\\]{}:,\"a-c0-9. truefalsn-]{0,40}") {
            let ours = parse(text.as_bytes()).map(|document| document.value).ok();
            let theirs = serde_json::from_str::<Value>(&text).ok();
            // Whole floats, a negative zero among them, and fields given twice are read otherwise, on purpose.
            let differs = [".", "e", "-0"].iter().any(|part| text.contains(part)) || text.matches(':').count() > 1;
            prop_assert!(ours == theirs || (differs && ours.is_some() == theirs.is_some()));
        }
    }
}
