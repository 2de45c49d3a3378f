//! The pages of a manager over TLS: who sees what, and with which certificate.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "serving/support.rs"]
mod support;

use std::error::Error as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use apiserver::{ApiServer, Identity, Place};
use kube::Client;
use manager::queue::{Backoff, Queue, QueueMetrics};
use manager::serving::{CertificateError, ServingError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use testkit::waiting::within;
use tokio::time::sleep;

use support::{Proof, Reviewer, authority, self_signed, show, token, try_files};

const GUARDED: [&str; 6] =
    ["/metrics", "/configz", "/debug/controllers/gc", "/healthz/ping", "/nothing", "/metrics/slis"];

#[tokio::test]
async fn everybody_sees_health() {
    let shown = show(None, None).await;
    shown.pages.set_ready(true);
    for path in ["/healthz", "/livez", "/readyz"] {
        for proof in [Proof::default(), token("bad")] {
            assert_eq!(shown.get(path, proof).await, (200, "ok".to_owned()));
        }
    }
    shown.pages.check("leaderElection", Arc::new(|| Err("the secret reason".to_owned())));
    let failed = "[+]ping ok\n[-]leaderElection failed: reason withheld\nhealthz check failed\n";
    assert_eq!(shown.get("/healthz", Proof::default()).await, (500, failed.to_owned()));
    let without = "[+]ping ok\n[+]leaderElection excluded: ok\n[+]started ok\nreadyz check passed\n";
    let got = shown.get("/readyz?verbose&exclude=leaderElection", Proof::default()).await;
    assert_eq!(got, (200, without.to_owned()));
}

#[tokio::test]
async fn nobody_sees_more_while_there_is_none_to_ask() {
    let shown = show(None, None).await;
    for path in GUARDED {
        assert_eq!(shown.get(path, Proof::default()).await.0, 403, "{path}");
        assert_eq!(shown.get(path, token("see")).await.0, 401, "{path}");
    }
}

#[tokio::test]
async fn who_is_allowed_sees_every_page() {
    let reviewer = Reviewer::default();
    let shown = show(Some(reviewer.client()), None).await;
    shown.pages.debug("gc", Arc::new(|rest| rest.is_empty().then(|| "digraph {}".to_owned())));
    shown.pages.configz("test.config", json!({ "port": 10257 }));
    let seen = [200, 200, 200, 200, 404, 404];
    for (path, code) in GUARDED.into_iter().zip(seen) {
        assert_eq!(shown.get(path, token("see")).await.0, code, "{path}");
    }
    assert_eq!(shown.get("/debug/controllers/gc", token("see")).await.1, "digraph {}");
    let configz: Value = serde_json::from_str(&shown.get("/configz", token("see")).await.1).unwrap();
    assert_eq!(configz, json!({ "test.config": { "port": 10257 } }));
}

#[tokio::test]
async fn others_are_refused_in_the_words_of_kubernetes() {
    let reviewer = Reviewer::default();
    let shown = show(Some(reviewer.client()), None).await;
    for path in GUARDED {
        for (proof, user) in [(token("blind"), "blind"), (Proof::default(), "system:anonymous")] {
            let (code, text) = shown.get(path, proof).await;
            assert_eq!(code, 403);
            let status: Value = serde_json::from_str(&text).unwrap();
            let message = format!("forbidden: User \"{user}\" cannot get path \"{path}\"");
            let expected = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                "reason": "Forbidden", "details": {}, "code": 403,
            });
            assert_eq!(status, expected);
        }
        let (code, text) = shown.get(path, token("bad")).await;
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, status["reason"].as_str(), status["message"].as_str()), {
            (401, Some("Unauthorized"), Some("Unauthorized"))
        });
    }
    let asked = reviewer.take();
    assert_eq!(asked.iter().filter(|what| what.starts_with("token ")).count(), 2, "each token once");
    assert!(asked.contains(&"system:anonymous (system:unauthenticated) get /metrics".to_owned()));
    assert!(asked.contains(&"blind (team,system:authenticated) get /metrics".to_owned()));
}

