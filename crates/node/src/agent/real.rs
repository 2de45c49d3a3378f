//! The runtime, images and network of a real machine.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use network::cni::{Attachment, Cni};
use storage::cache::PullPolicy;
use storage::image::Reference;
use storage::images::{Failure as Kind, Images};
use storage::pull::Registries;
use tokio::sync::watch;

use super::parts::{Answer, Failure, Held, ImageFailure, ImageStore, PodNetwork, PodRuntime, PodShim};
use crate::runtime::spec::{Container, Executed, PodState, Sandbox};
use crate::runtime::{Runtime, Shim};

/// The whole chain of causes.
fn told<T, E: Error + 'static>(result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|error| Failure::of(&error))
}

impl PodRuntime for Runtime {
    fn name(&self) -> String {
        Self::name(self).to_owned()
    }

    fn version(&self) -> String {
        Self::version(self).to_owned()
    }

    fn sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> Answer<'a, Arc<dyn PodShim>> {
        Box::pin(async move {
            let shim = told(Self::sandbox(self, sandbox).await)?;
            Ok(Arc::new(shim) as Arc<dyn PodShim>)
        })
    }

    fn existing(&self) -> Answer<'_, Vec<(Sandbox, Arc<dyn PodShim>)>> {
        Box::pin(async move {
            let found = told(Self::existing(self).await)?;
            Ok(found.into_iter().map(|(sandbox, shim)| (sandbox, Arc::new(shim) as Arc<dyn PodShim>)).collect())
        })
    }
}

impl PodShim for Shim {
    fn netns(&self) -> PathBuf {
        Self::netns(self)
    }

    fn states(&self) -> watch::Receiver<PodState> {
        Self::states(self)
    }

    fn start<'a>(&'a self, container: &'a Container) -> Answer<'a, ()> {
        Box::pin(async move { told(Self::start(self, container).await) })
    }

    fn signal<'a>(&'a self, container: &'a str, signal: i32) -> Answer<'a, ()> {
        Box::pin(async move { told(Self::signal(self, container, signal).await) })
    }

    fn exec<'a>(&'a self, container: &'a str, command: &'a [String], timeout: Duration) -> Answer<'a, Executed> {
        Box::pin(async move { told(Self::exec(self, container, command, timeout).await) })
    }

    fn end(&self) -> Answer<'_, ()> {
        Box::pin(async move { told(Self::end(self).await) })
    }
}

impl ImageStore for Images {
    fn image<'a>(
        &'a self,
        reference: &'a Reference,
        policy: PullPolicy,
        registries: &'a Registries,
    ) -> BoxFuture<'a, Result<Held, ImageFailure>> {
        Box::pin(async move {
            let image =
                Self::image(self, reference, policy, registries, &()).await.map_err(|error| match error.failure() {
                    Kind::NeverPull => ImageFailure::NeverPull(reference.to_string()),
                    _ => ImageFailure::Pull(Failure::of(&error).0),
                })?;
            Ok(Held {
                id: image.id().to_owned(),
                digest: image.digest().to_owned(),
                root: image.root().to_owned(),
                config: image.config().clone(),
                account: Arc::new(move |user| told(image.account(user))),
            })
        })
    }

    fn collect<'a>(&'a self, keep: &'a BTreeSet<String>, bytes: u64) -> Answer<'a, Vec<String>> {
        let (images, keep) = (self.clone(), keep.clone());
        Box::pin(async move {
            let collected = tokio::task::spawn_blocking(move || Self::collect(&images, &keep, bytes)).await;
            told(told(collected)?)
        })
    }
}

impl PodNetwork for Cni {
    fn add<'a>(&'a self, pod: &'a Attachment) -> Answer<'a, Vec<IpAddr>> {
        Box::pin(async move { told(Self::add(self, pod).await) })
    }

    fn let_ask<'a>(&'a self, servers: &'a [IpAddr]) -> Answer<'a, ()> {
        Box::pin(async move { told(Self::let_ask(self, servers).await) })
    }

    fn remove<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { told(Self::remove(self, id).await) })
    }

    fn claimed(&self) -> watch::Receiver<BTreeMap<String, Vec<IpAddr>>> {
        Self::claimed(self)
    }

    fn retain<'a>(&'a self, living: &'a BTreeSet<String>) -> Answer<'a, ()> {
        Box::pin(async move { told(Self::retain(self, living).await) })
    }
}
