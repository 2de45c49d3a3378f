//! `$(NAME)` in commands, arguments and values.

/// Replaces `$(NAME)` by the variable's value. `$$` is a dollar sign that begins nothing; what names no variable stays as it is.
pub(in crate::agent) fn expand(text: &str, env: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        let name = after.strip_prefix('(').and_then(|inside| inside.find(')').map(|end| &inside[..end]));
        if let Some(more) = after.strip_prefix('$') {
            out.push('$');
            rest = more;
        } else if let Some(name) = name {
            match env.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => out.push_str(value),
                None => out.push_str(&rest[dollar..dollar + name.len() + 3]),
            }
            rest = &after[name.len() + 2..];
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn variables_are_replaced_and_all_else_stays() {
        let env = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())];
        for (text, expected) in [
            ("$(A)-$(A)", "1-1"),
            ("$(B)", "$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(C)", "$(C)"),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("$", "$"),
            ("ä$(A)ö", "ä1ö"),
        ] {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_without_dollars_is_itself(text in "[^$]*") {
            prop_assert_eq!(expand(&text, &[]), text);
        }

        #[test]
        fn doubled_dollars_give_back_any_text(text in ".*") {
            let env = [("A".to_owned(), "1".to_owned())];
            prop_assert_eq!(expand(&text.replace('$', "$$"), &env), text);
        }
    }
}
