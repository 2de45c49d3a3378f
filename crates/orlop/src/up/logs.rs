//! Logs of pods, for the API server in the same process.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use apiserver::logs::{LogRequest, LogStream, PodLogs, StandardStream};
use futures_util::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use node::agent::logs::{self, Options};
use node::agent::output;

use crate::cluster::clock;

/// Reads the logs of this machine's pods.
#[derive(Clone)]
pub(super) struct Logs {
    folder: PathBuf,
    /// To see a container end, which ends its log. The server must run before there is one.
    client: Arc<OnceLock<Client>>,
}

impl Logs {
    /// Logs below a directory.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, client: Arc::default() }
    }

    /// Sees containers end through this client.
    pub(super) fn watch_with(&self, client: Client) {
        // It is set once, when the server has started.
        let _ = self.client.set(client);
    }
}

impl PodLogs for Logs {
    fn open(&self, request: &LogRequest) -> Result<LogStream, String> {
        let LogRequest { namespace, name, uid, container, image, .. } = request;
        let options = Options {
            follow: request.follow,
            tail_lines: request.tail_lines.map(|lines| lines as u64),
            limit_bytes: request.limit_bytes,
            since: None,
            since_time: request.since,
            timestamps: request.timestamps,
            previous: request.previous,
            stream: request.stream.map(|stream| match stream {
                StandardStream::Out => logs::StandardStream::Out,
                StandardStream::Error => logs::StandardStream::Error,
            }),
        };
        let (container, options) = output::read(container, image, options);
        let folder = self.folder.join(format!("{namespace}_{name}_{uid}")).join(container);
        let ended = ended(self.client.get().cloned(), request.clone()).boxed();
        let lines = logs::read(&folder, &options, ended, clock()()).map_err(|error| error.to_string())?;
        // A log that breaks off ends there: there is no way to tell in the middle of an answer.
        Ok(Box::pin(lines.into_stream().filter_map(|piece| std::future::ready(piece.ok().map(bytes::Bytes::from)))))
    }
}

/// Resolves when the container has ended, or its pod is gone.
async fn ended(client: Option<Client>, request: LogRequest) {
    let Some(client) = client else { return };
    let LogRequest { namespace, name, uid, container, .. } = request;
    let over = move |pod: Option<&Pod>| {
        let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&uid)) else { return true };
        let status = pod.status.as_ref();
        let statuses = status.iter().flat_map(|status| {
            status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
        });
        let state = statuses.into_iter().find(|one| one.name == container).and_then(|one| one.state.clone());
        state.is_some_and(|state| state.terminated.is_some())
    };
    // A watch that breaks for good ends the log early; whoever follows asks again.
    let _ = await_condition(Api::<Pod>::namespaced(client, &namespace), &name, over).await;
}
