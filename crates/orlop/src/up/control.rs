//! How other commands ask `orlop up` how it is: a socket in its folder, for its owner alone.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::socket::Folder;

/// The socket's name.
const SOCKET: &str = "up.sock";
/// The longest answer: some lines per part.
const LONGEST: u64 = 1 << 20;

/// How everything is.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The process.
    pub(crate) pid: u32,
    /// Where the API is.
    pub(crate) server: String,
    /// What is wrong with each part; nothing if it is well.
    pub(crate) parts: BTreeMap<String, Option<String>>,
    /// Facts about the machine, in the order of their names.
    pub(crate) facts: BTreeMap<String, String>,
}

/// Makes a report.
pub(crate) type Reporter = Arc<dyn Fn() -> Report + Send + Sync>;

fn open(data: &Path) -> anyhow::Result<Folder> {
    Folder::open(data).with_context(|| format!("open {}", data.display()))
}

/// Listens; the socket of an earlier process is replaced.
pub(crate) fn listen(data: &Path) -> anyhow::Result<UnixListener> {
    let _ = std::fs::remove_file(data.join(SOCKET));
    let folder = open(data)?;
    let path = folder.path(SOCKET);
    let listener = UnixListener::bind(&path).with_context(|| format!("listen on {}", data.join(SOCKET).display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).context("protect the socket")?;
    Ok(listener)
}

/// Answers for ever.
pub(crate) async fn serve(listener: UnixListener, report: Reporter) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let report = report.clone();
        tokio::spawn(async move {
            if let Ok(text) = serde_json::to_vec(&report()) {
                // Whoever asked may have gone.
                let _ = stream.write_all(&text).await;
            }
        });
    }
}

/// Asks.
pub(crate) async fn ask(data: &Path) -> anyhow::Result<Report> {
    let folder = open(data)?;
    let stream = UnixStream::connect(folder.path(SOCKET))
        .await
        .with_context(|| format!("connect to {}", data.join(SOCKET).display()))?;
    let mut text = Vec::new();
    stream.take(LONGEST).read_to_end(&mut text).await.context("read the answer")?;
    serde_json::from_slice(&text).context("understand the answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_report_comes_through_a_folder_of_any_length() {
        let data = tempfile::tempdir().unwrap();
        let deep = data.path().join("x".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let parts = BTreeMap::from([("a".to_owned(), None), ("b".to_owned(), Some("ill".to_owned()))]);
        let expected = Report { pid: 7, parts: parts.clone(), ..Report::default() };
        let reporter: Reporter = Arc::new(move || Report { pid: 7, parts: parts.clone(), ..Report::default() });
        tokio::spawn(serve(listen(&deep).unwrap(), reporter));
        assert_eq!(ask(&deep).await.unwrap(), expected);
        assert_eq!(std::fs::metadata(deep.join(SOCKET)).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
