//! Who asks, as Kubernetes' API server says: it stands in front, and vouches for others in headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use certificates::{CertificateError, tls};
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use manager::context::Chance;
use manager::watching::Patience;
use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use virt_api::subresources::Caller;

/// Where the cluster says who its front proxy is.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// What the cluster says of its front proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrontProxy {
    /// Who signs its certificate, as PEM. None, if there is no front proxy to believe.
    pub(crate) authorities: Option<String>,
    /// Names that its certificate may have; any, if there are none.
    names: Vec<String>,
    user_headers: Vec<String>,
    uid_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

/// Somebody who showed a certificate that an authority of the front proxy had signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The certificate's common name.
    name: String,
    /// The authorities that were believed then.
    by: Option<String>,
}

impl Shown {
    pub(crate) fn new(certificate: &CertificateDer<'_>, by: Option<String>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        Some(Self { name, by })
    }
}

impl FrontProxy {
    /// What the config map says. What cannot be read is not there, and then nobody is believed.
    pub(crate) fn of(map: Option<&ConfigMap>) -> Self {
        let text = |key: &str| map?.data.as_ref()?.get(key).filter(|text| !text.is_empty());
        let unreadable = |key: &str| {
            tracing::error!(config_map = NAME, key, "cannot read who the front proxy is, so nobody is trusted");
        };
        let list = |key: &str| match text(key).map(|text| serde_json::from_str::<Vec<String>>(text)) {
            None => Some(Vec::new()),
            Some(Ok(list)) => Some(list),
            Some(Err(_)) => {
                unreadable(key);
                None
            }
        };
        let authorities = text("requestheader-client-ca-file").filter(|text| match tls::roots(text) {
            Ok(_) => true,
            Err(_) => {
                unreadable("requestheader-client-ca-file");
                false
            }
        });
        let read = || {
            Some(Self {
                authorities: Some(authorities?.clone()),
                names: list("requestheader-allowed-names")?,
                user_headers: list("requestheader-username-headers")?,
                uid_headers: list("requestheader-uid-headers")?,
                group_headers: list("requestheader-group-headers")?,
                extra_prefixes: list("requestheader-extra-headers-prefix")?,
            })
        };
        read().unwrap_or_default()
    }

    /// How a handshake looks at certificates. Those who show none can still ask for what needs none.
    pub(crate) fn clients(&self) -> Result<tls::Clients, CertificateError> {
        match &self.authorities {
            None => Ok(tls::Clients::Any),
            Some(authorities) => tls::roots(authorities).map(tls::Clients::Known),
        }
    }

