//! The guest agent's client, on scripted conversations: a guest may answer late, twice, nonsense or not at all.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use hypervisor::agent::commands::{FileSystems, FreezeStatus, OsInfo, Ping, Shutdown};
use hypervisor::agent::{Agent, AgentError};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

/// The guest's side of the channel.
struct Guest(BufReader<DuplexStream>);

impl Guest {
    async fn receive(&mut self) -> Value {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).await.unwrap();
        let json: Vec<u8> = line.into_iter().filter(|byte| *byte != 0xff).collect();
        serde_json::from_slice(&json).unwrap()
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }

    /// Answers a synchronisation as qemu-ga does: the sentinel, then the number.
    async fn synchronize(&mut self) {
        let request = self.receive().await;
        assert_eq!(request["execute"], "guest-sync-delimited");
        let mut bytes = vec![0xff];
        bytes.extend(json!({ "return": request["arguments"]["id"] }).to_string().bytes());
        bytes.push(b'\n');
        self.send(&bytes).await;
    }

    async fn answer(&mut self, answer: Value) {
        self.receive().await;
        self.send(format!("{answer}\n").as_bytes()).await;
    }
}

fn channel() -> (Agent<DuplexStream>, Guest) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    (Agent::new(ours), Guest(BufReader::new(theirs)))
}

#[tokio::test]
async fn a_question_follows_a_synchronisation_and_the_next_needs_none() {
    let (mut agent, mut guest) = channel();
    let (os, ()) = tokio::join!(agent.execute(OsInfo {}), async {
        guest.synchronize().await;
        guest.answer(json!({ "return": { "id": "debian", "pretty-name": "Debian", "unknown": 1 } })).await;
    });
    assert_eq!(os.unwrap().pretty_name, "Debian");
    let (status, ()) = tokio::join!(agent.execute(FreezeStatus {}), guest.answer(json!({ "return": "thawed" })));
    assert_eq!(status.unwrap(), "thawed");
}

#[tokio::test]
async fn what_was_said_before_is_thrown_away() {
    let (mut agent, mut guest) = channel();
    guest.send(b"{\"return\": \"an answer to somebody else\"}\nhalf a li").await;
    let (ping, ()) = tokio::join!(agent.execute(Ping {}), async {
        guest.synchronize().await;
        guest.answer(json!({ "return": {} })).await;
    });
    ping.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_not_taken_for_the_next_one() {
    let (mut agent, mut guest) = channel();
    let (silent, ()) = tokio::join!(agent.execute(FreezeStatus {}), async {
        guest.synchronize().await;
        guest.receive().await;
    });
    assert!(matches!(silent, Err(AgentError::Silent { command: "guest-fsfreeze-status", .. })));

    let (status, ()) = tokio::join!(agent.execute(FreezeStatus {}), async {
        guest.send(b"{\"return\": \"frozen\"}\n").await;
        guest.synchronize().await;
        guest.answer(json!({ "return": "thawed" })).await;
    });
    assert_eq!(status.unwrap(), "thawed");
}

#[tokio::test]
async fn a_refusal_and_nonsense_are_told_apart() {
    let (mut agent, mut guest) = channel();
    let (refused, ()) = tokio::join!(agent.execute(Ping {}), async {
        guest.synchronize().await;
        guest.answer(json!({ "error": { "class": "CommandNotFound", "desc": "disabled" } })).await;
    });
    assert_eq!(refused.unwrap_err().to_string(), "the guest agent refused guest-ping: disabled");
    let (nonsense, ()) = tokio::join!(agent.execute(FileSystems {}), guest.answer(json!({ "return": "many" })));
    assert!(matches!(nonsense, Err(AgentError::Answer { .. })));
}

#[tokio::test]
async fn a_shutdown_is_sent_without_waiting_for_an_answer() {
    let (mut agent, mut guest) = channel();
    let (sent, request) = tokio::join!(agent.send(Shutdown { mode: "powerdown" }), async {
        guest.synchronize().await;
        guest.receive().await
    });
    sent.unwrap();
    assert_eq!((&request["execute"], &request["arguments"]["mode"]), (&json!("guest-shutdown"), &json!("powerdown")));
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_an_agent_is_silent_not_stuck() {
    let (mut agent, guest) = channel();
    assert!(matches!(agent.execute(Ping {}).await, Err(AgentError::Silent { .. })));
    drop(guest);
    assert!(matches!(agent.execute(Ping {}).await, Err(AgentError::Closed(_))));
}
