//! What a client says about a deletion.

use serde::Deserialize;
use serde_json::Value;

use crate::registry::Resource;
use crate::request;
use crate::status::{self, Status};
use crate::verbs::Call;

/// How to delete.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::verbs) struct Options {
    pub(super) grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    pub(super) orphan_dependents: Option<bool>,
    pub(super) preconditions: Option<Preconditions>,
    #[serde(default)]
    dry_run: Vec<String>,
    #[serde(skip)]
    pub(in crate::verbs) dry: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preconditions {
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
}

impl Options {
    /// From the body, or else from the query.
    pub(super) fn read(call: &Call) -> Result<Self, Status> {
        let mut options = if call.body.is_empty() {
            Self {
                grace_period_seconds: call.query.number("gracePeriodSeconds")?,
                propagation_policy: call.query.get("propagationPolicy").map(str::to_owned),
                orphan_dependents: call.query.optional_flag("orphanDependents"),
                preconditions: None,
                dry_run: call.query.all("dryRun").map(str::to_owned).collect(),
                dry: false,
            }
        } else {
            let document = call.document()?.value;
            if let Some(kind) = document["kind"].as_str().filter(|kind| !matches!(*kind, "" | "DeleteOptions")) {
                let version = document["apiVersion"].as_str().unwrap_or_default();
                return Err(Status::bad_request(format!("no kind \"{kind}\" is registered for version \"{version}\"")));
            }
            Self::deserialize(&document).map_err(|error| Status::bad_request(error.to_string()))?
        };
        for value in &options.dry_run {
            options.dry |= request::dry_run(value, "DeleteOptions")?;
        }
        options.check()?;
        Ok(options)
    }

    pub(in crate::verbs) fn from_value(value: &Value) -> Result<Self, Status> {
        let mut options = Self::deserialize(value).map_err(|error| Status::bad_request(error.to_string()))?;
        for value in &options.dry_run {
            options.dry |= request::dry_run(value, "DeleteOptions")?;
        }
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), Status> {
        let problem = match (&self.propagation_policy, self.orphan_dependents) {
            (Some(_), Some(_)) => {
                "Invalid value: {policy}: orphanDependents and deletionPropagation cannot be both set".to_owned()
            }
            (Some(policy), None) if !matches!(policy.as_str(), "Background" | "Foreground" | "Orphan") => {
                format!(
                    "Unsupported value: \"{policy}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                )
            }
            _ => return Ok(()),
        };
        let policy = self.propagation_policy.as_deref().unwrap_or_default();
        let both = self.orphan_dependents.is_some();
        let error = structural::FieldError {
            field: "propagationPolicy".to_owned(),
            reason: if both { structural::Reason::Invalid } else { structural::Reason::NotSupported },
            message: problem.replace("{policy}", &format!("\"{policy}\"")),
        };
        let subject = status::Subject { group: "meta.k8s.io", resource: "", kind: "DeleteOptions" };
        Err(Status::invalid(subject, "", &[error]))
    }

    /// Orphan, Foreground, Background, or what the kind does.
    pub(super) fn policy(&self, resource: &Resource) -> Option<&str> {
        match (&self.propagation_policy, self.orphan_dependents) {
            (Some(policy), _) => Some(policy),
            (None, Some(true)) => Some("Orphan"),
            (None, Some(false)) => Some("Background"),
            (None, None) if resource.strategy.orphans_by_default() => Some("Orphan"),
            (None, None) => None,
        }
    }

    /// Whether the client says as which version the object must be there.
    pub(in crate::verbs) fn names_version(&self) -> bool {
        self.preconditions.as_ref().is_some_and(|one| one.resource_version.is_some())
    }

    /// The same, of an object only as it was seen.
    pub(in crate::verbs) fn as_seen(&self, version: &str) -> Self {
        let mut options = self.clone();
        options.preconditions.get_or_insert_default().resource_version = Some(version.to_owned());
        options
    }

    pub(super) fn policy_is_unset(&self) -> bool {
        self.propagation_policy.is_none() && self.orphan_dependents.is_none()
    }
}
