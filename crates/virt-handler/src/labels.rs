//! Labels that launcher pods select nodes by: what QEMU and the CPU of this node really offer.

mod machine;
mod qemu;

use std::collections::{BTreeMap, BTreeSet};

use api::names::{annotation, label};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

pub(crate) use machine::Processor;
pub(crate) use qemu::{Offer, ask};

/// Models that stand for others, and are none.
const NO_MODELS: [&str; 3] = ["max", "host", "base"];
/// A machine without anything.
const NO_MACHINE: &str = "none";
/// What begins like this is no feature of a CPU, but how QEMU treats it.
const NO_FEATURE_PREFIXES: [&str; 4] = ["hv-", "kvm-", "vmx-", "x-"];
/// Switches of QEMU's CPUs that are no features of theirs.
const NO_FEATURES: [&str; 16] = [
    "check",
    "cpuid-0xb",
    "enforce",
    "fill-mtrr-mask",
    "full-cpuid-auto-level",
    "host-cache-info",
    "host-phys-bits",
    "kvm",
    "l3-cache",
    "legacy-cache",
    "lmce",
    "migratable",
    "pmu",
    "tcg-cpuid",
    "vmware-cpuid-freq",
    "hv-passthrough",
];
/// Hyper-V enlightenments as nodes are labelled with them, and as QEMU names them.
const ENLIGHTENMENTS: [(&str, &str); 9] = [
    ("frequencies", "hv-frequencies"),
    ("ipi", "hv-ipi"),
    ("reenlightenment", "hv-reenlightenment"),
    ("reset", "hv-reset"),
    ("runtime", "hv-runtime"),
    ("synic", "hv-synic"),
    ("synictimer", "hv-stimer"),
    ("tlbflush", "hv-tlbflush"),
    ("vpindex", "hv-vpindex"),
];

/// All labels that are kept here. Whatever else has one of these prefixes is removed.
pub(crate) fn labels(offer: &Offer, processor: &Processor, obsolete: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let held = |prefix: &'static str| move |name: String| (format!("{prefix}{name}"), "true".to_owned());
    let machines = offer.machines.iter().flat_map(|one| [Some(&one.name), one.alias.as_ref()]).flatten();
    let machines = machines.filter(|name| *name != NO_MACHINE).cloned().map(held(label::MACHINE_TYPE_PREFIX));
    let models = offer.models.iter().filter(|model| model.unavailable_features.is_empty()).map(|model| &model.name);
    let models = models.filter(|name| is_model(name) && !obsolete.contains(name.as_str())).cloned();
    let features = features(offer).into_iter().map(held(label::CPU_FEATURE_PREFIX));
    let hyperv = ENLIGHTENMENTS.iter().filter(|(_, name)| offer.enlightenments.contains(*name));
    let hyperv = hyperv.map(|(name, _)| (*name).to_owned()).map(held(label::HYPERV_PREFIX));
    let vendor = processor.vendor.clone().into_iter().map(held(label::CPU_VENDOR_PREFIX));
    let timer = processor.tsc_frequency.into_iter().flat_map(|frequency| {
        [
            (format!("{}tsc-frequency", label::CPU_TIMER_PREFIX), frequency.to_string()),
            (format!("{}tsc-scalable", label::CPU_TIMER_PREFIX), processor.tsc_scalable.to_string()),
        ]
    });
    let realtime = processor.is_realtime.then(|| (label::REALTIME.to_owned(), "true".to_owned()));
    let models = models.map(held(label::CPU_MODEL_PREFIX));
    let all = machines.chain(models).chain(features).chain(hyperv).chain(vendor).chain(timer).chain(realtime);
    all.filter(|(name, _)| is_label(name)).collect()
}

/// What makes a node's labels these: those that differ, and `null` for those that are no longer true.
pub(crate) fn change(node: &Node, wanted: &BTreeMap<String, String>) -> Map<String, Value> {
    let keeps_out = node.metadata.annotations.as_ref().and_then(|all| all.get(annotation::SKIP_NODE_LABELLER));
    if keeps_out.is_some_and(|value| value == "true") {
        return Map::new();
    }
    let none = BTreeMap::new();
    let known = node.metadata.labels.as_ref().unwrap_or(&none);
    let news = wanted.iter().filter(|(name, value)| known.get(*name) != Some(value));
    let gone = known.keys().filter(|name| is_ours(name) && !wanted.contains_key(*name));
    news.map(|(name, value)| (name.clone(), json!(value))).chain(gone.map(|name| (name.clone(), Value::Null))).collect()
}

fn is_ours(name: &str) -> bool {
    let prefixes = [
        label::MACHINE_TYPE_PREFIX,
        label::CPU_MODEL_PREFIX,
        label::CPU_FEATURE_PREFIX,
        label::HYPERV_PREFIX,
        label::CPU_VENDOR_PREFIX,
        label::CPU_TIMER_PREFIX,
    ];
    name == label::REALTIME || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Versions of models have their names followed by `-v` and a number; instances ask for models.
fn is_model(name: &str) -> bool {
    let is_version = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    !NO_MODELS.contains(&name) && !name.rsplit_once("-v").is_some_and(|(_, end)| is_version(end))
}

/// Features by the names that instances ask for: with dashes or dots, where QEMU knows several spellings.
fn features(offer: &Offer) -> Vec<String> {
    let is_feature = |name: &str| {
        !NO_FEATURES.contains(&name)
            && !name.contains('_')
            && !NO_FEATURE_PREFIXES.iter().any(|no| name.starts_with(no))
    };
    let names = offer.features.iter().filter(|name| is_feature(name));
    let dotted: BTreeSet<String> =
        names.clone().filter(|name| name.contains('.')).map(|name| name.replace('.', "-")).collect();
    names.filter(|name| !dotted.contains(*name)).cloned().collect()
}

/// Whether a name can be a label at all: what QEMU calls something need not.
fn is_label(name: &str) -> bool {
    let name = name.split_once('/').map_or(name, |(_, name)| name);
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= 63 && name.bytes().all(inner) && ends(name.bytes().next()) && ends(name.bytes().last())
}

#[cfg(test)]
mod tests;
