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
#[path = "apiserver/rights.rs"]
mod rights;
#[path = "apiserver/space.rs"]
mod space;

use e2e::kubeconfig::Kubeconfig;
use process::Process;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn a_clean_stop_ends_well_and_the_next_start_finds_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Process::start(folder.path()).await;
    let made = server.create("a", "1").await.unwrap();
    server.terminate().await;
    let server = Process::start(folder.path()).await;
    assert_eq!(server.get("a").await.unwrap(), made);
}

/// What a directory is called is kept by the directory above it, which has to be written as well.
#[tokio::test]
#[ignore = "needs strace: make test"]
async fn folders_that_it_makes_are_on_disk_before_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().canonicalize().unwrap();
    let (data, trace) = (top.join("a/b/data"), top.join("trace"));
    let mut command = tokio::process::Command::new("strace");
    // The server stays our child; the other one ends with it.
    command.args(["-D", "-f", "-y", "-e", "trace=mkdir,mkdirat,fsync", "-o"]).arg(&trace);
    command.arg(env!("CARGO_BIN_EXE_orlop")).args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    let mut server = Process::spawn(command, |_| data.join("kubeconfig")).await;
    let told = std::fs::read_to_string(&trace).unwrap();
    let line = |what: &str| told.lines().position(|line| line.contains(what));
    for made in ["a", "a/b", "a/b/data", "a/b/data/objects.sqlite"] {
        let path = top.join(made);
        let synced = line(&format!("<{}>)", path.parent().unwrap().display()));
        let synced = synced.unwrap_or_else(|| panic!("who made {made} did not write what is above it: {told}"));
        if path.is_dir() {
            assert!(line(&format!("{:?}", path.display().to_string())).unwrap() < synced, "{made}: {told}");
        }
    }
    server.terminate().await;
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
    let kept = Kubeconfig::read(&kubeconfig).unwrap();
    let made = server.create("a", "1").await.unwrap();
    server.terminate().await;
    let server = Process::start(folder.path()).await;
    // Whoever copied the file reaches the next server with it, as the same user; but for the port, which the system chose.
    let kept = Kubeconfig { server: format!("https://{}", server.address()), ..kept };
    let mut connection = e2e::http::Server::new(&kept).unwrap().connect().await.unwrap();
    let found = process::ask(&mut connection, http::Method::GET, &format!("{}/a", process::MAPS), &json!(null)).await;
    assert_eq!(found.unwrap(), made);
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

/// Whoever connects and says nothing, or stops in the middle, is cut; others are served meanwhile. Those who are silent later, and
/// when each is cut: `crates/apiserver/src/serve/tests.rs`.
#[tokio::test]
async fn silent_clients_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let mut silent = Vec::new();
    // Nothing, and the first bytes of a TLS record that says it is longer.
    for said in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00"] {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(said).await.unwrap();
        silent.push((said, stream));
    }
    server.create("a", "1").await.unwrap();
    for (said, mut stream) in silent {
        let mut rest = Vec::new();
        let ended = testkit::waiting::within("the end of a silent connection", stream.read_to_end(&mut rest)).await;
        // Without a word, or by a reset.
        assert!(ended.is_err() || rest.is_empty(), "{said:?} is answered by {rest:?}");
    }
    server.get("a").await.unwrap();
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
    assert!(said.contains("orlop: the store has failed: no such table"), "{said}");
}
