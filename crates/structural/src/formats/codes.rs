//! Identifiers, check digits, colours and encodings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) fn object_id(text: &str) -> bool {
    text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A UUID in any case; each dash may be left out. Versions 4 and 5 also fix the variant.
pub(super) fn uuid(text: &str, version: Option<char>) -> bool {
    let mut digits = Vec::with_capacity(32);
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        digits.extend(group.chars().map(|digit| digit.to_ascii_lowercase()));
        rest = after;
    }
    rest.is_empty()
        && digits.iter().all(char::is_ascii_hexdigit)
        && version.is_none_or(|version| digits.get(12) == Some(&version))
        && (!matches!(version, Some('4' | '5')) || matches!(digits.get(16), Some('8' | '9' | 'a' | 'b')))
}

pub(super) fn isbn10(text: &str) -> bool {
    let digits = without_separators(text);
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (index, digit) in digits.chars().enumerate() {
        let value = match digit.to_digit(10) {
            Some(value) => value,
            None if index == 9 && digit == 'X' => 10,
            None => return false,
        };
        sum += (u32::try_from(index).unwrap_or_default() + 1) * value;
    }
    sum % 11 == 0
}

pub(super) fn isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = without_separators(text).chars().map(|digit| digit.to_digit(10)).collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 13) else { return false };
    let sum: u32 =
        digits.iter().enumerate().map(|(index, digit)| if index % 2 == 0 { *digit } else { 3 * digit }).sum();
    sum.is_multiple_of(10)
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|character| !matches!(character, '-' | ' ')).collect()
}

/// A number of a known issuer whose check digit holds; what is no digit is skipped.
pub(super) fn credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|character| character.to_digit(10)).collect();
    let begins = |prefix: &[u32]| digits.starts_with(prefix);
    let second = digits.get(1).copied().unwrap_or_default();
    let third = digits.get(2).copied().unwrap_or_default();
    let known = match digits.len() {
        13 => begins(&[4]),
        14 => begins(&[3]) && (matches!(second, 6 | 8) || (second == 0 && third <= 5)),
        15 => begins(&[3, 4]) || begins(&[3, 7]) || begins(&[2, 1, 3, 1]) || begins(&[1, 8, 0, 0]),
        16 => {
            begins(&[4])
                || (begins(&[5]) && (1..=5).contains(&second))
                || begins(&[6, 0, 1, 1])
                || begins(&[6, 5])
                || begins(&[3, 5])
        }
        _ => false,
    };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, digit)| match (index % 2, digit * 2) {
            (0, _) => *digit,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    known && sum.is_multiple_of(10)
}

pub(super) fn ssn(text: &str) -> bool {
    let mut rest = text;
    for (index, length) in [3, 2, 4].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(['-', ' ']).unwrap_or(rest);
        }
        match rest.split_at_checked(length) {
            Some((group, after)) if group.bytes().all(|byte| byte.is_ascii_digit()) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

pub(super) fn hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(|part| part.trim_matches([' ', '\t', '\n'])).collect();
    parts.len() == 3
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u8>().is_ok())
}

pub(super) fn base64(text: &str) -> bool {
    STANDARD.decode(text).is_ok()
}
