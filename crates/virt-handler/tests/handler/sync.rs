//! What a launcher is told after its guest runs, and what becomes of its answers.

use api::conditions::find;
use api::vmi::VirtualMachineInstance;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use launcher_api::Outcome;
use launcher_api::rpc::{End, State};
use serde_json::{Value, json};

use crate::bench::{Bench, NODE, seconds};
use crate::launcher::FakeLauncher;
use crate::{condition, patch};

const GUEST: &str = "orlop.dev/guest";

impl Bench {
    async fn change(&self, name: &str, spec: &Value) {
        let patch = json!({ "spec": spec });
        // Nobody else may change what an instance is.
        let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(self.of_controller());
        vmis.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_launcher_is_told_of_a_change_once() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    assert_eq!(launcher.calls(), ["sync a"]);
    bench.change("a", &json!({ "domain": { "cpu": { "sockets": 2 } } })).await;
    seconds(100).await;
    assert_eq!(launcher.calls(), ["sync a"]);
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    bench.vmis().patch("a", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    seconds(100).await;
    assert_eq!(launcher.calls(), [""; 0], "a label changes no guest");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_fails_is_told_and_tried_again_while_the_guest_runs_on() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    launcher.calls();
    for (outcome, tries) in
        [(Outcome::retry("the guest has not let go of it"), 3..=8), (Outcome::never("spec", "no"), 1..=1)]
    {
        launcher.answer_with(Some(outcome.clone()));
        bench.change("a", &json!({ "domain": { "memory": { "guest": format!("{}Mi", 64 + tries.end()) } } })).await;
        seconds(30).await;
        let vmi = bench.vmi("a").await;
        let why = find(vmi.status.as_ref().unwrap().conditions.as_deref(), "Synchronized").unwrap();
        assert_eq!(why.message, Some(outcome.to_string()));
        assert_eq!(vmi.phase().to_string(), "Running");
        let calls = launcher.calls();
        assert!(tries.contains(&calls.len()), "{calls:?} after {outcome}");
        launcher.answer_with(None);
        bench.change("a", &json!({ "domain": { "memory": { "guest": format!("{}Gi", tries.end()) } } })).await;
        seconds(70).await;
        assert_eq!(condition(&bench.vmi("a").await, "Synchronized"), None);
        launcher.calls();
    }
    assert_eq!(bench.events("a").await, ["Created", "Started", "SyncFailed", "SyncFailed"], "not for each attempt");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_migration_or_a_restart_is_a_condition_and_no_failure() {
    let bench = Bench::new().await;
    let handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    let fields = vec!["spec.domain.cpu".to_owned()];
    let (migration, restart) = (Outcome::NeedsMigration(fields.clone()), Outcome::NeedsRestart(fields));
    for (sockets, outcome, kind, reason) in
        [(2, migration, "MigrationRequired", "NeedsMigration"), (3, restart, "RestartRequired", "NeedsRestart")]
    {
        launcher.answer_with(Some(outcome));
        bench.change("a", &json!({ "domain": { "cpu": { "sockets": sockets } } })).await;
        seconds(2).await;
        let vmi = bench.vmi("a").await;
        for other in ["MigrationRequired", "RestartRequired"] {
            let wanted = (kind == other).then(|| (true, reason.into()));
            assert_eq!(condition(&vmi, other), wanted);
        }
    }
    // A handler that comes back does not ask again.
    handler.stop().await;
    let _handler = bench.handler().await;
    launcher.tell(State::PausedByUser, End::Unspecified);
    seconds(2).await;
    let vmi = bench.vmi("a").await;
    assert!(condition(&vmi, "Paused").is_some() && condition(&vmi, "RestartRequired").is_some());
    launcher.answer_with(None);
    bench.change("a", &json!({ "domain": { "cpu": { "sockets": 1 } } })).await;
    seconds(2).await;
    assert_eq!(condition(&bench.vmi("a").await, "RestartRequired"), None);
    assert_eq!(bench.events("a").await, ["Created", "Started"]);
}

/// A launcher that was busy, and a handler that was killed between the answer and its write.
#[tokio::test(start_paused = true)]
async fn what_a_guest_sees_is_fetched_until_it_is_known_and_once_by_each_handler() {
    let bench = Bench::new().await;
    let handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    launcher.has_model(None);
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    assert!(!bench.vmi("a").await.annotations().contains_key(GUEST));
    let kept = |vmi: &VirtualMachineInstance| vmi.annotations().get(GUEST).cloned();
    launcher.has_model(Some("first"));
    launcher.tell(State::PausedByUser, End::Unspecified);
    seconds(2).await;
    assert_eq!(kept(&bench.vmi("a").await), Some("first".into()));
    handler.stop().await;
    launcher.has_model(Some("changed"));
    let _handler = bench.handler().await;
    seconds(2).await;
    assert_eq!(kept(&bench.vmi("a").await), Some("changed".into()));
    // It was told of each change since.
    launcher.has_model(None);
    launcher.tell(State::Running, End::Unspecified);
    seconds(100).await;
    assert_eq!(kept(&bench.vmi("a").await), Some("changed".into()));
}

#[tokio::test(start_paused = true)]
async fn what_a_guest_sees_is_kept_with_the_write_that_says_that_it_runs() {
    let bench = Bench::new().await;
    let handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    let kept = |vmi: &api::vmi::VirtualMachineInstance| vmi.metadata.annotations.as_ref().unwrap()[GUEST].clone();
    assert_eq!(kept(&bench.vmi("a").await), r#"{"version":1}"#);
    assert_eq!(bench.writes(), [patch("a")]);
    // A handler that comes back knows what the launcher was told; one that missed a change tells it.
    launcher.calls();
    handler.stop().await;
    let handler = bench.handler().await;
    seconds(100).await;
    assert_eq!((launcher.calls().len(), bench.writes().len()), (0, 0));
    handler.stop().await;
    bench.change("a", &json!({ "domain": { "cpu": { "sockets": 2 } } })).await;
    let _handler = bench.handler().await;
    seconds(100).await;
    assert_eq!(launcher.calls(), ["sync a"]);
}

/// They are counted by their places in the instance, which shift when a volume comes or goes.
#[tokio::test(start_paused = true)]
async fn the_disks_of_a_guest_that_runs_are_not_asked_for_again() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    launcher.calls();
    // From now on no container offers a disk.
    std::fs::create_dir(bench.sockets("pod-a").with_file_name("container-disks")).unwrap();
    bench.change("a", &json!({ "domain": { "cpu": { "sockets": 2 } } })).await;
    seconds(2).await;
    assert_eq!(launcher.calls(), ["sync a"]);
    let other = bench.launcher("pod-b");
    std::fs::create_dir(bench.sockets("pod-b").with_file_name("container-disks")).unwrap();
    bench.instance("b", NODE, &json!({})).await;
    seconds(10).await;
    assert_eq!(
        (bench.phase("b").await.as_str(), other.calls().len()),
        ("Scheduled", 0),
        "it cannot start without them"
    );
}

/// A VM that starts again after QEMU was upgraded has the board of before, and a migration looks for nodes that have that one.
#[tokio::test(start_paused = true)]
async fn the_board_of_an_instance_is_the_one_that_its_guest_has() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = bench.launcher("pod-a");
    let kept = include_str!("../../../hypervisor/tests/stored/v1-least.json");
    launcher.has_model(Some(kept));
    bench.instance("a", NODE, &json!({})).await;
    seconds(2).await;
    let board = bench.vmi("a").await.status.and_then(|status| status.machine).and_then(|machine| machine.type_);
    assert_eq!(board.as_deref(), Some("pc-i440fx-7.2"));
}

/// Its guests run on while the handler of the next release comes.
#[tokio::test(start_paused = true)]
async fn a_launcher_of_the_first_release_is_understood() {
    let bench = Bench::new().await;
    let _handler = bench.handler().await;
    let launcher = FakeLauncher::start_old(&bench.sockets("pod-a"));
    launcher.answer_with(Some(Outcome::retry("the registry is down")));
    bench.instance("a", NODE, &json!({})).await;
    seconds(10).await;
    assert_eq!(bench.phase("a").await, "Scheduled");
    launcher.answer_with(None);
    seconds(20).await;
    let vmi = bench.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Running");
    assert!(!vmi.annotations().contains_key(GUEST), "it has no model");
    launcher.calls();
    // It takes an instance once, and would not know what to do with a second one.
    bench.change("a", &json!({ "domain": { "cpu": { "sockets": 2 } } })).await;
    seconds(100).await;
    assert_eq!(launcher.calls(), [""; 0]);

    let hopeless = FakeLauncher::start_old(&bench.sockets("pod-b"));
    hopeless.answer_with(Some(Outcome::never("spec.domain.cpu.model", "unknown")));
    bench.instance("b", NODE, &json!({})).await;
    seconds(10).await;
    assert_eq!(bench.phase("b").await, "Failed");
}
