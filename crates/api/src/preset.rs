//! VirtualMachineInstancePreset: defaults for instances by label. Deprecated; preferences replace it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::domain::DomainSpec;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;

/// Deprecated: use instance types and preferences.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineInstancePreset {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Settings to merge and the instances they go to.
    pub spec: Option<VirtualMachineInstancePresetSpec>,
}

resource!(VirtualMachineInstancePreset is namespaced "virtualmachineinstancepresets" of "kubevirt.io" in "v1" with { spec });

/// A page of virtual machine instance presets.
pub type VirtualMachineInstancePresetList = k8s_openapi::List<VirtualMachineInstancePreset>;

/// Defaults merged into new instances that match.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineInstancePresetSpec {
    /// Labels an instance needs to receive the settings.
    #[schemars(with = "core::LabelSelector")]
    pub selector: LabelSelector,
    /// Settings merged in unless the instance differs.
    pub domain: Option<DomainSpec>,
}
