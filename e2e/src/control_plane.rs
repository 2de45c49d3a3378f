//! A real kube-apiserver with a real etcd, on loopback, gone when dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use testkit::{NEVER, ports};

use crate::{output, peer};

/// The token of a member of system:masters; it is worth nothing beyond the life of one test.
const TOKEN: &str = "admin";
/// Admission plugins that need controllers beside the server: service accounts that somebody makes, taints that
/// somebody removes. A comparison of servers alone leaves them out.
const BEYOND: &str = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition";
/// How often a start is tried.
const STARTS: usize = 3;

/// A running control plane.
pub struct ControlPlane {
    folder: TempDir,
    kubectl: PathBuf,
    // Dropped in this order: the server before its store.
    server: Ended,
    store: Ended,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver and waits until the server is ready.
    ///
    /// # Errors
    /// When a program is missing or does not come up; then with the end of its log.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts it without the admission plugins that need controllers: what a comparison needs.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_plain() -> Result<Self> {
        Self::start_with(&[BEYOND])
    }

    /// Starts it with more flags for the server.
    ///
    /// A port that was free may be taken a moment later, by a program that is no test: then all is tried again.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_with(arguments: &[&str]) -> Result<Self> {
        let mut last = None;
        for _ in 0..STARTS {
            match Self::try_start(arguments) {
                Ok(plane) => return Ok(plane),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("not even tried")?)
    }

    /// Starts both programs and waits for nothing: for those who measure how long it takes until the server is ready.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn begin() -> Result<Self> {
        Self::spawn(&[])
    }

    fn try_start(arguments: &[&str]) -> Result<Self> {
        let mut plane = Self::spawn(arguments)?;
        plane.wait_until_ready().map_err(|error| error.context(plane.log_end("kube-apiserver")))?;
        Ok(plane)
    }

    fn spawn(arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("orlop-control-plane-").tempdir()?;
        let path = folder.path();
        let (client, peer_port, secure) = (ports::free(), ports::free(), ports::free());
        let store = start_etcd(path, client, peer_port)?;
        let server = start_server(path, client, secure, arguments)?;
        std::fs::write(path.join("kubeconfig"), kubeconfig(path, secure))?;
        Ok(Self { folder, kubectl: peer("kubectl")?, server, store })
    }

    #[expect(clippy::disallowed_methods, reason = "other programs work in real time")]
    fn wait_until_ready(&mut self) -> Result<()> {
        let since = Instant::now();
        while since.elapsed() < NEVER {
            if output(self.kubectl().args(["get", "--raw", "/readyz"])).is_ok() {
                return Ok(());
            }
            for (name, process) in [("etcd", &mut self.store), ("kube-apiserver", &mut self.server)] {
                if let Some(status) = process.0.try_wait()? {
                    bail!("{name} ended: {status}");
                }
            }
        }
        bail!("it does not get ready")
    }

    /// The file that tells clients where the server is and who they are.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The certificate of the server, with its authority behind it in the same file.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("certificates/apiserver.crt")
    }

    /// The processes of the server and of its store.
    #[must_use]
    pub fn processes(&self) -> [u32; 2] {
        [self.server.0.id(), self.store.0.id()]
    }

    /// `kubectl` as the admin of this control plane.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        // An own home: the user's contexts and caches stay out of it.
        command.arg("--kubeconfig").arg(self.folder.path().join("kubeconfig")).env("HOME", self.folder.path());
        command
    }

    /// Asks for a path until it answers.
    ///
    /// # Errors
    /// When it never does.
    #[expect(clippy::disallowed_methods, reason = "other programs work in real time")]
    pub fn wait_for(&self, path: &str) -> Result<()> {
        let since = Instant::now();
        while since.elapsed() < NEVER {
            if output(self.kubectl().args(["get", "--raw", path])).is_ok() {
                return Ok(());
            }
        }
        bail!("{path} does not answer")
    }

    fn log_end(&self, name: &str) -> String {
        let log = std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("the log of {name} ends with\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
    }
}

fn start_etcd(folder: &Path, client: u16, peer_port: u16) -> Result<Ended> {
    let mut command = background(&peer("etcd")?, folder, "etcd")?;
    command
        .arg(format!("--data-dir={}", folder.join("etcd").display()))
        .arg(format!("--listen-client-urls=http://127.0.0.1:{client}"))
        .arg(format!("--advertise-client-urls=http://127.0.0.1:{client}"))
        .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"));
    Ok(Ended(command.spawn().context("start etcd")?))
}

fn start_server(folder: &Path, etcd: u16, port: u16, arguments: &[&str]) -> Result<Ended> {
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, format!("{TOKEN},admin,admin,system:masters\n"))?;
    let key = peer("service-account.key")?;
    let mut command = background(&peer("kube-apiserver")?, folder, "kube-apiserver")?;
    command
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd}"))
        .arg(format!("--secure-port={port}"))
        .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--service-cluster-ip-range=10.96.0.0/16"])
        .arg(format!("--cert-dir={}", folder.join("certificates").display()))
        .arg(format!("--token-auth-file={}", tokens.display()))
        .arg("--authorization-mode=RBAC")
        .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
        .arg(format!("--service-account-key-file={}", key.display()))
        .arg(format!("--service-account-signing-key-file={}", key.display()))
        .args(arguments);
    Ok(Ended(command.spawn().context("start kube-apiserver")?))
}

/// A program whose output goes to a log, and which ends with this process even if that is killed.
pub(crate) fn background(program: &Path, folder: &Path, name: &str) -> Result<Command> {
    let log = File::create(folder.join(format!("{name}.log")))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).stdout(log.try_clone()?).stderr(log);
    Ok(command)
}

fn kubeconfig(folder: &Path, port: u16) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{
            "name": "test",
            "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                // The server makes it when it first starts, with its authority behind it in the same file.
                "certificate-authority": folder.join("certificates/apiserver.crt"),
            },
        }],
        "users": [{ "name": "admin", "user": { "token": TOKEN } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "admin" } }],
    })
    .to_string()
}

/// A process that is killed and reaped when dropped.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
