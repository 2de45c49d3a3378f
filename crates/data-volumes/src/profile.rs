//! StorageProfiles: one for each StorageClass, which says how claims of the class are made.
//!
//! Watches: StorageClass, StorageProfile. Owns: StorageProfiles, except what an administrator prefers in their spec. Emits: their
//! creation and status; Kubernetes' garbage collector takes them away with their class.

use api::cdi::{ClaimPropertySet, StorageProfile, StorageProfileStatus};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Started};
use manager::kit::{Kit, Reconciler, Written};
use manager::worker::Next;
use manager::writing::{create, difference, guarded};
use serde_json::{Value, json};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "storageprofile-controller";
const WORKERS: usize = 1;

/// The controller.
#[must_use]
pub fn start(context: &Context) -> Started {
    let kit = Kit::new(NAME, context);
    let controller = Profiles {
        client: context.client.clone(),
        classes: context.caches.of(&[]),
        profiles: context.caches.of(&[]),
        written: kit.written(),
    };
    let (classes, profiles) = (controller.classes.clone(), controller.profiles.clone());
    kit.reconciles(&profiles).watch(&classes, |change| [change.key.clone()]).run(WORKERS, controller)
}

struct Profiles {
    client: Client,
    classes: Cache<StorageClass>,
    profiles: Cache<StorageProfile>,
    written: Written,
}

#[derive(Debug, PartialEq)]
enum Plan {
    Nothing,
    Create(Box<StorageProfile>),
    Status(Value),
}

impl Reconciler for Profiles {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let (class, profile) = (self.classes.get(key), self.profiles.get(key));
        if profile.as_ref().is_some_and(|profile| self.written.is_behind(key, &**profile)) {
            return Ok(Next::Wait);
        }
        let api: Api<StorageProfile> = Api::all(self.client.clone());
        match decide(class.as_deref(), profile.as_deref()) {
            Plan::Nothing => {}
            Plan::Create(profile) => create(&api, &profile).await?,
            Plan::Status(patch) => drop(self.written.patch_status(&api, key, &patch).await?),
        }
        Ok(Next::Wait)
    }
}

fn decide(class: Option<&StorageClass>, profile: Option<&StorageProfile>) -> Plan {
    let Some(class) = class else { return Plan::Nothing };
    let Some(profile) = profile else {
        let owner = OwnerReference {
            api_version: "storage.k8s.io/v1".to_owned(),
            kind: "StorageClass".to_owned(),
            name: class.name_any(),
            uid: class.uid().unwrap_or_default(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let metadata = ObjectMeta {
            name: class.metadata.name.clone(),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        return Plan::Create(Box::new(StorageProfile { metadata, ..StorageProfile::default() }));
    };
    // One machine has its volumes for all its pods: what one can write, several can.
    let usual = || {
        vec![ClaimPropertySet {
            access_modes: vec!["ReadWriteOnce".to_owned()],
            volume_mode: Some("Filesystem".to_owned()),
        }]
    };
    let new = StorageProfileStatus {
        claim_property_sets: Some(profile.spec.claim_property_sets.clone().unwrap_or_else(usual)),
        clone_strategy: Some(profile.spec.clone_strategy.clone().unwrap_or_else(|| "csi-clone".to_owned())),
        provisioner: Some(class.provisioner.clone()),
        storage_class: class.metadata.name.clone(),
    };
    let old = profile.status.clone().unwrap_or_default();
    match difference(&json!(old), &json!(new)) {
        Some(patch) => Plan::Status(guarded(&profile.metadata, json!({ "status": patch }))),
        None => Plan::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_a_profile_that_says_what_its_administrator_prefers() {
        let metadata = json!({ "name": "local", "uid": "u" });
        let class: StorageClass = serde_json::from_value(json!({ "metadata": metadata, "provisioner": "p" })).unwrap();
        let Plan::Create(mut profile) = decide(Some(&class), None) else { panic!("not made") };
        let Plan::Status(patch) = decide(Some(&class), Some(&profile)) else { panic!("no status") };
        assert_eq!(patch["status"]["claimPropertySets"][0]["accessModes"], json!(["ReadWriteOnce"]));
        profile.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
        assert_eq!(decide(Some(&class), Some(&profile)), Plan::Nothing);
        let preferred = vec![ClaimPropertySet { access_modes: vec!["ReadWriteMany".to_owned()], volume_mode: None }];
        profile.spec.claim_property_sets = Some(preferred.clone());
        let Plan::Status(patch) = decide(Some(&class), Some(&profile)) else { panic!("no status") };
        assert_eq!(patch["status"]["claimPropertySets"], json!(preferred));
        assert_eq!(decide(None, Some(&profile)), Plan::Nothing);
    }
}
