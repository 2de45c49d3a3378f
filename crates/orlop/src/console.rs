//! `orlop console`: the serial console of a VM, through the API. It needs no right but that to the console, and goes on when the
//! server is started again.

use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use tokio::time::{Instant, sleep, timeout_at};

use crate::subresource::{self, End, Of, Open, Refusal};
use crate::target::{Target, machine};
use crate::terminal::{self, Left, Signals, Terminal, say};
use crate::waiting::until_entered;

/// Between two attempts to reach a server that is gone.
const AGAIN: Duration = Duration::from_millis(500);

/// Connect to the serial console of a VM; Ctrl-] disconnects.
#[derive(clap::Args)]
#[group(id = "console")]
pub(crate) struct Arguments {
    /// Name of the VM or instance.
    vm: String,
    /// How long to wait for a VM that does not run yet, or for a server that is gone, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, env = "ORLOP_CONSOLE_TIMEOUT")]
    timeout: u64,
    /// Show first what the guest wrote last, also while nobody was connected.
    #[arg(long, env = "ORLOP_CONSOLE_TAIL")]
    tail: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(look(arguments));
    // A read of standard input cannot be cancelled; nobody waits for it.
    runtime.shutdown_background();
    result
}

async fn look(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { vm: name, timeout, tail, target } = arguments;
    let client = target.client().await?;
    machine(&client, name).await?;
    let patience = Duration::from_secs(*timeout);
    let what = if *tail { "console?replay=true" } else { "console" };
    let mut open = opened(client, target, (name, what), patience).await?;
    say(&format!("connected to {name}; Ctrl-] leaves"));
    let _terminal = Terminal::take(Signals::Guests)?;
    let mut stdin = tokio::io::stdin();
    loop {
        let Open { bytes, end } = open;
        let left = terminal::attach(bytes, &mut stdin, &mut std::io::stdout(), Signals::Guests).await?;
        // One that was left by its user has not ended yet.
        let end = if left == Left::User { None } else { end.await.ok() };
        match end {
            None => {
                say("disconnected; the guest keeps running");
                return Ok(());
            }
            Some(End::Guest) => {
                say("the guest hung up");
                return Ok(());
            }
            Some(End::Told(reason)) => {
                say(&reason);
                return Ok(());
            }
            Some(End::Lost) => {
                say("lost the connection to the server; reconnecting");
                let client = target.client_again().await?;
                // What was missed meanwhile cannot be told from what was seen before.
                open = opened(client, target, (name, "console"), patience).await?;
                say(&format!("connected to {name} again"));
            }
        }
    }
}

/// Opens the console as soon as the VM runs, and says why it does not. A server that is gone is waited for as well.
async fn opened(
    mut client: Client,
    target: &Target,
    (name, what): (&str, &str),
    patience: Duration,
) -> anyhow::Result<Open> {
    let until = Instant::now() + patience;
    loop {
        let attempt = async {
            until_entered(&client, name, say).await?;
            subresource::open(&client, (Of::Instance, name), what).await
        };
        let late = || format!("{name} did not run within {} s", patience.as_secs());
        match timeout_at(until, attempt).await.with_context(late)? {
            Ok(open) => return Ok(open),
            Err(Refusal::Answered(error)) => return Err(error.context(format!("open the console of {name}"))),
            Err(Refusal::Unreachable(error)) if Instant::now() + AGAIN >= until => {
                return Err(error.context(format!("open the console of {name}")));
            }
            Err(Refusal::Unreachable(_)) => {
                sleep(AGAIN).await;
                // One that was started again may be at another address.
                client = target.client_again().await.unwrap_or(client);
            }
        }
    }
}
