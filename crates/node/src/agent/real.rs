//! What the agent stands on, on a real machine.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use network::cni::{self, Cni};
use storage::cache::PullPolicy;
use storage::image::Reference;
use storage::images::{Images, ImagesError};
use storage::pull::Registries;
use tokio::sync::watch;

use super::parts::{
    Answer, Attachment, Failure, Held, HostPort, ImageConfig, ImageFailure, ImageStore, PodNetwork, PodRuntime, PodShim,
};
use crate::runtime::spec::{Container, Executed, PodState, Sandbox};
use crate::runtime::{Runtime, Shim};

fn told<T, E: std::error::Error + 'static>(result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|error| Failure::of(&error))
}

impl PodRuntime for Runtime {
    fn name(&self) -> String {
        Runtime::name(self).to_owned()
    }

    fn version(&self) -> String {
        Runtime::version(self).to_owned()
    }

    fn sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> Answer<'a, Arc<dyn PodShim>> {
        async move { told(Runtime::sandbox(self, sandbox).await).map(|shim| Arc::new(shim) as Arc<dyn PodShim>) }.boxed()
    }

    fn existing(&self) -> Answer<'_, Vec<(Sandbox, Arc<dyn PodShim>)>> {
        async move {
            let found = told(Runtime::existing(self).await)?;
            Ok(found.into_iter().map(|(sandbox, shim)| (sandbox, Arc::new(shim) as Arc<dyn PodShim>)).collect())
        }
        .boxed()
    }
}

impl PodShim for Shim {
    fn netns(&self) -> PathBuf {
        Shim::netns(self)
    }

    fn states(&self) -> watch::Receiver<PodState> {
        Shim::states(self)
    }

    fn start<'a>(&'a self, container: &'a Container) -> Answer<'a, ()> {
        async move { told(Shim::start(self, container).await) }.boxed()
    }

    fn signal<'a>(&'a self, container: &'a str, signal: i32) -> Answer<'a, ()> {
        async move { told(Shim::signal(self, container, signal).await) }.boxed()
    }

    fn exec<'a>(&'a self, container: &'a str, command: &'a [String], timeout: Duration) -> Answer<'a, Executed> {
        async move { told(Shim::exec(self, container, command, timeout).await) }.boxed()
    }

    fn end(&self) -> Answer<'_, ()> {
        async move { told(Shim::end(self).await) }.boxed()
    }
}

impl ImageStore for Images {
    fn image<'a>(
        &'a self,
        reference: &'a Reference,
        policy: PullPolicy,
        registries: &'a Registries,
    ) -> BoxFuture<'a, Result<Held, ImageFailure>> {
        async move {
            let image = Images::image(self, reference, policy, registries, &()).await.map_err(|error| match error {
                ImagesError::Absent(reference) => ImageFailure::NeverPull(reference.to_string()),
                error => ImageFailure::Pull(Failure::of(&error).0),
            })?;
            let config = image.config();
            Ok(Held {
                id: image.id().to_owned(),
                digest: image.digest().to_owned(),
                root: image.root().to_owned(),
                config: ImageConfig {
                    entrypoint: config.entrypoint.clone(),
                    cmd: config.cmd.clone(),
                    env: config.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
                    user: config.user.clone(),
                    working_dir: config.working_dir.clone(),
                    stop_signal: config.stop_signal.clone().unwrap_or_default(),
                },
                hold: Arc::new(image),
            })
        }
        .boxed()
    }

    fn collect<'a>(&'a self, keep: &'a BTreeSet<String>, bytes: u64) -> Answer<'a, Vec<String>> {
        async move { told(Images::collect(self, keep, bytes)) }.boxed()
    }
}

impl PodNetwork for Cni {
    fn add<'a>(&'a self, pod: &'a Attachment) -> Answer<'a, Vec<IpAddr>> {
        async move {
            let Attachment { id, netns, namespace, name, identity, host_ports } = pod.clone();
            let host_ports = host_ports.into_iter().map(|port| {
                let HostPort { host_ip, host_port, container_port, protocol } = port;
                cni::HostPort { host_ip, host_port, container_port, protocol }
            });
            let pod = cni::Attachment { id, netns, namespace, name, identity, host_ports: host_ports.collect() };
            told(Cni::add(self, &pod).await)
        }
        .boxed()
    }

    fn remove<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        async move { told(Cni::remove(self, id).await) }.boxed()
    }

    fn retain<'a>(&'a self, living: &'a BTreeSet<String>) -> Answer<'a, ()> {
        async move { told(Cni::retain(self, living).await) }.boxed()
    }
}
