//! What `serde` says, in words of the API.

/// Says in words of the API what serde says in words of Rust.
pub(super) fn explain(message: &str) -> String {
    if let Some(field) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("the field {field} is required");
    }
    if let Some((found, expected)) =
        message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected "))
    {
        return format!("expected {}, got {found:?}", expected.replace('`', ""));
    }
    // Times are read by `jiff`, the only parser here with words of its own.
    if message.starts_with("failed to parse") {
        return format!("expected a time such as 2006-01-02T15:04:05Z; {message}");
    }
    let stripped = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = stripped.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return message.to_owned();
    };
    format!("expected {}, got {}", in_words(expected), found_in_words(found))
}

fn in_words(expected: &str) -> &str {
    match expected {
        "u32" => "a whole number from 0 to 4294967295",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "i64" | "integer `i64`" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

fn found_in_words(found: &str) -> String {
    if let Some(number) = found.strip_prefix("integer `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("the number {number}");
    }
    if let Some(number) = found.strip_prefix("floating point `").and_then(|rest| rest.strip_suffix('`')) {
        return format!("the number {number}");
    }
    if let Some(flag) = found.strip_prefix("boolean `").and_then(|rest| rest.strip_suffix('`')) {
        return flag.to_owned();
    }
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "null" => "null".to_owned(),
        other => format!("the {other}"),
    }
}
