//! Horizontal pod autoscalers, in both their versions.

use serde_json::{Value, json};

use super::parts::{at, first_of, has, items, number, or};
use super::{AGE, Cell, NAME};

pub(super) fn of(plural: &str) -> Option<&'static [Cell]> {
    (plural == "horizontalpodautoscalers").then_some(AUTOSCALERS)
}

const AUTOSCALERS: &[Cell] = &[
    NAME,
    Cell::text("Reference", "Object that is scaled.", |object, _| {
        let of = &object["spec"]["scaleTargetRef"];
        format!("{}/{}", at(of, "/kind"), at(of, "/name")).into()
    }),
    Cell::text("Targets", "Metrics: current and target value.", |object, _| targets(object).into()),
    Cell::text("MinPods", "Minimum number of pods.", |object, _| or(object, "/spec/minReplicas", "<unset>").into()),
    Cell::text("MaxPods", "Maximum number of pods.", |object, _| number(object, "/spec/maxReplicas").into()),
    Cell::text("Replicas", "Current number of pods.", |object, _| number(object, "/status/currentReplicas").into()),
    AGE,
];

fn targets(object: &Value) -> String {
    let metrics = items(object, "/spec/metrics");
    if metrics.is_empty() {
        return cpu(object);
    }
    let current = items(object, "/status/currentMetrics").iter().chain(std::iter::repeat(&Value::Null));
    let all: Vec<_> = metrics.iter().zip(current).map(|(metric, status)| one(metric, status)).collect();
    first_of(&all, 2, ", ")
}

/// The one metric of the first version.
fn cpu(object: &Value) -> String {
    if !has(object, "/spec/targetCPUUtilizationPercentage") {
        return "<none>".to_owned();
    }
    let of_cpu = |side: &str, value: &Value| {
        let value = json!({ "averageUtilization": value });
        json!({ "type": "Resource", "resource": { "name": "cpu", side: value } })
    };
    let target = of_cpu("target", &object["spec"]["targetCPUUtilizationPercentage"]);
    one(&target, &of_cpu("current", &object["status"]["currentCPUUtilizationPercentage"]))
}

fn one(metric: &Value, status: &Value) -> String {
    let field = match at(metric, "/type") {
        "External" => "external",
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (metric, status) = (&metric[field], &status[field]);
    let average = field == "pods" || has(metric, "/target/averageValue");
    match (field, average) {
        ("resource" | "containerResource", true) => {
            format!("{}: {}", at(metric, "/name"), against(metric, status, "averageValue", ""))
        }
        ("resource" | "containerResource", false) => {
            format!("{}: {}", at(metric, "/name"), against(metric, status, "averageUtilization", "%"))
        }
        ("pods", _) => against(metric, status, "averageValue", ""),
        (_, true) => format!("{} (avg)", against(metric, status, "averageValue", "")),
        (_, false) => against(metric, status, "value", ""),
    }
}

/// What is and what should be.
fn against(metric: &Value, status: &Value, field: &str, unit: &str) -> String {
    let part = |from: &Value, side: &str, fallback: &str| {
        let pointer = format!("/{side}/{field}");
        if has(from, &pointer) { or(from, &pointer, fallback) + unit } else { fallback.to_owned() }
    };
    format!("{}/{}", part(status, "current", "<unknown>"), part(metric, "target", "<auto>"))
}
