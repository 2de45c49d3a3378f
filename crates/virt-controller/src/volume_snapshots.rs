//! VolumeSnapshots and their classes, where the cluster has such kinds, and which class copies the claims of a storage class.
//!
//! Absent on purpose: whoever makes the copies. On a cluster that is a CSI driver, on one machine its own storage.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use api::data_volume::DataVolume;
use api::quantity::Amount;
use api::snapshot::VolumeBackup;
use api::vm::{VirtualMachine, VolumeSnapshotStatus};
use api::volume_snapshot::{DEFAULT_CLASS, VolumeSnapshot, VolumeSnapshotClass};
use api::volumes::Volume;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference, TypedObjectReference,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::cache::{Cache, controller_of};
use manager::caches::Caches;
use manager::context::Context;

use crate::data_volumes::is_established;

const DEFINITIONS: [&str; 2] =
    ["volumesnapshots.snapshot.storage.k8s.io", "volumesnapshotclasses.snapshot.storage.k8s.io"];

const GROUP: &str = "snapshot.storage.k8s.io";
const STORAGE: &str = "storage";

/// What is known of them. Clones share it.
#[derive(Clone)]
pub(crate) struct VolumeSnapshots {
    definitions: [Cache<CustomResourceDefinition>; 2],
    caches: Caches,
    snapshots: Cache<VolumeSnapshot>,
    classes: Cache<VolumeSnapshotClass>,
    storage: Cache<StorageClass>,
    runs: Arc<AtomicBool>,
}

/// Where the controllers of a program find what they share.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<OnceLock<VolumeSnapshots>>);

