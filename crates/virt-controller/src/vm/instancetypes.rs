//! Which instancetype and preference a VM has: as they were kept when it first used them, or as they are now.

use api::configuration::InstancetypeReferencePolicy as Policy;
use api::instancetype::VirtualMachineInstancetypeSpec;
use api::preference::VirtualMachinePreferenceSpec;
use api::vm::{ControllerRevisionRef, InstancetypeStatusRef, VirtualMachine};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::ControllerRevision;
use manager::writing::difference;
use serde_json::{Value, json};
use virt_rules::config::ClusterConfig;
use virt_rules::instancetype::matcher::{self, Reference, Subject};
use virt_rules::instancetype::revision::{Kept, from_revision};
use virt_rules::instancetype::{expand, storage_class};

/// Finds what a VM refers to.
pub trait Find {
    /// The object as it is now, and the revision that would keep it for the VM.
    fn object(&self, vm: &VirtualMachine, reference: &Reference) -> Option<(Kept, ControllerRevision)>;
    /// A revision in the VM's namespace.
    fn revision(&self, vm: &VirtualMachine, name: &str) -> Option<ControllerRevision>;
}

/// What a VM's instancetype and preference are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    /// Sizes.
    pub instancetype: Option<VirtualMachineInstancetypeSpec>,
    /// Likes of the guest.
    pub preference: Option<VirtualMachinePreferenceSpec>,
    /// What the VM refers to.
    pub references: Vec<Reference>,
    /// Revisions that are to be made.
    pub keep: Vec<ControllerRevision>,
    /// What the status tells of the instancetype.
    pub instancetype_ref: Option<InstancetypeStatusRef>,
    /// What the status tells of the preference.
    pub preference_ref: Option<InstancetypeStatusRef>,
    /// A merge patch of the VM that has all of it spelled out, where the cluster wants that.
    pub expanded: Option<Value>,
}

/// Why a VM's instancetype or preference is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// What a VM's instancetype and preference are.
///
/// # Guarantees
/// - A VM that has used one keeps it as it was, whatever becomes of the object, until the VM refers to another.
///
/// # Errors
/// When one cannot be found or read.
pub fn choose(vm: &VirtualMachine, config: &ClusterConfig, find: &dyn Find) -> Result<Chosen, Problem> {
    let mut chosen = Chosen::default();
    let read = |result: Result<Option<Reference>, matcher::MatcherError>, reason| {
        result.map_err(|error| Problem { reason, message: error.to_string() })
    };
    let wanted = [
        read(matcher::instancetype(&vm.spec), "FailedFindInstancetype")?,
        read(matcher::preference(&vm.spec), "FailedFindPreference")?,
    ];
    let policy = config.instancetype_reference_policy();
    for reference in wanted.into_iter().flatten() {
        let expands = match policy {
            Policy::Reference => false,
            // What is bound to a revision stays bound to it.
            Policy::Expand => reference.revision.is_none(),
            Policy::ExpandAll => true,
        };
        let (kept, name, keep) = one(vm, &reference, find)?;
        let status = InstancetypeStatusRef {
            name: Some(reference.name.clone()),
            kind: Some(reference.kind().to_owned()),
            controller_revision_ref: Some(ControllerRevisionRef { name: Some(name) }),
            ..InstancetypeStatusRef::default()
        };
        if !expands {
            chosen.keep.extend(keep);
        }
        match kept {
            Kept::Instancetype(spec) => {
                chosen.instancetype = Some(spec);
                chosen.instancetype_ref = Some(status).filter(|_| !expands);
            }
            Kept::Preference(spec) => {
                chosen.preference = Some(spec);
                chosen.preference_ref = Some(status).filter(|_| !expands);
            }
        }
        chosen.references.push(reference);
    }
    let bound = chosen.instancetype_ref.is_some() || chosen.preference_ref.is_some();
    if !chosen.references.is_empty() && !bound {
        chosen.expanded = Some(expanded(vm, config, &chosen)?);
    }
    Ok(chosen)
}

type Found = (Kept, String, Option<ControllerRevision>);

fn one(vm: &VirtualMachine, reference: &Reference, find: &dyn Find) -> Result<Found, Problem> {
    let reason = match reference.subject {
        Subject::Instancetype => "FailedFindInstancetype",
        Subject::Preference => "FailedFindPreference",
    };
    let problem = |message: String| Problem { reason, message };
    let status = vm.status.as_ref();
    let known = status.and_then(|status| match reference.subject {
        Subject::Instancetype => status.instancetype_ref.as_ref(),
        Subject::Preference => status.preference_ref.as_ref(),
    });
    let same = known.filter(|known| {
        known.name.as_ref() == Some(&reference.name) && known.kind.as_deref() == Some(reference.kind())
    });
    let bound = same.and_then(|known| known.controller_revision_ref.as_ref()?.name.clone());
    if let Some(name) = reference.revision.clone().or(bound) {
        if let Some(revision) = find.revision(vm, &name) {
            let kept = from_revision(&revision).map_err(|error| problem(error.to_string()))?;
            return Ok((kept, name, None));
        }
        if reference.revision.is_some() {
            return Err(problem(format!("ControllerRevision {name}, which the VM refers to, does not exist")));
        }
    }
    let found = find.object(vm, reference);
    let (kept, revision) =
        found.ok_or_else(|| problem(format!("{} {} does not exist", reference.kind(), reference.name)))?;
    let name = revision.metadata.name.clone().unwrap_or_default();
    Ok((kept, name, Some(revision)))
}

/// The VM with its instancetype and preference spelled out, as a patch.
fn expanded(vm: &VirtualMachine, config: &ClusterConfig, chosen: &Chosen) -> Result<Value, Problem> {
    let template = vm.spec.template.spec.clone().unwrap_or_default();
    let mut instance = VirtualMachineInstance { spec: template, ..VirtualMachineInstance::default() };
    expand(&mut instance, config, chosen.instancetype.as_ref(), chosen.preference.as_ref())
        .map_err(|conflicts| Problem { reason: "FailedFindInstancetype", message: conflicts.to_string() })?;
    let mut next = vm.spec.clone();
    next.template.spec = Some(instance.spec);
    if let (Some(templates), Some(preference)) = (&mut next.data_volume_templates, &chosen.preference) {
        storage_class(templates, preference);
    }
    next.instancetype = None;
    next.preference = None;
    Ok(json!({ "spec": difference(&json!(vm.spec), &json!(next)) }))
}
