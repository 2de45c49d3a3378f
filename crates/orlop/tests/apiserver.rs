//! `orlop apiserver` as a process: killed, starved of space, started twice, stopped, and asked by clients that misbehave.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "apiserver/audit.rs"]
mod audit;
#[path = "apiserver/control_plane.rs"]
mod control_plane;
#[path = "apiserver/crash.rs"]
mod crash;
#[path = "apiserver/election.rs"]
mod election;
#[path = "apiserver/handler.rs"]
mod handler;
#[path = "apiserver/hostile.rs"]
mod hostile;
#[path = "apiserver/logging.rs"]
mod logging;
#[path = "apiserver/process.rs"]
mod process;
#[path = "apiserver/space.rs"]
mod space;

use process::Process;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn a_clean_stop_lets_requests_end_and_the_next_start_finds_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Process::start(folder.path()).await;
    let made = server.create("a", "1").await.unwrap();
    server.terminate().await;
    let server = Process::start(folder.path()).await;
    assert_eq!(server.get("a").await.unwrap(), made);
}

#[tokio::test]
async fn a_second_start_names_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let error = Process::refused(folder.path()).await;
    assert!(error.contains("orlop: open the store: the store in "), "{error}");
    assert!(error.contains(&format!("is in use by process {}", server.pid())), "{error}");
}

#[tokio::test]
async fn the_kubeconfig_is_for_its_owner_alone_and_stays_good() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let mut server = Process::start(folder.path()).await;
    let kubeconfig = folder.path().join("kubeconfig");
    assert_eq!(std::fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
    let authority = std::fs::read(folder.path().join("pki/ca.crt")).unwrap();
    server.terminate().await;
    let _server = Process::start(folder.path()).await;
    assert_eq!(std::fs::read(folder.path().join("pki/ca.crt")).unwrap(), authority);
}

#[tokio::test]
async fn who_has_no_certificate_sees_health_and_version_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let mut stranger = server.stranger().await;
    let mut ask = async |path: &str| {
        stranger.ask(http::Method::GET, path, &[], bytes::Bytes::new()).await.unwrap().status().as_u16()
    };
    assert_eq!((ask("/readyz").await, ask("/version").await), (200, 200));
    assert_eq!((ask("/api").await, ask("/api/v1/secrets").await, ask("/metrics").await), (403, 403, 403));
}

/// Whoever connects and says nothing, or stops in the middle, is cut; others are served meanwhile.
#[tokio::test]
async fn silent_clients_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let mut silent = Vec::new();
    for text in ["", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    server.create("a", "1").await.unwrap();
    for mut stream in silent {
        let mut rest = Vec::new();
        // The server ends it: by an alert or a reset, but it ends.
        drop(tokio::time::timeout(testkit::NEVER, stream.read_to_end(&mut rest)).await.expect("nobody ends it"));
    }
}

#[tokio::test]
async fn a_backup_of_a_running_server_can_take_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let made = server.create("a", "1").await.unwrap();
    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("objects.sqlite");
    let status = tokio::process::Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["apiserver", "--data-dir"])
        .arg(folder.path())
        .arg("backup")
        .arg(&file)
        .status();
    assert!(status.await.unwrap().success());
    let restored = Process::start(other.path()).await;
    assert_eq!(restored.get("a").await.unwrap(), made);
    assert_eq!(restored.get("a").await.unwrap()["data"], json!({ "x": "1" }));
}

/// Nobody knows what is on disk any more: only a new start can tell, so the process ends and says why.
#[tokio::test]
async fn a_process_whose_store_failed_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    command.stderr(std::process::Stdio::piped());
    let server = Process::spawn(command, |_| folder.path().join("kubeconfig")).await;
    server.create("a", "1").await.unwrap();
    let file = rusqlite::Connection::open(folder.path().join("objects.sqlite")).unwrap();
    file.execute_batch("DROP TABLE objects").unwrap();
    let error = server.create("b", "1").await.unwrap_err().to_string();
    assert!(error.contains("500"), "{error}");
    let said = testkit::waiting::within("the end of the process", server.failed()).await;
    assert!(said.contains("orlop: the store failed: no such table"), "{said}");
}
