//! The two kinds of objects that keep a number of pods: what the controller asks of each.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An object that keeps a number of pods.
pub trait Replicated:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Whether its status counts the pods that are on their way out: the older kind has no field for them.
    const COUNTS_TERMINATING: bool;
    /// Who its events are by, as Kubernetes has it.
    const COMPONENT: &'static str;

    /// The replica set that it is, or that it stands for.
    fn as_set(&self) -> Cow<'_, ReplicaSet>;

    /// The same object with another status.
    #[must_use]
    fn with_status(&self, status: &ReplicaSetStatus) -> Self;
}

impl Replicated for ReplicaSet {
    const COUNTS_TERMINATING: bool = true;
    const COMPONENT: &'static str = "replicaset-controller";

    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Borrowed(self)
    }

    fn with_status(&self, status: &ReplicaSetStatus) -> Self {
        Self { status: Some(status.clone()), ..self.clone() }
    }
}
