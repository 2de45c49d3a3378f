//! A download that goes on where it was when a connection breaks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE,
};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::Verifier;
use storage::pull::Pace;
use tokio::time::{Instant, sleep};

use crate::reach::Refused as Unresolved;
use crate::{ImportError, Reach, Web};

/// A host that does not take the connection by then is down.
const CONNECT: Duration = Duration::from_secs(15);
/// A transfer that stands still this long has stopped.
const STALL: Duration = Duration::from_secs(60);
/// Download sites send to mirrors, some with a detour.
const MAX_REDIRECTS: usize = 5;
/// How often a connection may break without a mebibyte in between.
const MOST_FAILURES: u32 = 5;
/// What counts as getting on.
const GETTING_ON: u64 = 1 << 20;
/// How long to wait before the next connection, times the failures so far.
const WAIT: Duration = Duration::from_secs(1);

/// A file that is on its way.
pub(crate) struct Download {
    client: Client,
    url: Url,
    host: String,
    headers: HeaderMap,
    credentials: Option<storage::pull::Credentials>,
    refused: Unresolved,
    response: Option<Response>,
    received: u64,
    total: Option<u64>,
    limit: u64,
    /// What says that the file is still the same one.
    validator: Option<HeaderValue>,
    pace: Pace,
    failures: u32,
    /// How much had come when the connection last broke.
    broken_at: u64,
}

impl Download {
    /// Asks for a file of at most so many bytes.
    pub(crate) async fn open(web: &Web, limit: u64) -> Result<Self, ImportError> {
        let refused = || ImportError::Url { url: without_password(&web.url) };
        let mut url = Url::parse(&web.url).map_err(|_| refused())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(refused());
        }
        web.reach.check(&url)?;
        let mut credentials = web.credentials.clone();
        if !url.username().is_empty() {
            let (user, password) = (url.username().to_owned(), url.password().unwrap_or_default().to_owned());
            credentials.get_or_insert(storage::pull::Credentials { user, password });
            // What has a host can be without a user.
            let _ = (url.set_username(""), url.set_password(None));
        }
        let refused = Unresolved::default();
        let mut this = Self {
            client: client(web, &refused)?,
            refused,
            host: url.host_str().unwrap_or_default().to_owned(),
            url,
            headers: headers(&web.headers)?,
            credentials,
            response: None,
            received: 0,
            total: None,
            limit,
            validator: None,
            pace: Pace::default(),
            failures: 0,
            broken_at: 0,
        };
        while let Err(error) = this.connect().await {
            this.broke(error).await?;
        }
        Ok(this)
    }

    /// How many bytes have come.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// How many bytes the server says there are.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    /// The next bytes; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ImportError> {
        loop {
            let Some(response) = &mut self.response else {
                if let Err(error) = self.connect().await {
                    self.broke(error).await?;
                }
                continue;
            };
            let asked = Instant::now();
            let piece = match response.chunk().await {
                Ok(piece) => piece,
                Err(source) => {
                    let error = self.http(source);
                    self.broke(error).await?;
                    continue;
                }
            };
            let Some(piece) = piece else {
                match self.total {
                    Some(total) if self.received < total => {
                        let error = ImportError::Broken { host: self.host.clone(), received: self.received };
                        self.broke(error).await?;
                        continue;
                    }
                    _ => return Ok(None),
                }
            };
            self.received = self.received.saturating_add(piece.len() as u64);
            if self.received > self.limit {
                return Err(ImportError::TooLarge { what: "the file", limit: self.limit });
            }
            if !self.pace.keeps_up(asked.elapsed(), piece.len() as u64) {
                return Err(ImportError::Slow { host: self.host.clone() });
            }
            return Ok(Some(piece));
        }
    }

    /// Waits before the next attempt, if there is to be one.
    async fn broke(&mut self, error: ImportError) -> Result<(), ImportError> {
        self.response = None;
        if error.is_final() {
            return Err(error);
        }
        if self.received >= self.broken_at.saturating_add(GETTING_ON) {
            self.failures = 0;
        }
        self.broken_at = self.received;
        self.failures += 1;
        if self.failures > MOST_FAILURES {
            return Err(error);
        }
        sleep(WAIT * self.failures).await;
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), ImportError> {
        let mut request = self.client.get(self.url.clone()).headers(self.headers.clone());
        if let Some(credentials) = &self.credentials {
            request = request.basic_auth(&credentials.user, Some(&credentials.password));
        }
        let mut response = self.ask(request).await?;
        for _ in 0..MAX_REDIRECTS {
            let Some(elsewhere) = elsewhere(&response) else { break };
            response = self.ask(self.client.get(elsewhere)).await?;
        }
        if elsewhere(&response).is_some() {
            return Err(ImportError::Redirect { problem: "too often".to_owned() });
        }
        self.check(&response)?;
        self.response = Some(response);
        Ok(())
    }

    /// Asks for what has not come yet.
    async fn ask(&self, request: RequestBuilder) -> Result<Response, ImportError> {
        let mut request = request.header(ACCEPT_ENCODING, "identity");
        if self.received > 0 {
            let broken = || ImportError::Broken { host: self.host.clone(), received: self.received };
            // Without one, nobody could say whether the rest is that of the same file.
            let validator = self.validator.clone().ok_or_else(broken)?;
            request = request.header(RANGE, format!("bytes={}-", self.received)).header(IF_RANGE, validator);
        }
        request.send().await.map_err(|source| self.http(source))
    }

    fn check(&mut self, response: &Response) -> Result<(), ImportError> {
        let host = || self.host.clone();
        match response.status() {
            StatusCode::OK if self.received == 0 => {
                self.total = response.content_length();
                if self.total.is_some_and(|total| total > self.limit) {
                    return Err(ImportError::TooLarge { what: "the file", limit: self.limit });
                }
                let strong = response.headers().get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
                self.validator = strong.or_else(|| response.headers().get(LAST_MODIFIED)).cloned();
                Ok(())
            }
            StatusCode::PARTIAL_CONTENT if self.received > 0 => {
                let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
                let begins = format!("bytes {}-", self.received);
                if range.is_some_and(|range| range.starts_with(&begins)) {
                    return Ok(());
                }
                Err(ImportError::Answer { host: host(), problem: "another range than the one that was asked for" })
            }
            // The file is another one now, or the server has no ranges.
            StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE if self.received > 0 => {
                self.failures = MOST_FAILURES;
                Err(ImportError::Broken { host: host(), received: self.received })
            }
            status => Err(ImportError::Status { host: host(), status }),
        }
    }

    /// What was refused on the way is told as such. Addresses are left out: they may carry signatures.
    fn http(&self, source: reqwest::Error) -> ImportError {
        if let Some(error) = self.refused.error() {
            return error;
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&source);
        while let Some(error) = cause {
            if let Some(ImportError::Forbidden { host, address }) = error.downcast_ref() {
                return ImportError::Forbidden { host: host.clone(), address: *address };
            }
            if let Some(Refused(problem)) = error.downcast_ref() {
                return ImportError::Redirect { problem: problem.clone() };
            }
            cause = error.source();
        }
        ImportError::Http { host: self.host.clone(), source: source.without_url() }
    }
}

