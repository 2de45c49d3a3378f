//! Of several controller managers one works, however the others come and go: the lease as processes see it.

use http::Method;
use jiff::{SignedDuration, Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::waiting::within;
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;

use crate::control_plane::{beside, until};
use crate::process::{Process, ask};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const MAIN: &str = "kube-controller-manager";
const MOVED: &str = "migration";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// More deployments than are worked on at once.
const MANY: usize = 30;
/// How long a lease lasts. One whose end is waited for must not end while its holder only waits for a busy machine; where
/// nobody waits for that, it is a lease that no test outlives.
const SHORT_SECONDS: i64 = 12;
const SHORT: [&str; 2] = ["--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=10s"];
const LONG: [&str; 2] = ["--leader-elect-lease-duration=600s", "--leader-elect-renew-deadline=500s"];

fn manager(server: &Process, lasting: [&str; 2], more: &[&str]) -> Child {
    let first: &[&str] = &["controller-manager", "--secure-port=0", "--leader-elect-retry-period=200ms"];
    beside(server, &[first, &lasting, more].concat())
}

/// Waits until a lease is held by another than that one, and returns it.
async fn held_by_another(server: &Process, lease: &str, than: &str) -> Value {
    let path = format!("{LEASES}?watch=1&fieldSelector=metadata.name%3D{lease}");
    let held = |frame: &Value| !["", than].contains(&holder(&frame["object"]).as_str());
    until(server, &path, held).await["object"].take()
}

fn holder(lease: &Value) -> String {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

fn time(lease: &Value, field: &str) -> Timestamp {
    lease["spec"][field].as_str().unwrap().parse().unwrap()
}

async fn get(server: &Process, path: &str) -> Value {
    ask(&mut server.connect().await.unwrap(), Method::GET, path, &Value::Null).await.unwrap()
}

async fn post(server: &Process, path: &str, object: &Value) {
    ask(&mut server.connect().await.unwrap(), Method::POST, path, object).await.unwrap();
}

/// Makes somebody who is no process the holder of a lease; nobody if the name is empty.
async fn hand_over(server: &Process, lease: &str, to: &str) {
    // Its holder renews it all the time, so that this may take more than one attempt.
    for _ in 0..100 {
        let mut current = get(server, &format!("{LEASES}/{lease}")).await;
        current["spec"]["holderIdentity"] = to.into();
        current["spec"]["leaseDurationSeconds"] = 600.into();
        let mut connection = server.connect().await.unwrap();
        match ask(&mut connection, Method::PUT, &format!("{LEASES}/{lease}"), &current).await {
            Ok(_) => return,
            Err(error) => assert!(error.to_string().contains("409"), "{error}"),
        }
    }
    panic!("the lease {lease} is never given to {to}");
}

fn deployment(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "i:1" }] },
            },
        },
    })
}

fn of(name: &str) -> impl Fn(&Value) -> bool + use<'_> {
    move |frame| frame["object"]["metadata"]["labels"]["app"] == name
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), signal).unwrap();
}

/// Waits for its end: the code, and what it said.
async fn ended(mut child: Child) -> (Option<i32>, String) {
    let waiting = async {
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
        (child.wait().await.unwrap().code(), text)
    };
    within("the end of a process", waiting).await
}

async fn start() -> (Process, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Process::start(folder.path()).await, folder)
}

/// It has no time to clean up; so it must need none.
#[tokio::test]
async fn a_killed_manager_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let (left, port) = (tempfile::tempdir().unwrap(), testkit::ports::free());
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["controller-manager", "--bind-address=127.0.0.1", &format!("--secure-port={port}"), "--kubeconfig"]);
    command.arg(server.kubeconfig()).env("TMPDIR", left.path()).kill_on_drop(true);
    let mut manager = command.spawn().unwrap();
    held_by_another(&server, MAIN, "").await;
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok(), "it shows its pages");
    manager.kill().await.unwrap();
    let names: Vec<_> = std::fs::read_dir(left.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, Vec::<std::ffi::OsString>::new());
}

#[tokio::test]
async fn a_leader_that_is_asked_to_end_hands_over_at_once() {
    let (server, _folder) = start().await;
    let first = manager(&server, LONG, &[]);
    let before = held_by_another(&server, MAIN, "").await;
    let _second = manager(&server, LONG, &[]);
    signal(&first, Signal::TERM);
    // The lease lasts twice as long as this test waits for anything.
    let after = held_by_another(&server, MAIN, &holder(&before)).await;
    assert_eq!(after["spec"]["leaseTransitions"], 1, "{after}");
    assert_eq!(ended(first).await.0, Some(0));
    post(&server, DEPLOYMENTS, &deployment("web")).await;
    until(&server, &format!("{PODS}?watch=1"), of("web")).await;
}

#[tokio::test]
async fn the_lease_of_a_leader_that_was_killed_runs_out() {
    let (server, _folder) = start().await;
    let mut first = manager(&server, SHORT, &[]);
    let before = held_by_another(&server, MAIN, "").await;
    let _second = manager(&server, LONG, &[]);
    first.kill().await.unwrap();
    let last = get(&server, &format!("{LEASES}/{MAIN}")).await;
    assert_eq!(holder(&last), holder(&before));
    let after = held_by_another(&server, MAIN, &holder(&before)).await;
    let free = time(&after, "acquireTime").duration_since(time(&last, "renewTime"));
    assert!(free >= SignedDuration::from_secs(SHORT_SECONDS), "it was taken after {free}");
    post(&server, DEPLOYMENTS, &deployment("web")).await;
    until(&server, &format!("{PODS}?watch=1"), of("web")).await;
}

