//! The registries that may be used, and their credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

use crate::image::{self, DOCKER_HUB};

/// The most bytes of a `config.json`; a Secret ends at 1 MiB.
const MAX_CONFIG: usize = 1 << 20;

/// Credentials, mirrors, and the hosts that may be talked to in the clear.
///
/// Without any entry every registry is asked by HTTPS and without a name.
#[derive(Clone, Debug, Default)]
pub struct Registries {
    /// By host, or by host and the beginning of a repository: `quay.io`, `quay.io/team`.
    credentials: BTreeMap<String, Credentials>,
    mirrors: BTreeMap<String, Vec<String>>,
    insecure: BTreeSet<String>,
    roots: Vec<CertificateDer<'static>>,
    /// Where directories with images may be; anywhere if nobody said.
    folders: Option<Vec<PathBuf>>,
}

/// Who asks.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// Password, or a token that stands for one.
    pub password: String,
}

/// Passwords stay out of logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why a setting was refused. No variant shows a secret.
#[derive(Debug, thiserror::Error)]
pub enum RegistriesError {
    /// It is no host.
    #[error("{0:?} is not a valid registry; use a host such as docker.io or registry.example:5000")]
    Host(String),
    /// The text is no `config.json`.
    #[error("malformed config.json: error at line {line}, column {column}")]
    Json {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// It is too long.
    #[error("config.json is too large: {0} bytes; the limit is {MAX_CONFIG}")]
    Size(usize),
    /// An entry cannot be used.
    #[error("auths[{host:?}]: expected auth to be USER:PASSWORD in base64, or username and password")]
    Auth { host: String },
    /// The text holds no certificate, or a broken one.
    #[error("expected one or more certificates in PEM")]
    Certificate,
    /// The passwords are with another program.
    #[error("the credential helper in {0} is not supported; put the passwords into auths instead")]
    Helper(&'static str),
}

impl Registries {
    /// Sets who asks a registry, or a part of it: `quay.io`, `quay.io/team`.
    ///
    /// # Errors
    /// When the host is none.
    pub fn set_credentials(&mut self, host: &str, credentials: Credentials) -> Result<(), RegistriesError> {
        let (name, _) = host.split_once('/').unwrap_or((host, ""));
        checked(name)?;
        self.credentials.insert(host.trim_end_matches('/').to_owned(), credentials);
        Ok(())
    }

    /// Sets the mirrors of a registry, `host` or `host/prefix` each, in the order in which they are tried. The
    /// registry itself comes last.
    ///
    /// # Errors
    /// When a host is none.
    pub fn set_mirrors(&mut self, host: &str, mirrors: Vec<String>) -> Result<(), RegistriesError> {
        checked(host)?;
        for mirror in &mirrors {
            checked(mirror.split_once('/').map_or(mirror.as_str(), |(name, _)| name))?;
        }
        self.mirrors.insert(host.to_owned(), mirrors);
        Ok(())
    }

    /// Allows images that are directories of this machine in these directories only: the process that reads them is root,
    /// and the user that names them may not be.
    pub fn allow_directories(&mut self, folders: Vec<PathBuf>) {
        self.folders = Some(folders);
    }

    /// Whether an image may be this directory, wherever links lead.
    pub(super) fn may_be(&self, folder: &Path) -> bool {
        let Some(allowed) = &self.folders else { return true };
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        real(folder).is_some_and(|folder| allowed.iter().filter_map(|one| real(one)).any(|one| folder.starts_with(one)))
    }

    /// Lets a host be asked by plain HTTP, and only so.
    ///
    /// # Errors
    /// When the host is none.
    pub fn set_insecure(&mut self, host: &str) -> Result<(), RegistriesError> {
        checked(host)?;
        self.insecure.insert(host.to_owned());
        Ok(())
    }

    /// Trusts these certificates, in PEM, beside those that the system trusts: those of a company's own registry.
    ///
    /// # Errors
    /// When there is none, or a broken one.
    pub fn add_root_certificates(&mut self, pem: &[u8]) -> Result<(), RegistriesError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let found = found.ok().filter(|found| !found.is_empty()).ok_or(RegistriesError::Certificate)?;
        self.roots.extend(found);
        Ok(())
    }

    /// Takes over the credentials of a Docker `config.json`, which is also what a pull secret holds.
    ///
    /// # Errors
    /// When it is malformed, or keeps its passwords elsewhere.
    pub fn add_docker_config(&mut self, json: &[u8]) -> Result<(), RegistriesError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Config {
            #[serde(default)]
            auths: BTreeMap<String, Auth>,
            #[serde(default)]
            creds_store: String,
            #[serde(default)]
            cred_helpers: BTreeMap<String, String>,
        }

        if json.len() > MAX_CONFIG {
            return Err(RegistriesError::Size(json.len()));
        }
        // The error's own text would quote the file, and with it a password.
        let config: Config = serde_json::from_slice(json)
            .map_err(|error| RegistriesError::Json { line: error.line(), column: error.column() })?;
        if !config.creds_store.is_empty() {
            return Err(RegistriesError::Helper("credsStore"));
        }
        if !config.cred_helpers.is_empty() {
            return Err(RegistriesError::Helper("credHelpers"));
        }
        for (key, auth) in config.auths {
            if let Some(credentials) = auth.credentials().ok_or(RegistriesError::Auth { host: key.clone() })? {
                self.set_credentials(&plain_key(&key), credentials)?;
            }
        }
        Ok(())
    }

