//! What goes wrong: launchers that are silent or die, guests that do not start, disks that fail.

use api::conditions::{ConditionStatus, find};
use launcher_api::Outcome;
use launcher_api::rpc::{End, State};
use serde_json::json;
use virt_handler::networks::NetworkError;

use crate::bench::{Bench, NODE, seconds};
use crate::{condition, patch};

#[tokio::test(start_paused = true)]
async fn a_folder_of_pods_that_is_not_there_yet_says_nothing_about_guests() {
    let bench = Bench::new().await;
    let handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    drop(handler);
    let (pods, away) = (bench.pods(), bench.pods().with_extension("away"));
    std::fs::rename(&pods, &away).unwrap();
    let _handler = bench.handler().await;
    seconds(100).await;
    assert_eq!(bench.phase("a").await, "Running");
    std::fs::rename(&away, &pods).unwrap();
    seconds(20).await;
    launcher.tell(State::Ended, End::PoweredOff);
    seconds(2).await;
    assert_eq!(bench.phase("a").await, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_never_comes_fails_its_instance() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    bench.instance("a", NODE, &json!({})).await;
    seconds(170).await;
    assert_eq!(bench.phase("a").await, "Scheduled");
    seconds(20).await;
    assert_eq!(bench.phase("a").await, "Failed");
    assert_eq!(bench.records(), 0);
    assert_eq!(bench.writes(), [patch("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_dies_fails_its_instance() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let mut launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    launcher.end();
    seconds(2).await;
    assert_eq!(bench.phase("a").await, "Failed");
    assert_eq!(bench.records(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_does_not_answer_twice_fails_its_instance() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    launcher.hang();
    seconds(25).await;
    assert_eq!(bench.phase("a").await, "Running");
    seconds(25).await;
    assert_eq!(bench.phase("a").await, "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_told_and_tried_again() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    launcher.answer_with(Some(Outcome::retry("the registry is down")));
    bench.instance("a", NODE, &json!({})).await;
    seconds(10).await;
    let vmi = bench.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Scheduled");
    let why = find(vmi.status.as_ref().unwrap().conditions.as_deref(), "Synchronized").unwrap();
    assert_eq!(why.status, ConditionStatus::False);
    assert_eq!(why.reason.as_deref(), Some("Synchronizing with the Domain failed."));
    assert_eq!(why.message.as_deref(), Some("the registry is down"));
    assert_eq!(bench.events("a").await, ["SyncFailed"]);
    assert_eq!(bench.writes(), [patch("a")]);
    assert!((3..=6).contains(&launcher.calls().len()), "tried with growing waits");
    launcher.answer_with(None);
    seconds(20).await;
    let vmi = bench.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Running");
    assert_eq!(condition(&vmi, "Synchronized"), None);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_succeed_fails_the_instance() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    launcher.answer_with(Some(Outcome::never("spec.domain.cpu.model", "unknown")));
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    let vmi = bench.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Failed");
    assert_eq!(condition(&vmi, "Synchronized").unwrap().1, "Synchronizing with the Domain failed.");
    assert_eq!(launcher.calls(), ["sync a", "delete"]);
    assert_eq!(bench.writes(), [patch("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_cannot_be_made_fails_the_instance_before_its_guest_starts() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    *bench.network.refusal.lock().unwrap() = Some(NetworkError::Never("no bridge".into()));
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    assert_eq!(bench.phase("a").await, "Failed");
    assert_eq!(launcher.calls(), ["delete"]);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_an_io_error_paused_is_resumed_with_growing_waits() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    launcher.calls();
    launcher.tell(State::PausedByIoError, End::Unspecified);
    seconds(1).await;
    assert_eq!(condition(&bench.vmi("a").await, "Paused"), Some((true, "PausedIOError".into())));
    seconds(75).await;
    assert_eq!(launcher.calls(), ["unpause"; 4], "at once, after 10, 30 and 70 seconds");
    launcher.tell(State::Running, End::Unspecified);
    seconds(200).await;
    assert_eq!(launcher.calls(), [""; 0]);
    assert_eq!(condition(&bench.vmi("a").await, "Paused"), None);
}
