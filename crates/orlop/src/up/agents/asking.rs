//! How `orlop node` asks `orlop up` to stop, start and cut off nodes: a socket in its directory, for its owner alone.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use device_plugin::Short;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::{Agents, Intent};

/// The socket's name.
const SOCKET: &str = "nodes.sock";
/// The longest question or answer: a few words.
const LONGEST: u64 = 1 << 14;
/// An agent ends or begins within a moment; on a busy machine that moment is long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a node can be cut off from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Partition {
    /// The API server: nothing passes in either direction, and neither side is told.
    Api,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// Run, and be connected.
    Start { node: String },
    /// End, with or without a chance to finish something; pods go on running.
    Stop { node: String, kill: bool },
    /// Go on running, but be cut off.
    Partition { node: String, from: Partition },
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    error: Option<String>,
}

impl Agents {
    /// Answers for ever. The socket of an earlier process is replaced.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub(super) fn serve(&self, data: &Path) -> anyhow::Result<()> {
        let _ = std::fs::remove_file(data.join(SOCKET));
        let socket = Short::of(&data.join(SOCKET)).with_context(|| format!("open {}", data.display()))?;
        let listener =
            UnixListener::bind(socket.path()).with_context(|| format!("listen on {}", data.join(SOCKET).display()))?;
        std::fs::set_permissions(socket.path(), std::fs::Permissions::from_mode(0o600))
            .context("protect the socket")?;
        let agents = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let agents = agents.clone();
                tokio::spawn(async move {
                    // Whoever asked may have gone.
                    let _ = agents.answer(stream).await;
                });
            }
        });
        Ok(())
    }

    async fn answer(&self, mut stream: UnixStream) -> anyhow::Result<()> {
        let (from, mut to) = stream.split();
        let mut line = String::new();
        BufReader::new(from.take(LONGEST)).read_line(&mut line).await?;
        let done = match serde_json::from_str::<Request>(&line) {
            Ok(request) => self.carry_out(&request).await,
            Err(error) => Err(error.into()),
        };
        let answer = Answer { error: done.err().map(|error| format!("{error:#}")) };
        to.write_all(&serde_json::to_vec(&answer)?).await?;
        Ok(())
    }

    /// Returns when it is so.
    async fn carry_out(&self, request: &Request) -> anyhow::Result<()> {
        let (Request::Start { node } | Request::Stop { node, .. } | Request::Partition { node, .. }) = request;
        let Some(agent) = self.0.get(node) else {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            bail!("unknown node {node:?}; use one of {}", names.join(", "));
        };
        let intent = match request {
            Request::Start { .. } => Intent::default(),
            Request::Stop { kill, .. } => Intent { runs: false, kills: *kill, cut: false },
            Request::Partition { from: Partition::Api, .. } => Intent { runs: true, kills: false, cut: true },
        };
        agent.intent.send_replace(intent);
        let mut state = agent.state.clone();
        let reached = timeout(PATIENCE, state.wait_for(|state| state.pid.is_some() == intent.runs)).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            _ => {
                let why = agent.state.borrow().why.clone().unwrap_or_else(|| "its agent does not answer".to_owned());
                bail!("{node}: {why}")
            }
        }
    }
}

/// Asks the `orlop up` of a directory.
pub(crate) async fn ask(data: &Path, request: &Request) -> anyhow::Result<()> {
    let missing = "`orlop up --nodes COUNT` does not run here";
    let socket = Short::of(&data.join(SOCKET)).context(missing)?;
    let mut stream = UnixStream::connect(socket.path()).await.context(missing)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await.context("ask `orlop up`")?;
    let mut text = Vec::new();
    stream.take(LONGEST).read_to_end(&mut text).await.context("read the answer")?;
    let Answer { error } = serde_json::from_slice(&text).context("understand the answer")?;
    error.map_or(Ok(()), |error| bail!("{error}"))
}
