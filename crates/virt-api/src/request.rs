//! What admission is asked and what it answers.

use std::sync::Arc;

use api::instancetype::VirtualMachineInstancetypeSpec;
use api::preference::VirtualMachinePreferenceSpec;
use api::preset::VirtualMachineInstancePreset;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use virt_rules::config::ClusterConfig;
use virt_rules::instancetype::matcher::Reference;

use crate::denial::Denial;

/// What happens to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
}

/// Who asks, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// One of our own programs.
    Component,
    /// A member of `system:masters`.
    Admin,
    /// Anybody else.
    User,
}

/// A write on its way to the store.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What happens.
    pub operation: Operation,
    /// API group of the object.
    pub group: &'a str,
    /// Plural name of its resource.
    pub resource: &'a str,
    /// Such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// Empty for objects of the cluster.
    pub namespace: &'a str,
    /// As the request's path has it; empty where an object is created.
    pub name: &'a str,
    /// Who asks.
    pub requester: Requester,
    /// The object as it shall be; none on deletion.
    pub object: Option<&'a Value>,
    /// The object as it was; none on creation.
    pub old: Option<&'a Value>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

impl Request<'_> {
    /// Whether it changes the status alone.
    pub(crate) fn is_about_status(&self) -> bool {
        self.subresource == "status"
    }
}

/// What admission must know beyond the object.
pub trait Known {
    /// The cluster's configuration.
    fn config(&self) -> Arc<ClusterConfig>;
    /// The CPU architecture of guests that name none, if the configuration does not say: amd64, arm64 or s390x.
    fn architecture(&self) -> &str;
    /// An instancetype, or the revision that the reference is bound to. `namespace` is the VM's.
    fn instancetype(&self, namespace: &str, reference: &Reference) -> Option<Arc<VirtualMachineInstancetypeSpec>>;
    /// A preference, or the revision that the reference is bound to. `namespace` is the VM's.
    fn preference(&self, namespace: &str, reference: &Reference) -> Option<Arc<VirtualMachinePreferenceSpec>>;
    /// An instance.
    fn instance(&self, namespace: &str, name: &str) -> Option<Arc<VirtualMachineInstance>>;
    /// A pod.
    fn pod(&self, namespace: &str, name: &str) -> Option<Pod>;
    /// The name of a migration of an instance that has not ended; none if there is none.
    fn migration_of(&self, namespace: &str, instance: &str) -> Option<String>;
    /// The name of a restore to a VM that has neither completed nor failed; none if there is none.
    fn restore_of(&self, namespace: &str, vm: &str) -> Option<String>;
    /// The presets of a namespace, in any order.
    fn presets(&self, namespace: &str) -> Vec<VirtualMachineInstancePreset>;
    /// How many KubeVirt objects there are.
    fn kubevirts(&self) -> usize;
    /// Whether there are VMs or instances.
    fn has_workloads(&self) -> bool;
    /// Whether somebody fills DataVolumes.
    fn serves_data_volumes(&self) -> bool;
    /// A new UUID, in the usual form.
    fn random_uuid(&self) -> String;
}

/// What becomes of the write.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The object to store if it is another than that of the request, or why there is none.
    pub outcome: Result<Option<Value>, Denial>,
    /// What the client should hear, whatever the outcome.
    pub warnings: Vec<String>,
    /// What must be written before the client hears of the outcome.
    pub mark: Option<Mark>,
}

/// A mark on an instance whose pod is not evicted, by which it is moved instead. Where it cannot be written, the answer is
/// [`Denial::unmarked`].
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The instance, in the namespace of the request.
    pub instance: String,
    /// A merge patch; it carries the version that was decided about, and the UID.
    pub patch: Value,
}

impl Response {
    /// Goes on as it is.
    pub(crate) fn allowed() -> Self {
        Self { outcome: Ok(None), warnings: Vec::new(), mark: None }
    }

    /// Goes no further.
    pub(crate) fn denied(denial: Denial) -> Self {
        Self { outcome: Err(denial), warnings: Vec::new(), mark: None }
    }

    pub(crate) fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }
}