/// A leader that is stopped for longer than its lease has requests waiting when it goes on, and more work than that: the
/// new leader leaves deployments alone. It must not touch one of them any more; whoever leads after it does.
#[tokio::test]
async fn a_leader_that_slept_ends_and_writes_nothing() {
    let (server, _folder) = start().await;
    for number in 0..MANY {
        post(&server, DEPLOYMENTS, &deployment(&format!("web-{number}"))).await;
    }
    let (first, before) = stopped_leader(&server).await;
    let second = manager(&server, LONG, &["--controllers=*,-deployment-controller"]);
    let after = held_by_another(&server, MAIN, &holder(&before)).await;
    let versions = async || {
        let list = get(&server, DEPLOYMENTS).await["items"].take();
        let sets = get(&server, SETS).await["items"].as_array().unwrap().len();
        let versions: Vec<Value> =
            list.as_array().unwrap().iter().map(|one| one["metadata"]["resourceVersion"].clone()).collect();
        (sets, versions)
    };
    let untouched = versions().await;
    assert!(untouched.0 < MANY, "it was not stopped in the middle");
    signal(&first, Signal::CONT);
    let (code, text) = ended(first).await;
    assert_eq!((code, text.contains("the lease kube-controller-manager was lost")), (Some(1), true), "{text}");
    assert_eq!(versions().await, untouched);
    let current = get(&server, &format!("{LEASES}/{MAIN}")).await;
    assert_eq!(holder(&current), holder(&after));
    let _third = manager(&server, LONG, &[]);
    signal(&second, Signal::TERM);
    assert_eq!(ended(second).await.0, Some(0));
    for number in 0..MANY {
        until(&server, &format!("{SETS}?watch=1"), of(&format!("web-{number}"))).await;
    }
}

/// A leader that was stopped in the middle of its work. One that a busy machine let lose its lease before that is none, and
/// the next is tried.
async fn stopped_leader(server: &Process) -> (Child, Value) {
    let slow = ["--controllers=deployment-controller", "--kube-api-qps=4", "--kube-api-burst=1"];
    let mut known = String::new();
    loop {
        let mut first = manager(server, SHORT, &slow);
        let lease = held_by_another(server, MAIN, &known).await;
        until(server, &format!("{SETS}?watch=1"), |frame| frame["object"]["kind"] == "ReplicaSet").await;
        known = holder(&lease);
        if first.try_wait().unwrap().is_none() {
            signal(&first, Signal::STOP);
            return (first, lease);
        }
    }
}

/// Replica sets move: they are only worked on under the second lease, which is taken after the first.
#[tokio::test]
async fn controllers_that_move_run_under_the_second_lease_alone() {
    let (server, folder) = start().await;
    let table = folder.path().join("migration.yaml");
    let text = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n\
                leaderName: migration\ncontrollerLeaders: [{name: replicaset-controller, component: '*'}]\n";
    std::fs::write(&table, text).unwrap();
    let config = format!("--leader-migration-config={}", table.display());
    let more = ["--enable-leader-migration", &config];
    let spec = json!({ "holderIdentity": "other", "leaseDurationSeconds": 600 });
    post(&server, LEASES, &json!({ "metadata": { "name": MOVED }, "spec": spec })).await;
    let first = manager(&server, LONG, &more);
    let identity = holder(&held_by_another(&server, MAIN, "").await);
    post(&server, DEPLOYMENTS, &deployment("web")).await;
    let scaled = |replicas: u32| move |frame: &Value| frame["object"]["spec"]["replicas"] == replicas;
    until(&server, &format!("{SETS}?watch=1"), scaled(2)).await;
    // A second round of the deployment's controller: the other one has had its time, and used none of it.
    let mut web = get(&server, &format!("{DEPLOYMENTS}/web")).await;
    web["spec"]["replicas"] = 1.into();
    web["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let mut connection = server.connect().await.unwrap();
    ask(&mut connection, Method::PUT, &format!("{DEPLOYMENTS}/web"), &web).await.unwrap();
    let set = until(&server, &format!("{SETS}?watch=1"), scaled(1)).await;
    assert_eq!(set["object"]["status"], json!({ "replicas": 0 }), "it was worked on");
    assert_eq!(get(&server, PODS).await["items"], json!([]));

    hand_over(&server, MOVED, "").await;
    assert_eq!(holder(&held_by_another(&server, MOVED, "other").await), identity);
    until(&server, &format!("{PODS}?watch=1"), of("web")).await;

    // Who loses one of the two has lost both; the next one has the first again, and waits for the second.
    let second = manager(&server, LONG, &more);
    hand_over(&server, MOVED, "other").await;
    let (code, text) = ended(first).await;
    assert_eq!((code, text.contains("the lease migration was lost")), (Some(1), true), "{text}");
    hand_over(&server, MAIN, "").await;
    let next = holder(&held_by_another(&server, MAIN, &identity).await);
    post(&server, DEPLOYMENTS, &deployment("next")).await;
    let set = until(&server, &format!("{SETS}?watch=1"), of("next")).await;
    assert_eq!(set["object"]["status"], json!({ "replicas": 0 }), "it was worked on");
    hand_over(&server, MOVED, "").await;
    assert_eq!(holder(&held_by_another(&server, MOVED, "other").await), next);
    until(&server, &format!("{PODS}?watch=1"), of("next")).await;
    // Both are given back.
    signal(&second, Signal::TERM);
    assert_eq!(ended(second).await.0, Some(0));
    for lease in [MAIN, MOVED] {
        assert_eq!(holder(&get(&server, &format!("{LEASES}/{lease}")).await), "", "{lease}");
    }
}
