//! The server as a child process, and requests to it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Result, bail};
use bytes::Bytes;
use e2e::http::{Connection, Server};
use e2e::kubeconfig::Kubeconfig;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) struct Process {
    child: Child,
    server: Server,
    kubeconfig: Kubeconfig,
    file: PathBuf,
}

impl Process {
    /// Starts it on a directory, and waits until it serves.
    pub(crate) async fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[]).await
    }

    /// The same with further flags.
    pub(crate) async fn start_with(folder: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder).args(flags);
        Self::spawn(command, |_| folder.join("kubeconfig")).await
    }

    /// The same by any command; `kubeconfig` tells where its file is seen, given its pid.
    pub(crate) async fn spawn(mut command: Command, kubeconfig: impl FnOnce(u32) -> PathBuf) -> Self {
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended before it served"));
        let serves = ["serving on https://127.0.0.1:", "orlop is up"];
        assert!(serves.iter().any(|start| line.starts_with(start)), "{line}");
        let file = kubeconfig(child.id().unwrap());
        let kubeconfig = Kubeconfig::read(&file).unwrap();
        let server = Server::new(&kubeconfig).unwrap();
        Self { child, server, kubeconfig, file }
    }

    /// What a start says that must fail.
    pub(crate) async fn refused(folder: &Path) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
        assert!(!child.wait().await.unwrap().success());
        text
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// The admin's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.file
    }

    pub(crate) fn address(&self) -> String {
        self.kubeconfig.server.trim_start_matches("https://").to_owned()
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        self.server.connect().await
    }

    /// A connection without credentials.
    pub(crate) async fn stranger(&self) -> Connection {
        let config = Kubeconfig { identity: None, ..self.kubeconfig.clone() };
        Server::new(&config).unwrap().connect().await.unwrap()
    }

    /// Whoever has this token.
    pub(crate) fn with_token(&self, token: &str) -> Server {
        let config = Kubeconfig { identity: None, token: Some(token.to_owned()), ..self.kubeconfig.clone() };
        Server::new(&config).unwrap()
    }

    pub(crate) async fn create(&self, name: &str, text: &str) -> Result<Value> {
        ask(&mut self.connect().await?, Method::POST, MAPS, &map(name, text)).await
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Value> {
        ask(&mut self.connect().await?, Method::GET, &format!("{MAPS}/{name}"), &Value::Null).await
    }

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits for an end that is no success; gives what the process said.
    pub(crate) async fn failed(mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
        assert!(!self.child.wait().await.unwrap().success());
        text
    }

    pub(crate) async fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().await.unwrap().success());
    }
}

pub(crate) fn map(name: &str, text: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "x": text } })
}

/// Sends a request; an answer that is no success is an error with its text.
pub(crate) async fn ask(connection: &mut Connection, method: Method, path: &str, body: &Value) -> Result<Value> {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let answer = connection.ask(method, path, &[("content-type", "application/json")], body).await?;
    let value: Value = serde_json::from_slice(answer.body())?;
    if !answer.status().is_success() {
        bail!("{}: {}", answer.status(), value["message"]);
    }
    Ok(value)
}
