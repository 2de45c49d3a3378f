//! The harness that judges our API server, judged itself: two real kube-apiservers give no difference.
//! Only with `ORLOP_DIFFERENTIAL=self`: otherwise the same scripts run from the tests of `orlop`.

use std::path::Path;

/// No program of ours takes part.
const NONE: &str = "/nonexistent";

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn a_real_server_answers_scripts_like_itself() {
    if itself()
        && let Err(error) = e2e::differential::scripts(Path::new(NONE)).await
    {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn a_real_server_answers_random_requests_like_itself() {
    if itself()
        && let Err(error) = e2e::differential::random_sequences(Path::new(NONE)).await
    {
        panic!("{error:#}");
    }
}

fn itself() -> bool {
    std::env::var("ORLOP_DIFFERENTIAL").is_ok_and(|mode| mode == "self")
}