impl Shared {
    /// Made by the first that asks.
    pub(crate) fn volume_snapshots(&self, context: &Context) -> VolumeSnapshots {
        self.0.get_or_init(|| VolumeSnapshots::new(context)).clone()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl VolumeSnapshots {
    fn new(context: &Context) -> Self {
        let definitions = DEFINITIONS.map(|name| context.caches.with_fields(&format!("metadata.name={name}"), &[]));
        // Caches of its own: these start when there is something to watch.
        let caches = Caches::new(context.caches.reader().clone(), context.chance.clone());
        let snapshots = caches.of(&[("controller", controller_of)]);
        let (classes, storage) = (caches.of(&[]), context.caches.of(&[]));
        Self { definitions, caches, snapshots, classes, storage, runs: Arc::default() }
    }

    /// Whether the cluster has both kinds.
    pub(crate) fn are_served(&self) -> bool {
        self.definitions.iter().all(|cache| cache.all().iter().any(|definition| is_established(definition)))
    }

    /// Waits until it is known what there is, where the kinds are served.
    pub(crate) async fn known(&self) {
        if self.are_served() {
            self.snapshots.synced().await;
            self.classes.synced().await;
        }
    }

    pub(crate) fn snapshots(&self) -> &Cache<VolumeSnapshot> {
        &self.snapshots
    }

    pub(crate) fn class_objects(&self) -> &Cache<VolumeSnapshotClass> {
        &self.classes
    }

    pub(crate) fn storage_classes(&self) -> &Cache<StorageClass> {
        &self.storage
    }

    /// Which class copies what, as things are.
    pub(crate) fn classes(&self) -> SnapshotClasses {
        let (storage, classes) = (self.storage.all(), self.classes.all());
        SnapshotClasses::of(storage.iter().map(|one| &**one), classes.iter().map(|one| &**one))
    }

    /// Watches as soon as there is something to watch. Whoever comes second only waits.
    pub(crate) async fn run(&self) {
        if self.runs.swap(true, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        for definition in &self.definitions {
            let mut changes = definition.subscribe();
            while !definition.all().iter().any(|one| is_established(one)) {
                changes.next().await;
            }
        }
        tracing::info!("the API server now serves VolumeSnapshots");
        self.caches.run().await;
        // The watches end only with the program.
        std::future::pending::<()>().await;
    }
}

/// The class that copies the claims of each storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotClasses {
    by_storage: BTreeMap<String, Result<String, String>>,
}

impl SnapshotClasses {
    /// # Guarantees
    /// - A class is chosen only if its driver is what provisions the storage class.
    /// - Of several, the one that is marked as default; if none is marked, nobody guesses.
    #[must_use]
    pub fn of<'a>(
        storage: impl IntoIterator<Item = &'a StorageClass>,
        classes: impl IntoIterator<Item = &'a VolumeSnapshotClass>,
    ) -> Self {
        let classes: Vec<&VolumeSnapshotClass> = classes.into_iter().collect();
        let by_storage = storage.into_iter().filter_map(|storage| {
            let name = storage.metadata.name.clone()?;
            let mut matches: Vec<_> = classes.iter().filter(|one| one.driver == storage.provisioner).collect();
            matches.sort_by_key(|one| &one.metadata.name);
            let chosen = match matches.as_slice() {
                [] => return None,
                [only] => Some(only),
                several => several.iter().find(|one| is_default(one)),
            };
            let count = matches.len();
            let chosen = chosen.and_then(|one| one.metadata.name.clone());
            let chosen = chosen.ok_or_else(|| format!("{count} matching VolumeSnapshotClasses for {name}"));
            Some((name, chosen))
        });
        Self { by_storage: by_storage.collect() }
    }

    /// The class that copies claims of this storage class; none if there is none.
    ///
    /// # Errors
    /// When there are several and none is the default.
    pub fn copies(&self, storage_class: &str) -> Result<Option<&str>, &str> {
        match self.by_storage.get(storage_class) {
            None => Ok(None),
            Some(Ok(class)) => Ok(Some(class)),
            Some(Err(why)) => Err(why),
        }
    }

    /// Whether each volume of a VM can be copied, and if not, why, in KubeVirt's words.
    #[must_use]
    pub fn statuses(
        &self,
        vm: &VirtualMachine,
        claims: &BTreeMap<&str, &PersistentVolumeClaim>,
        data_volumes: Option<&BTreeMap<&str, &DataVolume>>,
    ) -> Vec<VolumeSnapshotStatus> {
        let volumes = vm.spec.template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let status = |volume: &Volume| {
            let reason = self.obstacle(volume, claims, data_volumes).err();
            VolumeSnapshotStatus { name: volume.name.clone(), enabled: reason.is_none(), reason }
        };
        volumes.map(status).collect()
    }

    fn obstacle(
        &self,
        volume: &Volume,
        claims: &BTreeMap<&str, &PersistentVolumeClaim>,
        data_volumes: Option<&BTreeMap<&str, &DataVolume>>,
    ) -> Result<(), String> {
        let name = &volume.name;
        let Some(claim) = claim_of(volume) else {
            return Err(format!("Snapshot is not supported for this volumeSource type [{name}]"));
        };
        let made = data_volumes.and_then(|all| all.get(claim)).filter(|_| volume.data_volume.is_some());
        let of_made = made.and_then(|made| made.spec.pvc.as_ref()?.storage_class_name.clone());
        let class = match (of_made.filter(|class| !class.is_empty()), claims.get(claim)) {
            (Some(class), _) => class,
            (None, Some(claim)) => storage_class(claim).unwrap_or_default().to_owned(),
            (None, None) => return Err("PVC not found".to_owned()),
        };
        match self.copies(&class)? {
            Some(_) => Ok(()),
            None => Err(format!(
                "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [{class}] [{name}]"
            )),
        }
    }
}

fn is_default(class: &VolumeSnapshotClass) -> bool {
    let annotations = class.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
}

/// The claim behind a volume whose bytes a snapshot can have.
pub(crate) fn claim_of(volume: &Volume) -> Option<&str> {
    let claim = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str());
    let made = volume.data_volume.as_ref().map(|source| source.name.as_str());
    let dump = volume.memory_dump.as_ref().map(|source| source.claim_name.as_str());
    claim.or(made).or(dump)
}

/// The storage class of a claim.
pub(crate) fn storage_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

