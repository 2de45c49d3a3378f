//! What a kubeconfig says of one server: where it is, whom to trust, and who we are.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// A server and the identity to use there, as the current context has them.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    /// The server's URL.
    pub server: String,
    /// The certificates to trust, as PEM.
    pub authority: Vec<u8>,
    /// The client's certificates and its key, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// A bearer token.
    pub token: Option<String>,
}

impl Kubeconfig {
    /// Reads a file and resolves its current context.
    ///
    /// # Errors
    /// When it cannot be read, or lacks a part.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let file: File = serde_saphyr::from_str(text).context("no kubeconfig")?;
        let context = find(file.contexts, &file.current_context).context("no current context")?.context;
        let cluster = find(file.clusters, &context.cluster).context("no such cluster")?.cluster;
        let user = find(file.users, &context.user).context("no such user")?.user;
        let authority = bytes(cluster.certificate_authority_data, cluster.certificate_authority)?;
        let certificate = bytes(user.client_certificate_data, user.client_certificate)?;
        let key = bytes(user.client_key_data, user.client_key)?;
        Ok(Self {
            server: cluster.server,
            authority: authority.context("no certificate authority")?,
            identity: certificate.zip(key),
            token: user.token,
        })
    }
}

fn find<T: Named>(entries: Vec<T>, name: &str) -> Option<T> {
    entries.into_iter().find(|entry| entry.name() == name)
}

/// What is embedded as base64, or in a file beside.
fn bytes(data: Option<String>, file: Option<String>) -> Result<Option<Vec<u8>>> {
    match (data, file) {
        (Some(data), _) => Ok(Some(STANDARD.decode(data).context("bad base64")?)),
        (None, Some(file)) => Ok(Some(std::fs::read(&file).with_context(|| format!("read {file}"))?)),
        (None, None) => Ok(None),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    current_context: String,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    users: Vec<NamedUser>,
}

trait Named {
    fn name(&self) -> &str;
}

macro_rules! named {
    ($entry:ident, $field:ident, $value:ident) => {
        #[derive(Deserialize)]
        struct $entry {
            name: String,
            $field: $value,
        }

        impl Named for $entry {
            fn name(&self) -> &str {
                &self.name
            }
        }
    };
}

named!(NamedCluster, cluster, Cluster);
named!(NamedContext, context, InContext);
named!(NamedUser, user, User);

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct InContext {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_data_is_decoded_and_the_current_context_decides() {
        let text = r"
current-context: second
clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: QQ==}}]
contexts: [{name: first, context: {cluster: b, user: v}}, {name: second, context: {cluster: a, user: u}}]
users: [{name: u, user: {client-certificate-data: Qg==, client-key-data: Qw==}}]
";
        let read = Kubeconfig::parse(text).unwrap();
        assert_eq!(read.server, "https://127.0.0.1:1");
        assert_eq!(read.authority, b"A");
        assert_eq!(read.identity, Some((b"B".to_vec(), b"C".to_vec())));
        assert_eq!(read.token, None);
    }
}
