//! The part of the registry protocol that a pull needs: manifests, blobs, and tokens.
//!
//! A registry answers 401 and says where to get a token; the token is asked for once and used for the whole pull.

mod challenge;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;
use serde::Deserialize;
use tokio::sync::Mutex;

use super::manifest::{self, MAX_MANIFEST};
use super::transfer::Blob;
use super::{Credentials, Digest, PullError, Registries};
use crate::image::{DOCKER_HUB, Reference};
use challenge::Challenge;

/// Docker Hub's name is not its address.
const DOCKER_HUB_ADDRESS: &str = "registry-1.docker.io";
/// A host that does not take the connection by then is down.
const CONNECT: Duration = Duration::from_secs(15);
/// A transfer that stands still this long has stopped. There is no limit on the whole: disks are large.
const STALL: Duration = Duration::from_secs(60);
/// Registries hand blobs over to a store, some with a detour.
const MAX_REDIRECTS: usize = 5;
/// Tokens have some kilobytes.
const MAX_TOKEN: usize = 64 << 10;

/// Why a registry did not give what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The TLS library could not be set up, such as without any root certificate.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
    /// The connection failed, or broke.
    #[error("talk to {host}")]
    Http { host: String, source: reqwest::Error },
    /// There is no such image, or it is not shown to this user.
    #[error("{host} has no such image")]
    NotFound {
        /// Who says so.
        host: String,
    },
    /// It wants other credentials, or none help.
    #[error("{host} denied access ({status}); check its credentials")]
    Denied {
        /// Who says so.
        host: String,
        /// 401 or 403.
        status: StatusCode,
    },
    /// It failed, or is busy.
    #[error("{host} answered with status {status}")]
    Status {
        host: String,
        /// What it answered.
        status: StatusCode,
    },
    /// It sends so little that the image would never be complete.
    #[error("{host} sent less than a kilobyte per second")]
    Slow { host: String },
    /// Its answer makes no sense.
    #[error("{host} answered with {problem}")]
    Answer { host: String, problem: &'static str },
}

impl RegistryError {
    /// Addresses are left out: those of stores carry signatures that open them.
    pub(super) fn http(host: &str, source: reqwest::Error) -> Self {
        Self::Http { host: host.to_owned(), source: source.without_url() }
    }

    /// Whether asking again later can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Http { .. } | Self::Slow { .. } => true,
            Self::Status { status, .. } => {
                status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
            Self::Tls(_) | Self::NotFound { .. } | Self::Denied { .. } | Self::Answer { .. } => false,
        }
    }
}

/// One host that is asked for one repository.
pub(super) struct Session {
    client: Client,
    host: String,
    /// Ends in the repository's name.
    base: String,
    credentials: Option<Credentials>,
    insecure: Arc<BTreeSet<String>>,
    /// What was sent along with the last request that was let in.
    authorization: Mutex<Option<HeaderValue>>,
}

/// Mirrors first, the registry itself last.
pub(super) fn sessions(host: &str, repository: &str, registries: &Registries) -> Result<Vec<Session>, RegistryError> {
    let insecure = Arc::new(registries.insecure().clone());
    let client = client(Arc::clone(&insecure), registries.root_certificates())?;
    let mirrors = registries.mirrors_of(host).iter().map(|mirror| match mirror.split_once('/') {
        Some((host, prefix)) => (host, format!("{}/{repository}", prefix.trim_matches('/'))),
        None => (mirror.as_str(), repository.to_owned()),
    });
    let own = std::iter::once((host, repository.to_owned()));
    Ok(mirrors
        .chain(own)
        .map(|(host, repository)| {
            let address = if host == DOCKER_HUB { DOCKER_HUB_ADDRESS } else { host };
            let scheme = if insecure.contains(host) { "http" } else { "https" };
            Session {
                client: client.clone(),
                base: format!("{scheme}://{address}/v2/{repository}"),
                credentials: registries.credentials_for(host, &repository).cloned(),
                host: host.to_owned(),
                insecure: Arc::clone(&insecure),
                authorization: Mutex::new(None),
            }
        })
        .collect())
}

/// rustls with ring, named here so that no other part of the process has to choose a default.
fn client(insecure: Arc<BTreeSet<String>>, roots: &[CertificateDer<'static>]) -> Result<Client, RegistryError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new_with_extra_roots(roots.iter().cloned(), Arc::clone(&provider));
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(RegistryError::Tls)?
        // Not less safe than the usual way in: it is the system's own verifier, with the roots that were added.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier.map_err(RegistryError::Tls)?))
        .with_no_client_auth();
    let redirects = reqwest::redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error("too many redirects")
        } else if !may_ask(attempt.url(), &insecure) {
            attempt.error("a redirect to plain HTTP")
        } else {
            attempt.follow()
        }
    });
    Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("orlop/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .read_timeout(STALL)
        .redirect(redirects)
        .build()
        .map_err(|source| RegistryError::http("any registry", source))
}

