//! Who may download: whoever knows the token.

use std::hint::black_box;
use std::path::Path;

use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

use crate::TOKEN;

/// Longer than any token.
const LONGEST: u64 = 4 << 10;

/// Why it is not known whether a client may download.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("read the token")]
    Read(#[source] std::io::Error),
    #[error("the token is empty")]
    Empty,
}

/// Whether a request shows the token. An empty token is nobody's.
pub(crate) fn is_shown(token: &[u8], headers: &HeaderMap, uri: &Uri) -> Result<bool, TokenError> {
    if token.is_empty() {
        return Err(TokenError::Empty);
    }
    let of_header = headers.get(TOKEN).is_some_and(|shown| is_equal(shown.as_bytes(), token));
    let of_query = in_query(uri).is_some_and(|shown| is_equal(&shown, token));
    Ok(of_header | of_query)
}

/// The token in its file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TokenError> {
    use std::io::Read as _;
    let mut token = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut token));
    read.map_err(TokenError::Read)?;
    Ok(token)
}

fn in_query(uri: &Uri) -> Option<Vec<u8>> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let mut shown = pairs.filter(|(name, _)| name.eq_ignore_ascii_case(TOKEN)).map(|(_, value)| value);
    shown.next().map(|value| percent_decode_str(value).collect())
}

/// Takes as long whatever differs. How long a token is, is no secret.
fn is_equal(shown: &[u8], token: &[u8]) -> bool {
    let difference = shown.iter().zip(token).fold(0_u8, |all, (one, other)| black_box(all | (one ^ other)));
    shown.len() == token.len() && black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn shown(header: Option<&str>, uri: &str) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(TOKEN, HeaderValue::from_str(value).unwrap());
        }
        is_shown(b"s3cret", &headers, &uri.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_token_comes_in_a_header_or_in_the_query() {
        assert!(shown(Some("s3cret"), "/a"));
        assert!(shown(None, "/a?x-kubevirt-export-token=s3cret"));
        assert!(shown(None, "/a?b=c&x-kubevirt-export-token=s%33cret"));
        for (header, uri) in [
            (None, "/a"),
            (Some(""), "/a"),
            (Some("s3cre"), "/a"),
            (Some("s3crets"), "/a"),
            (None, "/a?token=s3cret"),
            (None, "/s3cret"),
        ] {
            assert!(!shown(header, uri), "{header:?} {uri}");
        }
    }

    #[test]
    fn an_empty_token_is_nobodys() {
        let none = is_shown(b"", &HeaderMap::new(), &"/?x-kubevirt-export-token=".parse().unwrap());
        assert!(matches!(none, Err(TokenError::Empty)));
    }

    proptest! {
        #[test]
        fn only_equal_tokens_are_equal(one: Vec<u8>, other: Vec<u8>) {
            prop_assert_eq!(is_equal(&one, &other), one == other);
            prop_assert!(is_equal(&one, &one));
        }
    }
}
