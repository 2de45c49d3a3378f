//! Plugin: hooks that third parties add to the life of an instance.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::duration::Duration;
use crate::enums::open_enum;
use crate::resource::resource;
use crate::schema;

/// An extension that hooks into admission, domain XML and nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct Plugin {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Hooks the extension brings, and when they run.
    pub spec: PluginSpec,
    /// Empty for now.
    pub status: Option<PluginStatus>,
}

resource!(Plugin is cluster "plugins" of "plugin.kubevirt.io" in "v1alpha1" with { spec, status });

/// A page of plugins.
pub type PluginList = k8s_openapi::List<Plugin>;

/// Hooks of the extension, and when they run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginSpec {
    /// CEL test on the VMI; the plugin is skipped if false.
    pub condition: Option<String>,
    /// Changes to the domain before the guest starts.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub domain_hooks: Option<Vec<DomainHook>>,
    /// What a failed hook does to the VMI, unless the hook says.
    pub failure_strategy: Option<FailureStrategy>,
    /// Mutating policies that belong to the plugin.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mutating_admission_policies: Option<Vec<AdmissionPolicyReference>>,
    /// Mutating webhooks that belong to the plugin.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mutating_admission_webhooks: Option<Vec<AdmissionWebhookReference>>,
    /// Calls virt-handler makes to a service on the node.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub node_hooks: Option<Vec<NodeHook>>,
    /// Validating policies that belong to the plugin.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub validating_admission_policies: Option<Vec<AdmissionPolicyReference>>,
    /// Validating webhooks that belong to the plugin.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub validating_admission_webhooks: Option<Vec<AdmissionWebhookReference>>,
}

/// Empty; nothing is reported yet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PluginStatus {}

/// Changes the domain, by CEL or by a sidecar.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainHook {
    /// Computes the change with an expression, without a sidecar.
    pub cel: Option<CELHook>,
    /// CEL test on the VMI; the hook is skipped if false.
    pub condition: Option<String>,
    /// What a failure does to the VMI; overrides the plugin's.
    pub failure_strategy: Option<FailureStrategy>,
    /// Has a container in the virt-launcher pod make the change.
    pub sidecar: Option<SidecarHook>,
    /// Longest wait for the hook, such as 10s.
    pub timeout: Option<Duration>,
}

/// A domain change written as a CEL expression.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CELHook {
    /// CEL code that yields the changed domain.
    #[schemars(extend("minLength" = 1))]
    pub expression: String,
}

/// A domain change made by a sidecar container.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarHook {
    /// Unix socket on which the sidecar listens.
    #[schemars(extend("minLength" = 1))]
    pub socket_path: String,
}

/// A service on the node called at points of a VMI's life.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHook {
    /// Hook points at which the service may be called.
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "minItems" = 1))]
    pub permitted_hooks: Vec<NodeHookPoint>,
    /// Unix socket on the node where the service listens.
    #[schemars(extend("minLength" = 1))]
    pub socket: String,
    /// CEL test on the VMI; the hook is skipped if false.
    pub condition: Option<String>,
    /// What a failure does to the VMI; overrides the plugin's.
    pub failure_strategy: Option<FailureStrategy>,
    /// Longest wait for one call, such as 10s.
    pub timeout: Option<Duration>,
}

/// Points to a cluster-scoped admission policy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct AdmissionPolicyReference {
    /// Name of the admission policy object.
    #[schemars(extend("minLength" = 1))]
    pub name: String,
}

/// Points to a webhook configuration.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct AdmissionWebhookReference {
    /// Name of the webhook configuration object.
    #[schemars(extend("minLength" = 1))]
    pub name: String,
}

open_enum! {
    /// What a failing hook means for the VM.
    pub enum FailureStrategy {
        Fail = "Fail",
        Ignore = "Ignore",
    }
}

open_enum! {
    /// When a node hook is called.
    pub enum NodeHookPoint {
        PreVMStart = "PreVMStart",
        PostVMStart = "PostVMStart",
        PreVMStop = "PreVMStop",
        PostVMStop = "PostVMStop",
        PreMigrationSource = "PreMigrationSource",
        PreMigrationTarget = "PreMigrationTarget",
        PostMigrationTarget = "PostMigrationTarget",
    }
}
