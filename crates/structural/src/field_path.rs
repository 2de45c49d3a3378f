//! The `fieldPath` of a rule, such as `.spec.labels['a.b']`.

use crate::node::{Additional, Node};

/// The path as errors spell it (`spec.labels[a.b]`); `None` when the schema has no such field.
pub(crate) fn resolve(node: &Node, path: &str) -> Option<String> {
    let mut node = node;
    let mut resolved = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix('.') {
            Some(after) => {
                let end = after.find(['.', '[', ']']).unwrap_or(after.len());
                let (name, after) = after.split_at(end);
                (name.to_owned(), after)
            }
            None => quoted(rest.strip_prefix("['")?)?,
        };
        if name.is_empty() {
            return None;
        }
        node = match (&node.additional, node.properties.is_empty()) {
            (_, false) => {
                if !resolved.is_empty() {
                    resolved.push('.');
                }
                resolved.push_str(&name);
                node.property(&name)?
            }
            (Additional::Schema(inner), true) => {
                resolved.push_str(&format!("[{name}]"));
                inner
            }
            _ => return None,
        };
        rest = after;
    }
    Some(resolved)
}

/// A quoted name and what follows its bracket.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '\'' => return Some((name, characters.as_str().strip_prefix(']')?)),
            '\\' => name.push(match characters.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'v' => '\u{b}',
                plain @ ('\'' | '\\') => plain,
                _ => return None,
            }),
            plain => name.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::resolve;
    use crate::intern::Interner;
    use crate::parse::parse;

    #[test]
    fn paths_follow_properties_and_maps() {
        let schema = json!({ "type": "object", "properties": {
            "a-b": { "type": "object", "properties": { "c": { "type": "string" } } },
            "m": { "type": "object", "additionalProperties": { "type": "string" } },
        } });
        let node = parse(&schema, &mut Interner::new());
        for (path, resolved) in [
            (".a-b.c", Some("a-b.c")),
            ("['a-b'].c", Some("a-b.c")),
            (".m['x.y']", Some("m[x.y]")),
            (".m.x", Some("m[x]")),
            (".m['it\\'s']", Some("m[it's]")),
            (".zz", None),
            ("m", None),
            (".m[0]", None),
            (".m['x'", None),
            (".a-b..c", None),
        ] {
            assert_eq!(resolve(&node, path).as_deref(), resolved, "{path}");
        }
    }
}
