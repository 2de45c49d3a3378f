//! Requests that do not end, and others that must be written byte by byte.

use e2e::http::Server;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use testkit::waiting::within;
use tokio::io::AsyncReadExt as _;

use super::measure::{USUAL, judge};
use super::scene::{Ask, Scene, TREES, tree};

/// More than one client may have places, bodies or, among strangers, connections.
const HELD: usize = 150;

/// Begins many, and leaves them as they are while others go about their business as on a quiet server.
async fn held(before: &[Ask], head: &str, body: &[u8], refusals: &[&str]) {
    let scene = Scene::begin(&[]).await;
    scene.send(before).await;
    let ((), quiet) = scene.measured(async {}).await;
    let (mut held, busy) = scene.measured(begun(&scene.hostile, head, body)).await;
    if let Err(excess) = judge(USUAL, quiet, busy) {
        panic!("{excess}");
    }
    // They are still there, and go on being there while others ask once more.
    let ((), still) = scene.measured(async {}).await;
    if let Err(excess) = judge(USUAL, quiet, still) {
        panic!("{excess}");
    }
    for stream in &mut held {
        let mut start = [0; 12];
        // Whoever was answered was refused, or has not read on.
        if let Some(Ok(length @ 1..)) = stream.read(&mut start).now_or_never() {
            let said = String::from_utf8_lossy(&start[..length]);
            assert!(refusals.iter().any(|code| said.ends_with(code)), "{said}");
        }
    }
    drop(held);
    scene.end().await;
}

async fn begun(server: &Server, head: &str, body: &[u8]) -> Vec<impl tokio::io::AsyncRead + Unpin> {
    let mut all = Vec::new();
    for _ in 0..HELD {
        all.push(server.begin(head, body).await.unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_do_not_come() {
    let head = format!("POST {TREES} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 3000000");
    held(&[], &head, b"{\"a\":", &["408", "429"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads() {
    let text: Value = "x".repeat(1_000_000).into();
    let large: Vec<Ask> =
        (0..8).map(|turn| Ask::post(TREES, &tree(&format!("t{turn}"), &json!({ "text": text })))).collect();
    held(&large, &format!("GET {TREES} HTTP/1.1"), b"", &["200", "429"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_everything() {
    held(&[], "GET /api/v1/configmaps?watch=1 HTTP/1.1", b"", &["200", "429"]).await;
}

/// It was skipped, and the request ran as its real user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_to_act_as_that_cannot_be_read() {
    let scene = Scene::begin(&[]).await;
    for name in ["Impersonate-User", "Impersonate-Group", "Impersonate-Extra-Scopes"] {
        let head = format!("GET {TREES} HTTP/1.1\r\n{name}: j\u{f6}rg");
        let mut stream = scene.hostile.begin(&head, b"").await.unwrap();
        let mut start = [0; 12];
        within("an answer", stream.read_exact(&mut start)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&start), "HTTP/1.1 400", "{name}");
    }
    scene.end().await;
}