#[tokio::test]
async fn many_who_ask_the_same_are_one_question() {
    let reviewer = Reviewer::default();
    let shown = show(Some(reviewer.client()), None).await;
    let all = futures_util::future::join_all((0..20).map(|_| shown.get("/metrics", token("see")))).await;
    assert!(all.iter().all(|(code, _)| *code == 200));
    assert_eq!(reviewer.take(), ["token see", "see (team,system:authenticated) get /metrics"]);
}

#[tokio::test]
async fn what_could_not_be_reviewed_is_asked_again() {
    let reviewer = Reviewer::default();
    let shown = show(Some(reviewer.client()), None).await;
    reviewer.away.store(true, Ordering::SeqCst);
    for proof in [token("see"), Proof::default()] {
        let (code, text) = shown.get("/metrics", proof).await;
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, status["reason"].as_str()), (500, Some("InternalError")));
    }
    assert_eq!(shown.get("/healthz", token("see")).await.0, 200, "health needs nobody");
    reviewer.away.store(false, Ordering::SeqCst);
    assert_eq!(shown.get("/metrics", token("see")).await.0, 200);
    assert_eq!(shown.get("/metrics", Proof::default()).await.0, 403);
}

#[tokio::test]
async fn pages_are_looked_at_and_not_changed() {
    let shown = show(Some(Reviewer::default().client()), None).await;
    for method in ["POST", "DELETE", "OPTIONS"] {
        let answer = shown.send(method, "/healthz", Proof::default()).await;
        assert_eq!((answer.status().as_u16(), answer.headers()["allow"].to_str().unwrap()), (405, "GET, HEAD"));
    }
    let answer = shown.send("HEAD", "/healthz", Proof::default()).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["content-length"].to_str().unwrap()), (200, "2"));
    assert_eq!(shown.send("HEAD", "/metrics", token("see")).await.status(), 403, "another verb, another right");
}

#[tokio::test]
async fn metrics_are_those_that_were_registered() {
    let shown = show(Some(Reviewer::default().client()), None).await;
    let queues = QueueMetrics::default();
    shown.pages.registry(|registry| queues.register(registry));
    Queue::new("replicaset", Backoff::default(), &queues).add("a");
    shown.pages.set_leading(true);
    let answer = shown.send("GET", "/metrics", token("see")).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.headers()["content-type"], kind);
    let text = shown.get("/metrics", token("see")).await.1;
    for line in [
        "workqueue_depth{name=\"replicaset\"} 1",
        "leader_election_master_status{name=\"test-manager\"} 1",
        "controller_manager_ready{name=\"test-manager\"} 0",
        "# EOF",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test]
async fn a_certificate_of_a_client_tells_who_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, clients) = authority(&[("seer", "team"), ("blind", "team"), ("root", "system:masters")]);
    let path = folder.path().join("ca.crt");
    fs::write(&path, ca).unwrap();
    let reviewer = Reviewer::default();
    let shown = show(Some(reviewer.client()), Some(path.clone())).await;
    for (pair, code) in clients.iter().zip([200, 403, 200]) {
        let proof = Proof { certificate: Some(pair), token: Some("see") };
        assert_eq!(shown.get("/metrics", proof).await.0, code, "the certificate counts, not the token");
    }
    let asked = ["seer (team,system:authenticated) get /metrics", "blind (team,system:authenticated) get /metrics"];
    assert_eq!(reviewer.take(), asked, "masters need no review");
    assert_eq!(shown.get("/metrics", token("see")).await.0, 200, "without one a token is good");

    let (_, strangers) = authority(&[("seer", "team")]);
    let proof = Proof { certificate: Some(&strangers[0]), token: None };
    let known = CertificateDer::from_pem_file(&shown.certificate).unwrap();
    let mut stream = shown.connect(known, proof).await.unwrap();
    let refused = tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap_err();
    assert!(refused.to_string().contains("alert"), "{refused}");
}

