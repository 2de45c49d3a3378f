//! The schemas of the Kubernetes types that kubevirt.io fields embed.
//!
//! `k8s-openapi` has these types, but not what a CRD schema must say about them: which lists are atomic, which maps are
//! replaced whole, which strings have a pattern. The structs here say it, in the same form as our own types, and are
//! named as there; a field uses one with `#[schemars(with = "core::Affinity")]`. They are never constructed.
#![expect(dead_code, reason = "only their derived schemas are used")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

use crate::quantity::Quantity;
use crate::schema::{IntOrString, Time};

/// An optional DNS prefix and a name.
const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// Rules for where a pod may run relative to nodes and other pods.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Affinity {
    /// Which nodes are wanted, by their labels.
    node_affinity: Option<NodeAffinity>,
    /// Pods to run close to.
    pod_affinity: Option<PodAffinity>,
    /// Pods to keep away from.
    pod_anti_affinity: Option<PodAntiAffinity>,
}

/// One observed aspect of an object.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// When the status last changed.
    last_transition_time: Time,
    /// What happened, for people.
    #[schemars(extend("maxLength" = 32768))]
    message: String,
    /// Generation of the object this was seen on.
    #[schemars(extend("minimum" = 0))]
    observed_generation: Option<i64>,
    /// What happened, for programs, in CamelCase.
    #[schemars(extend("maxLength" = 1024, "minLength" = 1, "pattern" = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    reason: String,
    /// True, False or Unknown.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    status: String,
    /// Which aspect this is.
    #[schemars(extend("maxLength" = 316, "pattern" = CONDITION_TYPE))]
    type_: String,
}

/// One file made from facts about the pod.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownwardAPIVolumeFile {
    /// Field of the pod whose value is written.
    field_ref: Option<ObjectFieldSelector>,
    /// Permission bits; those of the volume if unset.
    mode: Option<i32>,
    /// Path of the file below the volume.
    path: String,
    /// Container resource whose value is written.
    resource_field_ref: Option<ResourceFieldSelector>,
}

/// A command run to probe.
#[derive(JsonSchema)]
pub struct ExecAction {
    /// Program and arguments; no shell is involved.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    command: Option<Vec<String>>,
}

/// An HTTP request sent to probe.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HTTPGetAction {
    /// Host to ask; the pod IP if unset.
    host: Option<String>,
    /// Headers sent with the request.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    http_headers: Option<Vec<HTTPHeader>>,
    /// Path asked for; / if unset.
    path: Option<String>,
    /// Port number or name.
    port: IntOrString,
    /// HTTP or HTTPS.
    scheme: Option<String>,
}

/// One header of a probe request.
#[derive(JsonSchema)]
pub struct HTTPHeader {
    /// Header name.
    name: String,
    /// Header value.
    value: String,
}

/// Chooses objects by their labels.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Requirements that must all hold.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    match_expressions: Option<Vec<LabelSelectorRequirement>>,
    /// Labels that must all be present with these values.
    match_labels: Option<BTreeMap<String, String>>,
}

/// One requirement on one label.
#[derive(JsonSchema)]
pub struct LabelSelectorRequirement {
    /// Label key.
    key: String,
    /// In, NotIn, Exists or DoesNotExist.
    operator: String,
    /// Values for In and NotIn.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    values: Option<Vec<String>>,
}

/// Names an object of the same namespace.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LocalObjectReference {
    /// Name of the object.
    #[schemars(extend("default" = ""))]
    name: Option<String>,
}

/// Which nodes are wanted.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeAffinity {
    /// Weighted wishes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    preferred_during_scheduling_ignored_during_execution: Option<Vec<PreferredSchedulingTerm>>,
    /// What a node must have.
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// Chooses nodes; one matching term is enough.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodeSelector {
    /// Terms of which one must match.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    node_selector_terms: Vec<NodeSelectorTerm>,
}

/// One requirement on one node label.
#[derive(JsonSchema)]
pub struct NodeSelectorRequirement {
    /// Label key.
    key: String,
    /// In, NotIn, Exists, DoesNotExist, Gt or Lt.
    operator: String,
    /// Values for In, NotIn, Gt and Lt.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    values: Option<Vec<String>>,
}

/// Requirements on one node that must all hold.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    match_expressions: Option<Vec<NodeSelectorRequirement>>,
    /// Requirements on fields such as metadata.name.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    match_fields: Option<Vec<NodeSelectorRequirement>>,
}

/// Names a field of the pod.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ObjectFieldSelector {
    /// Version the path is written for; v1 if unset.
    api_version: Option<String>,
    /// Path of the field.
    field_path: String,
}

/// A claim on storage.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimSpec {
    /// ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    access_modes: Option<Vec<String>>,
    /// Snapshot or claim to start from.
    data_source: Option<TypedLocalObjectReference>,
    /// Object to start from, of any kind.
    data_source_ref: Option<TypedObjectReference>,
    /// Size that is asked for.
    resources: Option<VolumeResourceRequirements>,
    /// Which volumes may be bound, by label.
    selector: Option<LabelSelector>,
    /// Storage class; the default one if unset.
    storage_class_name: Option<String>,
    /// Class of tunable volume attributes.
    volume_attributes_class_name: Option<String>,
    /// Filesystem or Block.
    volume_mode: Option<String>,
    /// Volume to bind, if one is wanted in particular.
    volume_name: Option<String>,
}

