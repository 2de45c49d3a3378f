//! What the server logs: a line for each act, its form, and how much of it.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::process::{MAPS, Process, ask, map};

/// The lines of a server with these flags that was asked to write, to read, and to give a sign of life.
async fn lines(flags: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut server = start(folder.path(), &log, flags).await;
    let mut connection = server.connect().await.unwrap();
    let mut send = async |method: Method, path: &str, body: Value| ask(&mut connection, method, path, &body).await;
    send(Method::POST, MAPS, map("a", "1")).await.unwrap();
    send(Method::GET, &format!("{MAPS}/a"), Value::Null).await.unwrap();
    send(Method::GET, &format!("{MAPS}/none"), Value::Null).await.unwrap_err();
    send(Method::POST, MAPS, map("a", "1")).await.unwrap_err();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease =
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "l" }, "spec": {} });
    send(Method::POST, leases, lease).await.unwrap();
    send(Method::PUT, &format!("{MAPS}/a"), map("a", "2")).await.unwrap();
    // The same once more changes nothing.
    send(Method::PUT, &format!("{MAPS}/a"), map("a", "2")).await.unwrap();
    send(Method::DELETE, &format!("{MAPS}/a"), Value::Null).await.unwrap();
    server.terminate().await;
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(str::to_owned).collect()
}

async fn start(folder: &Path, log: &Path, flags: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder).args(flags);
    command.stderr(std::fs::File::create(log).unwrap());
    Process::spawn(command, |_| folder.join("kubeconfig")).await
}

#[tokio::test]
async fn an_act_is_one_line_and_questions_refusals_and_signs_of_life_are_none() {
    let lines = lines(&[]).await;
    let acts: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            let (time, rest) = line.split_once(' ').unwrap();
            assert!(time.len() == 27 && time.ends_with('Z'), "{line}");
            let (what, keys) = rest.strip_prefix("INFO  apiserver: ").unwrap().split_once(' ').unwrap();
            (what, keys)
        })
        .collect();
    let expected = [("created", "create", "201"), ("changed", "update", "200"), ("deleted", "delete", "200")];
    assert_eq!(acts.iter().map(|(what, _)| *what).collect::<Vec<_>>(), expected.map(|(what, ..)| what), "{lines:#?}");
    for ((_, keys), (_, verb, status)) in acts.into_iter().zip(expected) {
        let keys: Vec<(&str, &str)> = keys.split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
        let names: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
        assert_eq!(names, ["verb", "resource", "namespace", "name", "uid", "user", "status", "ms"]);
        let values: Vec<&str> = keys.iter().map(|(_, value)| *value).collect();
        assert_eq!(values[..4], [verb, "configmaps", "default", "a"]);
        assert_eq!((values[4].len(), &values[5..7]), (36, &["kubernetes-admin", status][..]));
    }
}

#[tokio::test]
async fn programs_get_an_object_per_line_and_debug_has_every_request() {
    let lines = lines(&["--log-format", "json", "--log", "apiserver=debug,warn"]).await;
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |level: &str, verb: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["level"] == level && line["verb"] == verb).collect()
    };
    let read = of("debug", "get");
    assert_eq!((&read[0]["name"], &read[0]["status"], &read[1]["status"]), (&json!("a"), &json!(200), &json!(404)));
    assert!(read[1]["error"].as_str().unwrap().contains("not found"), "{}", read[1]);
    assert_eq!(of("debug", "create").len(), 2, "a conflict and a lease: {lines:#?}");
    assert_eq!((of("info", "create").len(), of("info", "update").len(), of("debug", "update").len()), (1, 1, 1));
    assert!(lines.iter().all(|line| line["component"] == "apiserver" && line["time"].is_string()));
}

#[tokio::test]
async fn a_filter_that_makes_no_sense_is_refused_by_name() {
    let run = async |flags: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_orlop")).args(flags).output().await.unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&["get", "--log", "vmm=debug"]).await;
    assert!(said.contains("unknown part \"vmm\"; use one of apiserver, "), "{said}");
    let said = run(&["get", "--log", "vm=loud"]).await;
    assert!(said.contains("\"loud\" is not a valid level; use off, error, warn, info, debug or trace"), "{said}");
}

#[tokio::test]
async fn a_command_without_a_server_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    // Nobody else gets this port as long as it is bound, and nobody listens there.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = format!("http://{}", socket.local_addr().unwrap());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{ "name": "x", "cluster": { "server": server } }],
        "users": [{ "name": "x", "user": {} }],
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let run = async |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.arg("get").args(flags).arg("--kubeconfig").arg(&file).env_remove("ORLOP_LOG");
        let output = command.output().await.unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&[]).await;
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("orlop: using the server ")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("orlop: "), "{said}");
    // It is there for those who ask.
    let said = run(&["--log", "warn"]).await;
    assert!(said.contains("failed with error"), "{said}");
}