/// The embedded API server lets those see metrics who have a role for it.
#[tokio::test]
async fn the_embedded_server_reviews() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, clients) = authority(&[("someone", "system:monitoring"), ("someone", "team")]);
    fs::write(folder.path().join("ca.crt"), ca).unwrap();
    let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    let shown = show(Some(client), Some(folder.path().join("ca.crt"))).await;
    assert_eq!(shown.get("/metrics", Proof::default()).await.0, 403);
    assert_eq!(shown.get("/metrics", token("any")).await.0, 401);
    for (pair, code) in clients.iter().zip([200, 403]) {
        let proof = Proof { certificate: Some(pair), token: None };
        assert_eq!(shown.get("/metrics", proof).await.0, code);
    }
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart_and_a_bad_one_is_not() {
    let shown = show(None, None).await;
    let served = |certificate: CertificateDer<'static>| async {
        // Longer than the time between two looks.
        sleep(Duration::from_millis(1_100)).await;
        shown.connect(certificate, Proof::default()).await.is_ok()
    };
    let mode = fs::metadata(&shown.key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let first = CertificateDer::from_pem_file(&shown.certificate).unwrap();
    assert!(served(first.clone()).await);

    let new = self_signed();
    fs::write(&shown.certificate, &new.certificate).unwrap();
    assert!(served(first.clone()).await, "half of the pair is not enough");
    fs::write(&shown.key, &new.key).unwrap();
    let second = CertificateDer::from_pem_slice(new.certificate.as_bytes()).unwrap();
    assert!(served(second.clone()).await);
    assert!(!served(first).await);

    fs::write(&shown.key, &new.key[..new.key.len() / 2]).unwrap();
    assert!(served(second.clone()).await, "half a file is not enough");
    fs::remove_file(&shown.certificate).unwrap();
    assert!(served(second.clone()).await, "no file is not enough");

    // As mounted secrets change: a link to other files.
    let newer = self_signed();
    let folder = shown.folder.path();
    fs::write(folder.join("newer.crt"), &newer.certificate).unwrap();
    fs::write(folder.join("newer.key"), &newer.key).unwrap();
    fs::remove_file(&shown.key).unwrap();
    std::os::unix::fs::symlink(folder.join("newer.crt"), &shown.certificate).unwrap();
    std::os::unix::fs::symlink(folder.join("newer.key"), &shown.key).unwrap();
    assert!(served(CertificateDer::from_pem_slice(newer.certificate.as_bytes()).unwrap()).await);
}

#[tokio::test]
async fn a_start_with_files_that_cannot_be_used_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
    let failed = try_files(&certificate, &key, "/healthz").await.unwrap_err();
    assert!(matches!(&failed, ServingError::Certificate(CertificateError::File { .. })), "{failed:?}");
    let (one, other) = (self_signed(), self_signed());
    fs::write(&certificate, &one.certificate).unwrap();
    fs::write(&key, &other.key).unwrap();
    let failed = try_files(&certificate, &key, "/healthz").await.unwrap_err();
    assert!(matches!(&failed, ServingError::Certificate(CertificateError::Tls(_))), "{:?}", failed.source());
    fs::write(&key, &one.key).unwrap();
    try_files(&certificate, &key, "/healthz").await.unwrap();
    let failed = try_files(&certificate, &key, "/a*b").await.unwrap_err();
    assert!(matches!(failed, ServingError::Path(_)));
}

#[tokio::test]
async fn a_stop_waits_for_running_requests_and_for_nobody_else() {
    let reviewer = Reviewer::default();
    let shown = show(Some(reviewer.client()), None).await;
    let known = CertificateDer::from_pem_file(&shown.certificate).unwrap();
    let _silent = shown.connect(known, Proof::default()).await.unwrap();
    let held = reviewer.hold();
    let stop = async {
        within("a request that waits for its review", held.wanted()).await;
        shown.stop();
        drop(held);
    };
    let ((code, _), ()) = futures_util::future::join(shown.get("/metrics", token("see")), stop).await;
    assert_eq!(code, 200);
    within("the end", shown.ended()).await;
}
