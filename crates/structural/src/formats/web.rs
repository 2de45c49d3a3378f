//! Names and addresses of the web.

use std::sync::OnceLock;

use regex::Regex;

/// A URI as Go's `url.ParseRequestURI` takes it: absolute, or a path from the root.
pub(crate) fn uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    let rest = match scheme(text) {
        Some(rest) => rest,
        None if text.starts_with('/') => text,
        None => return false,
    };
    escapes_hold(rest) && authority(rest).is_none_or(host_holds)
}

/// What follows the scheme, if there is one.
pub(crate) fn scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.chars();
    let first = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic());
    let others = letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'));
    (first && others).then_some(rest)
}

fn authority(rest: &str) -> Option<&str> {
    let rest = rest.strip_prefix("//")?;
    rest.split(['/', '?']).next()
}

/// No spaces, and a port that is a number.
fn host_holds(authority: &str) -> bool {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = match host.rfind(']') {
        Some(end) => host[end + 1..].strip_prefix(':'),
        None => host.rsplit_once(':').map(|(_, port)| port),
    };
    let characters = !host.contains([' ', '<', '>', '"', '^', '`', '{', '}', '|', '\\']);
    characters && port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Each `%` of the path has two hexadecimal digits.
fn escapes_hold(text: &str) -> bool {
    let path = text.split('?').next().unwrap_or(text);
    path.split('%')
        .skip(1)
        .all(|after| after.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

/// `a@b`, or a name before `<a@b>`.
pub(super) fn email(text: &str) -> bool {
    let address = match text.trim().strip_suffix('>') {
        Some(rest) => match rest.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
            && part
                .chars()
                .all(|letter| letter.is_alphanumeric() || ".!#$%&'*+-/=?^_`{|}~".contains(letter) || !letter.is_ascii())
    };
    let quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || plain(local)) && (literal || plain(domain))
}

/// The shape of a host name; letters and symbols of all scripts are taken, except in the last of several labels.
const HOSTNAME: &str = r"^(?:[a-zA-Z0-9\p{S}\p{L}](?:-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?|(?:[a-zA-Z0-9\p{S}\p{L}](?:[a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?\.)+[a-zA-Z\p{L}]{2,63})$";

pub(super) fn hostname(text: &str) -> bool {
    static REGEX: OnceLock<Option<Regex>> = OnceLock::new();
    let regex = REGEX.get_or_init(|| Regex::new(HOSTNAME).ok());
    text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
        && regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// Lower-case letters, digits, and dashes that are not at an end.
pub(crate) fn label(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
