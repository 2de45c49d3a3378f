//! Freezing, on an agent that behaves as qemu-ga does: while frozen it refuses to freeze again, and to tell most things.

use std::sync::Arc;
use std::time::Duration;

use hypervisor::agent::{Agent, AgentError};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, watch};

use super::freezing::Freezing;
use super::info::info;
use crate::domain::Domain;
use crate::driver::SharedAgent;

const MINUTE: Duration = Duration::from_secs(60);

/// What an agent has come to.
#[derive(Debug, Default)]
struct Inside {
    frozen: bool,
    /// It does not know the question whether it is frozen.
    knows_no_status: bool,
    thaws: usize,
}

impl Inside {
    fn answer(&mut self, question: &str) -> Value {
        let refused = |why: &str| json!({ "error": { "class": "GenericError", "desc": why } });
        match question {
            "guest-info" => json!({ "return": { "version": "7.2.0" } }),
            "guest-fsfreeze-status" if self.knows_no_status => refused("no such command"),
            "guest-fsfreeze-status" => json!({ "return": if self.frozen { "frozen" } else { "thawed" } }),
            "guest-fsfreeze-thaw" => {
                self.thaws += 1;
                self.frozen = false;
                json!({ "return": 1 })
            }
            _ if self.frozen => refused("the command is not allowed while frozen"),
            "guest-fsfreeze-freeze" => {
                self.frozen = true;
                json!({ "return": 1 })
            }
            "guest-get-osinfo" => json!({ "return": { "id": "debian" } }),
            "guest-get-host-name" => json!({ "return": { "host-name": "anna" } }),
            _ => refused("no such command"),
        }
    }
}

/// An agent on its channel, and what is inside.
fn guest() -> (SharedAgent, Arc<Mutex<Inside>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let inside = Arc::new(Mutex::new(Inside::default()));
    let seen = inside.clone();
    tokio::spawn(async move {
        let mut stream = BufReader::new(theirs);
        loop {
            let mut line = Vec::new();
            if stream.read_until(b'\n', &mut line).await.unwrap_or_default() == 0 {
                return;
            }
            let line: Vec<u8> = line.into_iter().filter(|byte| *byte != 0xff).collect();
            let question: Value = serde_json::from_slice(&line).unwrap();
            let mut answer = Vec::new();
            if question["execute"] == "guest-sync-delimited" {
                answer.push(0xff);
                answer.extend(json!({ "return": question["arguments"]["id"] }).to_string().bytes());
            } else {
                let said = seen.lock().await.answer(question["execute"].as_str().unwrap());
                answer.extend(said.to_string().bytes());
            }
            answer.push(b'\n');
            stream.get_mut().write_all(&answer).await.unwrap();
        }
    });
    (Arc::new(Mutex::new(Agent::new(ours))), inside)
}

fn freezing(agent: &SharedAgent) -> Freezing {
    Freezing::new(agent.clone(), watch::channel(Domain::starting()).1)
}

/// Lets time pass, and what is due then happen.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_guest_that_is_frozen_is_frozen_again_without_an_error() {
    let (agent, inside) = guest();
    let freezing = freezing(&agent);
    for _ in 0..3 {
        freezing.freeze(Some(MINUTE)).await.unwrap();
        assert!(inside.lock().await.frozen);
    }
    freezing.unfreeze().await.unwrap();
    assert!(!inside.lock().await.frozen);
    freezing.freeze(None).await.unwrap();
    assert!(inside.lock().await.frozen);
}

#[tokio::test]
async fn the_thaw_moves_to_a_later_time_and_never_to_an_earlier_one() {
    let (agent, inside) = guest();
    let freezing = freezing(&agent);
    tokio::time::pause();
    freezing.freeze(Some(5 * MINUTE)).await.unwrap();
    freezing.freeze(Some(MINUTE)).await.unwrap();
    pass(4 * MINUTE).await;
    assert!(inside.lock().await.frozen, "who was first has its five minutes");
    freezing.freeze(Some(3 * MINUTE)).await.unwrap();
    pass(2 * MINUTE).await;
    assert!(inside.lock().await.frozen, "who was last has its three minutes");
    pass(2 * MINUTE).await;
    assert!(!inside.lock().await.frozen);
    pass(60 * MINUTE).await;
    assert_eq!(inside.lock().await.thaws, 1, "one thaw was due");
}

#[tokio::test]
async fn a_guest_that_came_frozen_is_thawed_in_time() {
    let (agent, inside) = guest();
    inside.lock().await.frozen = true;
    tokio::time::pause();
    freezing(&agent).freeze(Some(MINUTE)).await.unwrap();
    assert!(inside.lock().await.frozen);
    pass(2 * MINUTE).await;
    assert!(!inside.lock().await.frozen);
}

#[tokio::test]
async fn an_agent_that_does_not_say_whether_it_is_frozen_is_asked_to_freeze() {
    let (agent, inside) = guest();
    inside.lock().await.knows_no_status = true;
    let freezing = freezing(&agent);
    freezing.freeze(None).await.unwrap();
    assert!(inside.lock().await.frozen);
    assert!(matches!(freezing.freeze(None).await, Err(AgentError::Refused { .. })));
}

#[tokio::test]
async fn what_a_guest_said_of_itself_stays_while_it_is_frozen() {
    let (agent, _inside) = guest();
    let mut before = info(&mut *agent.lock().await, None).await.unwrap();
    assert_eq!((before.hostname.as_str(), before.freeze_status.as_str()), ("anna", "thawed"));
    freezing(&agent).freeze(None).await.unwrap();
    let frozen = info(&mut *agent.lock().await, Some(&before)).await.unwrap();
    before.freeze_status = "frozen".to_owned();
    assert_eq!(frozen, before);
    let unknown = info(&mut *agent.lock().await, None).await.unwrap();
    assert_eq!((unknown.os, unknown.hostname.as_str()), (None, ""), "an empty system is not one that was told");
}
