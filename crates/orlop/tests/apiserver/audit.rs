//! The audit log: every request, whoever makes it, as Kubernetes writes it down.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use e2e::audit::{comparable, events, requests};
use e2e::kubeconfig::Kubeconfig;
use serde_json::{Value, json};

use crate::process::Process;

#[tokio::test]
async fn every_request_is_written_down_once_with_who_what_and_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("audit"));
    let mut server = Process::start_with(&data, &["--audit-log", log.to_str().unwrap()]).await;
    let answers = requests(&Kubeconfig::read(server.kubeconfig()).unwrap()).await.unwrap();
    server.terminate().await;
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("\"secret\"") && !text.contains("requestObject"), "{text}");
    let events: Vec<Value> = events(&log).unwrap().into_iter().map(comparable).collect();
    // One for each, and a second one of the watch.
    let codes: Vec<u64> = events.iter().map(|event| event["responseStatus"]["code"].as_u64().unwrap()).collect();
    let mut expected: Vec<u64> = answers.into_iter().map(u64::from).collect();
    expected.insert(15, 200);
    assert_eq!(codes, expected);
    let stages: Vec<&str> = events.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!((stages[0], stages[15], stages[16], stages[17]), (COMPLETE, "ResponseStarted", COMPLETE, COMPLETE));
    check(&events);
}

const COMPLETE: &str = "ResponseComplete";

fn check(events: &[Value]) {
    let allowed = json!({ "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "" });
    let map = json!({ "resource": "configmaps", "namespace": "default", "name": "audited", "apiVersion": "v1" });
    assert_eq!(
        events[0],
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "an id",
            "stage": COMPLETE, "requestURI": "/api/v1/namespaces/default/configmaps", "verb": "create",
            "user": "the admin", "sourceIPs": ["127.0.0.1"], "userAgent": "orlop-audit", "objectRef": map,
            "responseStatus": { "metadata": {}, "code": 201 },
            "requestReceivedTimestamp": "a time", "stageTimestamp": "a time", "annotations": allowed,
        })
    );
    let of = |verb: &str| -> Vec<&Value> { events.iter().filter(|event| event["verb"] == verb).collect() };
    let get = of("get");
    assert_eq!((&get[0]["auditID"], &get[0]["objectRef"]), (&json!("an-id-of-its-own"), &map));
    assert_eq!(of("list")[0]["sourceIPs"], json!(["192.0.2.7", "192.0.2.8", "127.0.0.1"]));
    // What a change was made on top of.
    let known = json!({ "resource": "configmaps", "namespace": "default", "name": "audited", "uid": "some",
        "apiVersion": "v1", "resourceVersion": "some" });
    assert_eq!((&of("update")[0]["objectRef"], &of("patch")[0]["objectRef"]), (&known, &map));
    assert_eq!(of("update")[1]["responseStatus"]["reason"], "Conflict");
    let acting = of("list")[1];
    let groups = json!(["people", "system:authenticated"]);
    assert_eq!(acting["impersonatedUser"], json!({ "username": "alice", "groups": groups }));
    assert_eq!(
        (&acting["user"], &acting["annotations"]["authorization.k8s.io/decision"]),
        (&json!("the admin"), &json!("forbid"))
    );
    let deleted = &of("delete")[0]["responseStatus"];
    assert_eq!((&deleted["status"], &deleted["details"]["name"]), (&json!("Success"), &json!("audited")));
    let [stranger, liar] = &events[events.len() - 2..] else { panic!("{events:#?}") };
    let anonymous = json!({ "username": "system:anonymous", "groups": ["system:unauthenticated"] });
    assert_eq!((&stranger["user"], &stranger["responseStatus"]["code"]), (&anonymous, &json!(403)));
    let refused = &liar["responseStatus"];
    assert_eq!((&refused["code"], &refused["reason"]), (&json!(401), &json!("Unauthorized")));
    assert_eq!((&liar["user"], liar.get("annotations")), (&json!({}), None));
    let page = events.iter().find(|event| event["requestURI"] == "/version").unwrap();
    assert_eq!((&page["verb"], page.get("objectRef")), (&json!("get"), None));
}

/// A file that cannot be written is no reason to serve without it.
#[tokio::test]
async fn a_log_that_cannot_be_opened_keeps_the_server_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(["apiserver", "--listen", "127.0.0.1:0", "--audit-log", "/proc/no/such/file", "--data-dir"])
        .arg(folder.path())
        .output();
    let output = output.await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("open the audit log /proc/no/such/file"), "{said}");
    assert!(!Path::new("/proc/no").exists());
}
