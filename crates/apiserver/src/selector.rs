//! Label and field selectors: Kubernetes' grammar, its matching, its messages.

use std::collections::BTreeSet;

use serde_json::Value;

/// Conditions on an object's labels, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// What is wrong with it, in Kubernetes' words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let requirements = parser.requirements()?;
        Ok(Self { requirements })
    }

    /// The text of a selector that an object holds: `matchLabels` and `matchExpressions`, or a plain map.
    pub(crate) fn text_of(selector: &Value) -> Option<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let structured = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
        let labels = if structured { &selector["matchLabels"] } else { selector };
        let exact = labels.as_object().into_iter().flatten();
        let mut terms: Vec<String> = exact.map(|(key, value)| format!("{key}={}", text(value))).collect();
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = text(&expression["key"]);
            let values: Vec<String> = expression["values"].as_array().into_iter().flatten().map(text).collect();
            terms.push(match expression["operator"].as_str() {
                Some("In") => format!("{key} in ({})", values.join(",")),
                Some("NotIn") => format!("{key} notin ({})", values.join(",")),
                Some("DoesNotExist") => format!("!{key}"),
                _ => key,
            });
        }
        selector.is_object().then(|| terms.join(","))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// How many conditions there are.
    pub(crate) fn count(&self) -> usize {
        self.requirements.len()
    }

    /// Whether the labels fulfil all conditions.
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|Requirement { key, operator }| {
            let value = label(key);
            match operator {
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Greater(bound) => number(value).is_some_and(|value| value > *bound),
                Operator::Less(bound) => number(value).is_some_and(|value| value < *bound),
            }
        })
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
        }
    }
}

/// Longer signs first, so that `==` is not read as two.
const SIGNS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let ends = |c: char| c.is_ascii_whitespace() || "=!,()><".contains(c);
            let end = rest.find(ends).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if word.is_empty() {
                // White space of a kind that only Unicode knows.
                return tokens;
            }
            tokens.push(Token::Word(word.to_owned()));
            rest = after;
        }
        rest = rest.trim_start();
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, String> {
        let mut all = Vec::new();
        if self.peek().is_none() {
            return Ok(all);
        }
        loop {
            let one = self.requirement();
            all.push(one.map_err(|problem| format!("unable to parse requirement: {problem}"))?);
            match self.next() {
                None => return Ok(all),
                Some(Token::Sign(",")) => match self.peek() {
                    Some(Token::Word(_) | Token::Sign("!")) => {}
                    found => {
                        let found = found.map_or("", Token::text);
                        return Err(format!("found '{found}', expected: identifier after ','"));
                    }
                },
                Some(other) => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Some(&Token::Sign("!"));
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Some(Token::Word(key)) => key,
            found => {
                return Err(format!(
                    "found '{}', expected: !, identifier, or ''",
                    found.as_ref().map_or("", Token::text)
                ));
            }
        };
        check_key(&key)?;
        if absent {
            return Ok(Requirement { key, operator: Operator::Absent });
        }
        let operator = match self.peek().cloned() {
            None | Some(Token::Sign(",")) => Operator::Exists,
            Some(Token::Sign("=" | "==")) => Operator::In(self.exact(&key)?),
            Some(Token::Sign("!=")) => Operator::NotIn(self.exact(&key)?),
            Some(Token::Word(word)) if word == "in" => Operator::In(self.values(&key)?),
            Some(Token::Word(word)) if word == "notin" => Operator::NotIn(self.values(&key)?),
            Some(Token::Sign(sign @ (">" | "<"))) => {
                self.at += 1;
                let bound = self.word();
                let bound = bound.parse().map_err(|_| {
                    format!(
                        "values[0]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                })?;
                if sign == ">" { Operator::Greater(bound) } else { Operator::Less(bound) }
            }
            Some(found) => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", found.text()));
            }
        };
        Ok(Requirement { key, operator })
    }

    /// The one value after an equals sign, which may be left out: then it is empty.
    fn exact(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        self.at += 1;
        let value = match self.peek() {
            None | Some(Token::Sign(",")) => String::new(),
            Some(Token::Word(_)) => self.word(),
            Some(Token::Sign(sign)) => return Err(format!("found '{sign}', expected: identifier")),
        };
        check_value(key, &value)?;
        Ok(BTreeSet::from([value]))
    }

    fn word(&mut self) -> String {
        match self.next() {
            Some(Token::Word(word)) => word,
            _ => String::new(),
        }
    }

    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        self.at += 1;
        match self.next() {
            Some(Token::Sign("(")) => {}
            found => return Err(format!("found '{}' expected: '('", found.as_ref().map_or("", Token::text))),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Some(Token::Word(_)) => self.word(),
                Some(Token::Sign("," | ")")) => String::new(),
                found => {
                    return Err(format!("found '{}', expected: ',', ')' or identifier", found.map_or("", Token::text)));
                }
            };
            check_value(key, &value)?;
            values.insert(value);
            match self.next() {
                Some(Token::Sign(")")) => return Ok(values),
                Some(Token::Sign(",")) => {}
                found => {
                    return Err(format!("found '{}', expected: ',' or ')'", found.as_ref().map_or("", Token::text)));
                }
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    match crate::names::qualified_name(key).as_slice() {
        [] => Ok(()),
        problems => Err(format!("key: Invalid value: \"{key}\": {}", problems.join("; "))),
    }
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    match crate::names::label_value(value).as_slice() {
        [] => Ok(()),
        problems => Err(format!("values[0][{key}]: Invalid value: \"{value}\": {}", problems.join("; "))),
    }
}

/// Conditions on fields, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    pub(crate) requirements: Vec<FieldRequirement>,
}

/// A field has a value, or has it not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldRequirement {
    pub(crate) field: String,
    pub(crate) value: String,
    pub(crate) equal: bool,
}

impl FieldSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// What is wrong with it, in Kubernetes' words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for term in split_unescaped(text) {
            if term.is_empty() {
                continue;
            }
            let Some((field, sign, value)) = split_term(term) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            let value = unescape(value)?;
            requirements.push(FieldRequirement { field: field.to_owned(), value, equal: sign != "!=" });
        }
        Ok(Self { requirements })
    }
}

/// At commas that no backslash precedes.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, &str, &str)> {
    term.char_indices().find_map(|(index, _)| {
        let (field, rest) = term.split_at(index);
        ["!=", "==", "="].into_iter().find_map(|sign| Some((field, sign, rest.strip_prefix(sign)?)))
    })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(next) => return Err(format!("invalid escape sequence: \\{next}")),
                None => return Err("invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => return Err(format!("invalid selector: unescaped {c} in '{value}'")),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
#[path = "selector_tests.rs"]
mod tests;