    /// The most specific credentials for a repository.
    pub(super) fn credentials_for(&self, host: &str, repository: &str) -> Option<&Credentials> {
        let full = format!("{host}/{repository}");
        let mut key = full.as_str();
        loop {
            if let Some(credentials) = self.credentials.get(key) {
                return Some(credentials);
            }
            key = key.rsplit_once('/')?.0;
        }
    }

    pub(super) fn mirrors_of(&self, host: &str) -> &[String] {
        self.mirrors.get(host).map_or(&[], Vec::as_slice)
    }

    pub(super) fn root_certificates(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    pub(super) fn insecure(&self) -> &BTreeSet<String> {
        &self.insecure
    }
}

#[derive(Default, Deserialize)]
struct Auth {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

impl Auth {
    /// `None` if it is broken, `Some(None)` if it is empty, which `docker login` with a helper leaves behind.
    fn credentials(self) -> Option<Option<Credentials>> {
        if self.auth.is_empty() {
            let named = !self.username.is_empty();
            return Some(named.then_some(Credentials { user: self.username, password: self.password }));
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(self.auth.trim()).ok()?;
        let text = String::from_utf8(decoded).ok()?;
        let (user, password) = text.trim_end_matches('\0').split_once(':')?;
        Some(Some(Credentials { user: user.to_owned(), password: password.to_owned() }))
    }
}

/// Keys are hosts, hosts with a path, or addresses such as `https://index.docker.io/v1/`.
fn plain_key(key: &str) -> String {
    let key = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let key = key.trim_end_matches("/v1").trim_end_matches("/v2");
    match key.split_once('/').unwrap_or((key, "")) {
        ("index.docker.io" | "registry-1.docker.io", "") => DOCKER_HUB.to_owned(),
        ("index.docker.io" | "registry-1.docker.io", path) => format!("{DOCKER_HUB}/{path}"),
        _ => key.to_owned(),
    }
}

fn checked(host: &str) -> Result<(), RegistriesError> {
    if image::is_host(host) { Ok(()) } else { Err(RegistriesError::Host(host.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docker_config(json: &str) -> Result<Registries, RegistriesError> {
        let mut registries = Registries::default();
        registries.add_docker_config(json.as_bytes()).map(|()| registries)
    }

    #[test]
    fn the_most_specific_credentials_hold() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnA6dw=="},
            "quay.io": {"username": "all", "password": "x"},
            "quay.io/team": {"username": "team", "password": "y"},
            "http://r.example:5000": {"username": "old", "password": "z"},
            "left.by.helper": {}}}"#;
        let registries = docker_config(config).unwrap();
        let user = |host, repository| registries.credentials_for(host, repository).map(|it| it.user.as_str());
        assert_eq!(user("docker.io", "library/debian"), Some("hub"));
        assert_eq!(registries.credentials_for("docker.io", "a").unwrap().password, "p:w");
        assert_eq!(user("quay.io", "other/disk"), Some("all"));
        assert_eq!(user("quay.io", "team/disk"), Some("team"));
        assert_eq!(user("quay.io", "teams/disk"), Some("all"));
        assert_eq!(user("r.example:5000", "a"), Some("old"));
        assert_eq!(user("left.by.helper", "a"), None);
        assert_eq!(user("ghcr.io", "a"), None);
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_showing_it() {
        for (config, expected) in [
            (r#"{"auths": {"a.b": {"auth": "!secret!"}}}"#, r#"auths["a.b"]"#),
            (r#"{"auths": {"a.b": {"auth": "c2VjcmV0"}}}"#, "USER:PASSWORD"),
            (r#"{"auths": {"a b": {"auth": "YTpi"}}}"#, "not a valid registry"),
            (r#"{"auths": "secret"}"#, "line 1"),
            (r#"{"credsStore": "desktop"}"#, "credsStore"),
            (r#"{"credHelpers": {"gcr.io": "gcloud"}}"#, "credHelpers"),
        ] {
            let error = docker_config(config).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
        assert!(matches!(docker_config(&" ".repeat(MAX_CONFIG + 1)), Err(RegistriesError::Size(_))));
        let shown = format!("{:?}", docker_config(r#"{"auths": {"a.b": {"auth": "dTpoaWRkZW4="}}}"#).unwrap());
        assert!(shown.contains("\"u\"") && !shown.contains("hidden"), "{shown}");
    }

    #[test]
    fn hosts_and_certificates_are_checked() {
        let mut registries = Registries::default();
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        for pem in ["", "no certificate", broken] {
            assert!(matches!(registries.add_root_certificates(pem.as_bytes()), Err(RegistriesError::Certificate)));
        }
        assert!(registries.set_insecure("http://x").is_err());
        assert!(registries.set_mirrors("docker.io", vec!["mirror/prefix".to_owned(), "a b".to_owned()]).is_err());
        assert!(registries.set_mirrors("docker.io", vec!["mirror/prefix".to_owned()]).is_ok());
    }
}
