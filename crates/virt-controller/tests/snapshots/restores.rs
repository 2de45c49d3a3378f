//! Restores.

use api::restore::VirtualMachineRestore as Restore;
use api::vmi::VirtualMachineInstance;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use testkit::world::{seconds, until};

use super::bench::{Bench, told};
use super::support::printable;

impl Bench {
    pub(crate) async fn restore(&self, name: &str, vm: &str, more: &Value) -> Result<Restore, kube::Error> {
        let mut spec = json!({
            "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm },
            "virtualMachineSnapshotName": "s",
        });
        json_patch::merge(&mut spec, more);
        let restore = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": { "name": name }, "spec": spec,
        });
        self.restores().create(&PostParams::default(), &serde_json::from_value(restore).unwrap()).await
    }

    /// Binds the claims that a restore makes, until it is complete.
    pub(crate) async fn complete(&self, name: &str) -> Restore {
        until(&format!("the end of the restore {name}"), async || {
            self.bind_all().await;
            let found = self.restores().get_opt(name).await.unwrap();
            found.filter(|one| one.status.as_ref().is_some_and(|status| status.complete == Some(true)))
        })
        .await
    }

    /// Plays the storage: every claim has its volume.
    pub(crate) async fn bind_all(&self) {
        for claim in self.claims().list(&Default::default()).await.unwrap().items {
            let bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
            match claim.metadata.deletion_timestamp.is_some() {
                true => self.let_go(&claim.name_any()).await,
                false if !bound => self.bind(&claim.name_any()).await,
                false => {}
            }
        }
    }

    async fn says(&self, name: &str, reason: &str) -> Restore {
        until(&format!("{name} to say {reason}"), async || {
            let found = self.restores().get_opt(name).await.unwrap();
            found.filter(|one| {
                told(one.status.as_ref().and_then(|status| status.conditions.as_ref()), "Ready").1 == reason
            })
        })
        .await
    }
}

fn claim_of(vm: &api::vm::VirtualMachine, volume: &str) -> String {
    let volumes = vm.spec.template.spec.as_ref().unwrap().volumes.as_ref().unwrap();
    let volume = volumes.iter().find(|one| one.name == volume).unwrap();
    volume.persistent_volume_claim.as_ref().unwrap().claim_name.clone()
}

#[tokio::test(start_paused = true)]
async fn a_vm_becomes_what_its_snapshot_holds() {
    let bench = Bench::start().await;
    let vm = bench.machine("v", "Halted", &["one", "two"]).await;
    bench.finished("s", "v", 2).await;
    bench.world.word("v", "Stopped").await;
    bench.world.patch_vm("v", &json!({ "spec": { "template": { "spec": { "hostname": "later" } } } })).await;
    let uid = bench.restore("r", "v", &json!({})).await.unwrap().uid().unwrap();
    let locked =
        bench.world.vm("v", |vm| vm.status.as_ref().is_some_and(|status| status.restore_in_progress.is_some()));
    assert_eq!(locked.await.status.unwrap().restore_in_progress.as_deref(), Some("r"));
    let name = format!("restore-{uid}-one");
    let claim = until("a claim", async || bench.claims().get_opt(&name).await.unwrap()).await;
    let source = claim.spec.as_ref().unwrap().data_source.clone().unwrap();
    let copies = bench.copies().list(&Default::default()).await.unwrap().items;
    assert_eq!((source.kind.as_str(), source.name.as_str()), ("VolumeSnapshot", copies[0].name_any().as_str()));
    assert_eq!(claim.owner_references()[0].uid, vm.uid().unwrap());
    assert_eq!(claim.annotations()["restore.kubevirt.io/name"], "r");
    seconds(2).await;
    let unchanged = bench.world.vms().get("v").await.unwrap();
    assert_eq!(claim_of(&unchanged, "one"), "one", "the VM waits for its claims");

    let done = bench.complete("r").await.status.unwrap();
    assert_eq!(told(done.conditions.as_ref(), "Ready"), (true, "Operation complete".to_owned()));
    assert!(done.restore_time.is_some());
    assert_eq!(done.restores.unwrap().len(), 2);
    let restored = bench.world.vms().get("v").await.unwrap();
    assert_eq!(restored.uid(), vm.uid());
    assert_eq!((claim_of(&restored, "one"), claim_of(&restored, "two")), (name, format!("restore-{uid}-two")));
    assert_eq!(restored.spec.template.spec.as_ref().unwrap().hostname, None);
    assert_eq!(restored.annotations()["restore.kubevirt.io/lastRestoreUID"], format!("r-{uid}"));
    assert_eq!(restored.status.unwrap().restore_in_progress, None);
    bench.world.writes();
    seconds(600).await;
    assert_eq!(bench.world.writes(), Vec::<String>::new(), "nothing is written at rest");
}

