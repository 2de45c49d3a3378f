use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    LabelSelector::parse(selector).unwrap().matches(|key| labels.get(key).copied())
}

#[test]
fn each_operator_does_what_it_says() {
    let labels = [("app", "web"), ("tier", "3")];
    for selector in
        ["app=web", "app == web", "app in (db, web)", "app", "!gone", "gone!=x", "tier>2,tier<4", "gone notin (a)", ""]
    {
        assert!(selects(selector, &labels), "{selector}");
    }
    for selector in ["app=db", "app!=web", "app notin (web)", "gone", "!app", "tier>3", "gone in (a,b)", "app=web,gone"]
    {
        assert!(!selects(selector, &labels), "{selector}");
    }
}

#[test]
fn an_absent_label_is_not_an_empty_one() {
    assert!(selects("app=", &[("app", "")]));
    assert!(!selects("app=", &[]));
}

#[test]
fn what_cannot_be_read_is_refused() {
    for selector in
        ["a b", "a in b", "a in (b", "=x", "a=b=c", "a,,b", "a,", "a>x", "a/b/c=d", "a=bad value", "!", "a in"]
    {
        assert!(LabelSelector::parse(selector).is_err(), "{selector}");
    }
}

#[test]
fn fields_are_compared_with_escapes() {
    let selector = FieldSelector::parse("spec.nodeName=a\\,b,status.phase!=Failed").unwrap();
    let read: Vec<_> =
        selector.requirements.iter().map(|one| (one.field.as_str(), one.value.as_str(), one.equal)).collect();
    assert_eq!(read, [("spec.nodeName", "a,b", true), ("status.phase", "Failed", false)]);
    assert!(FieldSelector::parse("metadata.name").is_err());
    assert!(FieldSelector::parse("a=b\\x").is_err());
}

/// A selector as data, to print and to judge without the parser.
#[derive(Clone, Debug)]
enum Term {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Is(String, String),
    Not(String, String),
    Has(String),
    Lacks(String),
}

fn term() -> impl Strategy<Value = Term> {
    let key = || "[ab]/?[ab]".prop_filter("a key", |key| crate::names::qualified_name(key).is_empty());
    let value = || "[xy]{0,1}";
    let values = || prop::collection::vec("[xy]{1,2}", 1..3);
    prop_oneof![
        (key(), values()).prop_map(|(key, values)| Term::In(key, values)),
        (key(), values()).prop_map(|(key, values)| Term::NotIn(key, values)),
        (key(), value()).prop_map(|(key, value)| Term::Is(key, value)),
        (key(), value()).prop_map(|(key, value)| Term::Not(key, value)),
        key().prop_map(Term::Has),
        key().prop_map(Term::Lacks),
    ]
}

fn print(term: &Term, space: &str) -> String {
    match term {
        Term::In(key, values) => {
            format!("{key}{space} in{space} ({space}{}{space})", values.join(&format!("{space},")))
        }
        Term::NotIn(key, values) => format!("{key} notin {space}({})", values.join(",")),
        Term::Is(key, value) => format!("{key}{space}={space}{value}"),
        Term::Not(key, value) => format!("{key}{space}!={space}{value}"),
        Term::Has(key) => key.clone(),
        Term::Lacks(key) => format!("!{space}{key}"),
    }
}

fn holds(term: &Term, labels: &BTreeMap<String, String>) -> bool {
    match term {
        Term::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
        Term::NotIn(key, values) => !labels.get(key).is_some_and(|value| values.contains(value)),
        Term::Is(key, value) => labels.get(key) == Some(value),
        Term::Not(key, value) => labels.get(key) != Some(value),
        Term::Has(key) => labels.contains_key(key),
        Term::Lacks(key) => !labels.contains_key(key),
    }
}

proptest! {
    #[test]
    fn a_printed_selector_is_read_as_meant(
        terms in prop::collection::vec(term(), 0..4),
        space in prop::sample::select(vec!["", " ", "  "]),
        labels in prop::collection::btree_map("[ab]/?[ab]", "[xy]{0,2}", 0..4),
    ) {
        let text = terms.iter().map(|term| print(term, space)).collect::<Vec<_>>().join(",");
        let selector = LabelSelector::parse(&text).map_err(TestCaseError::fail)?;
        let expected = terms.iter().all(|term| holds(term, &labels));
        prop_assert_eq!(selector.matches(|key| labels.get(key).map(String::as_str)), expected, "{}", text);
    }

    #[test]
    fn no_text_makes_them_panic(text in "\\PC{0,30}") {
        let _ = LabelSelector::parse(&text);
        let _ = FieldSelector::parse(&text);
    }
}
