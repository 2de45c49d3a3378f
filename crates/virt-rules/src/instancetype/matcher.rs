//! Which instancetype and preference a VM means.

use api::names::annotation;
use api::vm::{InstancetypeMatcher, PreferenceMatcher, VirtualMachineSpec};

/// Where the object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the VM's namespace.
    Namespaced,
    /// In the cluster.
    Cluster,
}

/// What is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The sizes.
    Instancetype,
    /// The likes of a guest.
    Preference,
}

/// An instancetype or preference that a VM refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which of the two.
    pub subject: Subject,
    /// Where it is.
    pub scope: Scope,
    pub name: String,
    /// The revision that stands for it, if the VM is bound to one.
    pub revision: Option<String>,
}

impl Reference {
    /// The kind of the object.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match (self.subject, self.scope) {
            (Subject::Instancetype, Scope::Namespaced) => "VirtualMachineInstancetype",
            (Subject::Instancetype, Scope::Cluster) => "VirtualMachineClusterInstancetype",
            (Subject::Preference, Scope::Namespaced) => "VirtualMachinePreference",
            (Subject::Preference, Scope::Cluster) => "VirtualMachineClusterPreference",
        }
    }

    /// The annotation by which an instance tells what it was made with.
    #[must_use]
    pub fn annotation(&self) -> (&'static str, &str) {
        let key = match (self.subject, self.scope) {
            (Subject::Instancetype, Scope::Namespaced) => annotation::INSTANCETYPE,
            (Subject::Instancetype, Scope::Cluster) => annotation::CLUSTER_INSTANCETYPE,
            (Subject::Preference, Scope::Namespaced) => annotation::PREFERENCE,
            (Subject::Preference, Scope::Cluster) => annotation::CLUSTER_PREFERENCE,
        };
        (key, &self.name)
    }
}

/// Why a VM's reference cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// Nobody looks at volumes for it.
    #[error("{path}.inferFromVolume: is not supported yet; name the {what} in {path}.name")]
    Inferred {
        /// `spec.instancetype` or `spec.preference`.
        path: &'static str,
        /// `instancetype` or `preference`.
        what: &'static str,
    },
    /// It names none.
    #[error("{path}.name: is required; name the {what} or remove {path}")]
    Unnamed {
        /// `spec.instancetype` or `spec.preference`.
        path: &'static str,
        /// `instancetype` or `preference`.
        what: &'static str,
    },
    /// It is of a kind that does not exist.
    #[error("{path}.kind: {kind:?} is not valid; use {namespaced} or {cluster}")]
    Kind {
        /// `spec.instancetype` or `spec.preference`.
        path: &'static str,
        /// What the VM says.
        kind: String,
        /// The kind in the VM's namespace.
        namespaced: &'static str,
        /// The kind in the cluster.
        cluster: &'static str,
    },
}

impl MatcherError {
    /// The field that must change.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Inferred { path, .. } => format!("{path}.inferFromVolume"),
            Self::Unnamed { path, .. } => format!("{path}.name"),
            Self::Kind { path, .. } => format!("{path}.kind"),
        }
    }
}

/// The instancetype of a VM, if it has one.
///
/// # Errors
/// When the reference cannot be followed.
pub fn instancetype(spec: &VirtualMachineSpec) -> Result<Option<Reference>, MatcherError> {
    let Some(matcher) = &spec.instancetype else { return Ok(None) };
    let InstancetypeMatcher { infer_from_volume, infer_from_volume_failure_policy: _, kind, name, revision_name } =
        matcher;
    let matcher = Matcher { subject: Subject::Instancetype, infer_from_volume, kind, name, revision_name };
    matcher.read().map(Some)
}

/// The preference of a VM, if it has one.
///
/// # Errors
/// When the reference cannot be followed.
pub fn preference(spec: &VirtualMachineSpec) -> Result<Option<Reference>, MatcherError> {
    let Some(matcher) = &spec.preference else { return Ok(None) };
    let PreferenceMatcher { infer_from_volume, infer_from_volume_failure_policy: _, kind, name, revision_name } =
        matcher;
    let matcher = Matcher { subject: Subject::Preference, infer_from_volume, kind, name, revision_name };
    matcher.read().map(Some)
}

