//! Our controllers, scheduler and hollow nodes as kubectl's users see them: on our own API server and on a real one, and
//! beside Kubernetes' own.

use std::path::Path;

use e2e::controllers;

fn orlop() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_orlop"))
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn deployments_do_what_kubectl_asks_for() {
    if let Err(error) = controllers::deployments(orlop()).await {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn namespaces_are_furnished_and_cleared() {
    if let Err(error) = controllers::namespaces(orlop()).await {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn nodes_are_emptied_and_lost() {
    if let Err(error) = controllers::nodes(orlop()).await {
        panic!("{error:#}");
    }
}

#[test]
#[ignore = "needs the real peers: make test-peers"]
fn deployments_end_up_as_with_kubernetes() {
    if let Err(error) = controllers::compare(orlop()) {
        panic!("{error:#}");
    }
}

#[test]
#[ignore = "needs the real peers: make test-peers"]
fn services_and_budgets_end_up_as_with_kubernetes() {
    if let Err(error) = controllers::compare_services(orlop()) {
        panic!("{error:#}");
    }
}

#[test]
#[ignore = "needs the real peers: make test-peers"]
fn controllers_need_no_more_rights_than_kubernetes_gives_them() {
    if let Err(error) = controllers::rights(orlop()) {
        panic!("{error:#}");
    }
}
