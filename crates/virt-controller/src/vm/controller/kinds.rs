//! What VMs refer to: instancetypes, preferences, and revisions of both.

use api::instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype};
use api::preference::{VirtualMachineClusterPreference, VirtualMachinePreference};
use api::vm::VirtualMachine;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt as _;
use manager::cache::{Cache, Key};
use manager::caches::Caches;
use virt_rules::instancetype::matcher::{Reference, Scope, Subject};
use virt_rules::instancetype::revision::{Kept, revision};

use crate::vm::instancetypes::Find;

/// What VMs refer to.
#[derive(Clone)]
pub(super) struct Kinds {
    pub(super) instancetypes: Cache<VirtualMachineInstancetype>,
    pub(super) cluster_instancetypes: Cache<VirtualMachineClusterInstancetype>,
    pub(super) preferences: Cache<VirtualMachinePreference>,
    pub(super) cluster_preferences: Cache<VirtualMachineClusterPreference>,
    revisions: Cache<ControllerRevision>,
}

impl Kinds {
    pub(super) fn new(caches: &Caches, revisions: Cache<ControllerRevision>) -> Self {
        Self {
            instancetypes: caches.of(&[]),
            cluster_instancetypes: caches.of(&[]),
            preferences: caches.of(&[]),
            cluster_preferences: caches.of(&[]),
            revisions,
        }
    }
}

impl Find for Kinds {
    fn object(&self, vm: &VirtualMachine, reference: &Reference) -> Option<(Kept, ControllerRevision)> {
        let namespace = match reference.scope {
            Scope::Namespaced => vm.namespace().unwrap_or_default(),
            Scope::Cluster => String::new(),
        };
        let key = Key { namespace, name: reference.name.clone() };
        match (reference.subject, reference.scope) {
            (Subject::Instancetype, Scope::Namespaced) => {
                let object = self.instancetypes.get(&key)?;
                Some((Kept::Instancetype(object.spec.clone()), revision(vm, &*object)?))
            }
            (Subject::Instancetype, Scope::Cluster) => {
                let object = self.cluster_instancetypes.get(&key)?;
                Some((Kept::Instancetype(object.spec.clone()), revision(vm, &*object)?))
            }
            (Subject::Preference, Scope::Namespaced) => {
                let object = self.preferences.get(&key)?;
                Some((Kept::Preference(object.spec.clone()), revision(vm, &*object)?))
            }
            (Subject::Preference, Scope::Cluster) => {
                let object = self.cluster_preferences.get(&key)?;
                Some((Kept::Preference(object.spec.clone()), revision(vm, &*object)?))
            }
        }
    }

    fn revision(&self, vm: &VirtualMachine, name: &str) -> Option<ControllerRevision> {
        let key = Key { namespace: vm.namespace().unwrap_or_default(), name: name.to_owned() };
        self.revisions.get(&key).map(|revision| ControllerRevision::clone(&revision))
    }
}
