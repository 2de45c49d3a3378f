//! Several launchers of one instance: only the one that holds the guest is started in, and says how it is.

use std::net::Ipv4Addr;
use std::sync::Arc;

use certificates::CertificateError;
use kube::api::{DeleteParams, Patch};
use launcher_api::rpc::{End, State};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use virt_handler::{Credentials, Relay, Settings};

use crate::bench::{Bench, NODE, seconds};

pub(crate) async fn change(bench: &Bench, patch: &Value) {
    bench.vmis().patch("a", &Default::default(), &Patch::Merge(patch)).await.unwrap();
}

/// From one node to another.
fn migration(from: &str, to: &str) -> Value {
    json!({ "migrationUid": "m", "sourcePod": "source", "sourceNode": from, "targetPod": "target", "targetNode": to })
}

/// An instance that runs elsewhere and is about to come here.
pub(crate) async fn coming(bench: &Bench) {
    bench
        .instance(
            "a",
            "other",
            &json!({ "metadata": {
            "labels": { "kubevirt.io/migrationTargetNodeName": NODE }, "annotations": { "orlop.dev/guest": "{}" },
        } }),
        )
        .await;
    let pods = json!({ "pod-a": "other", "pod-t": NODE });
    change(
        bench,
        &json!({ "status": { "phase": "Running", "activePods": pods, "migrationState": migration("other", NODE) } }),
    )
    .await;
}

/// Nobody connects in these tests.
struct NoCredentials;

impl Credentials for NoCredentials {
    fn server(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        Err(CertificateError::None { place: "a test".to_owned() })
    }

    fn client(&self) -> Result<Arc<ClientConfig>, CertificateError> {
        Err(CertificateError::None { place: "a test".to_owned() })
    }
}

/// A handler that guests can come to.
fn with_relay(bench: &Bench) -> Settings {
    let relay = Relay { address: Ipv4Addr::LOCALHOST.into(), port: 0, credentials: Arc::new(NoCredentials) };
    Settings { relay: Some(relay), ..bench.settings() }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_comes_is_awaited_and_then_told_of_where_it_is() {
    let bench = Bench::new().await;
    let _handler = bench.handler_with(with_relay(&bench)).await;
    let target = bench.launcher("pod-t");
    coming(&bench).await;
    seconds(5).await;
    assert_eq!((target.calls(), target.state()), (vec!["sync a".to_owned()], State::Awaiting));
    let vmi = bench.vmi("a").await;
    let status = vmi.status.unwrap();
    let state = status.migration_state.unwrap();
    assert_eq!(state.target_node_address.as_deref(), Some("127.0.0.1"));
    assert_eq!(state.target_direct_migration_node_ports.map(|ports| ports.len()), Some(1));
    assert_eq!((status.node_name.as_deref(), bench.writes().len()), (Some("other"), 1), "the guest is not here yet");

    target.tell(State::Running, End::Unspecified);
    seconds(5).await;
    let vmi = bench.vmi("a").await;
    assert_eq!(vmi.metadata.labels.as_ref().unwrap()["kubevirt.io/nodeName"], NODE);
    assert!(!vmi.metadata.labels.unwrap().contains_key("kubevirt.io/migrationTargetNodeName"));
    let status = vmi.status.unwrap();
    let state = status.migration_state.unwrap();
    assert_eq!((state.completed, state.failed), (Some(true), None));
    assert_eq!(status.node_name.as_deref(), Some(NODE));
    assert_eq!(status.interfaces.unwrap()[0].ip_address.as_deref(), Some("10.88.0.5"), "where it is reached now");
    assert_eq!((status.phase.unwrap().to_string().as_str(), target.calls()), ("Running", Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_no_guest_can_come_to_says_so() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let target = bench.launcher("pod-t");
    coming(&bench).await;
    seconds(5).await;
    let vmi = bench.vmi("a").await;
    let state = vmi.status.unwrap().migration_state.unwrap();
    assert_eq!(state.failed, Some(true));
    assert!(state.failure_reason.unwrap().contains("takes no part in migrations"));
    assert!(!target.calls().contains(&"sync a".to_owned()), "nothing was started");
    assert_eq!(bench.phase("a").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_waits_in_vain_is_let_go() {
    let bench = Bench::new().await;
    let handler = bench.handler_with(with_relay(&bench)).await;
    let target = bench.launcher("pod-t");
    coming(&bench).await;
    seconds(5).await;
    assert_eq!((target.calls(), target.state()), (vec!["sync a".to_owned()], State::Awaiting));
    drop(handler);
    // The migration fails while nobody looks, and the node is not told of the instance any more.
    let labels = json!({ "kubevirt.io/migrationTargetNodeName": null });
    let status = json!({ "activePods": { "pod-t": null }, "migrationState": { "failed": true, "completed": true } });
    change(&bench, &json!({ "metadata": { "labels": labels }, "status": status })).await;
    bench.writes();
    let _handler = bench.handler().await;
    seconds(5).await;
    assert_eq!(target.calls(), ["kill", "delete"]);
    assert_eq!((bench.phase("a").await.as_str(), bench.records(), bench.writes().len()), ("Running", 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_its_guest_has_left_is_let_go_without_a_word() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let source = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    let pods = json!({ "pod-a": NODE, "pod-t": "other" });
    change(&bench, &json!({ "status": { "activePods": pods, "migrationState": migration(NODE, "other") } })).await;
    seconds(2).await;
    source.tell(State::Left, End::Unspecified);
    seconds(2).await;
    bench.writes();
    assert_eq!(source.calls(), ["sync a"]);
    let status =
        json!({ "nodeName": "other", "activePods": { "pod-a": null }, "migrationState": { "completed": true } });
    change(&bench, &json!({ "metadata": { "labels": { "kubevirt.io/nodeName": "other" } }, "status": status })).await;
    seconds(5).await;
    assert_eq!(source.calls(), ["kill", "delete"]);
    assert_eq!((bench.phase("a").await.as_str(), bench.records(), bench.writes().len()), ("Running", 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_here_is_not_killed_because_its_instance_says_otherwise() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    launcher.calls();
    let status = json!({ "nodeName": "other", "activePods": { "pod-a": null, "pod-t": "other" }, "migrationState": migration(NODE, "other") });
    change(&bench, &json!({ "metadata": { "labels": { "kubevirt.io/nodeName": "other" } }, "status": status })).await;
    seconds(60).await;
    assert_eq!((launcher.calls(), launcher.state()), (Vec::new(), State::Running));
    // It ends with its instance.
    bench.vmis().delete("a", &DeleteParams::default()).await.unwrap();
    bench.release("a").await;
    seconds(1).await;
    launcher.tell(State::Running, End::Unspecified);
    seconds(5).await;
    assert_eq!(launcher.calls(), ["shutdown 30", "delete"]);
}