struct Matcher<'a> {
    subject: Subject,
    infer_from_volume: &'a Option<String>,
    kind: &'a Option<String>,
    name: &'a Option<String>,
    revision_name: &'a Option<String>,
}

impl Matcher<'_> {
    fn read(self) -> Result<Reference, MatcherError> {
        let (path, what, namespaced, cluster) = match self.subject {
            Subject::Instancetype => {
                ("spec.instancetype", "instancetype", "VirtualMachineInstancetype", "VirtualMachineClusterInstancetype")
            }
            Subject::Preference => {
                ("spec.preference", "preference", "VirtualMachinePreference", "VirtualMachineClusterPreference")
            }
        };
        if text(self.infer_from_volume).is_some() {
            return Err(MatcherError::Inferred { path, what });
        }
        let scope = match text(self.kind) {
            None => Scope::Cluster,
            Some(kind) if is_kind(kind, namespaced) => Scope::Namespaced,
            Some(kind) if is_kind(kind, cluster) => Scope::Cluster,
            Some(kind) => return Err(MatcherError::Kind { path, kind: kind.to_owned(), namespaced, cluster }),
        };
        let Some(name) = text(self.name) else { return Err(MatcherError::Unnamed { path, what }) };
        let revision = text(self.revision_name).map(str::to_owned);
        Ok(Reference { subject: self.subject, scope, name: name.to_owned(), revision })
    }
}

/// In singular or plural, whatever the case.
fn is_kind(text: &str, kind: &str) -> bool {
    let singular = text.strip_suffix(['s', 'S']).unwrap_or(text);
    singular.eq_ignore_ascii_case(kind)
}

fn text(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(matcher: &Value) -> Result<Option<Reference>, MatcherError> {
        instancetype(&serde_json::from_value(json!({ "template": {}, "instancetype": matcher })).unwrap())
    }

    #[test]
    fn a_kind_may_be_missing_plural_or_in_any_case() {
        for (kind, scope) in [
            ("", Scope::Cluster),
            ("VirtualMachineClusterInstancetype", Scope::Cluster),
            ("virtualmachineclusterinstancetypes", Scope::Cluster),
            ("VirtualMachineInstancetype", Scope::Namespaced),
            ("virtualMachineInstancetypes", Scope::Namespaced),
        ] {
            let found = read(&json!({ "kind": kind, "name": "small" })).unwrap().unwrap();
            assert_eq!((found.scope, found.name.as_str()), (scope, "small"), "{kind}");
        }
        let without = read(&json!({ "name": "small" })).unwrap().unwrap();
        assert_eq!(without.kind(), "VirtualMachineClusterInstancetype");
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_its_field() {
        for (matcher, path) in [
            (json!({ "name": "a", "kind": "Flavor" }), "spec.instancetype.kind"),
            (json!({ "name": "a", "kind": "VirtualMachinePreference" }), "spec.instancetype.kind"),
            (json!({}), "spec.instancetype.name"),
            (json!({ "inferFromVolume": "root" }), "spec.instancetype.inferFromVolume"),
        ] {
            let error = read(&matcher).unwrap_err();
            assert_eq!(error.path(), path);
            assert!(error.to_string().starts_with(path), "{error}");
        }
    }

    #[test]
    fn a_preference_has_kinds_of_its_own() {
        let spec = json!({ "template": {}, "preference": { "name": "linux", "revisionName": "r" } });
        let found = preference(&serde_json::from_value(spec).unwrap()).unwrap().unwrap();
        assert_eq!(found.kind(), "VirtualMachineClusterPreference");
        assert_eq!(found.revision.as_deref(), Some("r"));
        assert_eq!(found.annotation(), ("kubevirt.io/cluster-preference-name", "linux"));
    }
}
