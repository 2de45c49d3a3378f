//! The part of kubectl's JSONPath that printer columns use: fields, indexes, wildcards, filters on equality, unions of
//! fields. A path yields any number of values.

use serde_json::Value;

use crate::bounds::MOST_STEPS;

/// A path that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    All,
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    /// `?(@.type=="Ready")`
    Filter {
        field: Path,
        equal: bool,
        value: Value,
    },
    /// `?(@.type)`
    Has(Path),
    /// `..name`
    Descend(String),
}

impl Path {
    /// Reads `.spec.containers[*].image`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::parse_within(text, 0)
    }

    /// The same within so many filters.
    fn parse_within(text: &str, filters: usize) -> Result<Self, String> {
        if filters > MOST_FILTERS {
            return Err("filters are nested too deeply".to_owned());
        }
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text);
        let inner = inner.strip_prefix(['$', '@']).unwrap_or(inner);
        let mut steps = Vec::new();
        let mut rest = inner;
        while !rest.is_empty() {
            let (step, after) = step(rest, filters)?;
            steps.extend(step);
            rest = after;
            if steps.len() > MOST_STEPS {
                return Err("the path is too long".to_owned());
            }
        }
        Ok(Self { steps })
    }

    /// The values that it leads to: not more than anyone can read, and none that is too far to look for.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.find_within(value, &mut { MOST_LOOKED_AT })
    }

    /// The same with so many values left to look at.
    fn find_within<'a>(&self, value: &'a Value, left: &mut usize) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                if next.len() >= MOST_VALUES {
                    break;
                }
                step.find(value, left, &mut next);
            }
            next.truncate(MOST_VALUES);
            found = next;
        }
        found
    }
}

/// Each is read by the same function once more.
const MOST_FILTERS: usize = 8;
/// More values than a table's cell can show.
const MOST_VALUES: usize = 1000;
/// A few steps that each look through everything below the last would look at some values again and again.
const MOST_LOOKED_AT: usize = 100_000;

impl Step {
    fn find<'a>(&self, value: &'a Value, left: &mut usize, found: &mut Vec<&'a Value>) {
        match self {
            Self::Field(name) => found.extend(value.get(name)),
            Self::All => found.extend(children(value, left)),
            Self::Index(index) => {
                let items = value.as_array().map_or(&[][..], |items| items);
                found.extend(position(*index, items.len()).and_then(|index| items.get(index)));
            }
            Self::Slice(from, to) => {
                let items = value.as_array().map_or(&[][..], |items| items);
                let at = |index: &Option<i64>, otherwise| {
                    index.map_or(Some(otherwise), |index| position(index, items.len()))
                };
                let (from, to) = (at(from, 0).unwrap_or(items.len()), at(to, items.len()).unwrap_or(items.len()));
                found.extend(items.get(from..to.max(from)).unwrap_or_default().iter().take(MOST_VALUES));
            }
            Self::Filter { field, equal, value: wanted } => {
                for item in children(value, left) {
                    if field.find_within(item, left).iter().any(|found| (**found == *wanted) == *equal) {
                        found.push(item);
                    }
                }
            }
            Self::Has(field) => {
                for item in children(value, left) {
                    if !field.find_within(item, left).is_empty() {
                        found.push(item);
                    }
                }
            }
            Self::Descend(name) => {
                found.extend(value.get(name));
                for child in children(value, left) {
                    self.find(child, left, found);
                }
            }
        }
    }
}

/// What is directly below a value, as far as there is something left to look at.
fn children<'a>(value: &'a Value, left: &mut usize) -> Vec<&'a Value> {
    let most = *left;
    let below: Vec<&Value> = match value {
        Value::Array(items) => items.iter().take(most).collect(),
        Value::Object(map) => map.values().take(most).collect(),
        _ => Vec::new(),
    };
    *left -= below.len();
    below
}

fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn step(text: &str, filters: usize) -> Result<(Option<Step>, &str), String> {
    if let Some(rest) = text.strip_prefix("..") {
        let (name, rest) = name(rest);
        return if name.is_empty() {
            Err("a name is missing after ..".to_owned())
        } else {
            Ok((Some(Step::Descend(name)), rest))
        };
    }
    if let Some(rest) = text.strip_prefix('.') {
        if let Some(rest) = rest.strip_prefix('*') {
            return Ok((Some(Step::All), rest));
        }
        let (name, rest) = name(rest);
        return Ok(((!name.is_empty()).then_some(Step::Field(name)), rest));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let end = closing(rest).ok_or("unterminated array")?;
        return Ok((Some(bracket(&rest[..end], filters)?), &rest[end + 1..]));
    }
    let (name, rest) = name(text);
    if name.is_empty() { Err(format!("unexpected {text:?}")) } else { Ok((Some(Step::Field(name)), rest)) }
}

