//! Whatever QEMU or a guest's agent says, whoever asks gets an answer or an error.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use hypervisor::agent::Agent;
use hypervisor::agent::commands::{FileSystems, FreezeStatus, Info, Interfaces, OsInfo, TimeZone, Users};
use hypervisor::qmp::commands::{QueryBalloon, QueryBlockStats, QueryCpus, QueryStatus, QueryVersion};
use hypervisor::qmp::connect;
use proptest::prelude::*;
use testkit::edits::{Edit, edited};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n";

/// Events and answers, right and wrong ones among them.
const MONITOR: &str = r#"{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}}
{"return": {"running": true, "status": "running"}, "id": 2}
{"event": "SHUTDOWN", "data": {"guest": true}, "timestamp": {"seconds": -1, "microseconds": 0}}
{"error": {"class": "GenericError", "desc": "no"}, "id": 3}
{"return": [{"node-name": "d", "stats": {"rd_bytes": 1, "wr_bytes": 2, "rd_operations": 3, "wr_operations": 4, "rd_total_time_ns": 5, "wr_total_time_ns": 6}}], "id": 4}
{"return": {"actual": 1024}, "id": 5}
{"return": [{"cpu-index": 0, "thread-id": 7}], "id": 6}
"#;

/// A synchronisation, and an answer to each question.
const GUEST: &str = r#"{"return": 1}
{"return": {"version": "7.2", "supported_commands": [{"name": "guest-ping", "enabled": true}]}}
{"return": {"id": "debian", "pretty-name": "Debian"}}
{"return": {"zone": "UTC", "offset": 0}}
{"return": [{"user": "root", "login-time": 1.5}]}
{"return": [{"name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 1, "total-bytes": 2, "disk": []}]}
{"return": [{"name": "eth0", "hardware-address": "02:00:00:00:00:01", "ip-addresses": [{"ip-address": "10.0.2.2", "ip-address-type": "ipv4", "prefix": 24}]}]}
{"return": "thawed"}
"#;

/// Time passes at once where nothing else happens: nobody waits for a deadline.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(work)
}

/// How many questions the monitor answered, and how many events it told.
async fn ask_the_monitor(said: &[u8]) -> (usize, usize) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let mut theirs = BufReader::new(theirs);
    let (connected, ()) = tokio::join!(connect(ours), async {
        theirs.write_all(GREETING.as_bytes()).await.unwrap();
        asked(&mut theirs, 1).await;
        theirs.write_all(b"{\"return\": {}, \"id\": 1}\n").await.unwrap();
    });
    let (qmp, mut events) = connected.unwrap();
    let (status, version, disks, balloon, cpus, ()) = tokio::join!(
        biased;
        qmp.execute(QueryStatus {}),
        qmp.execute(QueryVersion {}),
        qmp.execute(QueryBlockStats {}),
        qmp.execute(QueryBalloon {}),
        qmp.execute(QueryCpus {}),
        async {
            // After the questions: an answer to what nobody asked is for nobody.
            asked(&mut theirs, 5).await;
            theirs.write_all(said).await.unwrap();
        },
    );
    drop((theirs, qmp));
    let answered = [status.is_ok(), version.is_ok(), disks.is_ok(), balloon.is_ok(), cpus.is_ok()];
    let mut told = 0;
    while events.next().await.is_some() {
        told += 1;
    }
    (answered.into_iter().filter(|ok| *ok).count(), told)
}

/// Waits until so many questions were asked.
async fn asked(stream: &mut BufReader<DuplexStream>, count: usize) {
    for _ in 0..count {
        stream.read_line(&mut String::new()).await.unwrap();
    }
}

/// How many questions the agent answered.
async fn ask_the_agent(said: &[u8]) -> usize {
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    theirs.write_all(&[b"\xff", said].concat()).await.unwrap();
    let mut agent = Agent::new(ours);
    let mut count = 0;
    count += usize::from(agent.execute(Info {}).await.is_ok());
    count += usize::from(agent.execute(OsInfo {}).await.is_ok());
    count += usize::from(agent.execute(TimeZone {}).await.is_ok());
    count += usize::from(agent.execute(Users {}).await.is_ok());
    count += usize::from(agent.execute(FileSystems {}).await.is_ok());
    count += usize::from(agent.execute(Interfaces {}).await.is_ok());
    count + usize::from(agent.execute(FreezeStatus {}).await.is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_monitor_says(edits in prop::collection::vec(any::<Edit>(), 0..10)) {
        at_once(ask_the_monitor(&edited(MONITOR.as_bytes(), &edits)));
    }

    #[test]
    fn whatever_an_agent_says(edits in prop::collection::vec(any::<Edit>(), 0..10)) {
        at_once(ask_the_agent(&edited(GUEST.as_bytes(), &edits)));
    }
}

/// Without a change they say what they are meant to: else nothing above would be tried.
#[test]
fn what_is_changed_is_right() {
    assert_eq!(at_once(ask_the_monitor(MONITOR.as_bytes())), (4, 2));
    assert_eq!(at_once(ask_the_agent(GUEST.as_bytes())), 7);
}
