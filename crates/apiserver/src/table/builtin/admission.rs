//! Webhooks and policies of admission.

use serde_json::Value;

use super::parts::{at, has, size, text};
use super::selectors::as_struct;
use super::{AGE, Cell, NAME};

pub(super) fn of(plural: &str) -> Option<&'static [Cell]> {
    Some(match plural {
        "mutatingadmissionpolicies" => MUTATING_POLICIES,
        "mutatingadmissionpolicybindings" | "validatingadmissionpolicybindings" => BINDINGS,
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => WEBHOOKS,
        "validatingadmissionpolicies" => VALIDATING_POLICIES,
        _ => return None,
    })
}

const WEBHOOKS: &[Cell] =
    &[NAME, Cell::integer("Webhooks", "Number of webhooks.", |object, _| size(object, "/webhooks")), AGE];

const PARAMETER_KIND: Cell = Cell::text("ParamKind", "Kind of its parameters.", |object, _| {
    let kind = &object["spec"]["paramKind"];
    match kind.is_null() {
        true => "<unset>".into(),
        false => format!("{}/{}", at(kind, "/apiVersion"), at(kind, "/kind")).into(),
    }
});

const VALIDATING_POLICIES: &[Cell] = &[
    NAME,
    Cell::integer("Validations", "Number of rules.", |object, _| size(object, "/spec/validations")),
    PARAMETER_KIND,
    AGE,
];

const MUTATING_POLICIES: &[Cell] = &[
    NAME,
    Cell::integer("Mutations", "Number of mutations.", |object, _| size(object, "/spec/mutations")),
    PARAMETER_KIND,
    AGE,
];

const BINDINGS: &[Cell] = &[
    NAME,
    Cell::text("PolicyName", "Policy that it binds.", |object, _| text(object, "/spec/policyName")),
    Cell::text("ParamRef", "Parameters for the policy.", |object, _| parameters(&object["spec"]["paramRef"]).into()),
    AGE,
];

fn parameters(reference: &Value) -> String {
    match (at(reference, "/namespace"), at(reference, "/name")) {
        (_, "") if has(reference, "/selector") => as_struct(&reference["selector"]),
        (_, "") => "<unset>".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}
