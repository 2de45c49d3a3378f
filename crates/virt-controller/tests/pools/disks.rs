//! Disks that are data volumes: each belongs to one VM and to no other of its number.

use api::data_volume::DataVolume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::*;

/// The settings of a pool whose VMs have a disk each.
fn with_disks(settings: &Value) -> Value {
    let mut guest = spec();
    guest["volumes"] = json!([{ "name": "root", "dataVolume": { "name": "root" } }]);
    let template = json!({
        "metadata": { "labels": { "app": "farm" } },
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [{ "metadata": { "name": "root" }, "spec": { "source": { "blank": {} }, "storage": {} } }],
            "template": { "metadata": { "labels": { "app": "farm" } }, "spec": guest },
        },
    });
    let mut settings = settings.clone();
    settings["virtualMachineTemplate"] = template;
    settings
}

fn volumes(world: &World) -> Api<DataVolume> {
    Api::default_namespaced(world.client.clone())
}

fn claims(world: &World) -> Api<PersistentVolumeClaim> {
    Api::default_namespaced(world.client.clone())
}

/// Plays the importer: the data volume of this name has a claim, and both are ready.
async fn fill(world: &World, name: &str) -> DataVolume {
    let volume = until("the data volume", async || volumes(world).get_opt(name).await.ok().flatten()).await;
    let claim = json!({
        "metadata": { "name": name, "ownerReferences": [api::owner::controller_reference(&volume)] },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    claims(world).create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let bound = json!({ "status": { "phase": "Bound" } });
    claims(world).patch_status(name, &PatchParams::default(), &Patch::Merge(&bound)).await.unwrap();
    let done = json!({ "status": { "phase": "Succeeded" } });
    volumes(world).patch(name, &PatchParams::default(), &Patch::Merge(&done)).await.unwrap()
}

/// The pool makes a VM again whose predecessor's disk is there until somebody collects it: it waits, and has a disk of its own.
#[tokio::test(start_paused = true)]
async fn a_vm_that_is_made_again_never_starts_on_the_disk_that_goes() {
    let world = World::start_after(async |world| world.define_data_volumes().await).await;
    create(&world, 1, &with_disks(&json!({}))).await;
    let first = fill(&world, "root-0").await;
    play_until_ready(&world, 1, async |_| true).await;
    let before = world.vms().get("farm-0").await.unwrap().uid();
    // Nobody collects garbage, so that what the first has left is there.
    world.vms().delete("farm-0", &DeleteParams::background()).await.unwrap();
    until("another VM", async || {
        play(&world).await;
        world.vms().get_opt("farm-0").await.unwrap().filter(|vm| vm.uid() != before)
    })
    .await;
    let waits = world.word("farm-0", "Provisioning").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(instances(&world).await.len(), 0, "nobody starts on it");
    let told = api::conditions::find(waits.status.as_ref().unwrap().conditions.as_deref(), "Provisioning").unwrap();
    let message = "the DataVolume root-0 belongs to an earlier VirtualMachine named farm-0 and is about to be deleted";
    assert_eq!(told.message.as_deref(), Some(message));
    // The collector takes the data volume, and then its claim.
    volumes(&world).delete("root-0", &DeleteParams::default()).await.unwrap();
    until("a data volume of its own", async || {
        let found = volumes(&world).get_opt("root-0").await.unwrap();
        let is_new = |one: &DataVolume| one.uid() != first.uid();
        // Nobody makes one while there is the claim of another.
        if found.is_none() {
            let unprotected = json!({ "metadata": { "finalizers": null } });
            drop(claims(&world).patch("root-0", &PatchParams::default(), &Patch::Merge(&unprotected)).await);
            drop(claims(&world).delete("root-0", &DeleteParams::default()).await);
        }
        found.filter(is_new)
    })
    .await;
    assert_eq!(instances(&world).await.len(), 0);
    let second = fill(&world, "root-0").await;
    assert!(api::owner::is_controlled_by(&second.metadata, waits.metadata.uid.as_deref().unwrap()));
    play_until_ready(&world, 1, async |_| true).await;
}

/// What is kept has no owner any more when its VM goes: neither the data volume, nor the claim that the VM was given when its
/// importer was done.
#[tokio::test(start_paused = true)]
async fn disks_that_are_kept_outlive_their_vm_with_and_without_a_data_volume() {
    let world = World::start_after(async |world| world.define_data_volumes().await).await;
    run_controller(&world, GARBAGE_COLLECTOR);
    let kept = json!({ "proactive": { "statePreservation": "Offline", "selectionPolicy": { "sortPolicy": "DescendingOrder" } } });
    create(&world, 3, &with_disks(&json!({ "scaleInStrategy": kept }))).await;
    let mut uids = BTreeMap::new();
    for name in ["root-0", "root-1", "root-2"] {
        fill(&world, name).await;
        uids.insert(name, claims(&world).get(name).await.unwrap().uid());
    }
    play_until_ready(&world, 3, async |_| true).await;
    // As CDI does once a data volume is filled: the claim is its owner's, and the data volume goes.
    let owner = api::owner::controller_reference(&world.vms().get("farm-2").await.unwrap());
    let patch = json!({ "metadata": { "ownerReferences": [owner] } });
    claims(&world).patch("root-2", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    volumes(&world).delete("root-2", &DeleteParams::default()).await.unwrap();
    scale(&world, 1).await;
    until("the end of two VMs", async || {
        play(&world).await;
        (world.vms().list(&ListParams::default()).await.unwrap().items.len() == 1).then_some(())
    })
    .await;
    sleep(Duration::from_secs(300)).await;
    for name in ["root-1", "root-2"] {
        let claim = claims(&world).get(name).await.unwrap();
        assert_eq!((claim.uid(), claim.metadata.deletion_timestamp), (uids[name].clone(), None), "{name}");
    }
    assert_eq!(claims(&world).get("root-2").await.unwrap().owner_references(), []);
    assert_eq!(volumes(&world).get("root-1").await.unwrap().owner_references(), []);
    assert!(!volumes(&world).get("root-0").await.unwrap().owner_references().is_empty(), "the others' stay theirs");
    // Whoever gets the number again gets the disk again.
    scale(&world, 3).await;
    play_until_ready(&world, 3, async |_| true).await;
    assert_eq!(claims(&world).get("root-2").await.unwrap().uid(), uids["root-2"]);
}
