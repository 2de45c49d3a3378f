//! A real registry on loopback, gone when dropped.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use tempfile::TempDir;
use testkit::ports;
use testkit::waiting::until;

use crate::output;

/// Debian's docker-registry, empty.
pub struct Registry {
    process: Child,
    /// Where it listens: `127.0.0.1:PORT`.
    pub address: String,
    _folder: TempDir,
}

impl Registry {
    /// Starts it and waits until it accepts connections.
    ///
    /// # Errors
    /// When it is not installed or does not come up.
    pub fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = format!("127.0.0.1:{}", ports::free());
        let config = folder.path().join("config.yml");
        let storage = folder.path().join("storage");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: {address}}}\n",
            storage.display()
        );
        std::fs::write(&config, text)?;
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "docker-registry", "serve"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start docker-registry")?;
        let registry = Self { process, address, _folder: folder };
        until("docker-registry listens", || TcpStream::connect(&registry.address).is_ok());
        Ok(registry)
    }

    /// Copies an image there, and returns its reference.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn push(&self, image: &str, name: &str) -> Result<String> {
        let reference = format!("{}/{name}", self.address);
        let target = format!("docker://{reference}");
        output(Command::new("skopeo").args(["copy", "--quiet", "--dest-tls-verify=false", image, &target]))?;
        Ok(reference)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
