//! The server is killed at random points, again and again; whatever it acknowledged is there afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use testkit::waiting::within;
use tokio::sync::watch;

use crate::process::{MAPS, Process, ask, map};

/// How often it is killed; `make soak` does it longer. `ORLOP_CRASH_SEED` makes the points other ones.
const ROUNDS: usize = 60;
const WRITERS: u64 = 3;
/// A kill comes after so many acknowledged writes at the most, and so many microseconds after the last of them.
const MOST_WRITES: u64 = 24;
const LONGEST: u64 = 2000;

/// What a writer knows of one of its objects.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    /// The text that was acknowledged; none, if the object was not made or was deleted.
    acknowledged: Option<String>,
    /// What was asked for and not answered: it may have happened or not.
    asked: Option<Option<String>>,
}

type Ledger = BTreeMap<String, Known>;

/// Small and repeatable; what counts is that points differ.
struct Chance(u64);

impl Chance {
    fn next(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_however_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledgers: Vec<Ledger> = vec![Ledger::new(); usize::try_from(WRITERS).unwrap()];
    let mut chance = Chance(testkit::soak::seed("ORLOP_CRASH_SEED").wrapping_mul(7));
    let mut latest = 0;
    for _ in 0..testkit::soak::rounds(ROUNDS) {
        let mut server = Process::start(folder.path()).await;
        latest = check(&server, &mut ledgers, latest).await;
        let (acknowledged, mut count) = watch::channel(0);
        let mut writers = Vec::new();
        for (writer, ledger) in ledgers.drain(..).enumerate() {
            let connection = server.connect().await.unwrap();
            let chance = Chance(chance.next(u64::MAX));
            writers.push(tokio::spawn(write(connection, writer, ledger, chance, acknowledged.clone())));
        }
        let enough = chance.next(MOST_WRITES);
        within("acknowledged writes", count.wait_for(|count| *count >= enough)).await.unwrap();
        tokio::time::sleep(Duration::from_micros(chance.next(LONGEST))).await;
        server.kill().await;
        for writer in writers {
            let (ledger, seen) = writer.await.unwrap();
            ledgers.push(ledger);
            latest = latest.max(seen);
        }
    }
    let server = Process::start(folder.path()).await;
    check(&server, &mut ledgers, latest).await;
}

/// Writes until the server is gone. Gives what it knows and the latest revision it saw.
async fn write(
    mut connection: e2e::http::Connection,
    writer: usize,
    mut ledger: Ledger,
    mut chance: Chance,
    acknowledged: watch::Sender<u64>,
) -> (Ledger, u64) {
    let mut latest = 0;
    loop {
        let name = format!("w{writer}-{}", chance.next(6));
        let known = ledger.entry(name.clone()).or_default();
        let text = format!("{}-{}", chance.next(1_000_000), "x".repeat(usize::try_from(chance.next(3000)).unwrap()));
        let path = format!("{MAPS}/{name}");
        let (method, path, body, asked) = match (&known.acknowledged, chance.next(4)) {
            (None, _) => (Method::POST, MAPS.to_owned(), map(&name, &text), Some(text)),
            (Some(_), 0) => (Method::DELETE, path, json!({}), None),
            (Some(_), _) => (Method::PUT, path, map(&name, &text), Some(text)),
        };
        known.asked = Some(asked.clone());
        match ask(&mut connection, method, &path, &body).await {
            Ok(answer) => {
                *known = Known { acknowledged: asked, asked: None };
                acknowledged.send_modify(|count| *count += 1);
                latest = latest.max(revision(&answer));
            }
            // Whatever else it is, it is the end of the server: these requests are never refused.
            Err(error) => {
                assert!(!error.to_string().contains(": \""), "{name}: {error}");
                return (ledger, latest);
            }
        }
    }
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Compares what is there with what was acknowledged; what was only asked for may be there or not, and is known now.
async fn check(server: &Process, ledgers: &mut [Ledger], latest: u64) -> u64 {
    let mut connection = server.connect().await.unwrap();
    let list = ask(&mut connection, Method::GET, MAPS, &Value::Null).await.unwrap();
    let now = revision(&list);
    assert!(now >= latest, "the revision fell from {latest} to {now}");
    let mut found = BTreeMap::new();
    for item in list["items"].as_array().unwrap() {
        assert!(revision(item) <= now);
        found.insert(
            item["metadata"]["name"].as_str().unwrap().to_owned(),
            item["data"]["x"].as_str().unwrap().to_owned(),
        );
    }
    for (name, known) in ledgers.iter_mut().flatten() {
        let text = found.remove(name);
        let expected = known.acknowledged == text || known.asked.as_ref() == Some(&text);
        assert!(expected, "{name} is {text:?}, and was {known:?}");
        *known = Known { acknowledged: text, asked: None };
    }
    assert_eq!(found, BTreeMap::new(), "nobody made these");
    watches_resume(&mut connection, latest, now).await;
    now
}

/// A watch from what was seen before the crash goes on, or says that it cannot.
async fn watches_resume(connection: &mut e2e::http::Connection, latest: u64, now: u64) {
    if latest == 0 {
        return;
    }
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={latest}");
    if latest < now {
        let answer = connection.ask(Method::GET, &path, &[], bytes::Bytes::new()).await.unwrap();
        let frame: Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!((&frame["type"], &frame["object"]["code"]), (&json!("ERROR"), &json!(410)), "{frame}");
    } else {
        let answer = connection.send(Method::GET, &path, &[], bytes::Bytes::new()).await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}
