//! Tokens of service accounts that are kept in secrets: filled in when the secret is made, gone when the account is.
//!
//! Watches: Secret (type `kubernetes.io/service-account-token`), ServiceAccount. Owns: the data `token`, `ca.crt` and
//! `namespace` of such secrets, and that accounts name no token that is gone. Emits: one update per secret, deletions, one
//! update per account: Kubernetes lets nobody patch them for this. Absent on purpose: making secrets for accounts (nobody does so any more), tokens that expire (those
//! are the API server's), and clearing away tokens that nobody uses.

mod decide;
mod token;

use std::fmt;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::Context;
use manager::kit::Page;
use manager::queue::Queue;
use manager::worker::{About, Next, ObjectName, work};
use manager::writing::{delete, log_changed, unless_gone};
use tokens::{SignError, Signer};

use decide::{ACCOUNT_NAME, ACCOUNT_UID, CA, Missing, NAMESPACE, Plan, TOKEN, account_of, decide, is_meant, without};
use token::{Subject, token};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "serviceaccount-token-controller";
const SELECTOR: &str = "type=kubernetes.io/service-account-token";

/// The controller. Clones share it.
#[derive(Clone)]
pub struct TokenController {
    client: Client,
    signer: Arc<dyn Signer>,
    root_ca: Option<String>,
    accounts: Cache<ServiceAccount>,
    secrets: Cache<Secret>,
    queue: Queue<Work>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// A secret that is there.
    Secret(Key),
    /// A secret that was there, and the account that it was of.
    Gone { secret: Key, account: String, uid: Option<String> },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(key) => write!(f, "{key}"),
            Self::Gone { secret, account, .. } => write!(f, "{secret}, which is gone, of the account {account}"),
        }
    }
}

impl About for Work {
    fn about(&self) -> ObjectName<'_> {
        match self {
            Self::Secret(key) | Self::Gone { secret: key, .. } => key.about(),
        }
    }
}

