//! What tests without a real kube-apiserver compare with is what one answers today. `ORLOP_RECORD=1` writes what is stale anew.

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn tables_are_as_recorded() {
    if let Err(error) = e2e::recorded::tables().await {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn schemas_and_their_objects_are_judged_as_recorded() {
    if let Err(error) = e2e::recorded::schemas().await {
        panic!("{error:#}");
    }
}
