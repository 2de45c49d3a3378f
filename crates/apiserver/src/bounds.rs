//! What a value may be, wherever it comes from: how deep, how large, and how much of it an answer repeats.
//!
//! Everything that walks a value does so by recursion, and the parser of every client gives up at some depth. Hence one
//! limit, checked where values enter: bodies, results of patches, defaults. What is stored is never deeper than that.

use std::borrow::Cow;
use std::io;

use serde_json::Value;

/// Objects and lists within each other. Parsers commonly read 128 levels: the rest is for what is wrapped around an object
/// in lists, watches, tables and reviews.
pub(crate) const DEEPEST: usize = structural::DEEPEST;
/// The same of what is in the store: it may be from before there was a limit. What is deeper, nobody can read.
pub(crate) const DEEPEST_READ: usize = 120;
/// Bytes of a request's body, and of whatever is made of it before it is checked.
pub(crate) const LARGEST_BODY: usize = 3 << 20;
/// Steps of a path that a definition names. None that is longer leads to anything that an object may have.
pub(crate) const MOST_STEPS: usize = 64;
/// Columns of one version of a definition: more than fit on any screen.
pub(crate) const MOST_COLUMNS: usize = 100;
/// Fields of one version that can be selected by, as Kubernetes has it: of each object their texts are kept apart.
pub(crate) const MOST_SELECTABLE: usize = 8;
/// Problems that one answer tells, as errors or as warnings. Nobody mends more at a time.
pub(crate) const MOST_TOLD: usize = 100;
/// Bytes that one problem may repeat of what the client sent.
pub(crate) const LONGEST_TOLD: usize = 4 << 10;

/// What a value comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Bytes of its text, roughly: never more than there are.
    pub(crate) bytes: usize,
    /// Objects and lists within each other, itself included.
    pub(crate) depth: usize,
}

/// Measures a value, without recursion: it may be of any depth.
pub(crate) fn measure(value: &Value) -> Measure {
    let mut all = Measure::default();
    let mut left = vec![(value, 0)];
    while let Some((value, above)) = left.pop() {
        match value {
            Value::Array(items) => {
                all.depth = all.depth.max(above + 1);
                all.bytes += 2;
                left.extend(items.iter().map(|item| (item, above + 1)));
            }
            Value::Object(map) => {
                all.depth = all.depth.max(above + 1);
                all.bytes += 2;
                for (key, value) in map {
                    all.bytes += key.len() + 3;
                    left.push((value, above + 1));
                }
            }
            Value::String(text) => all.bytes += text.len() + 2,
            Value::Null | Value::Bool(_) | Value::Number(_) => all.bytes += 1,
        }
    }
    all
}

/// How deep a value is.
pub(crate) fn depth(value: &Value) -> usize {
    measure(value).depth
}

/// How deep a text of JSON is, whether or not anything could read it.
pub(crate) fn depth_of_text(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A text as far as an answer repeats it.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    cut_at(text, LONGEST_TOLD)
}

/// A text's first bytes, and a sign that there were more.
pub(crate) fn cut_at(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", text.get(..end).unwrap_or_default()).into()
}

/// A value's text as far as an answer repeats it.
pub(crate) fn shown(value: &Value) -> String {
    shown_at(value, LONGEST_TOLD)
}

/// The first bytes of a value's text, and a sign that there were more. No more of it is made than that.
pub(crate) fn shown_at(value: &Value, most: usize) -> String {
    struct Start {
        text: Vec<u8>,
        most: usize,
    }
    impl io::Write for Start {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.text.len() > self.most {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut start = Start { text: Vec::new(), most };
    // It fails where there is more than is shown.
    drop(serde_json::to_writer(&mut start, value));
    cut_at(&String::from_utf8_lossy(&start.text), most).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn depth_is_what_is_within_what() {
        assert_eq!((depth(&json!(1)), depth(&json!({})), depth(&json!({ "a": [1] }))), (0, 1, 2));
        assert_eq!(depth_of_text(br#"{"a":["]}{\"[",{}]}"#), 3);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = "\u{e9}".repeat(LONGEST_TOLD);
        assert!(cut(&long).len() <= LONGEST_TOLD + 3 && cut(&long).ends_with("..."));
        assert!(shown(&json!([long])).len() <= LONGEST_TOLD + 3);
        assert_eq!(shown(&json!({ "a": 1 })), "{\"a\":1}");
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), "\\PC{0,6}".prop_map(Value::from)];
        leaf.prop_recursive(5, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_and_its_text_are_equally_deep(value in any_value()) {
            let text = value.to_string();
            prop_assert_eq!(depth(&value), depth_of_text(text.as_bytes()));
            prop_assert!(measure(&value).bytes <= text.len() + 1);
        }
    }
}