/// Uses a claim as a volume.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimVolumeSource {
    /// Claim of the same namespace.
    claim_name: String,
    /// Mounts it read-only.
    read_only: Option<bool>,
}

/// Pods to run close to.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAffinity {
    /// Weighted wishes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedPodAffinityTerm>>,
    /// What must hold.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    required_during_scheduling_ignored_during_execution: Option<Vec<PodAffinityTerm>>,
}

/// Chooses pods, and what counts as close.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAffinityTerm {
    /// Which pods, by label.
    label_selector: Option<LabelSelector>,
    /// Labels of the incoming pod that must match too.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    match_label_keys: Option<Vec<String>>,
    /// Labels of the incoming pod that must differ.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    mismatch_label_keys: Option<Vec<String>>,
    /// Namespaces to look in, by label.
    namespace_selector: Option<LabelSelector>,
    /// Namespaces to look in, by name.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    namespaces: Option<Vec<String>>,
    /// Node label whose equal values mean close.
    topology_key: String,
}

/// Pods to keep away from.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAntiAffinity {
    /// Weighted wishes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedPodAffinityTerm>>,
    /// What must hold.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    required_during_scheduling_ignored_during_execution: Option<Vec<PodAffinityTerm>>,
}

/// Name resolution beyond the DNS policy.
#[derive(JsonSchema)]
pub struct PodDNSConfig {
    /// Name server addresses.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    nameservers: Option<Vec<String>>,
    /// Resolver options.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    options: Option<Vec<PodDNSConfigOption>>,
    /// Search domains.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    searches: Option<Vec<String>>,
}

/// One resolver option.
#[derive(JsonSchema)]
pub struct PodDNSConfigOption {
    /// Option name, such as ndots.
    name: Option<String>,
    /// Option value, where it takes one.
    value: Option<String>,
}

/// A wish about nodes, and its weight.
#[derive(JsonSchema)]
pub struct PreferredSchedulingTerm {
    /// Which nodes.
    preference: NodeSelectorTerm,
    /// 1 to 100.
    weight: i32,
}

/// Names a resource of a container.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ResourceFieldSelector {
    /// Container; needed in volumes.
    container_name: Option<String>,
    /// Unit the value is written in.
    divisor: Option<Quantity>,
    /// Resource, such as limits.memory.
    resource: String,
}

/// A TCP connection opened to probe.
#[derive(JsonSchema)]
pub struct TCPSocketAction {
    /// Host to connect to; the pod IP if unset.
    host: Option<String>,
    /// Port number or name.
    port: IntOrString,
}

/// A taint that is put up with.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Effect it covers; all if unset.
    effect: Option<String>,
    /// Taint key; all if unset.
    key: Option<String>,
    /// Equal or Exists.
    operator: Option<String>,
    /// How long a NoExecute taint is put up with.
    toleration_seconds: Option<i64>,
    /// Taint value, for Equal.
    value: Option<String>,
}

/// Spreads pods over zones, nodes or the like.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    /// Pods that are counted.
    label_selector: Option<LabelSelector>,
    /// Labels of the incoming pod that must match too.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    match_label_keys: Option<Vec<String>>,
    /// Largest difference in pods between two domains.
    max_skew: i32,
    /// Fewest domains there should be.
    min_domains: Option<i32>,
    /// Honor or Ignore node affinity when counting.
    node_affinity_policy: Option<String>,
    /// Honor or Ignore taints when counting.
    node_taints_policy: Option<String>,
    /// Node label whose values are the domains.
    topology_key: String,
    /// DoNotSchedule or ScheduleAnyway.
    when_unsatisfiable: String,
}

/// Names an object of any kind in the same namespace.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct TypedLocalObjectReference {
    /// Group of the object; the core group if unset.
    api_group: Option<String>,
    /// Kind of the object.
    kind: String,
    /// Name of the object.
    name: String,
}

/// Names an object of any kind.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypedObjectReference {
    /// Group of the object; the core group if unset.
    api_group: Option<String>,
    /// Kind of the object.
    kind: String,
    /// Name of the object.
    name: String,
    /// Namespace of the object; the own one if unset.
    namespace: Option<String>,
}

/// The size of a claim.
#[derive(JsonSchema)]
pub struct VolumeResourceRequirements {
    /// Most storage it may use.
    limits: Option<BTreeMap<String, Quantity>>,
    /// Least storage it needs.
    requests: Option<BTreeMap<String, Quantity>>,
}

/// A wish about pods, and its weight.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightedPodAffinityTerm {
    /// Which pods.
    pod_affinity_term: PodAffinityTerm,
    /// 1 to 100.
    weight: i32,
}
