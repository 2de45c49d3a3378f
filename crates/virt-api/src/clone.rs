//! Clones: what is cloned to what, and what is changed on the way.

use api::clone::VirtualMachineClone as Clone_;
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use serde_json::Value;

use crate::denial::Problems;
use crate::object;
use crate::request::{Known, Request, Response};
use crate::snapshot::gate;
use crate::validate::interfaces::mac;

const VM: &str = "VirtualMachine";
const RESTRICTED: &str = "update of VirtualMachineClone spec is restricted; create another clone";

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    object::unchanging(request, |one: &Clone_| &one.spec, RESTRICTED, || create(request, known))
}

fn create(request: &Request<'_>, known: &dyn Known) -> Response {
    let sent: Clone_ = match object::read(request.object) {
        Ok(clone) => clone,
        Err(denial) => return Response::denied(denial),
    };
    if let Some(refused) = gate(known) {
        return refused;
    }
    let mut clone = sent.clone();
    name_target(&mut clone, known);
    let mut problems = Problems::default();
    check_source(&clone, &mut problems);
    check_target(&clone, &mut problems);
    let spec = &clone.spec;
    let template = spec.template.as_ref();
    let of_template = |labels: bool| {
        let template = template?;
        if labels { template.label_filters.as_deref() } else { template.annotation_filters.as_deref() }
    };
    check_filters(spec.label_filters.as_deref(), "spec.labelFilters", &mut problems);
    check_filters(spec.annotation_filters.as_deref(), "spec.annotationFilters", &mut problems);
    check_filters(of_template(true), "spec.template.labelFilters", &mut problems);
    check_filters(of_template(false), "spec.template.annotationFilters", &mut problems);
    for (name, address) in spec.new_mac_addresses.iter().flatten() {
        if mac(address).is_none() {
            let message = format!("interface {name} has malformed MAC address ({address}).");
            problems.invalid(format!("spec.newMacAddresses.{name}"), message);
        }
    }
    for (index, patch) in spec.patches.iter().flatten().enumerate() {
        if !matches!(serde_json::from_str(patch), Ok(Value::Object(_))) {
            problems.invalid(format!("spec.patches[{index}]"), format!("patch is not valid JSON ({patch})"));
        }
    }
    object::decided(request.object, &sent, &clone, problems)
}

/// As KubeVirt does.
fn name_target(clone: &mut Clone_, known: &dyn Known) {
    let named = clone.spec.target.as_ref().is_some_and(|target| !target.name.is_empty());
    if !named {
        let suffix: String = known.random_uuid().chars().rev().take(5).collect();
        let name = format!("clone-{}-{suffix}", clone.spec.source.name);
        let target = clone.spec.target.get_or_insert_with(|| TypedLocalObjectReference {
            api_group: Some("kubevirt.io".to_owned()),
            kind: VM.to_owned(),
            name: String::new(),
        });
        target.name = name;
    }
}

fn check_source(clone: &Clone_, problems: &mut Problems) {
    let source = &clone.spec.source;
    let field = "spec.source";
    match (source.api_group.as_deref().unwrap_or_default(), source.kind.as_str()) {
        ("", _) => problems.invalid(format!("{field}.apiGroup"), "Source's APIGroup cannot be empty"),
        (_, "") => problems.invalid(format!("{field}.kind"), "Source's Kind cannot be empty"),
        ("kubevirt.io", VM) | ("snapshot.kubevirt.io", "VirtualMachineSnapshot") => {}
        _ => problems.invalid(
            format!("{field}.kind"),
            "Source kind is not supported; use a VirtualMachine of kubevirt.io or a VirtualMachineSnapshot of snapshot.kubevirt.io",
        ),
    }
    if source.name.is_empty() {
        problems.invalid(format!("{field}.name"), "Source's name cannot be empty");
    }
}

fn check_target(clone: &Clone_, problems: &mut Problems) {
    let Some(target) = &clone.spec.target else { return };
    if target.kind != VM || target.api_group.as_deref().is_some_and(|group| group != "kubevirt.io") {
        problems.invalid("spec.target.kind", "Target kind is not supported; use a VirtualMachine of kubevirt.io");
    }
    if clone.spec.source.kind == VM && clone.spec.source.name == target.name {
        let message = "Target name cannot be equal to source name when both are VirtualMachines";
        problems.invalid("spec.target.name", message);
    }
}

/// `*` at the end, `!` at the beginning, and nowhere else.
fn check_filters(filters: Option<&[String]>, field: &str, problems: &mut Problems) {
    for (index, filter) in filters.unwrap_or_default().iter().enumerate() {
        let field = format!("{field}[{index}]");
        let plain = filter.strip_prefix('!').unwrap_or(filter);
        let plain = plain.strip_suffix('*').unwrap_or(plain);
        if filter.is_empty() || filter == "!" {
            problems.invalid(field, "must not be empty");
        } else if plain.contains('!') {
            problems.invalid(field, format!("{filter:?} may only have ! at its beginning"));
        } else if plain.contains('*') {
            problems.invalid(field, format!("{filter:?} may only have * at its end"));
        }
    }
}