#[tokio::test(start_paused = true)]
async fn a_new_vm_is_made_of_a_snapshot_with_patches_and_overrides() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.finished("s", "v", 1).await;
    let more = json!({
        "patches": [r#"{"op":"add","path":"/spec/template/spec/hostname","value":"twin"}"#],
        "volumeRestoreOverrides": [{ "volumeName": "one", "restoreName": "mine", "labels": { "a": "b" } }],
    });
    bench.restore("r", "w", &more).await.unwrap();
    bench.complete("r").await;
    let made = bench.world.vms().get("w").await.unwrap();
    assert_eq!(claim_of(&made, "one"), "mine");
    assert_eq!(made.spec.template.spec.as_ref().unwrap().hostname.as_deref(), Some("twin"));
    assert_eq!(made.spec.run_strategy, Some(api::vm::VirtualMachineRunStrategy::Halted));
    let claim = bench.claims().get("mine").await.unwrap();
    assert_eq!(claim.labels()["a"], "b");
    assert_eq!(claim.labels()["restore.kubevirt.io/source-vm-name"], "v");
    let old = bench.world.vms().get("v").await.unwrap();
    assert_eq!(claim_of(&old, "one"), "one", "the source stays as it was");
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_replaced_in_its_place_and_only_with_its_copy() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.finished("s", "v", 1).await;
    let before = bench.claims().get("one").await.unwrap();
    bench.restore("r", "v", &json!({ "volumeRestorePolicy": "InPlace" })).await.unwrap();
    bench.complete("r").await;
    let after = bench.claims().get("one").await.unwrap();
    assert_ne!(after.uid(), before.uid());
    assert_eq!(after.spec.unwrap().data_source.unwrap().kind, "VolumeSnapshot");
    assert_eq!(claim_of(&bench.world.vms().get("v").await.unwrap(), "one"), "one");
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_another_vm_is_never_replaced() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.finished("s", "v", 1).await;
    let before = bench.claims().get("one").await.unwrap();
    bench.restore("r", "w", &json!({ "volumeRestorePolicy": "InPlace" })).await.unwrap();
    bench.says("r", "volumeRestorePolicy InPlace replaces the claims of the VM that the snapshot is of, and the target is another; use RandomizeNames or PrefixTargetName").await;
    seconds(60).await;
    let after = bench.claims().get("one").await.unwrap();
    assert_eq!((after.uid(), after.metadata.deletion_timestamp), (before.uid(), None));
    assert!(bench.world.vms().get_opt("w").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_deleted_meanwhile_stays_until_its_bytes_are_restored() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.finished("s", "v", 1).await;
    bench.restore("r", "v", &json!({ "volumeRestorePolicy": "InPlace" })).await.unwrap();
    until("the claim to go", async || {
        let claim = bench.claims().get_opt("one").await.unwrap();
        claim.filter(|claim| claim.metadata.deletion_timestamp.is_some())
    })
    .await;
    bench.snapshots().delete("s", &DeleteParams::default()).await.unwrap();
    seconds(60).await;
    assert!(bench.snapshots().get_opt("s").await.unwrap().is_some());
    assert_eq!(bench.contents().list(&Default::default()).await.unwrap().items.len(), 1);
    bench.complete("r").await;
    until("the snapshot's end", async || bench.snapshots().get_opt("s").await.unwrap().is_none().then_some(())).await;
    assert!(bench.claims().get_opt("one").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_target_that_runs_is_waited_for_stopped_or_refused() {
    let bench = Bench::start().await;
    bench.machine("v", "Manual", &["one"]).await;
    bench.finished("s", "v", 1).await;
    bench.world.word("v", "Stopped").await;
    bench.world.vm("v", |vm| vm.status.as_ref().unwrap().snapshot_in_progress.is_none()).await;
    bench.world.patch_vm("v", &json!({ "spec": { "runStrategy": "Always" } })).await;
    bench.world.boot("v").await;
    bench.restore("now", "v", &json!({ "targetReadinessPolicy": "FailImmediate" })).await.unwrap();
    let failed = bench.says("now", "Restore target VMI must be powered off before restore operation").await;
    assert!(told(failed.status.unwrap().conditions.as_ref(), "Failure").0);

    bench.restore("soon", "v", &json!({})).await.unwrap();
    let wait = "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore, or the operation will fail after 5m0s";
    bench.says("soon", wait).await;
    let late =
        "Restore target failed to be ready within 5m0s. Please power off the target VM before attempting restore";
    bench.says("soon", late).await;
    assert!(!bench.asked.all().contains(&"stop".to_owned()));

    bench.restore("stops", "v", &json!({ "targetReadinessPolicy": "StopTarget" })).await.unwrap();
    bench.says("stops", "Automatically stopping restore target for restore operation").await;
    bench.asked.until("stop").await;
    // The server's part of the stop, and the node's.
    let pod = bench.world.pod("v").await;
    bench.world.patch_vm("v", &json!({ "spec": { "runStrategy": "Halted" } })).await;
    bench.world.vmi("v", VirtualMachineInstance::is_marked_for_deletion).await;
    bench.world.phase("v", "Succeeded").await;
    bench.world.end_pod(&pod).await;
    bench.complete("stops").await;
    assert_eq!(bench.asked.all().iter().filter(|one| *one == "stop").count(), 1);
    assert_eq!(printable(&bench.world.vms().get("v").await.unwrap()), "Stopped");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_restored_says_why() {
    let bench = Bench::start().await;
    bench.machine("v", "Halted", &["one"]).await;
    bench.machine("other", "Halted", &[]).await;
    bench.restore("early", "v", &json!({})).await.unwrap();
    bench.says("early", "VMSnapshot default/s does not exist").await;
    let busy = bench.restore("second", "v", &json!({})).await.unwrap_err().to_string();
    assert!(busy.contains(r#"VirtualMachineRestore "early" in progress"#), "{busy}");
    bench.restores().delete("early", &DeleteParams::default()).await.unwrap();
    until("its end", async || bench.restores().get_opt("early").await.unwrap().is_none().then_some(())).await;

    bench.finished("s", "v", 1).await;
    bench.restore("wrong", "other", &json!({})).await.unwrap();
    bench.says("wrong", "restore source and restore target are different but restore target already exists").await;
    let other = bench.world.vms().get("other").await.unwrap();
    assert_eq!(other.status.unwrap().restore_in_progress, None);
    let taken = json!({ "volumeRestoreOverrides": [{ "volumeName": "one", "restoreName": "one" }] });
    bench.restore("taken", "new", &taken).await.unwrap();
    bench.says("taken", "PVC default/one exists already and was not made by this restore").await;
    let path = json!({ "patches": [r#"{"op":"replace","path":"/metadata/name","value":"x"}"#] });
    let refused = bench.restore("path", "new2", &path).await.unwrap_err().to_string();
    assert!(refused.contains("patching is valid only for elements under /spec/ only"), "{refused}");
}
