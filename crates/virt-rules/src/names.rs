//! Names as DNS and Kubernetes want them.

/// Letters, digits and `-` in lower case, at most 63; begins and ends with a letter or digit.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inside) && !text.starts_with('-') && !text.ends_with('-')
}

/// Labels with dots between them, at most 253.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// A label's key: a name, maybe behind a DNS prefix and `/`.
#[must_use]
pub fn is_qualified(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

/// A label's value: may be empty.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= 63 && text.bytes().all(inside) && edge(text.bytes().next()) && edge(text.bytes().next_back())
}

/// A port's name: 1 to 15 letters, digits and `-`, with a letter, no `-` at the ends nor two in a row.
#[must_use]
pub fn is_port_name(text: &str) -> bool {
    text.len() <= 15 && is_dns_label(text) && text.bytes().any(|byte| byte.is_ascii_lowercase()) && !text.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        assert!(is_dns_label("a-1") && !is_dns_label("A") && !is_dns_label("-a") && !is_dns_label(""));
        assert!(is_dns_subdomain("a.b-c") && !is_dns_subdomain("a..b") && !is_dns_subdomain("a_b"));
        assert!(is_qualified("kubernetes.io/Host.name") && is_qualified("zone") && !is_qualified("/zone"));
        assert!(!is_qualified("a/b/c") && !is_qualified("a/"));
        assert!(is_label_value("") && is_label_value("A_b.c") && !is_label_value("-a") && !is_label_value("a b"));
        assert!(is_port_name("http-1") && !is_port_name("80") && !is_port_name("a--b"));
    }
}
