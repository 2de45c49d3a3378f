//! Who asks, and whether they may see a path.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::UserInfo;
use rustls::pki_types::CertificateDer;

use super::answer::{Answer, forbidden, unauthorized, unreviewed};
use super::reviews::{ReviewError, Reviews};
use crate::errors::chain;

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Members may see everything, as on the API server. So they see it also while there is none to ask.
const MASTERS: &str = "system:masters";

/// A path with a `*` that is not at its end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{path:?} may only have a * at the end")]
pub struct PathError {
    pub path: String,
}

/// Paths that everybody sees.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AlwaysAllowed {
    paths: BTreeSet<String>,
    prefixes: Vec<String>,
}

impl AlwaysAllowed {
    pub(super) fn parse<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<Self, PathError> {
        let mut all = Self::default();
        for full in paths {
            let path = full.strip_prefix('/').unwrap_or(full);
            match path.split_once('*') {
                None => drop(all.paths.insert(path.to_owned())),
                Some((prefix, "")) => all.prefixes.push(prefix.to_owned()),
                Some(_) => return Err(PathError { path: full.to_owned() }),
            }
        }
        Ok(all)
    }

    fn contains(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.paths.contains(path) || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

/// Lets pass who may.
pub(super) struct Guard {
    open: AlwaysAllowed,
    reviews: Option<Reviews>,
}

impl Guard {
    pub(super) fn new(open: AlwaysAllowed, reviews: Option<Reviews>) -> Self {
        Self { open, reviews }
    }

    /// Lets a request pass, or gives the answer that refuses it. `proven` is who a client certificate says it is; who has
    /// one is not asked for a token.
    pub(super) async fn pass(
        &self,
        proven: Option<&Arc<UserInfo>>,
        verb: &str,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), Answer> {
        // Not even a bad token is looked at: a probe must not hang on the API server.
        if self.open.contains(path) {
            return Ok(());
        }
        let who = match (proven, bearer(headers)) {
            (Some(proven), _) => proven.clone(),
            (None, Some(token)) => self.owner(token).await.map_err(|error| failed(&error))?.ok_or_else(unauthorized)?,
            (None, None) => Arc::new(anonymous()),
        };
        if self.may_see(&who, verb, path).await.map_err(|error| failed(&error))? {
            return Ok(());
        }
        Err(forbidden(who.username.as_deref().unwrap_or_default(), verb, path))
    }

    async fn owner(&self, token: &str) -> Result<Option<Arc<UserInfo>>, ReviewError> {
        let Some(reviews) = &self.reviews else { return Ok(None) };
        let owner = reviews.token(token).await?;
        Ok(owner.map(|owner| if has_group(&owner, AUTHENTICATED) { owner } else { known((*owner).clone()) }))
    }

    async fn may_see(&self, who: &UserInfo, verb: &str, path: &str) -> Result<bool, ReviewError> {
        if has_group(who, MASTERS) {
            return Ok(true);
        }
        let Some(reviews) = &self.reviews else { return Ok(false) };
        reviews.access(who, verb, path).await
    }
}

/// The subject of a certificate that an authority signed: CN is the user, each O a group.
pub(super) fn subject(certificate: &CertificateDer<'_>) -> Option<Arc<UserInfo>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok().filter(|name| !name.is_empty())?;
    let groups = parsed.subject().iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    let user = UserInfo { username: Some(name.to_owned()), groups: Some(groups.collect()), ..UserInfo::default() };
    Some(known(user))
}

fn failed(error: &ReviewError) -> Answer {
    tracing::warn!(error = chain(error), "cannot review a request");
    unreviewed()
}

fn has_group(who: &UserInfo, group: &str) -> bool {
    who.groups.iter().flatten().any(|has| has == group)
}

fn known(mut user: UserInfo) -> Arc<UserInfo> {
    if !has_group(&user, UNAUTHENTICATED) && !has_group(&user, AUTHENTICATED) {
        user.groups.get_or_insert_default().push(AUTHENTICATED.to_owned());
    }
    Arc::new(user)
}

fn anonymous() -> UserInfo {
    UserInfo {
        username: Some("system:anonymous".to_owned()),
        groups: Some(vec![UNAUTHENTICATED.to_owned()]),
        ..UserInfo::default()
    }
}

/// The token of a request. Another kind of proof is none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (kind, rest) = value.split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (kind.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_star_at_the_end_is_any_rest() {
        let allowed = AlwaysAllowed::parse(["/healthz", "/debug/*", "plain", "/pre*"]).unwrap();
        for path in ["/healthz", "/debug/", "/debug/a/b", "/plain", "/pre", "/prefix", "/pre/x"] {
            assert!(allowed.contains(path), "{path}");
        }
        for path in ["/", "", "/healthz/", "/healthz/ping", "/debug", "/plain/x", "//healthz", "/HEALTHZ"] {
            assert!(!allowed.contains(path), "{path}");
        }
        assert!(AlwaysAllowed::parse(["*"]).unwrap().contains("/anything"));
        assert!(AlwaysAllowed::parse(["/"]).unwrap().contains("/"));
        assert!(!AlwaysAllowed::parse([]).unwrap().contains("/"));
    }

    #[test]
    fn a_star_elsewhere_is_refused() {
        for path in ["/a/*/b", "/**", "/*a"] {
            assert_eq!(AlwaysAllowed::parse([path]), Err(PathError { path: path.to_owned() }));
        }
    }

    #[test]
    fn only_bearer_tokens_are_tokens() {
        let token = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token(" bearer abc def").as_deref(), Some("abc"));
        for value in ["Bearer", "Bearer ", "Basic abc", "abc", ""] {
            assert_eq!(token(value), None, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
