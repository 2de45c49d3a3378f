//! Who a request shows a token of: in the `Authorization` header, or, where a browser opens a WebSocket and can set no header,
//! as one of the protocols that it offers, in Kubernetes' way.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header};

use crate::status::Status;

/// What comes before the token in the name of the protocol.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token that a request shows, if it shows one.
///
/// # Guarantees
/// No header has the token of a WebSocket any more: nobody that the request is handed on to, and no log, gets to see it.
///
/// # Errors
/// When there are several of those, when it is not encoded as it should be, or when it is the only protocol: one of them has to
/// be answered with.
pub(super) fn take(headers: &mut HeaderMap) -> Result<Option<String>, Status> {
    let of_socket = take_protocol(headers)?;
    Ok(in_header(headers).map(str::to_owned).or(of_socket))
}

fn in_header(headers: &HeaderMap) -> Option<&str> {
    let proof = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (_, token) = proof.trim().split_once(' ').filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"))?;
    Some(token.trim()).filter(|token| !token.is_empty())
}

fn take_protocol(headers: &mut HeaderMap) -> Result<Option<String>, Status> {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let (tokens, others): (Vec<&str>, Vec<&str>) = offered.map(str::trim).partition(|name| name.starts_with(PREFIX));
    let Some(first) = tokens.first() else { return Ok(None) };
    let token = first.strip_prefix(PREFIX).unwrap_or_default();
    let decoded = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let is_alone = tokens.len() == 1;
    let rest = others.join(",");
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Ok(rest) = HeaderValue::from_str(&rest)
        && !rest.is_empty()
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, rest);
    }
    match decoded {
        Some(token) if is_alone && token.is_empty() => Ok(None),
        Some(token) if is_alone && headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) => Ok(Some(token)),
        _ => Err(Status::unauthorized()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(header::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn protocols(list: &[&str]) -> HeaderMap {
        let pairs: Vec<_> = list.iter().map(|value| (header::SEC_WEBSOCKET_PROTOCOL, *value)).collect();
        headers(&pairs)
    }

    #[test]
    fn a_token_among_protocols_is_taken_out_of_them() {
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode("to.k-e_n"));
        for offered in [
            vec![format!("{token}, plain.kubevirt.io")],
            vec![format!("plain.kubevirt.io,{token}")],
            vec![token.clone(), "plain.kubevirt.io".to_owned()],
        ] {
            let offered: Vec<&str> = offered.iter().map(String::as_str).collect();
            let mut headers = protocols(&offered);
            assert_eq!(take(&mut headers).unwrap().as_deref(), Some("to.k-e_n"), "{offered:?}");
            let left: Vec<_> = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().collect();
            assert_eq!(left, ["plain.kubevirt.io"], "{offered:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_and_stripped_all_the_same() {
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode("a"));
        let twice = format!("{token},{token},plain.kubevirt.io");
        let (garbled, binary) = (format!("{PREFIX}=!,x"), format!("{PREFIX}{},x", URL_SAFE_NO_PAD.encode([0xff])));
        for offered in [token.as_str(), &twice, &garbled, &binary] {
            let mut headers = protocols(&[offered]);
            assert_eq!(take(&mut headers).unwrap_err().code, 401, "{offered}");
            assert!(!format!("{headers:?}").contains(PREFIX), "{offered}");
        }
    }

    #[test]
    fn others_are_left_alone_and_the_header_comes_first() {
        let mut plain = protocols(&["plain.kubevirt.io", "v5.channel.k8s.io"]);
        let before = plain.clone();
        assert_eq!(take(&mut plain).unwrap(), None);
        assert_eq!(plain, before);
        let token = format!("{PREFIX}{},x", URL_SAFE_NO_PAD.encode("socket"));
        let mut both =
            headers(&[(header::AUTHORIZATION, "bearer  header "), (header::SEC_WEBSOCKET_PROTOCOL, token.as_str())]);
        assert_eq!(take(&mut both).unwrap().as_deref(), Some("header"));
        assert_eq!(take(&mut headers(&[(header::AUTHORIZATION, "Basic eA==")])).unwrap(), None);
    }
}
