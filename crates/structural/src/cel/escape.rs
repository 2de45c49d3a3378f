//! Names of fields as rules spell them: what is not an identifier, or means something in CEL, is escaped.

/// Words that no field may be called by.
const RESERVED: [&str; 20] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// A name as a rule spells it; `None` for names that cannot be spelled.
pub(super) fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) || name == "while" {
        return Some(format!("__{name}__"));
    }
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        let (part, length) = match character {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            plain if plain.is_ascii_alphanumeric() || plain == '_' => (&rest[..1], 1),
            _ => return None,
        };
        escaped.push_str(part);
        rest = &rest[length..];
    }
    Some(escaped)
}

/// The name that a rule's spelling stands for; most are the same.
pub(super) fn unescape(spelled: &str) -> Option<String> {
    if !spelled.contains("__") {
        return None;
    }
    let word = spelled.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = word
        && (RESERVED.contains(&word) || word == "while")
    {
        return Some(word.to_owned());
    }
    let mut name = String::with_capacity(spelled.len());
    let mut rest = spelled;
    while let Some(character) = rest.chars().next() {
        let parts = [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];
        match parts.into_iter().find(|(part, _)| rest.starts_with(part)) {
            Some((part, plain)) => {
                name.push_str(plain);
                rest = &rest[part.len()..];
            }
            None => {
                name.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn spellings_and_names_belong_together() {
        for (name, spelled) in [
            ("namespace", "__namespace__"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("a__b", "a__underscores__b"),
            ("plain_1", "plain_1"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(spelled));
            assert_eq!(unescape(spelled).unwrap_or(spelled.to_owned()), name);
        }
        assert_eq!(escape("1a"), None);
        assert_eq!(escape("a b"), None);
    }
}