/// Why a token is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The server did not do what it was asked.
    #[error("the server refused")]
    Refused(#[from] kube::Error),
    /// There is no signature.
    #[error(transparent)]
    Sign(#[from] SignError),
}

impl TokenController {
    /// A controller that signs with a key and tells of an authority in PEM; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context, signer: Arc<dyn Signer>, root_ca: Option<String>) -> Self {
        Self {
            client: context.client.clone(),
            signer,
            root_ca,
            accounts: context.caches.of(&[]),
            secrets: context.caches.with_fields(SELECTOR, &[("account", by_account)]),
            queue: context.queue(NAME),
        }
    }

    /// What it shows of itself.
    pub(crate) fn page(&self) -> Page<Work> {
        Page::new(&self.queue).cache(&self.accounts).cache(&self.secrets)
    }

    /// Runs until the queue is closed.
    pub async fn run(&self, workers: usize) {
        self.accounts.synced().await;
        self.secrets.synced().await;
        let work = work(NAME, &self.queue, workers, |key: Work| {
            let controller = self.clone();
            async move { controller.reconcile(&key).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed_secrets() => {}
            () = self.feed_accounts() => {}
        }
    }

    async fn feed_secrets(&self) {
        let mut changes = self.secrets.subscribe();
        loop {
            let change = changes.next().await;
            let uid = |secret: &Option<Arc<Secret>>| secret.as_ref().and_then(|secret| secret.uid());
            if let Some(old) = change.old.as_ref().filter(|_| uid(&change.old) != uid(&change.new))
                && let Some((account, uid)) = account_of(old)
            {
                let (account, uid) = (account.to_owned(), uid.map(str::to_owned));
                self.queue.add(Work::Gone { secret: change.key.clone(), account, uid });
            }
            if change.new.is_some() {
                self.queue.add(Work::Secret(change.key));
            }
        }
    }

    /// An account that came, went or came anew: its secrets tell whether it is the one they mean.
    async fn feed_accounts(&self) {
        let mut changes = self.accounts.subscribe();
        loop {
            let change = changes.next().await;
            let uid = |account: &Option<Arc<ServiceAccount>>| account.as_ref().and_then(|account| account.uid());
            if uid(&change.old) != uid(&change.new) {
                let secrets = self.secrets.find("account", &path(&change.key.namespace, &change.key.name));
                secrets.iter().for_each(|secret| self.queue.add(Work::Secret(Key::of(&**secret))));
            }
        }
    }

    async fn reconcile(&self, work: &Work) -> Result<Next, TokenError> {
        match work {
            Work::Secret(key) => self.reconcile_secret(key).await?,
            Work::Gone { secret, account, uid } => self.forget_secret(secret, account, uid.as_deref()).await?,
        }
        Ok(Next::Wait)
    }

    async fn reconcile_secret(&self, key: &Key) -> Result<(), TokenError> {
        let Some(secret) = self.secrets.get(key) else { return Ok(()) };
        let Some((name, _)) = account_of(&secret) else { return Ok(()) };
        let account = self.account(&key.namespace, name, &secret).await?;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        match decide(&secret, account.as_deref(), self.root_ca.as_deref()) {
            Plan::Nothing => Ok(()),
            Plan::Delete => Ok(delete(&api, &key.name, secret.metadata.uid.as_deref(), None).await?),
            Plan::Fill(missing) => {
                let Some(account) = account else { return Ok(()) };
                let filled = self.filled((*secret).clone(), &account, missing)?;
                let written = api.replace(&key.name, &PostParams::default(), &filled).await;
                Ok(unless_gone(written.inspect(|_| log_changed::<Secret>(&key.name)))?)
            }
        }
    }

    /// The account that a secret means. The cache may lag, and a token is not lost to that: what it does not show is asked
    /// for.
    async fn account(
        &self,
        namespace: &str,
        name: &str,
        secret: &Secret,
    ) -> Result<Option<Arc<ServiceAccount>>, kube::Error> {
        let known = self.accounts.get(&Key { namespace: namespace.to_owned(), name: name.to_owned() });
        if known.as_ref().is_some_and(|account| is_meant(account, secret)) {
            return Ok(known);
        }
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    /// On top of the version that was looked at: a token that somebody else wrote meanwhile is not replaced.
    fn filled(&self, mut secret: Secret, account: &ServiceAccount, missing: Missing) -> Result<Secret, SignError> {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        let (account_name, account_uid) = (account.name_any(), account.uid().unwrap_or_default());
        let data = secret.data.get_or_insert_default();
        let mut put = |key: &str, value: &str| data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
        if let (true, Some(ca)) = (missing.ca, &self.root_ca) {
            put(CA, ca);
        }
        if missing.namespace {
            put(NAMESPACE, &namespace);
        }
        if missing.token {
            let subject =
                Subject { namespace: &namespace, account: &account_name, account_uid: &account_uid, secret: &name };
            put(TOKEN, &token(subject, &*self.signer)?);
        }
        let annotations = [(ACCOUNT_NAME.to_owned(), account_name), (ACCOUNT_UID.to_owned(), account_uid)];
        secret.annotations_mut().extend(annotations);
        Ok(secret)
    }

    /// Takes a secret that is gone from the list of the account that it was of.
    async fn forget_secret(&self, secret: &Key, name: &str, uid: Option<&str>) -> Result<(), TokenError> {
        if self.secrets.get(secret).is_some() {
            // Another of its name: the list means that one now.
            return Ok(());
        }
        let account = self.accounts.get(&Key { namespace: secret.namespace.clone(), name: name.to_owned() });
        let account = account.filter(|account| uid.is_none() || account.metadata.uid.as_deref() == uid);
        let Some(account) = account else { return Ok(()) };
        let Some(rest) = without(&account, &secret.name) else { return Ok(()) };
        let changed = ServiceAccount { secrets: Some(rest), ..(*account).clone() };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &secret.namespace);
        let written = api.replace(name, &PostParams::default(), &changed).await;
        Ok(unless_gone(written.inspect(|_| log_changed::<ServiceAccount>(name)))?)
    }
}

fn path(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

fn by_account(secret: &Secret) -> Vec<String> {
    let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
    account_of(secret).into_iter().map(|(name, _)| path(namespace, name)).collect()
}
