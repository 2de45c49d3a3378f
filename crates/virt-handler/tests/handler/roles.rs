//! Several launchers of one instance: only the one that holds the guest is started in, and says how it is.

use kube::api::{DeleteParams, Patch};
use launcher_api::rpc::{End, State};
use serde_json::{Value, json};

use crate::bench::{Bench, NODE, seconds};

async fn change(bench: &Bench, patch: &Value) {
    bench.vmis().patch("a", &Default::default(), &Patch::Merge(patch)).await.unwrap();
}

/// From one node to another.
fn migration(from: &str, to: &str) -> Value {
    json!({ "migrationUid": "m", "sourcePod": "source", "sourceNode": from, "targetPod": "target", "targetNode": to })
}

/// An instance that runs elsewhere and is about to come here.
async fn coming(bench: &Bench) {
    bench
        .instance("a", "other", &json!({ "metadata": { "labels": { "kubevirt.io/migrationTargetNodeName": NODE } } }))
        .await;
    let pods = json!({ "pod-a": "other", "pod-t": NODE });
    change(
        bench,
        &json!({ "status": { "phase": "Running", "activePods": pods, "migrationState": migration("other", NODE) } }),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_started_in_a_launcher_that_awaits_a_guest_and_it_says_no_phase() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let target = bench.launcher("pod-t");
    coming(&bench).await;
    seconds(5).await;
    assert_eq!((target.calls(), bench.records()), (Vec::new(), 1), "it is known, and left alone");
    for (state, end) in [(State::Running, End::Unspecified), (State::Ended, End::Crashed)] {
        target.tell(state, end);
        seconds(5).await;
        assert_eq!((bench.phase("a").await.as_str(), bench.writes().len()), ("Running", 0), "{state:?}");
    }
    assert_eq!(target.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_waits_in_vain_is_let_go() {
    let bench = Bench::new().await;
    let handler = bench.handler().await;
    let target = bench.launcher("pod-t");
    coming(&bench).await;
    seconds(5).await;
    target.tell(State::Awaiting, End::Unspecified);
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
