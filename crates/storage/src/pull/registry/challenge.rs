//! `WWW-Authenticate`: what a registry wants to see first.

use std::collections::BTreeMap;

use base64::Engine;
use reqwest::Url;
use reqwest::header::HeaderValue;

use super::super::Credentials;

/// What is wanted.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Challenge {
    /// Name and password with every request.
    Basic,
    /// A token that another server gives out.
    Bearer(Parameters),
}

/// `realm`, `service`, `scope`, and whatever else.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Where to get a token.
    pub(super) fn url(&self) -> Option<Url> {
        let mut url = Url::parse(self.0.get("realm")?).ok()?;
        for key in ["service", "scope"] {
            if let Some(value) = self.0.get(key) {
                url.query_pairs_mut().append_pair(key, value);
            }
        }
        Some(url)
    }
}

/// A token before a password, if the registry leaves the choice.
pub(super) fn choose<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = None;
    for header in headers {
        match parse(header) {
            Some(Challenge::Basic) => basic = Some(Challenge::Basic),
            Some(bearer) => return Some(bearer),
            None => {}
        }
    }
    basic
}

/// One challenge per header, as registries send them: `Bearer realm="https://...",service="..."`.
fn parse(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    match scheme.to_ascii_lowercase().as_str() {
        "basic" => Some(Challenge::Basic),
        "bearer" => Some(Challenge::Bearer(parameters(rest)?)),
        _ => None,
    }
}

fn parameters(mut rest: &str) -> Option<Parameters> {
    let mut found = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([' ', ',', '\t']);
        if rest.is_empty() {
            return Some(Parameters(found));
        }
        let (key, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            // Quoted values may hold commas: a scope is `repository:NAME:pull,push`.
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        rest = after;
    }
}

pub(super) fn basic(credentials: &Credentials) -> Option<HeaderValue> {
    let pair = format!("{}:{}", credentials.user, credentials.password);
    secret(&format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)))
}

pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    secret(&format!("Bearer {token}"))
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn docker_hubs_challenge_is_understood() {
        let header = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/debian:pull,push""#;
        let Some(Challenge::Bearer(parameters)) = choose(["Basic realm=x", header].into_iter()) else {
            panic!("no token is asked for")
        };
        assert_eq!(
            parameters.url().unwrap().as_str(),
            "https://auth.docker.io/token?service=registry.docker.io&scope=repository%3Alibrary%2Fdebian%3Apull%2Cpush"
        );
    }

    #[test]
    fn unknown_schemes_and_broken_parameters_are_left_alone() {
        assert_eq!(choose([r#"Basic realm="Registry""#].into_iter()), Some(Challenge::Basic));
        for header in ["", "Negotiate", r#"Bearer realm="open"#, "Bearer realm"] {
            assert_eq!(choose([header].into_iter()), None, "{header}");
        }
        assert_eq!(Parameters::default().url(), None);
    }

    proptest! {
        #[test]
        fn no_header_makes_the_parser_panic(header in "(Bearer )?[ -~]{0,80}") {
            if let Some(Challenge::Bearer(parameters)) = parse(&header) {
                let _ = parameters.url();
            }
        }
    }
}
