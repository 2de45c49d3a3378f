//! The guest's pointer, which wakes a screen that sleeps.

use std::time::Duration;

use hypervisor::qmp::commands::{InputEvent, InputSendEvent, Movement};
use hypervisor::qmp::{Qmp, QmpError};

/// How long a guest has to draw a screen that wakes up.
const DRAWING: Duration = Duration::from_millis(200);

/// Moves the pointer there and back. A guest without a pointer has none to move, which is no error.
pub(super) async fn wake(qmp: &Qmp) -> Result<(), QmpError> {
    for (place, by) in [(1, 1), (0, -1)] {
        let moved = send(qmp, InputEvent::Abs, place).await;
        let moved = match moved {
            Err(QmpError::Refused { .. }) => send(qmp, InputEvent::Rel, by).await,
            moved => moved,
        };
        match moved {
            Err(QmpError::Refused { failure, .. }) => tracing::debug!(%failure, "the guest has no pointer to move"),
            moved => moved?,
        }
    }
    tokio::time::sleep(DRAWING).await;
    Ok(())
}

async fn send(qmp: &Qmp, kind: fn(Movement) -> InputEvent, value: i64) -> Result<(), QmpError> {
    let events = ["x", "y"].map(|axis| kind(Movement { axis, value })).to_vec();
    qmp.execute(InputSendEvent { events }).await.map(drop)
}

#[cfg(test)]
mod tests {
    use hypervisor::qmp::connect;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    /// What QEMU is told when its guest has pointers of these kinds, and nothing else.
    async fn told(kinds: &[&str]) -> Vec<Value> {
        let (ours, theirs) = tokio::io::duplex(4096);
        let kinds: Vec<String> = kinds.iter().map(|&kind| kind.to_owned()).collect();
        let qemu = tokio::spawn(async move {
            let mut stream = BufReader::new(theirs);
            let greeting = json!({ "QMP": { "version": { "qemu": { "major": 7, "minor": 2, "micro": 0 }, "package": "" }, "capabilities": [] } });
            stream.get_mut().write_all(format!("{greeting}\r\n").as_bytes()).await.unwrap();
            let mut told = Vec::new();
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.unwrap_or_default() == 0 {
                    return told;
                }
                let question: Value = serde_json::from_str(&line).unwrap();
                let events = &question["arguments"]["events"];
                let kind = events[0]["type"].as_str();
                let is_known = kind.is_none_or(|kind| kinds.iter().any(|known| known == kind));
                let error = json!({ "class": "GenericError", "desc": "Input handler not found for event type" });
                let answer = match is_known {
                    true => json!({ "return": {}, "id": question["id"] }),
                    false => json!({ "error": error, "id": question["id"] }),
                };
                if is_known && kind.is_some() {
                    told.push(events.clone());
                }
                stream.get_mut().write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
            }
        });
        let (qmp, events) = connect(ours).await.unwrap();
        wake(&qmp).await.unwrap();
        drop((qmp, events));
        qemu.await.unwrap()
    }

    #[tokio::test]
    async fn a_pointer_is_moved_there_and_back_if_there_is_one() {
        let along = |kind: &str, value: i64| {
            json!(["x", "y"].map(|axis| json!({ "type": kind, "data": { "axis": axis, "value": value } })))
        };
        assert_eq!(told(&["abs", "rel"]).await, [along("abs", 1), along("abs", 0)]);
        assert_eq!(told(&["rel"]).await, [along("rel", 1), along("rel", -1)]);
        assert_eq!(told(&[]).await, [json!(null); 0]);
    }
}
