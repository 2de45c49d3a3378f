//! `orlop vnc`: the screen of a VM, through the API: a port for a viewer, or a picture.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::subresource::{self, End, Of, Open, Refusal};
use crate::target::{Target, machine};
use crate::waiting::entered_within;

/// Viewers that are looked for, in this order.
const VIEWERS: [&str; 5] = ["remote-viewer", "vncviewer", "xtigervncviewer", "gvncviewer", "vinagre"];

/// Open the screen of a VM in a viewer, or save a screenshot.
#[derive(clap::Args)]
#[group(id = "vnc")]
pub(crate) struct Arguments {
    /// The VM, or the instance.
    vm: String,
    /// Only listen, and print the port; start a viewer yourself.
    #[arg(long, env = "ORLOP_VNC_PROXY_ONLY")]
    proxy_only: bool,
    /// Port of this machine to listen on; 0 is any free port.
    #[arg(long, default_value_t = 0, env = "ORLOP_VNC_PORT")]
    port: u16,
    /// Do not take the screen from somebody who is looking at it.
    #[arg(long, env = "ORLOP_VNC_PRESERVE_SESSION")]
    preserve_session: bool,
    /// Save a PNG of the screen to this file instead; - is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["proxy_only", "port", "preserve_session"])]
    screenshot: Option<PathBuf>,
    /// How long to wait for a VM that does not run yet, in seconds; a screenshot does not wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, env = "ORLOP_VNC_TIMEOUT")]
    timeout: u64,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let Arguments { vm: name, proxy_only, port, preserve_session, screenshot, timeout, target } = arguments;
        let client = target.client().await?;
        machine(&client, name).await?;
        if let Some(file) = screenshot {
            let png = subresource::get(&client, (Of::Instance, name), "vnc/screenshot?moveCursor=false").await?;
            return save(file, &png, out);
        }
        entered_within(&client, name, Duration::from_secs(*timeout)).await?;
        let listener =
            TcpListener::bind(("127.0.0.1", *port)).await.with_context(|| format!("listen on port {port}"))?;
        let port = listener.local_addr().context("find the local port")?.port();
        let what = if *preserve_session { "vnc?preserveSession=true" } else { "vnc" };
        let show = Screen { client, name, what };
        if *proxy_only {
            // The line that virtctl prints, for those who read it.
            writeln!(out, "{{\"port\":{port}}}").and_then(|()| out.flush()).context("write to standard output")?;
            return show.serve(&listener).await;
        }
        let Some((viewer, words)) = viewer(port) else {
            let names = VIEWERS.join(", ");
            bail!("no VNC viewer was found that can open port {port} ({names}); install one, or use --proxy-only");
        };
        let mut child = Command::new(viewer)
            .args(words)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {viewer}"))?;
        tokio::select! {
            biased;
            ended = child.wait() => ended.map(drop).context("wait for the viewer"),
            served = show.serve(&listener) => served,
        }
    })
}

/// The screen of one VM.
struct Screen<'a> {
    client: Client,
    name: &'a str,
    what: &'a str,
}

impl Screen<'_> {
    /// Shows it to one viewer after the other, until the server has a reason against it.
    async fn serve(&self, listener: &TcpListener) -> anyhow::Result<()> {
        loop {
            let (viewer, _) = listener.accept().await.context("accept a viewer")?;
            self.show(viewer).await?;
        }
    }

    async fn show(&self, mut viewer: TcpStream) -> anyhow::Result<()> {
        let opened = subresource::open(&self.client, (Of::Instance, self.name), self.what).await;
        let Open { mut bytes, end } = opened.map_err(|refusal| match refusal {
            Refusal::Answered(error) | Refusal::Unreachable(error) => {
                error.context(format!("open the screen of {}", self.name))
            }
        })?;
        // A viewer that goes away is the usual end.
        let _ = tokio::io::copy_bidirectional(&mut bytes, &mut viewer).await;
        drop(bytes);
        match end.await {
            Ok(End::Told(reason)) => bail!(reason),
            Ok(End::Guest | End::Lost) | Err(_) => Ok(()),
        }
    }
}

/// The first viewer of this machine, and what it is called with.
fn viewer(port: u16) -> Option<(&'static str, Vec<String>)> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&str| std::env::split_paths(&paths).any(|folder| folder.join(name).is_file());
    VIEWERS.into_iter().filter(is_there).find_map(|name| Some((name, address(name, port)?)))
}

/// How a viewer is told the port, if it can be told this one.
fn address(viewer: &str, port: u16) -> Option<Vec<String>> {
    let word = match viewer {
        "remote-viewer" => format!("vnc://127.0.0.1:{port}"),
        // It counts displays, of which the first has port 5900.
        "gvncviewer" => format!("127.0.0.1:{}", port.checked_sub(5900)?),
        "vinagre" => format!("127.0.0.1:{port}"),
        _ => format!("127.0.0.1::{port}"),
    };
    Some(vec![word])
}

fn save(file: &Path, png: &[u8], out: &mut impl Write) -> anyhow::Result<()> {
    if file == Path::new("-") {
        return out.write_all(png).and_then(|()| out.flush()).context("write to standard output");
    }
    std::fs::write(file, png).with_context(|| format!("write {}", file.display()))?;
    writeln!(out, "saved {}", file.display()).context("write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_viewer_is_told_the_port_in_its_own_way() {
        for (viewer, port, expected) in [
            ("remote-viewer", 5905, Some("vnc://127.0.0.1:5905")),
            ("vncviewer", 5905, Some("127.0.0.1::5905")),
            ("gvncviewer", 40000, Some("127.0.0.1:34100")),
            // It cannot be told of a port below that of the first display.
            ("gvncviewer", 5899, None),
        ] {
            assert_eq!(address(viewer, port), expected.map(|word| vec![word.to_owned()]), "{viewer} {port}");
        }
    }
}
