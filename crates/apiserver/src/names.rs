//! The rules for names, labels and annotations, with Kubernetes' messages.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
    is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Which rule the names of a resource follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Dots allowed, 253 characters.
    Subdomain,
    /// No dots, 63 characters.
    Label,
    /// As a label, and starting with a letter: services.
    Dns1035,
    /// Anything that can be a part of a path: roles and their bindings.
    PathSegment,
}

/// What is wrong with a name.
pub(crate) fn name(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name, LABEL, false),
        NameRule::Dns1035 => label(name, DNS_1035, true),
        NameRule::PathSegment => path_segment(name),
    }
}

/// What is wrong with a prefix for generated names: as names, but it may end with a dash.
pub(crate) fn prefix(rule: NameRule, prefix: &str) -> Vec<String> {
    let masked = match prefix.strip_suffix('-') {
        Some(start) if !start.is_empty() => format!("{start}a"),
        _ => prefix.to_owned(),
    };
    name(rule, &masked)
}

pub(crate) fn subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    if name.is_empty() || !name.split('.').all(|part| dns_part(part, false)) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

fn label(name: &str, message: &str, letter_first: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if !letter_first && name.contains('.') && subdomain(name).is_empty() {
        return vec!["must not contain dots".to_owned()];
    }
    if name.len() > 63 {
        problems.push(too_long(63));
    }
    if !dns_part(name, letter_first) {
        problems.push(message.to_owned());
    }
    problems
}

fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].into_iter().filter(|sign| name.contains(sign)).map(|sign| format!("may not contain '{sign}'")).collect()
}

fn dns_part(part: &str, letter_first: bool) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.chars().all(|c| alphanumeric(c) || c == '-')
        && part.starts_with(|c: char| if letter_first { c.is_ascii_lowercase() } else { alphanumeric(c) })
        && part.ends_with(alphanumeric)
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

/// What is wrong with the key of a label, an annotation or the name of a finalizer: `name` or `prefix/name`.
pub(crate) fn qualified_name(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                QUALIFIED.trim_start_matches("name part ")
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63)));
    }
    if !word(name) {
        problems.push(QUALIFIED.to_owned());
    }
    problems
}

/// What is wrong with the value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push(too_long(63));
    }
    if !value.is_empty() && !word(value) {
        problems.push(VALUE.to_owned());
    }
    problems
}

fn word(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(edge) && text.ends_with(edge) && text.chars().all(|c| edge(c) || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rule() {
        for (rule, good, bad) in [
            (NameRule::Subdomain, "a.b-c.0", "a..b"),
            (NameRule::Subdomain, "0", "A"),
            (NameRule::Label, "a-b", "a.b"),
            (NameRule::Dns1035, "a0", "0a"),
            (NameRule::PathSegment, "system:node", "a/b"),
        ] {
            assert!(name(rule, good).is_empty(), "{good}");
            assert_eq!(name(rule, bad).len(), 1, "{bad}");
        }
        assert!(prefix(NameRule::Label, "a-").is_empty());
        assert_eq!(name(NameRule::Label, &"a".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn keys_have_at_most_one_prefix() {
        assert!(qualified_name("example.com/My_Name").is_empty());
        for bad in ["", "/a", "a/", "a/b/c", "A.com/x", "-a"] {
            assert!(!qualified_name(bad).is_empty(), "{bad}");
        }
    }
}