/// A field's name; a backslash takes away the meaning of what follows it.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' | '{' | '}' | ' ' => return (name, &text[index..]),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket ends, quotes and inner brackets respected.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (Some(mark), c) if mark == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(index),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str, filters: usize) -> Result<Step, String> {
    let text = text.trim();
    if text == "*" {
        return Ok(Step::All);
    }
    if let Some(quoted) = quoted(text) {
        return Ok(Step::Field(quoted));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter_step(filter, filters + 1);
    }
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("invalid array index {text}"));
    match text.split_once(':') {
        Some((from, to)) => {
            let bound = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
            Ok(Step::Slice(bound(from)?, bound(to)?))
        }
        None => number(text).map(Step::Index),
    }
}

fn filter_step(text: &str, filters: usize) -> Result<Step, String> {
    for (sign, equal) in [("==", true), ("!=", false)] {
        if let Some((field, value)) = text.split_once(sign) {
            let value = value.trim();
            let value = match quoted(value) {
                Some(text) => Value::String(text),
                None => serde_json::from_str(value).map_err(|_| format!("cannot compare with {value}"))?,
            };
            return Ok(Step::Filter { field: Path::parse_within(field, filters)?, equal, value });
        }
    }
    if text.contains(['<', '>']) {
        return Err("only == and != are supported in filters".to_owned());
    }
    Ok(Step::Has(Path::parse_within(text, filters)?))
}

fn quoted(text: &str) -> Option<String> {
    let inner = |mark| text.strip_prefix(mark).and_then(|rest: &str| rest.strip_suffix(mark));
    inner('\'').or_else(|| inner('"')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn find(path: &str, value: &Value) -> Vec<Value> {
        Path::parse(path).unwrap().find(value).into_iter().cloned().collect()
    }

    #[test]
    fn each_step_leads_where_it_says() {
        let value = json!({
            "spec": { "list": [{ "name": "a", "n": 1 }, { "name": "b", "n": 2 }], "x.y": 7 },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Other", "status": "False" }] },
        });
        for (path, expected) in [
            (".spec.list[0].name", json!(["a"])),
            (".spec.list[-1].name", json!(["b"])),
            (".spec.list[*].n", json!([1, 2])),
            (".spec.list[0:1].n", json!([1])),
            (".spec.x\\.y", json!([7])),
            ("{.spec['x.y']}", json!([7])),
            (".status.conditions[?(@.type=='Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type!=\"Ready\")].status", json!(["False"])),
            (".spec.list[?(@.gone)].name", json!([])),
            ("..name", json!(["a", "b"])),
            (".gone.deeper", json!([])),
        ] {
            assert_eq!(Value::Array(find(path, &value)), expected, "{path}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for path in [".a[", ".a[x]", ".a[?(@.b<1)]", ".."] {
            assert!(Path::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn filters_within_filters_end_somewhere() {
        let nested = |levels: usize| format!("{}a{}", "[?(".repeat(levels), ")]".repeat(levels));
        assert!(Path::parse(&nested(MOST_FILTERS)).is_ok());
        for levels in [MOST_FILTERS + 1, 500_000] {
            assert_eq!(Path::parse(&nested(levels)).unwrap_err(), "filters are nested too deeply");
        }
    }

    /// Each step looks through all that is below each of the values before it.
    #[test]
    fn what_is_looked_at_again_and_again_is_counted() {
        let value = (0..90).fold(json!({ "b": vec![0; 1000] }), |inner, _| json!({ "a": inner }));
        let path = Path::parse(&"..a".repeat(MOST_STEPS)).unwrap();
        let mut left = 1_000_000;
        assert!(path.find_within(&value, &mut left).len() <= MOST_VALUES);
        assert_eq!(left, 0);
        assert_eq!(find("..b", &value), [json!(vec![0; 1000])]);
    }

    proptest! {
        #[test]
        fn no_path_makes_it_panic(path in "[.a\\[\\]?(@)=*:'\" 0-9-]{0,24}") {
            if let Ok(path) = Path::parse(&path) {
                let value = json!({ "a": [{ "a": 1 }, [1, 2]], "": { "a": [] } });
                let _ = path.find(&value);
            }
        }
    }
}
