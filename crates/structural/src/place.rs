//! Paths of values and schemas, as errors show them.

use std::fmt;

/// Bytes of a path that are told. Each value below one has a path of its own, and a name in it may be as long as a request.
const LONGEST: usize = 4096;

/// The path of what is below another.
pub(crate) fn below(path: &str, step: fmt::Arguments<'_>) -> String {
    if path.len() >= LONGEST {
        return path.to_owned();
    }
    let mut whole = format!("{path}{step}");
    if whole.len() > LONGEST {
        let mut end = LONGEST;
        while !whole.is_char_boundary(end) {
            end -= 1;
        }
        whole.truncate(end);
        whole.push_str("...");
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_would_read_is_not_written_on() {
        assert_eq!(below("spec", format_args!(".{}", "a")), "spec.a");
        let long = below("spec", format_args!(".{}", "\u{e9}".repeat(LONGEST)));
        assert!(long.ends_with("...") && long.len() <= LONGEST + 3);
        assert_eq!(below(&long, format_args!("[{}]", 7)), long);
    }
}
