//! KubeVirt: the installation, its components and their health.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::configuration::KubeVirtConfiguration;
use crate::duration::Duration;
use crate::enums::open_enum;
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;
use crate::volumes::PullPolicy;

/// The KubeVirt installation that virt-operator deploys and keeps up.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct KubeVirt {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// What to install, from which images, and how to run it.
    pub spec: KubeVirtSpec,
    /// What virt-operator has rolled out so far.
    pub status: Option<KubeVirtStatus>,
}

resource!(KubeVirt is namespaced "kubevirts" of "kubevirt.io" in "v1" with { spec, status });

/// A page of kube virts.
pub type KubeVirtList = k8s_openapi::List<KubeVirt>;

/// Desired version, placement and settings of the installation.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtSpec {
    /// Lifetimes of the internal TLS certificates.
    pub certificate_rotate_strategy: Option<KubeVirtCertificateRotateStrategy>,
    /// Cluster-wide defaults and limits for all guests.
    pub configuration: Option<KubeVirtConfiguration>,
    /// Patches and flags applied to what the operator deploys.
    pub customize_components: Option<CustomizeComponents>,
    /// When nodes pull component images: Always, IfNotPresent or Never.
    pub image_pull_policy: Option<PullPolicy>,
    /// Registry credentials for the component and launcher images.
    #[schemars(with = "Option<Vec<core::LocalObjectReference>>")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// Registry prefix of component images; the operator's own if unset.
    pub image_registry: Option<String>,
    /// Version to install; the operator's own tag if unset.
    pub image_tag: Option<String>,
    /// Placement and replicas of virt-api and virt-controller.
    pub infra: Option<ComponentConfig>,
    /// Prometheus service account allowed to scrape; prometheus-k8s if unset.
    pub monitor_account: Option<String>,
    /// Namespace in which the Prometheus service account lives.
    pub monitor_namespace: Option<String>,
    /// Value of the app.kubernetes.io/component label on all resources.
    pub product_component: Option<String>,
    /// Value of the app.kubernetes.io/part-of label on all resources.
    pub product_name: Option<String>,
    /// Value of the app.kubernetes.io/version label on all resources.
    pub product_version: Option<String>,
    /// Namespace that receives the ServiceMonitor object.
    pub service_monitor_namespace: Option<String>,
    /// TCP port for cross-cluster migration sync; 9185 if unset.
    pub synchronization_port: Option<String>,
    /// RemoveWorkloads, or BlockUninstallIfWorkloadsExist to protect VMs.
    pub uninstall_strategy: Option<KubeVirtUninstallStrategy>,
    /// How running guests move to a new virt-launcher after upgrades.
    pub workload_update_strategy: Option<KubeVirtWorkloadUpdateStrategy>,
    /// Placement of virt-handler, and so the nodes that can run guests.
    pub workloads: Option<ComponentConfig>,
}

/// Progress and versions as reported by virt-operator.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtStatus {
    /// Health of the rollout: Available, Progressing, Degraded and others.
    pub conditions: Option<Vec<KubeVirtCondition>>,
    /// CPU architecture given to VMs that name none.
    pub default_architecture: Option<String>,
    /// Last applied generation of each managed resource.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub generations: Option<Vec<GenerationStatus>>,
    /// JSON of the deployment settings now in effect.
    pub observed_deployment_config: Option<String>,
    /// Hash of the deployment settings now in effect.
    #[serde(rename = "observedDeploymentID")]
    pub observed_deployment_id: Option<String>,
    /// Generation of the spec last handled by the operator.
    pub observed_generation: Option<i64>,
    /// Registry the running components came from.
    pub observed_kube_virt_registry: Option<String>,
    /// Version that is fully rolled out.
    pub observed_kube_virt_version: Option<String>,
    /// Version of the virt-operator that wrote this status.
    pub operator_version: Option<String>,
    /// Number of VMIs still running in an older virt-launcher.
    #[schemars(with = "Option<schema::Integer>")]
    pub outdated_virtual_machine_instance_workloads: Option<u32>,
    /// Deploying, Deployed, Deleting, Deleted or Error.
    pub phase: Option<KubeVirtPhase>,
    /// Host and port pairs other clusters use for migration sync.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub synchronization_addresses: Option<Vec<String>>,
    /// JSON of the deployment settings being rolled out.
    pub target_deployment_config: Option<String>,
    /// Hash of the deployment settings being rolled out.
    #[serde(rename = "targetDeploymentID")]
    pub target_deployment_id: Option<String>,
    /// Registry the rollout in progress pulls from.
    pub target_kube_virt_registry: Option<String>,
    /// Version the rollout in progress leads to.
    pub target_kube_virt_version: Option<String>,
}

