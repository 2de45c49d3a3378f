//! The load: many requests at a time, and a watch that tells when what was asked for has come about.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail};
use futures_util::StreamExt as _;
use http::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::{CLIENTS, NAMESPACE, PATIENCE};

/// Does something for each number below `count`, so many at a time as there are clients.
///
/// # Errors
/// The first that one of them has.
pub async fn each<F, R>(count: usize, work: F) -> Result<()>
where
    F: Fn(usize) -> R + Clone + Send + 'static,
    R: Future<Output = Result<()>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS.min(count) {
        let (next, work) = (next.clone(), work.clone());
        clients.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                work(number).await?;
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    Ok(())
}

/// Sends one request; its answer is read and dropped.
///
/// # Errors
/// When the server refuses it.
pub async fn send(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<()> {
    ask(client, method, path, body).await.map(drop)
}

/// Sends one request and gives its answer as it came.
///
/// # Errors
/// When the server refuses it.
pub async fn ask(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<String> {
    let kind = if method == Method::PATCH { "application/strategic-merge-patch+json" } else { "application/json" };
    let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes)?;
    client.request_text(request).await.with_context(|| path.to_owned())
}

/// Makes the namespace of the load.
///
/// # Errors
/// When the server refuses it.
pub async fn namespace(client: &Client) -> Result<()> {
    let body = json!({ "metadata": { "name": NAMESPACE } });
    send(client, Method::POST, "/api/v1/namespaces", Some(&body)).await
}

/// A change that a watch saw, and when.
pub struct Change<T> {
    pub at: Instant,
    /// Whether the object is gone.
    pub gone: bool,
    pub object: T,
}

/// What a watch needs to know of an object.
pub trait Versioned {
    /// Its resource version.
    fn version(&self) -> &str;
}

/// A watch; it ends when dropped.
pub struct Watch<T> {
    changes: mpsc::UnboundedReceiver<Result<Change<T>>>,
    task: JoinHandle<()>,
}

impl<T: Versioned + Clone + DeserializeOwned + Send + 'static> Watch<T> {
    /// Watches a collection from its state of now on.
    #[must_use]
    pub fn start(client: &Client, path: &'static str, accept: &'static str) -> Self {
        // Bounded by the load, which is.
        let (send, changes) = mpsc::unbounded_channel();
        let client = client.clone();
        let task = tokio::spawn(async move {
            let mut version = "0".to_owned();
            // A busy server ends the watches of those that do not keep up; as any client, we go on where we were.
            loop {
                if let Err(error) = follow(&client, path, accept, &mut version, &send).await {
                    // Nobody may listen any more.
                    let _ = send.send(Err(error));
                    return;
                }
            }
        });
        Self { changes, task }
    }

    /// The next change.
    ///
    /// # Errors
    /// When none comes for long, or the watch has ended.
    pub async fn next(&mut self) -> Result<Change<T>> {
        let change = timeout(PATIENCE, self.changes.recv()).await.context("nothing happens any more")?;
        change.context("the watch has ended")?
    }
}

/// One request for a watch, until the server ends it.
async fn follow<T: Versioned + Clone + DeserializeOwned>(
    client: &Client,
    path: &str,
    accept: &str,
    version: &mut String,
    changes: &mpsc::UnboundedSender<Result<Change<T>>>,
) -> Result<()> {
    let uri = format!("{path}?watch=true&resourceVersion={version}&timeoutSeconds=3600");
    let request = Request::get(uri).header("accept", accept).body(Vec::new())?;
    let mut events = Box::pin(client.request_events::<T>(request).await?);
    while let Some(event) = events.next().await {
        let (gone, object) = match event.context("the watch broke off")? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (false, object),
            WatchEvent::Deleted(object) => (true, object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(error) => bail!("the watch failed: {error:?}"),
        };
        object.version().clone_into(version);
        if changes.send(Ok(Change { at: Instant::now(), gone, object })).is_err() {
            bail!("nobody listens");
        }
    }
    Ok(())
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
