//! Instancetypes and preferences: what they make of a VM's template.
//!
//! ```text
//! VM ──> matcher ──> (whoever knows objects) ──> apply ──> the template, sized and filled in
//!                          │
//!                          └─> revision: the object as it was, kept for the VM's later starts
//! ```
//! An instancetype sizes: what the template sets as well is a conflict. A preference fills in: what the template sets
//! stays. Owns nothing, emits nothing. Absent on purpose: finding the objects.

pub mod matcher;
mod preference;
pub mod requirements;
pub mod revision;
mod sizing;
mod topology;

use std::fmt;

use api::instancetype::VirtualMachineInstancetypeSpec;
use api::preference::VirtualMachinePreferenceSpec;
use api::vmi::VirtualMachineInstance;

use crate::attach;
use crate::config::ClusterConfig;

pub use preference::{auto_attach, storage_class};
pub use requirements::check_requirements;

/// Why a template and its instancetype do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Both say how it should be.
    #[error("{path}: the instancetype already sets this field; remove it from the VM")]
    Taken {
        /// The field of the VM, as in `spec.template.spec.domain.cpu.sockets`.
        path: String,
    },
    /// The preference wants the vCPUs spread, and they do not divide.
    #[error(
        "spec.instancetype: {guest} vCPUs are not a multiple of {step}, the preference's spread; use another instancetype or preference"
    )]
    Spread {
        /// vCPUs of the instancetype.
        guest: u32,
        /// vCPUs of one step.
        step: u32,
    },
    /// The preference has a value from another release.
    #[error("spec.preference: {field} {value:?} is unknown; use one of {known}")]
    Unknown {
        /// The preference's field.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        known: String,
    },
}

impl Conflict {
    /// The VM's field that must change.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Taken { path } => path,
            Self::Spread { .. } => "spec.instancetype",
            Self::Unknown { .. } => "spec.preference",
        }
    }
}

/// All conflicts of one template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, conflict) in self.0.iter().enumerate() {
            write!(f, "{}{conflict}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Conflicts {}

/// Sizes an instance by its instancetype and fills it in by its preference. A template that is empty but for volumes
/// is complete afterwards.
///
/// # Guarantees
/// - Preferences about what is attached by itself come first, then the attaching, then the rest: so that a preferred
///   model reaches an interface that nobody listed.
///
/// # Errors
/// As [`apply`]; nothing is changed then.
pub fn expand(
    vmi: &mut VirtualMachineInstance,
    config: &ClusterConfig,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: Option<&VirtualMachinePreferenceSpec>,
) -> Result<(), Conflicts> {
    let mut expanded = vmi.clone();
    if let Some(preference) = preference {
        auto_attach(&mut expanded, preference);
    }
    attach::disks(&mut expanded.spec);
    attach::input(&mut expanded.spec);
    attach::network(&mut expanded.spec, config);
    apply(&mut expanded, instancetype, preference)?;
    *vmi = expanded;
    Ok(())
}

/// Applies an instancetype, then a preference, to an instance that was made from a VM's template.
///
/// # Guarantees
/// - A preference changes no field that was set; applied twice it changes nothing the second time.
/// - An instancetype applied twice is a conflict, as guest memory was set the first time.
///
/// # Errors
/// All fields that both the template and the instancetype set, and vCPUs that cannot be laid out as the preference
/// wants; nothing is changed then.
pub fn apply(
    vmi: &mut VirtualMachineInstance,
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: Option<&VirtualMachinePreferenceSpec>,
) -> Result<(), Conflicts> {
    let mut applied = vmi.clone();
    if let Some(instancetype) = instancetype {
        sizing::apply(&mut applied, instancetype, preference).map_err(Conflicts)?;
    }
    if let Some(preference) = preference {
        preference::apply(&mut applied, preference);
    }
    *vmi = applied;
    Ok(())
}

/// Whether the text or word is there and says something.
fn says<T: fmt::Display>(value: Option<&T>) -> bool {
    value.is_some_and(|value| !value.to_string().is_empty())
}

#[cfg(test)]
mod tests;
