//! CEL rules of a schema: their form, their types and their costs.

use serde_json::{Map, Value};

use super::costs::{PER_EXPRESSION, exceeded};
use super::nodes::{Nodes, Place};
use super::{enough, flag, list, text};
use crate::cel::{Fault, Program, check as check_types, is_visible};
use crate::error::{FieldError, Reason};
use crate::node::Node;
use crate::{field_path, go};

const RULES: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Whether the rules' texts and paths are well formed.
pub(super) fn check_form(schema: &Map<String, Value>, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    for (index, rule) in list(schema, RULES).iter().enumerate() {
        let Value::Object(rule) = rule else { continue };
        if enough(errors) {
            return;
        }
        form(rule, node, &format!("{path}.{RULES}[{index}]"), errors);
    }
}

fn form(rule: &Map<String, Value>, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let lines = |text: &str| text.contains(['\n', '\r']);
    let at = |key: &str| format!("{path}.{key}");
    let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let shown = Value::from(message);
    if expression.is_empty() {
        errors.push(FieldError::required(at("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(at("message"), &shown, "must be non-empty if specified"));
    } else if lines(message.trim()) {
        errors.push(FieldError::invalid(at("message"), &shown, "must not contain line breaks"));
    } else if lines(expression) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(at("message"), detail));
    }
    let message = text(rule, "messageExpression");
    if !message.is_empty() && message.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(at("messageExpression"), detail));
    }
    if let Some(reason) = rule.get("reason").filter(|reason| !reason.is_null())
        && !REASONS.iter().any(|known| reason == *known)
    {
        let supported: Vec<Value> = REASONS.iter().map(|known| Value::from(*known)).collect();
        errors.push(FieldError::not_supported(at("reason"), reason, supported.iter()));
    }
    let inner = text(rule, "fieldPath");
    let shown = Value::from(inner);
    if !inner.is_empty() && inner.trim().is_empty() {
        errors.push(FieldError::invalid(at("fieldPath"), &shown, "must be non-empty if specified"));
    }
    if lines(inner) {
        errors.push(FieldError::invalid(at("fieldPath"), &shown, "must not contain line breaks"));
    }
    if !inner.is_empty() && field_path::resolve(node, inner).is_none() {
        errors.push(FieldError::invalid(at("fieldPath"), &shown, "must be a valid path"));
    }
}

/// Whether the rules compile, and at what cost.
pub(super) fn check(nodes: &mut Nodes, schema: &Map<String, Value>, path: &str, place: &Place) {
    if list(schema, RULES).is_empty() {
        return;
    }
    let node = &*place.node;
    if !is_visible(node) {
        let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable \
                      to convert structural schema to CEL declarations";
        nodes.rules.push(FieldError::plain(format!("{path}.{RULES}"), Reason::Internal, detail));
        return;
    }
    let resource = place.root || flag(schema, "x-kubernetes-embedded-resource");
    for (index, rule) in list(schema, RULES).iter().enumerate() {
        let Value::Object(rule) = rule else { continue };
        if enough(&nodes.rules) {
            return;
        }
        one(nodes, rule, node, resource, &format!("{path}.{RULES}[{index}]"), place);
    }
}

fn one(nodes: &mut Nodes, rule: &Map<String, Value>, node: &Node, resource: bool, path: &str, place: &Place) {
    let source = text(rule, "rule");
    if source.trim().is_empty() {
        return;
    }
    let optional_old = flag(rule, "optionalOldSelf");
    let invalid = |key: &str, detail: String| {
        FieldError::with_shown(format!("{path}.{key}"), Reason::Invalid, &shown(rule), detail)
    };
    let program = match Program::parse(source) {
        Ok(program) => program,
        Err(fault) => {
            nodes.rules.push(invalid("rule", format!("compilation failed: {fault}")));
            return;
        }
    };
    match check_types(&program, source, node, resource, optional_old) {
        Err(fault) => nodes.rules.push(invalid("rule", format!("compilation failed: {fault}"))),
        Ok(estimate) if !estimate.is_bool => {
            nodes.rules.push(invalid("rule", "cel expression must evaluate to a bool".to_owned()));
        }
        Ok(estimate) => {
            let times = place.cardinality.unwrap_or(estimate.cardinality);
            charge(nodes, format!("{path}.rule"), "estimated rule cost", estimate.cost.saturating_mul(times));
            message(nodes, rule, node, resource, path);
        }
    }
    if program.uses_old {
        if let Some(above) = &place.uncorrelated {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {above}");
            nodes.rules.push(FieldError::invalid(format!("{path}.rule"), &Value::from(source), detail));
        }
    } else if let Some(found @ Value::Bool(_)) = rule.get("optionalOldSelf") {
        let detail = "may not be set if oldSelf is not used in rule";
        nodes.rules.push(FieldError::invalid(format!("{path}.optionalOldSelf"), found, detail));
    }
}

fn message(nodes: &mut Nodes, rule: &Map<String, Value>, node: &Node, resource: bool, path: &str) {
    let source = text(rule, "messageExpression");
    if source.is_empty() {
        return;
    }
    let path = format!("{path}.messageExpression");
    let checked = Program::parse(source)
        .and_then(|program| check_types(&program, source, node, resource, flag(rule, "optionalOldSelf")));
    let problem = match checked {
        Ok(estimate) if estimate.is_string => {
            charge(nodes, path, "estimated messageExpression cost", estimate.cost);
            return;
        }
        Ok(_) => "messageExpression must evaluate to a string".to_owned(),
        Err(fault) => compile_problem(&fault),
    };
    nodes.rules.push(FieldError::with_shown(path, Reason::Invalid, &shown(rule), problem));
}

fn compile_problem(fault: &Fault) -> String {
    format!("messageExpression compilation failed: {fault}")
}

fn charge(nodes: &mut Nodes, path: String, what: &str, cost: u64) {
    if cost > PER_EXPRESSION {
        nodes.rules.push(FieldError::forbidden(path.as_str(), exceeded(what, cost, PER_EXPRESSION)));
    }
    nodes.total.add(path, cost);
}

/// A rule as Kubernetes shows it: the fields of its own type, in their order.
fn shown(rule: &Map<String, Value>) -> String {
    let string = |key: &str| go::json(&Value::from(text(rule, key)));
    let other = |key: &str| go::json(rule.get(key).unwrap_or(&Value::Null));
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        string("rule"),
        string("message"),
        string("messageExpression"),
        other("reason"),
        string("fieldPath"),
        other("optionalOldSelf"),
    )
}
