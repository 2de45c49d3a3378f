//! The part of kubectl's JSONPath that printer columns use: fields, indexes, wildcards, filters on equality, unions of
//! fields. A path yields any number of values.

use serde_json::Value;

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
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text);
        let inner = inner.strip_prefix(['$', '@']).unwrap_or(inner);
        let mut steps = Vec::new();
        let mut rest = inner;
        while !rest.is_empty() {
            let (step, after) = step(rest)?;
            steps.extend(step);
            rest = after;
            if steps.len() > MOST_STEPS {
                return Err("the path is too long".to_owned());
            }
        }
        Ok(Self { steps })
    }

    /// All values that it leads to.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.find(value)).take(MOST_VALUES).collect();
        }
        found
    }
}

const MOST_STEPS: usize = 64;
/// More values than a table's cell can show.
const MOST_VALUES: usize = 1000;

impl Step {
    fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::All => children(value),
            Self::Index(index) => {
                let items = value.as_array().map_or(&[][..], |items| items);
                position(*index, items.len()).and_then(|index| items.get(index)).into_iter().collect()
            }
            Self::Slice(from, to) => {
                let items = value.as_array().map_or(&[][..], |items| items);
                let at = |index: &Option<i64>, otherwise| {
                    index.map_or(Some(otherwise), |index| position(index, items.len()))
                };
                let (from, to) = (at(from, 0).unwrap_or(items.len()), at(to, items.len()).unwrap_or(items.len()));
                items.get(from..to.max(from)).unwrap_or_default().iter().collect()
            }
            Self::Filter { field, equal, value: wanted } => children(value)
                .into_iter()
                .filter(|item| field.find(item).iter().any(|found| (**found == *wanted) == *equal))
                .collect(),
            Self::Has(field) => children(value).into_iter().filter(|item| !field.find(item).is_empty()).collect(),
            Self::Descend(name) => {
                let mut found: Vec<&Value> = value.get(name).into_iter().collect();
                found.extend(children(value).into_iter().flat_map(|child| self.find(child)));
                found
            }
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn step(text: &str) -> Result<(Option<Step>, &str), String> {
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
        return Ok((Some(bracket(&rest[..end])?), &rest[end + 1..]));
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

fn bracket(text: &str) -> Result<Step, String> {
    let text = text.trim();
    if text == "*" {
        return Ok(Step::All);
    }
    if let Some(quoted) = quoted(text) {
        return Ok(Step::Field(quoted));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter_step(filter);
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

fn filter_step(text: &str) -> Result<Step, String> {
    for (sign, equal) in [("==", true), ("!=", false)] {
        if let Some((field, value)) = text.split_once(sign) {
            let value = value.trim();
            let value = match quoted(value) {
                Some(text) => Value::String(text),
                None => serde_json::from_str(value).map_err(|_| format!("cannot compare with {value}"))?,
            };
            return Ok(Step::Filter { field: Path::parse(field)?, equal, value });
        }
    }
    if text.contains(['<', '>']) {
        return Err("only == and != are supported in filters".to_owned());
    }
    Ok(Step::Has(Path::parse(text)?))
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
