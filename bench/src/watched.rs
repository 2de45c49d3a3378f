//! What watches read of VMs and instances.

use serde::Deserialize;

use crate::controllers::load::Versioned;

/// A VM or an instance, as far as a watch reads it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Object {
    pub(crate) metadata: Named,
    #[serde(default)]
    pub(crate) status: Status,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) resource_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) phase: String,
    pub(crate) printable_status: String,
    pub(crate) ready: bool,
}

impl Versioned for Object {
    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}
