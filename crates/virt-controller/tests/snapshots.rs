//! Snapshots, restores, clones and exports on the embedded server: the controllers are real, and the test plays storage and guests.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::world::{seconds, until};

#[path = "snapshots/bench.rs"]
mod bench;
#[path = "snapshots/clones.rs"]
mod clones;
#[path = "snapshots/exports.rs"]
mod exports;
#[path = "snapshots/restores.rs"]
mod restores;
#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use bench::{Bench, phase_of, told};

const LOCK: &str = "snapshot.kubevirt.io/snapshot-source-protection";

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_stopped_is_copied_under_a_lock() {
    let bench = Bench::start().await;
    let vm = bench.machine("v", "Halted", &["one", "two"]).await;
    bench.snapshot("s", "v", &json!({})).await;
    let copies = bench.until_copies(2).await;
    let uid = bench.snapshots().get("s").await.unwrap().uid().unwrap();
    let mut names: Vec<String> = copies.iter().map(ResourceExt::name_any).collect();
    names.sort();
    assert_eq!(names, [format!("vmsnapshot-{uid}-volume-one"), format!("vmsnapshot-{uid}-volume-two")]);
    assert!(copies.iter().all(|copy| copy.spec.volume_snapshot_class_name.as_deref() == Some("copies")));
    let locked = bench.world.vms().get("v").await.unwrap();
    assert_eq!(locked.status.unwrap().snapshot_in_progress.as_deref(), Some("s"));
    assert!(locked.metadata.finalizers.unwrap().contains(&LOCK.to_owned()));
    let begun = bench.until_phase("s", "InProgress").await.status.unwrap();
    let progress = (true, "Source locked and operation in progress".to_owned());
    assert_eq!(told(begun.conditions.as_ref(), "Progressing"), progress);

    bench.copy(true).await;
    let done = bench.until_phase("s", "Succeeded").await.status.unwrap();
    assert_eq!((done.ready_to_use, done.source_uid), (Some(true), vm.uid()));
    assert_eq!(told(done.conditions.as_ref(), "Ready"), (true, "Ready".to_owned()));
    assert_eq!(told(done.conditions.as_ref(), "Progressing"), (false, "Operation complete".to_owned()));
    let volumes = done.snapshot_volumes.unwrap();
    assert_eq!(volumes.included_volumes.unwrap(), ["one", "two"]);
    assert_eq!(volumes.excluded_volumes.unwrap(), ["image"]);
    assert_eq!((done.indications, bench.asked.all()), (None, vec!["copy".to_owned(), "copy".to_owned()]));
    bench.world.vm("v", |vm| vm.status.as_ref().unwrap().snapshot_in_progress.is_none()).await;
    bench.world.vm("v", |vm| !vm.metadata.finalizers.iter().flatten().any(|one| one == LOCK)).await;

    let content = bench.contents().get(&format!("vmsnapshot-content-{uid}")).await.unwrap();
    let frozen = content.spec.source.virtual_machine.unwrap();
    assert_eq!(frozen.metadata.as_ref().unwrap().name.as_deref(), Some("v"));
    assert_eq!(frozen.spec.unwrap().template, bench.world.vms().get("v").await.unwrap().spec.template);
    bench.world.writes();
    seconds(600).await;
    assert_eq!(bench.world.writes(), Vec::<String>::new(), "nothing is written at rest");
}

#[tokio::test(start_paused = true)]
async fn a_vm_says_which_of_its_volumes_can_be_copied() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    let vm = bench.world.vm("v", |vm| {
        let told = vm.status.as_ref().and_then(|status| status.volume_snapshot_statuses.as_ref());
        told.is_some_and(|told| told.iter().any(|one| one.enabled))
    });
    let told = vm.await.status.unwrap().volume_snapshot_statuses.unwrap();
    assert_eq!((told[0].name.as_str(), told[0].enabled, told[0].reason.clone()), ("one", true, None));
    let no = "Snapshot is not supported for this volumeSource type [image]";
    assert_eq!((told[1].enabled, told[1].reason.as_deref()), (false, Some(no)));
}

