//! QEMU's `key=value,key=value` syntax, safe against what users write.

use std::fmt::Write as _;

/// One option value under construction. A comma inside a value is doubled, which is how QEMU escapes it.
///
/// Values must be free of control characters; `Line::text` refuses those with the path of their field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyval(String);

impl Keyval {
    /// Begins with a value without a key, such as a backend's name.
    pub(crate) fn of(value: &str) -> Self {
        Self(escape(value))
    }

    /// Adds a pair.
    #[must_use]
    pub(crate) fn set(mut self, key: &str, value: impl AsRef<str>) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{key}={}", escape(value.as_ref()));
        self
    }

    /// Adds a pair if there is a value.
    #[must_use]
    pub(crate) fn set_some(self, key: &str, value: Option<impl AsRef<str>>) -> Self {
        match value {
            Some(value) => self.set(key, value),
            None => self,
        }
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// QEMU's own reading of the syntax, reduced to what matters here.
    fn read(option: &str) -> Vec<(String, String)> {
        let mut parts = vec![String::new()];
        let mut rest = option.chars().peekable();
        while let Some(c) = rest.next() {
            match (c, rest.peek()) {
                (',', Some(',')) => {
                    rest.next();
                    parts.last_mut().unwrap().push(',');
                }
                (',', _) => parts.push(String::new()),
                (c, _) => parts.last_mut().unwrap().push(c),
            }
        }
        parts.iter().map(|part| part.split_once('=').unwrap_or(("", part))).map(|(k, v)| (k.into(), v.into())).collect()
    }

    proptest! {
        #[test]
        fn no_value_can_add_or_change_an_option(first in "\\PC{1,20}", second in "\\PC{0,20}") {
            let option = Keyval::of("socket").set("path", &first).set("id", &second).into_string();
            let expected = [("", "socket"), ("path", &first), ("id", &second)].map(|(k, v)| (k.to_owned(), v.to_owned()));
            prop_assert_eq!(read(&option), expected);
        }
    }
}
