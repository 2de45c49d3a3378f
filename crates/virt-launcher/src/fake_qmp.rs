//! A QEMU for unit tests: it answers what a test says, and nothing happens.

use std::sync::Arc;

use hypervisor::qmp::{self, Qmp};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

type Answers = dyn Fn(&Value) -> Option<Value> + Send + Sync;

/// What it answers to a request; it refuses where there is no answer.
pub(crate) struct FakeQemu(Arc<Answers>);

impl FakeQemu {
    pub(crate) fn new(answer: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }

    fn reply(&self, request: &Value) -> Value {
        let id = &request["id"];
        // Leaving the negotiation is not the test's business.
        let answer = if request["execute"] == "qmp_capabilities" { Some(json!({})) } else { (self.0)(request) };
        match answer {
            Some(answer) => json!({ "return": answer, "id": id }),
            None => json!({ "error": { "class": "GenericError", "desc": "there is no such thing" }, "id": id }),
        }
    }
}

/// A connection to it.
pub(crate) async fn answering(qemu: FakeQemu) -> Qmp {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move {
        let mut stream = BufReader::new(theirs);
        let version = json!({ "qemu": { "major": 7, "minor": 2, "micro": 22 }, "package": "" });
        let greeting = json!({ "QMP": { "version": version, "capabilities": [] } });
        stream.write_all(format!("{greeting}\n").as_bytes()).await.unwrap();
        let mut line = String::new();
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            let reply = qemu.reply(&serde_json::from_str(&line).unwrap());
            stream.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
            line.clear();
        }
    });
    qmp::connect(ours).await.unwrap().0
}