/// One observed aspect of the installation's health.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtCondition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Created, Available, Progressing, Degraded or Synchronized.
    pub type_: String,
    /// When the condition was last checked.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_probe_time: Nullable<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_transition_time: Nullable<Time>,
    /// Details for people to read.
    pub message: Option<String>,
    /// CamelCase word for why the status is as it is.
    pub reason: Option<String>,
}

/// Last applied state of one resource, to detect foreign edits.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerationStatus {
    /// Name of the tracked resource.
    pub name: String,
    /// API group of the tracked resource.
    pub group: String,
    /// Resource generation after the operator's last write.
    pub last_generation: i64,
    /// Lowercase plural of the kind, such as deployments.
    pub resource: String,
    /// Content checksum, for resources that carry no generation.
    pub hash: Option<String>,
    /// Where the resource lives; empty if cluster-scoped.
    pub namespace: Option<String>,
}

/// How internal certificates are issued and renewed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtCertificateRotateStrategy {
    /// Lifetimes of certificates the operator signs itself.
    pub self_signed: Option<KubeVirtSelfSignConfiguration>,
}

/// Lifetimes of the operator's own CA and its certificates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtSelfSignConfiguration {
    /// Lifetime and renewal of the signing CA; 7 days if unset.
    pub ca: Option<CertConfig>,
    /// Deprecated: use ca.duration and ca.renewBefore.
    pub ca_overlap_interval: Option<Duration>,
    /// Deprecated: use ca.duration.
    pub ca_rotate_interval: Option<Duration>,
    /// Deprecated: use server.duration.
    pub cert_rotate_interval: Option<Duration>,
    /// Lifetime and renewal of issued certificates; 24 hours if unset.
    pub server: Option<CertConfig>,
}

/// Validity and renewal time of one class of certificates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertConfig {
    /// How long a certificate stays valid, such as 48h.
    pub duration: Option<Duration>,
    /// How long before expiry a replacement is issued.
    pub renew_before: Option<Duration>,
}

/// Where a group of KubeVirt pods runs, and how many.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentConfig {
    /// Scheduling constraints added to the pods.
    pub node_placement: Option<NodePlacement>,
    /// Pods per infra deployment; has no effect on workloads.
    #[schemars(with = "Option<schema::Integer>")]
    pub replicas: Option<u32>,
}

/// Scheduling constraints for KubeVirt's own pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacement {
    /// Node and pod affinity merged into the built-in rules.
    #[schemars(with = "Option<core::Affinity>")]
    pub affinity: Option<Affinity>,
    /// Labels a node must have, all of them.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints the pods put up with.
    #[schemars(with = "Option<Vec<core::Toleration>>")]
    pub tolerations: Option<Vec<Toleration>>,
}

/// Local changes to the operator's generated manifests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CustomizeComponents {
    /// Command-line flags for the KubeVirt daemons.
    pub flags: Option<Flags>,
    /// Patches applied to generated resources before they are created.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub patches: Option<Vec<CustomizeComponentsPatch>>,
}

/// One patch to one generated resource.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomizeComponentsPatch {
    /// Patch body as a JSON string.
    pub patch: String,
    /// Name of the resource to patch, such as virt-api; * for all.
    #[schemars(extend("minLength" = 1))]
    pub resource_name: String,
    /// Kind of the resource to patch, such as Deployment.
    #[schemars(extend("minLength" = 1))]
    pub resource_type: String,
    /// Patch format: json, merge or strategic.
    pub type_: PatchType,
}

/// Extra command-line flags by component, name to value.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Flags {
    /// Flags for virt-api; names go without leading dashes.
    pub api: Option<BTreeMap<String, String>>,
    /// Flags for virt-controller; names go without leading dashes.
    pub controller: Option<BTreeMap<String, String>>,
    /// Flags for virt-handler; names go without leading dashes.
    pub handler: Option<BTreeMap<String, String>>,
}

/// How guests leave outdated virt-launcher pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtWorkloadUpdateStrategy {
    /// Pause between eviction batches; 1 minute if unset.
    pub batch_eviction_interval: Option<Duration>,
    /// VMIs evicted per batch; 10 if unset.
    #[schemars(with = "Option<schema::Integer>")]
    pub batch_eviction_size: Option<u32>,
    /// LiveMigrate, Evict or both; guests are left alone if empty.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub workload_update_methods: Option<Vec<String>>,
}

open_enum! {
    /// How far an installation is.
    pub enum KubeVirtPhase {
        Deploying = "Deploying",
        Deployed = "Deployed",
        Deleting = "Deleting",
        Deleted = "Deleted",
    }
}

open_enum! {
    /// What deleting a KubeVirt does while VMs exist.
    pub enum KubeVirtUninstallStrategy {
        BlockIfWorkloadsExist = "BlockUninstallIfWorkloadsExist",
        RemoveWorkloads = "RemoveWorkloads",
    }
}

open_enum! {
    /// How a component patch is applied.
    pub enum PatchType {
        Json = "json",
        Merge = "merge",
        Strategic = "strategic",
    }
}