#[tokio::test(start_paused = true)]
async fn a_guest_with_an_agent_is_frozen_before_and_thawed_after_its_copies() {
    let bench = Bench::start().await;
    bench.running("v", &["one", "two"]).await;
    bench.condition("v", "AgentConnected", true).await;
    bench.snapshot("s", "v", &json!({ "failureDeadline": "2m0s" })).await;
    bench.until_copies(2).await;
    let freeze = r#"freeze {"unfreezeTimeout":"2m0s"}"#;
    assert_eq!(bench.asked.all(), [freeze, "copy", "copy"]);
    bench.copy(false).await;
    let done = bench.until_phase("s", "Succeeded").await.status.unwrap();
    assert_eq!(bench.asked.all(), [freeze, "copy", "copy", "unfreeze"]);
    assert_eq!(done.indications.unwrap(), ["GuestAgent", "Online"]);
    assert_eq!(done.ready_to_use, Some(false), "copies are there, and cannot be used yet");
    bench.copy(true).await;
    bench.until("s", |one| one.status.as_ref().unwrap().ready_to_use == Some(true)).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_an_agent_stands_still_while_it_is_copied() {
    let bench = Bench::start().await;
    bench.running("v", &["one", "two"]).await;
    bench.snapshot("s", "v", &json!({})).await;
    bench.asked.until("pause").await;
    seconds(1).await;
    assert_eq!(
        bench.copies().list(&Default::default()).await.unwrap().items,
        [],
        "nothing is copied before it stands still"
    );
    bench.condition("v", "Paused", true).await;
    bench.until_copies(2).await;
    bench.copy(true).await;
    bench.asked.until("unpause").await;
    assert_eq!(phase_of(&bench.snapshots().get("s").await.unwrap()), "InProgress");
    bench.condition("v", "Paused", false).await;
    let done = bench.until_phase("s", "Succeeded").await.status.unwrap();
    assert_eq!(done.indications.unwrap(), ["NoGuestAgent", "Online"]);
    let content = bench.contents().get(&done.virtual_machine_snapshot_content_name.unwrap()).await.unwrap();
    assert!(!content.annotations().contains_key("orlop.dev/stopped-for-snapshot"));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_its_user_has_paused_stays_so() {
    let bench = Bench::start().await;
    bench.running("v", &["one"]).await;
    bench.condition("v", "Paused", true).await;
    bench.snapshot("s", "v", &json!({})).await;
    bench.until_copies(1).await;
    bench.copy(true).await;
    let done = bench.until_phase("s", "Succeeded").await.status.unwrap();
    assert_eq!(
        (bench.asked.all(), done.indications.unwrap()),
        (vec!["copy".to_owned()], vec!["Online".to_owned(), "Paused".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_freeze_fails_its_snapshot_at_the_deadline() {
    let bench = Bench::start().await;
    bench.running("v", &["one"]).await;
    bench.condition("v", "AgentConnected", true).await;
    *bench.refusal.lock().unwrap() = Some((500, "the agent is busy"));
    bench.snapshot("s", "v", &json!({ "failureDeadline": "30s" })).await;
    let told_error = |one: &api::snapshot::VirtualMachineSnapshot| {
        let error = one.status.as_ref().and_then(|status| status.error.as_ref()?.message.clone());
        error.as_deref() == Some("the agent is busy")
    };
    let begun = bench.until("s", told_error).await.status.unwrap();
    assert_eq!(told(begun.conditions.as_ref(), "Progressing"), (false, "In error state".to_owned()));
    let failed = bench.until_phase("s", "Failed").await.status.unwrap();
    assert_eq!(told(failed.conditions.as_ref(), "Failure"), (true, "snapshot deadline exceeded".to_owned()));
    until("the content to go", async || {
        bench.contents().list(&Default::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
    bench.world.vm("v", |vm| vm.status.as_ref().unwrap().snapshot_in_progress.is_none()).await;
    assert_eq!(bench.copies().list(&Default::default()).await.unwrap().items, []);
    assert_eq!(bench.asked.all().last().map(String::as_str), Some("unfreeze"));
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_stands_still_goes_on_when_its_snapshot_takes_too_long() {
    let bench = Bench::start().await;
    bench.running("v", &["one"]).await;
    bench.snapshot("s", "v", &json!({ "failureDeadline": "30s" })).await;
    bench.asked.until("pause").await;
    bench.condition("v", "Paused", true).await;
    bench.asked.until("unpause").await;
    let vm = bench.world.vms().get("v").await.unwrap();
    assert_eq!(vm.status.unwrap().snapshot_in_progress.as_deref(), Some("s"), "locked until it goes on");
    bench.condition("v", "Paused", false).await;
    bench.until_phase("s", "Failed").await;
    bench.world.vm("v", |vm| vm.status.as_ref().unwrap().snapshot_in_progress.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_there_is_waited_for() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.claims().delete("one", &DeleteParams::default()).await.unwrap();
    bench.let_go("one").await;
    bench.snapshot("s", "v", &json!({})).await;
    let reason = "Source not locked source default/v volume doesnt exist: one";
    let says = |one: &api::snapshot::VirtualMachineSnapshot| {
        told(one.status.as_ref().and_then(|status| status.conditions.as_ref()), "Progressing").1 == reason
    };
    bench.until("s", says).await;
    bench.claim("one", "local").await;
    bench.until_copies(1).await;
    bench.copy(true).await;
    bench.until_phase("s", "Succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_goes_missing_is_told() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    let snapshot = bench.finished("s", "v", 1).await;
    let name = format!("vmsnapshot-{}-volume-one", snapshot.uid().unwrap());
    bench.copies().delete(&name, &DeleteParams::default()).await.unwrap();
    let lost = bench.until("s", |one| one.status.as_ref().unwrap().error.is_some()).await.status.unwrap();
    assert_eq!(lost.error.unwrap().message.unwrap(), format!("VolumeSnapshots ({name}) missing"));
    assert_eq!(lost.ready_to_use, Some(false));
    assert_eq!(told(lost.conditions.as_ref(), "Ready"), (false, "Not ready".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_content_goes_or_stays_as_the_policy_says() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    for (name, policy, stays) in [("gone", "Delete", false), ("kept", "Retain", true)] {
        bench.snapshot(name, "v", &json!({ "deletionPolicy": policy })).await;
        bench
            .until(name, |one| {
                one.status.as_ref().is_some_and(|status| status.virtual_machine_snapshot_content_name.is_some())
            })
            .await;
        until("its copy", async || {
            bench.copy(true).await;
            let found = bench.snapshots().get(name).await.unwrap();
            (found.status?.ready_to_use == Some(true)).then_some(())
        })
        .await;
        let content =
            bench.snapshots().get(name).await.unwrap().status.unwrap().virtual_machine_snapshot_content_name.unwrap();
        bench.snapshots().delete(name, &DeleteParams::default()).await.unwrap();
        until("its end", async || bench.snapshots().get_opt(name).await.unwrap().is_none().then_some(())).await;
        seconds(1).await;
        let left = bench.contents().get_opt(&content).await.unwrap();
        assert_eq!(left.is_some(), stays, "{policy}");
        assert!(left.is_none_or(|left| left.finalizers().is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_snapshot_waits_for_the_first() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.snapshot("a", "v", &json!({})).await;
    bench.until_copies(1).await;
    bench.snapshot("b", "v", &json!({})).await;
    let says = |one: &api::snapshot::VirtualMachineSnapshot| {
        let reason = told(one.status.as_ref().and_then(|status| status.conditions.as_ref()), "Progressing").1;
        reason == "Source not locked snapshot \"a\" in progress"
    };
    bench.until("b", says).await;
    bench.copy(true).await;
    bench.until_phase("a", "Succeeded").await;
    bench.until_copies(2).await;
    bench.copy(true).await;
    bench.until_phase("b", "Succeeded").await;
}