/// Where a redirect leads that was allowed, and not followed with the headers of its request.
fn elsewhere(response: &Response) -> Option<Url> {
    let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    response.url().join(location.to_str().ok()?).ok()
}

/// Why a redirect is not followed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// Headers of the user's own are for the server that they were given for: what `carries` them is not sent on to another.
fn redirects(reach: Reach, carries: bool) -> Policy {
    Policy::custom(move |attempt: Attempt<'_>| {
        let was_secure = attempt.previous().first().is_some_and(|url| url.scheme() == "https");
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error(Refused("too often".to_owned()));
        }
        if was_secure && attempt.url().scheme() != "https" {
            return attempt.error(Refused("from HTTPS to plain HTTP".to_owned()));
        }
        match reach.check(attempt.url()) {
            Ok(())
                if carries
                    && attempt.previous().first().is_some_and(|first| first.origin() != attempt.url().origin()) =>
            {
                attempt.stop()
            }
            Ok(()) => attempt.follow(),
            Err(error) => attempt.error(error),
        }
    })
}

/// rustls with ring, named here so that no other part of the process has to choose a default.
fn client(web: &Web, refused: &Unresolved) -> Result<Client, ImportError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&web.certificates).collect();
    let roots = roots.map_err(|_| ImportError::Certificate)?;
    if roots.is_empty() && !web.certificates.is_empty() {
        return Err(ImportError::Certificate);
    }
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(ImportError::Tls)?;
    let tls = match Verifier::new_with_extra_roots(roots, provider) {
        // Not less safe than the usual way in: it is the system's own verifier, with the roots that were added.
        Ok(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth(),
        Err(error) if web.url.starts_with("https") => return Err(ImportError::Tls(error)),
        // A machine without root certificates: nobody is trusted, and plain HTTP needs nobody.
        Err(_) => builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
    };
    Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("orlop/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .read_timeout(STALL)
        .redirect(redirects(web.reach.clone(), !web.headers.is_empty()))
        .dns_resolver(web.reach.resolver(refused.clone()))
        .build()
        .map_err(|source| ImportError::Http { host: "any server".to_owned(), source })
}

fn headers(lines: &[String]) -> Result<HeaderMap, ImportError> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        // The value may be a secret.
        let refused = || ImportError::Header { name: name.chars().take(80).collect() };
        if value.is_empty() {
            return Err(refused());
        }
        let key: HeaderName = name.trim().parse().map_err(|_| refused())?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| refused())?;
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

fn without_password(url: &str) -> String {
    let mut shown: String = url.chars().take(200).collect();
    if let (Some(scheme), Some(at)) = (shown.find("://"), shown.rfind('@')) {
        shown.replace_range(scheme.saturating_add(3).min(at)..at, "...");
    }
    shown
}