/// HTTPS always, plain HTTP only for the hosts that were named.
fn may_ask(url: &Url, insecure: &BTreeSet<String>) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && insecure.contains(url.authority()))
}

/// The manifest with that tag or digest; its bytes are not checked yet.
pub(super) async fn manifest(sessions: &[Session], reference: &Reference, name: &str) -> Result<Vec<u8>, PullError> {
    let mut attempts = Attempts::new(reference);
    for session in sessions {
        match session.manifest(name).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) => attempts.failed(error),
        }
    }
    Err(attempts.over())
}

/// Opens a blob; its bytes are not checked yet.
pub(super) async fn blob(sessions: &[Session], reference: &Reference, digest: Digest) -> Result<Blob, PullError> {
    let mut attempts = Attempts::new(reference);
    for session in sessions {
        match session.get(&format!("blobs/{digest}"), None).await {
            Ok(response) => return Ok(Blob::response(response, &session.host)),
            Err(error) => attempts.failed(error),
        }
    }
    Err(attempts.over())
}

/// What was said by the hosts that were asked one after the other. The registry itself comes last, so that what it
/// said is the error to show.
struct Attempts<'a> {
    reference: &'a Reference,
    last: Option<RegistryError>,
}

impl<'a> Attempts<'a> {
    fn new(reference: &'a Reference) -> Self {
        Self { reference, last: None }
    }

    fn failed(&mut self, error: RegistryError) {
        self.last = Some(error);
    }

    fn over(self) -> PullError {
        let image = self.reference.to_string();
        self.last.map_or(PullError::Interrupted, |source| PullError::Registry { image, source })
    }
}

async fn body(mut response: Response, host: &str, limit: usize) -> Result<Vec<u8>, RegistryError> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|source| RegistryError::http(host, source))? {
        if bytes.len() + piece.len() > limit {
            return Err(RegistryError::Answer { host: host.to_owned(), problem: "more data than expected" });
        }
        bytes.extend(piece);
    }
    Ok(bytes)
}

impl Session {
    async fn manifest(&self, name: &str) -> Result<Vec<u8>, RegistryError> {
        let response = self.get(&format!("manifests/{name}"), Some(manifest::ACCEPT)).await?;
        body(response, &self.host, MAX_MANIFEST).await
    }

    async fn get(&self, path: &str, accept: Option<&'static str>) -> Result<Response, RegistryError> {
        let mut authorization = self.authorization.lock().await;
        let mut response = self.send(path, accept, authorization.as_ref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            // An old token may have run out during a long pull, so that a new one is asked for in any case, once.
            let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok());
            if let Some(challenge) = challenge::choose(challenges) {
                let header = self.answer(&challenge).await?;
                response = self.send(path, accept, Some(&header)).await?;
                *authorization = Some(header);
            }
        }
        self.checked(response)
    }

    async fn send(
        &self,
        path: &str,
        accept: Option<&'static str>,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response, RegistryError> {
        let mut request = self.client.get(format!("{}/{path}", self.base));
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.send().await.map_err(|source| RegistryError::http(&self.host, source))
    }

    fn checked(&self, response: Response) -> Result<Response, RegistryError> {
        let host = self.host.clone();
        match response.status() {
            status if status == StatusCode::OK => Ok(response),
            StatusCode::NOT_FOUND => Err(RegistryError::NotFound { host }),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(RegistryError::Denied { host, status }),
            status => Err(RegistryError::Status { host, status }),
        }
    }

    /// What to send along with the next request.
    async fn answer(&self, challenge: &Challenge) -> Result<HeaderValue, RegistryError> {
        let problem = |problem| RegistryError::Answer { host: self.host.clone(), problem };
        match challenge {
            Challenge::Basic => {
                let credentials = self.credentials.as_ref();
                let denied = || RegistryError::Denied { host: self.host.clone(), status: StatusCode::UNAUTHORIZED };
                challenge::basic(credentials.ok_or_else(denied)?).ok_or_else(|| problem("a header that cannot be sent"))
            }
            Challenge::Bearer(parameters) => {
                let url = parameters.url().ok_or_else(|| problem("an authentication challenge without a realm"))?;
                if !may_ask(&url, &self.insecure) {
                    return Err(problem("a token server that does not use HTTPS"));
                }
                let token = self.token(url).await?;
                challenge::bearer(&token).ok_or_else(|| problem("a token that cannot be sent"))
            }
        }
    }

    async fn token(&self, url: Url) -> Result<String, RegistryError> {
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }

        let mut request = self.client.get(url);
        if let Some(credentials) = &self.credentials {
            request = request.basic_auth(&credentials.user, Some(&credentials.password));
        }
        let response = request.send().await.map_err(|source| RegistryError::http(&self.host, source))?;
        let bytes = body(self.checked(response)?, &self.host, MAX_TOKEN).await?;
        let answer: Option<Answer> = serde_json::from_slice(&bytes).ok();
        let token = answer.and_then(|answer| answer.token.or(answer.access_token));
        token.ok_or(RegistryError::Answer { host: self.host.clone(), problem: "no token" })
    }
}
