//! A machine under `orlop up`, and a client of it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tempfile::TempDir;
use tokio::time::Instant;

use super::program;

/// Its network, beside that of a real `orlop up` and that of tests.
const NETWORK: [&str; 6] = ["--bridge", "orlopbench0", "--pod-cidr", "10.197.0.0/24", "--pod-cidr6", "none"];
/// Its node.
pub const NODE: &str = "bench";

/// `orlop up` in a directory of its own. Everything is stopped and removed when it is dropped.
pub struct Machine {
    folder: TempDir,
    process: Child,
    client: Client,
    started: Duration,
}

impl Machine {
    /// Starts one with further flags, and waits until it says that it is up.
    ///
    /// # Errors
    /// When it cannot be started, or is not up: then with its log.
    pub async fn up(flags: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("orlop-bench-").tempdir()?;
        let log = folder.path().join("log");
        let mut command = orlop(&folder, &["up", "--listen", "127.0.0.1:0", "--node-name", NODE])?;
        command.args(NETWORK).args(flags).env("ORLOP_IMAGE_DIR", e2e::guest::directory()?);
        let start = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?).spawn();
        // From here on there may be something to stop.
        let mut starting = Starting(Some((folder, child.context("start orlop up")?)));
        let (folder, process) = starting.0.as_mut().context("it was just started")?;
        let mut lines = BufReader::new(process.stdout.take().context("no standard output")?).lines();
        let first = lines.next();
        if !matches!(&first, Some(Ok(line)) if line.starts_with("orlop is up")) {
            bail!("orlop up said {first:?}\n{}", std::fs::read_to_string(&log).unwrap_or_default());
        }
        let started = start.elapsed();
        // Whatever else it says must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        let file = Kubeconfig::read_from(data(folder).join("kubeconfig"))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let (folder, process) = starting.0.take().context("it was just started")?;
        Ok(Self { folder, process, client, started })
    }

    /// From its start until it said that it is up.
    #[must_use]
    pub fn started(&self) -> Duration {
        self.started
    }

    /// The process of `orlop up`.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A client of it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where it has its things.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        data(&self.folder)
    }

    /// The program with a verb, for this machine.
    ///
    /// # Errors
    /// When there is none.
    pub fn orlop(&self, words: &[&str]) -> Result<Command> {
        orlop(&self.folder, words)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        stop(&self.folder, &mut self.process);
    }
}

/// As long as it is not known whether it is up.
struct Starting(Option<(TempDir, Child)>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some((folder, process)) = &mut self.0 {
            stop(folder, process);
        }
    }
}

fn data(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

fn orlop(folder: &TempDir, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(program()?);
    command.args(words).arg("--data-dir").arg(data(folder));
    Ok(command)
}

/// `orlop down`. What it says when that fails is worth more than what the benchmark says.
fn stop(folder: &TempDir, process: &mut Child) {
    let down = orlop(folder, &["down", "--timeout", "20s"]).and_then(|mut down| e2e::output(&mut down));
    if let Err(error) = down {
        tell(&error);
        let _ = process.kill();
    }
    let _ = process.wait();
}

#[expect(clippy::print_stderr, reason = "something may be left on the machine")]
fn tell(error: &anyhow::Error) {
    eprintln!("orlop down: {error:#}");
}
