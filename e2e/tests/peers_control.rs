//! The harness that judges our API server, judged itself: two real kube-apiservers give no difference. Some scripts and seeds
//! with every change; all with `ORLOP_CONTROL=full`, as `make proof` runs it.

use e2e::differential::{self, Subject};

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn a_real_server_answers_scripts_like_itself() {
    if let Err(error) = differential::scripts(Subject::Control).await {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn a_real_server_answers_random_requests_like_itself() {
    if let Err(error) = differential::random_sequences(Subject::Control).await {
        panic!("{error:#}");
    }
}
