//! MigrationPolicy: migration settings for chosen VMs.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::migration::ExperimentalMigrationOptions;
use crate::nullable::Nullable;
use crate::quantity::Quantity;
use crate::resource::resource;
use crate::schema;

/// Live migration settings for a chosen group of VMIs.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct MigrationPolicy {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Overrides, and the VMIs they apply to.
    pub spec: MigrationPolicySpec,
    /// Empty for now.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub status: Nullable<MigrationPolicyStatus>,
}

resource!(MigrationPolicy is cluster "migrationpolicies" of "migrations.kubevirt.io" in "v1alpha1" with { spec, status });

/// A page of migration policys.
pub type MigrationPolicyList = k8s_openapi::List<MigrationPolicy>;

/// Overrides of the cluster's migration settings.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationPolicySpec {
    /// VMIs the policy covers; the most specific policy wins.
    pub selectors: Selectors,
    /// Slows the guest CPU down until memory copying keeps up.
    pub allow_auto_converge: Option<bool>,
    /// Lets a slow migration switch over and fetch memory later.
    pub allow_post_copy: Option<bool>,
    /// Lets a slow migration pause the guest, or go post-copy.
    pub allow_workload_disruption: Option<bool>,
    /// Bytes per second one migration may use; 0 is unlimited.
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds per GiB of guest data before giving up.
    #[serde(rename = "completionTimeoutPerGiB")]
    pub completion_timeout_per_gib: Option<i64>,
    /// Unstable tuning options; may change or vanish.
    pub experimental: Option<ExperimentalMigrationOptions>,
    /// Longest guest pause at switchover, in milliseconds.
    #[schemars(extend("minimum" = 1, "maximum" = 2000000))]
    pub max_downtime_ms: Option<i64>,
}

/// Empty; nothing is reported yet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct MigrationPolicyStatus {}

/// Picks VMIs by label; both parts must match.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Selectors {
    /// Labels the VMI's namespace must carry.
    pub namespace_selector: Option<BTreeMap<String, String>>,
    /// Labels the VMI itself must carry.
    pub virtual_machine_instance_selector: Option<BTreeMap<String, String>>,
}
