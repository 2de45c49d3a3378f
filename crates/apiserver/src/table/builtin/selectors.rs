//! Label selectors, written out.

use serde_json::Value;

use super::parts::{at, items, map, texts};

/// The selector at a pointer as clients write it; `<none>` if it has no conditions.
pub(super) fn selector(object: &Value, pointer: &str) -> Value {
    let Some(selector) = object.pointer(pointer) else { return "<none>".into() };
    let equal = map(selector, "/matchLabels");
    let equal = equal.map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())));
    let others = items(selector, "/matchExpressions").iter().map(|one| (at(one, "/key"), condition(one)));
    let mut all: Vec<_> = equal.chain(others).collect();
    all.sort_by_key(|(key, _)| *key);
    match all.is_empty() {
        true => "<none>".into(),
        false => all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",").into(),
    }
}

fn condition(expression: &Value) -> String {
    let key = at(expression, "/key");
    let mut values = texts(items(expression, "/values"), "");
    values.sort_unstable();
    let values = values.join(",");
    match at(expression, "/operator") {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    }
}

/// A selector as Go shows the struct: this is what policy bindings print.
pub(super) fn as_struct(selector: &Value) -> String {
    let mut labels: Vec<_> = map(selector, "/matchLabels").collect();
    labels.sort_unstable_by_key(|(key, _)| *key);
    let labels: String =
        labels.iter().map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let expressions = items(selector, "/matchExpressions").iter().map(|one| {
        let (key, operator, values) = (at(one, "/key"), at(one, "/operator"), texts(items(one, "/values"), ""));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    });
    let expressions: String = expressions.collect();
    let expressions = format!("[]LabelSelectorRequirement{{{expressions}}}");
    format!("&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:{expressions},}}")
}
