//! How other commands ask `orlop up` how it is: a socket in its directory, for its owner alone.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use device_plugin::Short;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::report::Report;

/// The socket's name.
const SOCKET: &str = "up.sock";
/// The longest answer: some lines per part.
const LONGEST: u64 = 1 << 20;
/// The answer is at hand where it is made; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

fn socket(data: &Path) -> anyhow::Result<Short> {
    Short::of(&data.join(SOCKET)).with_context(|| format!("open {}", data.display()))
}

/// Listens; the socket of an earlier process is replaced.
pub(crate) fn listen(data: &Path) -> anyhow::Result<UnixListener> {
    let _ = std::fs::remove_file(data.join(SOCKET));
    let socket = socket(data)?;
    let listener =
        UnixListener::bind(socket.path()).with_context(|| format!("listen on {}", data.join(SOCKET).display()))?;
    std::fs::set_permissions(socket.path(), std::fs::Permissions::from_mode(0o600))
        .context("set the permissions of the socket")?;
    Ok(listener)
}

/// Answers for ever.
pub(crate) async fn serve(listener: UnixListener, report: impl Fn() -> Report) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let report = report();
        tokio::spawn(async move {
            if let Ok(text) = serde_json::to_vec(&report) {
                // Whoever asked may have gone.
                let _ = stream.write_all(&text).await;
            }
        });
    }
}

/// Asks.
pub(crate) async fn ask(data: &Path) -> anyhow::Result<Report> {
    let socket = socket(data)?;
    let answered = timeout(PATIENCE, async {
        let stream = UnixStream::connect(socket.path())
            .await
            .with_context(|| format!("connect to {}", data.join(SOCKET).display()))?;
        let mut text = Vec::new();
        stream.take(LONGEST).read_to_end(&mut text).await.context("read the answer")?;
        serde_json::from_slice(&text).context("decode the answer")
    });
    // The kernel takes connections for a process that is stopped or hangs.
    answered.await.unwrap_or_else(|_| bail!("no answer within {} s", PATIENCE.as_secs()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[tokio::test]
    async fn a_report_comes_through_a_folder_of_any_length() {
        let data = tempfile::tempdir().unwrap();
        let deep = data.path().join("x".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let components = BTreeMap::from([("a".to_owned(), None), ("b".to_owned(), Some("ill".to_owned()))]);
        let expected = Report { pid: 7, components: components.clone(), ..Report::default() };
        let reporter = move || Report { pid: 7, components: components.clone(), ..Report::default() };
        tokio::spawn(serve(listen(&deep).unwrap(), reporter));
        assert_eq!(ask(&deep).await.unwrap(), expected);
        assert_eq!(std::fs::metadata(deep.join(SOCKET)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_for_a_process_that_hangs() {
        let data = tempfile::tempdir().unwrap();
        // Nobody accepts what arrives here.
        let _listener = listen(data.path()).unwrap();
        assert_eq!(ask(data.path()).await.unwrap_err().to_string(), "no answer within 20 s");
    }
}
