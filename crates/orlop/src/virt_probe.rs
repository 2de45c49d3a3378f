//! `orlop virt-probe`: a probe of the guest, run inside its launcher pod. Its exit code is the answer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use launcher_api::rpc::launcher_client::LauncherClient;
use launcher_api::rpc::{Empty, ExecRequest};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

/// Probe the guest of this pod through its guest agent.
#[derive(clap::Args)]
#[group(id = "virt_probe")]
pub(crate) struct Arguments {
    /// Socket of the launcher.
    #[arg(long, value_name = "PATH", env = "ORLOP_LAUNCHER_SOCKET")]
    socket: PathBuf,
    /// Time that the guest may take to answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, env = "ORLOP_PROBE_TIMEOUT_SECONDS")]
    timeout_seconds: u64,
    /// Only check whether the guest agent answers.
    #[arg(long, conflicts_with = "command", env = "ORLOP_PROBE_GUEST_AGENT_PING")]
    guest_agent_ping: bool,
    /// Program to run in the guest, with its arguments; the probe succeeds if it exits with 0.
    #[arg(last = true)]
    command: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let timeout = Duration::from_secs(arguments.timeout_seconds);
        tokio::time::timeout(timeout, probe(arguments, timeout)).await.context("the guest did not answer in time")?
    })
}

async fn probe(arguments: Arguments, timeout: Duration) -> anyhow::Result<()> {
    let Arguments { socket, guest_agent_ping, command, .. } = arguments;
    let mut client = LauncherClient::new(connect(socket).await.context("connect to the launcher")?);
    if guest_agent_ping {
        client.guest_ping(Empty {}).await.context("ask the guest agent")?;
        return Ok(());
    }
    let mut words = command.into_iter();
    let Some(program) = words.next() else { bail!("either --guest-agent-ping or a command after -- is required") };
    let request = ExecRequest {
        command: program.clone(),
        arguments: words.collect(),
        timeout_ms: Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
    };
    let answer = client.exec(request).await.context("run the command in the guest")?.into_inner();
    if answer.exit_code != 0 {
        let words = String::from_utf8_lossy(if answer.stderr.is_empty() { &answer.stdout } else { &answer.stderr })
            .into_owned();
        bail!("{program} exited with {}: {}", answer.exit_code, words.trim_end());
    }
    Ok(())
}

async fn connect(socket: PathBuf) -> Result<Channel, tonic::transport::Error> {
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    });
    Endpoint::from_static("http://launcher").connect_with_connector(connector).await
}