    /// Who asks, if it is the front proxy who says so.
    pub(crate) fn caller(&self, shown: Option<&Shown>, headers: &HeaderMap) -> Option<Caller> {
        let shown = shown?;
        // An authority that is not believed any more vouches for nobody, also on connections that are open.
        if self.authorities.is_none() || shown.by != self.authorities {
            return None;
        }
        if !self.names.is_empty() && !self.names.contains(&shown.name) {
            return None;
        }
        let user = first(headers, &self.user_headers)?;
        let groups = self.group_headers.iter().flat_map(|name| headers.get_all(name.as_str()));
        let groups = groups.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            if let (Some(key), Ok(value)) = (self.extra_key(name), value.to_str()) {
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
        Some(Caller { user, groups, uid: first(headers, &self.uid_headers).unwrap_or_default(), extra })
    }

    /// What a header says beyond name and groups. Names in HTTP have no upper case, and what they cannot have is encoded.
    fn extra_key(&self, header: &HeaderName) -> Option<String> {
        let prefixes = self.extra_prefixes.iter();
        let key = prefixes.filter_map(|prefix| header.as_str().strip_prefix(&prefix.to_ascii_lowercase())).next()?;
        Some(percent_decode_str(key).decode_utf8_lossy().into_owned())
    }
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    let mut values = names.iter().filter_map(|name| headers.get(name.as_str())?.to_str().ok());
    values.find(|value| !value.is_empty()).map(str::to_owned)
}

/// Follows what the cluster says, for ever. Before the first answer nobody is believed.
pub(crate) async fn follow(client: Client, chance: Chance, known: watch::Sender<Arc<FrontProxy>>, changed: impl Fn()) {
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mut events = watcher(api, config).backoff(Patience::new(chance)).boxed();
    let mut listed: Option<ConfigMap> = None;
    while let Some(event) = events.next().await {
        let map = match event {
            Ok(watcher::Event::Init) => {
                listed = None;
                continue;
            }
            Ok(watcher::Event::InitApply(map)) => {
                listed = Some(map);
                continue;
            }
            Ok(watcher::Event::InitDone) => listed.take(),
            Ok(watcher::Event::Apply(map)) => Some(map),
            Ok(watcher::Event::Delete(_)) => None,
            Err(error) => {
                tracing::warn!(%error, config_map = NAME, "cannot watch who the front proxy is");
                continue;
            }
        };
        let now = Arc::new(FrontProxy::of(map.as_ref()));
        let is_new = known.send_if_modified(|known| {
            let is_new = *known != now;
            *known = now;
            is_new
        });
        if is_new {
            changed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(names: &[&str]) -> FrontProxy {
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect();
        FrontProxy {
            authorities: Some("A".to_owned()),
            names: words(names),
            user_headers: words(&["X-Remote-User"]),
            uid_headers: words(&["X-Remote-Uid"]),
            group_headers: words(&["X-Remote-Group"]),
            extra_prefixes: words(&["X-Remote-Extra-"]),
        }
    }

    fn shown(name: &str, by: &str) -> Shown {
        Shown { name: name.to_owned(), by: Some(by.to_owned()) }
    }

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    /// | certificate      | allowed names | user header | believed |
    #[test]
    fn only_the_front_proxy_says_who_asks() {
        let anna = headers(&[("x-remote-user", "anna")]);
        let (right, other) = (shown("front", "A"), shown("other", "A"));
        for (certificate, names, headers, user) in [
            (Some(&right), &["front"][..], &anna, Some("anna")),
            (Some(&other), &[], &anna, Some("anna")),
            (Some(&other), &["front"], &anna, None),
            (Some(&shown("front", "B")), &["front"], &anna, None),
            (None, &[], &anna, None),
            (Some(&right), &["front"], &HeaderMap::new(), None),
        ] {
            let caller = proxy(names).caller(certificate, headers);
            assert_eq!(caller.map(|caller| caller.user).as_deref(), user, "{certificate:?} {names:?}");
        }
        assert_eq!(FrontProxy::default().caller(Some(&Shown { name: String::new(), by: None }), &anna), None);
    }

    #[test]
    fn groups_and_what_else_is_known_are_taken_from_their_headers() {
        let asked = headers(&[
            ("x-remote-user", "anna"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-scopes", "one"),
            ("x-remote-extra-scopes", "two"),
            ("x-remote-extra-acme.com%2fproject", "p"),
            ("x-other", "no"),
        ]);
        let caller = proxy(&[]).caller(Some(&shown("front", "A")), &asked).unwrap();
        assert_eq!(
            (caller.user.as_str(), caller.uid.as_str(), caller.groups),
            ("anna", "7", vec!["a".into(), "b".into()])
        );
        let extra: Vec<(&str, usize)> = caller.extra.iter().map(|(key, values)| (key.as_str(), values.len())).collect();
        assert_eq!(extra, [("acme.com/project", 1), ("scopes", 2)]);
    }

    #[test]
    fn a_config_map_that_cannot_be_read_lets_nobody_in() {
        let map = |list: &[(&str, &str)]| ConfigMap {
            data: Some(list.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()),
            ..ConfigMap::default()
        };
        assert_eq!(FrontProxy::of(None), FrontProxy::default());
        assert_eq!(FrontProxy::of(Some(&map(&[("requestheader-client-ca-file", "no PEM")]))), FrontProxy::default());
        let authority = certificates::self_signed(
            &certificates::Request::server("a", &["a"], &[]),
            None,
            jiff::Timestamp::UNIX_EPOCH,
            jiff::SignedDuration::from_hours(1),
        );
        let authority = authority.unwrap().certificate;
        let good = ("requestheader-client-ca-file", authority.as_str());
        let bad = ("requestheader-allowed-names", "front");
        assert_eq!(FrontProxy::of(Some(&map(&[good, bad]))), FrontProxy::default());
        let read = FrontProxy::of(Some(&map(&[good, ("requestheader-allowed-names", r#"["front"]"#)])));
        assert_eq!((read.authorities, read.names), (Some(authority.clone()), vec!["front".to_owned()]));
    }
}
