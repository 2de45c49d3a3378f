//! Presets: settings that new instances take over if their labels match. Deprecated, and applied as KubeVirt applies them: when an
//! instance is created, in the order of their names, and never against what the instance says itself.
//!
//! | the instance | two presets that match contradict each other | what happens |
//! |---|---|---|
//! | has the annotation `virtualmachineinstancepresets.admission.kubevirt.io/exclude: "true"` | any | it stays as it is |
//! | any other | yes | it is refused |
//! | any other | no | it takes over what it does not say itself, and names each preset of which it has a setting now |

use std::collections::BTreeMap;

use api::clock::Clock;
use api::domain::DomainSpec;
use api::preset::VirtualMachineInstancePreset;
use api::quantity::Quantity;
use api::vmi::VirtualMachineInstance;
use virt_rules::config::matches;

use crate::denial::Problems;
use crate::object;
use crate::request::{Operation, Request, Response};
use crate::validate;

/// On an instance: `true` leaves it as it is.
const EXCLUDE: &str = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";
/// On an instance, with the name of a preset: that it was applied.
const APPLIED: &str = "virtualmachinepreset.kubevirt.io/";
const VERSION: &str = "kubevirt.io/v1";

/// What a preset must have to be of any use.
pub(crate) fn admit(request: &Request<'_>) -> Response {
    if request.operation == Operation::Delete {
        return Response::allowed();
    }
    let preset: VirtualMachineInstancePreset = match object::read(request.object) {
        Ok(preset) => preset,
        Err(denial) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    match &preset.spec {
        None => problems.required("spec", "says which settings go to which instances; set selector and domain"),
        Some(spec) => {
            validate::label_selector(&spec.selector, "spec.selector", &mut problems);
            if spec.domain.is_none() {
                problems.required("spec.domain", "has the settings; set at least one");
            }
        }
    }
    let warning = "VirtualMachineInstancePreset is deprecated; use a VirtualMachinePreference".to_owned();
    object::decided(request.object, &preset, &preset, problems).with_warnings(vec![warning])
}

/// Applies those presets of the instance's namespace that match it, and marks it with their names.
///
/// # Guarantees
/// - What the instance says is never changed: a setting that it has itself stays.
/// - If two that match contradict each other, none is applied, and the instance is refused.
/// - The outcome does not depend on the order of `presets`.
pub(crate) fn apply(
    vmi: &mut VirtualMachineInstance,
    presets: &[VirtualMachineInstancePreset],
    problems: &mut Problems,
) {
    let nothing = BTreeMap::new();
    if vmi.metadata.annotations.as_ref().and_then(|all| all.get(EXCLUDE)).is_some_and(|value| value == "true") {
        return;
    }
    let labels = vmi.metadata.labels.as_ref().unwrap_or(&nothing);
    let mut chosen: Vec<(&str, &DomainSpec)> = Vec::new();
    for preset in presets {
        let (Some(name), Some(spec)) = (&preset.metadata.name, &preset.spec) else { continue };
        if let Some(domain) = spec.domain.as_ref().filter(|_| matches(&spec.selector, labels)) {
            chosen.push((name, domain));
        }
    }
    chosen.sort_by_key(|(name, _)| *name);
    let mut contradicted = false;
    for (index, (name, domain)) in chosen.iter().enumerate() {
        for (other, before) in chosen.iter().take(index) {
            for field in conflicts(domain, before) {
                contradicted = true;
                let message = format!(
                    "the presets {other:?} and {name:?} match this instance and say different things about {field}; change \
                     one of them, or set the annotation {EXCLUDE}: \"true\""
                );
                problems.invalid("metadata.labels", message);
            }
        }
    }
    if contradicted {
        return;
    }
    for (name, domain) in chosen {
        if merge(domain, &mut vmi.spec.domain) {
            vmi.metadata.annotations.get_or_insert_default().insert(format!("{APPLIED}{name}"), VERSION.to_owned());
        }
    }
}

/// The fields in which two domains contradict each other.
fn conflicts(one: &DomainSpec, other: &DomainSpec) -> Vec<String> {
    let mut fields = Vec::new();
    let mut check = |field: &str, contradicts: bool| {
        if contradicts {
            fields.push(field.to_owned());
        }
    };
    for (name, amount) in requests(one).into_iter().flatten() {
        let theirs = requests(other).and_then(|all| all.get(name));
        check(&format!("resources.requests[{name}]"), theirs.is_some_and(|theirs| theirs != amount));
    }
    check("cpu", differ(one.cpu.as_ref(), other.cpu.as_ref()));
    check("firmware", differ(one.firmware.as_ref(), other.firmware.as_ref()));
    if let (Some(one), Some(other)) = (&one.clock, &other.clock) {
        check("clock", (&one.timezone, &one.utc) != (&other.timezone, &other.utc));
        check("clock.timer", differ(one.timer.as_ref(), other.timer.as_ref()));
    }
    check("features", differ(one.features.as_ref(), other.features.as_ref()));
    check("devices.watchdog", differ(one.devices.watchdog.as_ref(), other.devices.watchdog.as_ref()));
    check("ioThreadsPolicy", differ(one.io_threads_policy.as_ref(), other.io_threads_policy.as_ref()));
    fields
}

fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

fn requests(domain: &DomainSpec) -> Option<&BTreeMap<String, Quantity>> {
    domain.resources.as_ref()?.requests.as_ref().filter(|requests| !requests.is_empty())
}

/// Takes over what the instance does not say itself. Whether any setting is as the preset has it afterwards.
fn merge(preset: &DomainSpec, domain: &mut DomainSpec) -> bool {
    let mut applied = false;
    if let Some(wanted) = requests(preset) {
        let own = &mut domain.resources.get_or_insert_default().requests;
        applied |= own.get_or_insert_with(|| wanted.clone()) == wanted;
    }
    applied |= fill(preset.cpu.as_ref(), &mut domain.cpu);
    applied |= fill(preset.firmware.as_ref(), &mut domain.firmware);
    if let Some(wanted) = &preset.clock {
        let offset = || Clock { timer: None, ..wanted.clone() };
        let own = domain.clock.get_or_insert_with(offset);
        applied |= (&own.timezone, &own.utc) == (&wanted.timezone, &wanted.utc);
        applied |= fill(wanted.timer.as_ref(), &mut own.timer);
    }
    applied |= fill(preset.features.as_ref(), &mut domain.features);
    applied |= fill(preset.devices.watchdog.as_ref(), &mut domain.devices.watchdog);
    applied |= fill(preset.io_threads_policy.as_ref(), &mut domain.io_threads_policy);
    applied
}

fn fill<T: Clone + PartialEq>(preset: Option<&T>, own: &mut Option<T>) -> bool {
    preset.is_some_and(|wanted| own.get_or_insert_with(|| wanted.clone()) == wanted)
}
