//! What the agent stands on: something that runs pods, a store of images, a network. Each is a trait, so that a whole node runs in
//! a test without any of them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use manager::errors::chain;
pub use network::cni::{Attachment, HostPort};
use storage::cache::PullPolicy;
use storage::image::Reference;
use storage::images::{Account, Config};
use storage::pull::Registries;
use tokio::sync::watch;

use crate::runtime::spec::{Container, Executed, PodState, Sandbox};

/// Why something below the agent did not work: the whole chain of causes as one line, as people read it in an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// From an error and all that caused it.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        Self(chain(error))
    }
}

/// What comes of asking.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Failure>>;

/// Runs pods.
pub trait PodRuntime: Send + Sync {
    /// The program's name, such as `runc`.
    fn name(&self) -> String;
    /// Its version.
    fn version(&self) -> String;
    /// The pod's shim: started, or found if it runs already.
    fn sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> Answer<'a, Arc<dyn PodShim>>;
    /// Shims of an earlier agent, running or lost.
    fn existing(&self) -> Answer<'_, Vec<(Sandbox, Arc<dyn PodShim>)>>;
}

/// One pod's frame on the machine.
pub trait PodShim: Send + Sync {
    /// Where its network namespace is.
    fn netns(&self) -> PathBuf;
    /// What it knows, after every change.
    fn states(&self) -> watch::Receiver<PodState>;
    /// Starts a container unless this attempt was started already.
    fn start<'a>(&'a self, container: &'a Container) -> Answer<'a, ()>;
    /// Sends a signal; one that is gone already needs none.
    fn signal<'a>(&'a self, container: &'a str, signal: i32) -> Answer<'a, ()>;
    /// Runs a command in a container.
    fn exec<'a>(&'a self, container: &'a str, command: &'a [String], timeout: Duration) -> Answer<'a, Executed>;
    /// Ends everything of the pod now. Repeatable.
    fn end(&self) -> Answer<'_, ()>;
}

/// An image that is on this machine, for as long as the value lives.
#[derive(Clone)]
pub struct Held {
    /// Digest of its configuration.
    pub id: String,
    /// Digest of its manifest.
    pub digest: String,
    /// Where it is unpacked.
    pub root: PathBuf,
    /// How it wants to be run.
    pub config: Config,
    /// Who a user's name is in it. It also holds the image itself.
    pub account: Accounts,
}

/// Tells who a user's name is in an image.
pub type Accounts = Arc<dyn Fn(&str) -> Result<Account, Failure> + Send + Sync>;

/// Why there is no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageFailure {
    /// It may not be pulled, and is not there.
    #[error("image {0:?} is not present with pull policy of Never")]
    NeverPull(String),
    /// It could not be had.
    #[error("{0}")]
    Pull(String),
}

/// Keeps images.
pub trait ImageStore: Send + Sync {
    /// Pulls or finds an image.
    fn image<'a>(
        &'a self,
        reference: &'a Reference,
        policy: PullPolicy,
        registries: &'a Registries,
    ) -> BoxFuture<'a, Result<Held, ImageFailure>>;
    /// Removes what nobody holds and is not among these ids, oldest first, until so many bytes are free on the disk. Returns
    /// what went.
    fn collect<'a>(&'a self, keep: &'a BTreeSet<String>, bytes: u64) -> Answer<'a, Vec<String>>;
}

/// Knows whose a pod's addresses are beyond its own life. What a pod says of itself is no answer: its user writes it.
pub trait Identities: Send + Sync {
    /// Who comes back to the addresses of this pod; none: nobody does.
    fn of<'a>(&'a self, pod: &'a Pod) -> Answer<'a, Option<String>>;
}

/// Connects pods.
pub trait PodNetwork: Send + Sync {
    /// Connects a pod; asked again for the same id, answers the same.
    fn add<'a>(&'a self, pod: &'a Attachment) -> Answer<'a, Vec<IpAddr>>;
    /// Lets pods ask these name servers of the machine, which one is about to be told of.
    fn let_ask<'a>(&'a self, servers: &'a [IpAddr]) -> Answer<'a, ()>;
    /// Disconnects it; also one whose namespace is gone.
    fn remove<'a>(&'a self, id: &'a str) -> Answer<'a, ()>;
    /// The addresses of pods that may claim those of another, by id: now, and after every claim.
    fn claimed(&self) -> watch::Receiver<BTreeMap<String, Vec<IpAddr>>>;
    /// Disconnects all that are not among these ids.
    fn retain<'a>(&'a self, living: &'a BTreeSet<String>) -> Answer<'a, ()>;
}