/// The claim that has the bytes of a copy: as large as the one that was copied, and at least as large as the copy.
pub(crate) fn restored_claim(
    metadata: ObjectMeta,
    backup: &VolumeBackup,
    copy: &VolumeSnapshot,
) -> PersistentVolumeClaim {
    let old = backup.persistent_volume_claim.spec.clone().unwrap_or_default();
    let mut resources = old.resources.unwrap_or_default();
    if let Some(least) = copy.status.as_ref().and_then(|status| status.restore_size.clone()) {
        let requests = resources.requests.get_or_insert_default();
        if requests.get(STORAGE).is_none_or(|asked| amount(asked) < amount(&least)) {
            requests.insert(STORAGE.to_owned(), least);
        }
    }
    let (group, kind) = (Some(GROUP.to_owned()), "VolumeSnapshot".to_owned());
    let name = copy.metadata.name.clone().unwrap_or_default();
    let source = TypedLocalObjectReference { api_group: group.clone(), kind: kind.clone(), name: name.clone() };
    let reference = TypedObjectReference { api_group: group, kind, name, namespace: None };
    PersistentVolumeClaim {
        metadata,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: old.access_modes,
            resources: Some(resources),
            storage_class_name: old.storage_class_name,
            volume_mode: old.volume_mode,
            data_source: Some(source),
            data_source_ref: Some(reference),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// A size that cannot be read is less than any other.
fn amount(quantity: &Quantity) -> Amount {
    quantity.0.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn storage(name: &str, driver: &str) -> StorageClass {
        serde_json::from_value(json!({ "metadata": { "name": name }, "provisioner": driver })).unwrap()
    }

    fn class(name: &str, driver: &str, default: bool) -> VolumeSnapshotClass {
        let annotations = json!({ DEFAULT_CLASS: default.to_string() });
        serde_json::from_value(json!({
            "metadata": { "name": name, "annotations": annotations }, "driver": driver, "deletionPolicy": "Delete",
        }))
        .unwrap()
    }

    #[test]
    fn the_default_class_of_the_driver_is_chosen_and_nobody_guesses() {
        let table = [
            (vec![], Ok(None)),
            (vec![class("a", "other", true)], Ok(None)),
            (vec![class("a", "d", false)], Ok(Some("a"))),
            (vec![class("a", "d", false), class("b", "d", true)], Ok(Some("b"))),
            (vec![class("a", "d", false), class("b", "d", false)], Err("2 matching VolumeSnapshotClasses for s")),
        ];
        for (classes, expected) in table {
            assert_eq!(SnapshotClasses::of([&storage("s", "d")], &classes).copies("s"), expected);
        }
    }

    proptest! {
        #[test]
        fn a_class_of_another_driver_is_never_chosen(
            classes in prop::collection::vec(("[a-c]", "d|e", any::<bool>()), 0..5),
        ) {
            let classes: Vec<_> = classes.iter().map(|(name, driver, default)| class(name, driver, *default)).collect();
            let found = SnapshotClasses::of([&storage("s", "d")], &classes);
            if let Ok(Some(name)) = found.copies("s") {
                prop_assert!(classes.iter().any(|one| one.driver == "d" && one.metadata.name.as_deref() == Some(name)));
            } else if found.copies("s") == Ok(None) {
                prop_assert!(classes.iter().all(|one| one.driver != "d"));
            }
        }
    }

    #[test]
    fn each_volume_says_whether_it_can_be_copied() {
        let vm: VirtualMachine = serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "spec": { "template": { "spec": { "domain": { "devices": {} }, "volumes": [
                { "name": "image", "containerDisk": { "image": "i" } },
                { "name": "good", "persistentVolumeClaim": { "claimName": "one" } },
                { "name": "slow", "persistentVolumeClaim": { "claimName": "two" } },
                { "name": "gone", "dataVolume": { "name": "three" } },
            ] } } },
        }))
        .unwrap();
        let claim = |class: &str| -> PersistentVolumeClaim {
            serde_json::from_value(json!({ "spec": { "storageClassName": class } })).unwrap()
        };
        let (one, two) = (claim("s"), claim("t"));
        let claims = BTreeMap::from([("one", &one), ("two", &two)]);
        let classes = SnapshotClasses::of([&storage("s", "d"), &storage("t", "e")], [&class("a", "d", false)]);
        let reasons: Vec<_> =
            classes.statuses(&vm, &claims, None).into_iter().map(|one| (one.enabled, one.reason)).collect();
        let no = |reason: &str| (false, Some(reason.to_owned()));
        assert_eq!(
            reasons,
            [
                no("Snapshot is not supported for this volumeSource type [image]"),
                (true, None),
                no("No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [t] [slow]"),
                no("PVC not found"),
            ]
        );
    }
}
