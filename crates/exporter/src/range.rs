//! The part of a file that a client asks for.

/// What is sent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// From one byte to another, which is sent as well.
    Some { first: u64, last: u64 },
    /// Nothing of it is in the file.
    Outside,
}

/// Reads a `Range` header. What is not understood is ignored, and so are several ranges in one request, as HTTP allows.
pub(crate) fn parse(header: &str, length: u64) -> Part {
    let Some(range) = header.trim().strip_prefix("bytes=") else { return Part::Whole };
    let Some((first, last)) = range.trim().split_once('-') else { return Part::Whole };
    match (number(first), number(last)) {
        (Some(Some(first)), Some(last)) => {
            if last.is_some_and(|last| last < first) {
                return Part::Whole;
            }
            let end = length.saturating_sub(1);
            if first >= length { Part::Outside } else { Part::Some { first, last: last.unwrap_or(end).min(end) } }
        }
        // The last bytes.
        (Some(None), Some(Some(count))) => match (count, length) {
            (0, _) | (_, 0) => Part::Outside,
            _ => Part::Some { first: length.saturating_sub(count), last: length - 1 },
        },
        _ => Part::Whole,
    }
}

/// None of what is not a number; none inside of nothing at all.
fn number(text: &str) -> Option<Option<u64>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that is too large is beyond every file.
    digits.then(|| Some(text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_range_is_cut_to_the_file_and_what_is_not_understood_is_ignored() {
        let some = |first, last| Part::Some { first, last };
        for (header, part) in [
            ("bytes=0-0", some(0, 0)),
            ("bytes=2-5", some(2, 5)),
            ("bytes=2-", some(2, 9)),
            ("bytes=2-100", some(2, 9)),
            ("bytes=2-99999999999999999999999", some(2, 9)),
            ("bytes=-3", some(7, 9)),
            ("bytes=-100", some(0, 9)),
            ("bytes=-0", Part::Outside),
            ("bytes=10-", Part::Outside),
            ("bytes=99999999999999999999999-", Part::Outside),
            ("bytes=5-2", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("", Part::Whole),
        ] {
            assert_eq!(parse(header, 10), part, "{header}");
        }
        assert_eq!(parse("bytes=0-", 0), Part::Outside);
        assert_eq!(parse("bytes=-1", 0), Part::Outside);
    }

    proptest! {
        #[test]
        fn a_part_is_within_the_file(header in "bytes=[0-9]{0,21}-[0-9]{0,21}|.{0,20}", length: u64) {
            if let Part::Some { first, last } = parse(&header, length) {
                prop_assert!(first <= last && last < length);
            }
        }
    }
}
