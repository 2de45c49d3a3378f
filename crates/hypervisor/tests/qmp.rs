//! The monitor client, on recorded conversations and on a real QEMU.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Stdio;
use std::time::Duration;

use hypervisor::qmp::commands::{Continue, Empty, QueryStatus, QueryVersion, Quit};
use hypervisor::qmp::{Command, Event, Events, Qmp, QmpError, connect};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::UnixListener;

/// As QEMU 7.2 of Debian sends it.
const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian 1:7.2+dfsg-7+deb12u18"}, "capabilities": ["oob"]}}"#;

/// The other side of a conversation, played from a script.
struct Peer(BufReader<DuplexStream>);

impl Peer {
    async fn send(&mut self, line: impl ToString) {
        self.0.get_mut().write_all(format!("{}\r\n", line.to_string()).as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn answer(&mut self, answer: Value) {
        let id = self.receive().await["id"].clone();
        self.send(json!({ "return": answer, "id": id })).await;
    }
}

async fn conversation() -> (Qmp, Events, Peer) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let mut peer = Peer(BufReader::new(theirs));
    let (connected, ()) = tokio::join!(connect(ours), async {
        peer.send(GREETING).await;
        peer.answer(json!({})).await;
    });
    let (qmp, events) = connected.unwrap();
    (qmp, events, peer)
}

fn event(name: &str) -> Value {
    json!({ "event": name, "data": { "reason": "x" }, "timestamp": { "seconds": 1, "microseconds": 2 } })
}

#[tokio::test]
async fn answers_find_their_question_in_any_order() {
    let (qmp, _events, mut peer) = conversation().await;
    let (status, version, ()) = tokio::join!(qmp.execute(QueryStatus {}), qmp.execute(QueryVersion {}), async {
        let (first, second) = (peer.receive().await, peer.receive().await);
        let version = json!({ "qemu": { "major": 7, "minor": 2, "micro": 22 }, "package": "x", "new-field": 1 });
        let status = json!({ "running": false, "status": "prelaunch", "singlestep": false });
        peer.send(json!({ "return": version, "id": second["id"] })).await;
        peer.send(json!({ "return": status, "id": first["id"] })).await;
    });
    assert_eq!(status.unwrap().status, "prelaunch");
    assert_eq!(version.unwrap().qemu.major, 7);
}

#[tokio::test]
async fn unknown_events_pass_through_in_order() {
    let (_qmp, mut events, mut peer) = conversation().await;
    for name in ["RESUME", "FROM_THE_FUTURE", "STOP"] {
        peer.send(event(name)).await;
    }
    peer.send("this is no JSON").await;
    peer.send(event("SHUTDOWN")).await;
    for expected in ["RESUME", "FROM_THE_FUTURE", "STOP", "SHUTDOWN"] {
        let Event { name, data, .. } = events.next().await.unwrap();
        assert_eq!((name.as_str(), &data["reason"]), (expected, &json!("x")));
    }
}

#[tokio::test]
async fn a_refusal_comes_in_qemus_own_words() {
    let (qmp, _events, mut peer) = conversation().await;
    let (refused, ()) = tokio::join!(qmp.execute(Continue {}), async {
        let id = peer.receive().await["id"].clone();
        let error = json!({ "class": "GenericError", "desc": "Resetting the Virtual Machine is required" });
        peer.send(json!({ "error": error, "id": id })).await;
    });
    assert_eq!(refused.unwrap_err().to_string(), "QEMU refused cont: Resetting the Virtual Machine is required");
}

#[tokio::test(start_paused = true)]
async fn every_command_has_a_deadline() {
    let (qmp, _events, mut peer) = conversation().await;
    let error = qmp.execute(QueryStatus {}).await.unwrap_err();
    assert!(matches!(error, QmpError::Deadline { command: "query-status", .. }), "{error}");
    assert!(error.is_retryable());

    // The late answer is for nobody, and the next one is still found.
    let late = peer.receive().await["id"].clone();
    peer.send(json!({ "return": { "running": true, "status": "late" }, "id": late })).await;
    let (status, ()) =
        tokio::join!(qmp.execute(QueryStatus {}), peer.answer(json!({ "running": true, "status": "running" })));
    assert_eq!(status.unwrap().status, "running");
}

#[tokio::test]
async fn a_dropped_question_does_not_disturb_the_next() {
    let (qmp, _events, mut peer) = conversation().await;
    let dropped = tokio::time::timeout(Duration::from_millis(10), qmp.execute(QueryStatus {})).await;
    assert!(dropped.is_err());
    peer.answer(json!({ "running": true, "status": "for nobody" })).await;
    let (status, ()) =
        tokio::join!(qmp.execute(QueryStatus {}), peer.answer(json!({ "running": true, "status": "running" })));
    assert_eq!(status.unwrap().status, "running");
}

#[tokio::test]
async fn a_closed_connection_ends_questions_and_events() {
    let (qmp, mut events, mut peer) = conversation().await;
    let (answer, ()) = tokio::join!(qmp.execute(QueryStatus {}), async {
        peer.receive().await;
        drop(peer);
    });
    assert!(matches!(answer, Err(QmpError::Closed)));
    assert_eq!(events.next().await, None);
    assert!(matches!(qmp.execute(QueryStatus {}).await, Err(QmpError::Closed)));
}

#[tokio::test]
async fn whoever_does_not_greet_is_no_qemu() {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    let (connected, _) = tokio::join!(connect(ours), theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n"));
    assert!(matches!(connected, Err(QmpError::Greeting(_))));
}

#[derive(Serialize)]
struct NoSuchCommand {}

impl Command for NoSuchCommand {
    const NAME: &'static str = "no-such-command";
    type Answer = Empty;
}

#[tokio::test]
#[ignore = "needs QEMU: make test"]
async fn a_real_qemu_answers_and_tells() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("monitor");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut child = tokio::process::Command::new("qemu-system-x86_64")
        .args(["-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-S", "-chardev"])
        .arg(format!("socket,id=m,path={}", socket.display()))
        .args(["-mon", "chardev=m,mode=control"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let (qmp, mut events) = connect(stream).await.unwrap();

    assert!(qmp.execute(QueryVersion {}).await.unwrap().qemu.major >= 7);
    assert_eq!(qmp.execute(QueryStatus {}).await.unwrap().status, "prelaunch");
    assert!(matches!(qmp.execute(NoSuchCommand {}).await, Err(QmpError::Refused { .. })));

    qmp.execute(Continue {}).await.unwrap();
    assert_eq!(events.next().await.unwrap().name, "RESUME");
    qmp.execute(Quit {}).await.unwrap();
    let shutdown = events.next().await.unwrap();
    assert_eq!((shutdown.name.as_str(), &shutdown.data["reason"]), ("SHUTDOWN", &json!("host-qmp-quit")));
    assert_eq!(events.next().await, None);
    assert!(child.wait().await.unwrap().success());
}
