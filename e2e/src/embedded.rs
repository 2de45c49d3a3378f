//! Our own API server as a process, gone when dropped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use testkit::NEVER;

use crate::control_plane::{Ended, background};

/// How often a start is looked at.
const PAUSE: Duration = Duration::from_millis(2);

/// A running `orlop apiserver`.
pub struct Embedded {
    process: Ended,
    folder: TempDir,
}

impl Embedded {
    /// Starts it on a free port, and waits for the kubeconfig that says it serves.
    ///
    /// # Errors
    /// When it ends or never gets ready; then with its log.
    pub async fn start(program: &Path) -> Result<Self> {
        Self::start_with(program, &[]).await
    }

    /// The same, with the kinds of virtual machines.
    ///
    /// # Errors
    /// When it ends or never gets ready; then with its log.
    pub async fn with_virtual_machines(program: &Path) -> Result<Self> {
        Self::start_with(program, &["--virtual-machines"]).await
    }

    /// The same, with more flags.
    ///
    /// # Errors
    /// When it ends or never gets ready; then with its log.
    pub async fn start_with(program: &Path, more: &[&str]) -> Result<Self> {
        let Self { mut process, folder } = Self::begin(program, more)?;
        let kubeconfig = folder.path().join("kubeconfig");
        let wait = async {
            while !kubeconfig.exists() {
                if let Some(status) = process.0.try_wait()? {
                    bail!("orlop apiserver ended: {status}");
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        };
        let waited = tokio::time::timeout(NEVER, wait).await.context("orlop apiserver does not get ready");
        waited.and_then(|result| result).with_context(|| log(folder.path()))?;
        Ok(Self { process, folder })
    }

    /// Starts it and waits for nothing: for those who measure how long it takes until it is ready.
    ///
    /// # Errors
    /// When the program is missing.
    pub fn begin(program: &Path, more: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("orlop-apiserver-").tempdir()?;
        let mut command = background(program, folder.path(), "apiserver")?;
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path()).args(more);
        let process = Ended(command.spawn().with_context(|| format!("start {}", program.display()))?);
        Ok(Self { process, folder })
    }

    /// The file that tells clients where it is and who they are.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The authority behind its certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("pki/ca.crt")
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.0.id()
    }
}

fn log(folder: &Path) -> String {
    let log = std::fs::read_to_string(folder.join("apiserver.log")).unwrap_or_default();
    format!("its log is\n{log}")
}
