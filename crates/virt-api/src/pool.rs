//! Pools of VMs: their template is checked as the VMs that would be made of it, and their selector must find those VMs again.

use std::collections::BTreeMap;

use api::pool::{StatePreservation, VirtualMachinePool, VirtualMachinePoolSelectionPolicy};
use api::vm::VirtualMachine;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use virt_rules::config::matches;

use crate::denial::Problems;
use crate::object;
use crate::request::{Known, Operation, Request, Response};
use crate::{validate, vm, vmi};

const TEMPLATE: &str = "spec.virtualMachineTemplate";

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    match request.operation {
        // The status is the controller's, and whoever scales says no more than a number, which the server checks.
        Operation::Update if !request.subresource.is_empty() => Response::allowed(),
        Operation::Create | Operation::Update => write(request, known),
        Operation::Delete => Response::allowed(),
    }
}

fn write(request: &Request<'_>, known: &dyn Known) -> Response {
    let sent: VirtualMachinePool = match object::read(request.object) {
        Ok(pool) => pool,
        Err(denial) => return Response::denied(denial),
    };
    let old = match request.operation {
        Operation::Create => None,
        Operation::Update | Operation::Delete => match object::read::<VirtualMachinePool>(request.old) {
            Ok(old) => Some(old),
            Err(denial) => return Response::denied(denial),
        },
    };
    // What is being deleted only loses finalizers; and what was admitted once is not judged again while it stays.
    if sent.metadata.deletion_timestamp.is_some() || old.as_ref().is_some_and(|old| old.spec == sent.spec) {
        return Response::allowed();
    }
    let mut pool = sent.clone();
    if request.operation == Operation::Create {
        vmi::stamp(&mut pool.metadata);
    }
    let mut problems = Problems::default();
    if let Some(replicas) = pool.spec.replicas.filter(|replicas| *replicas < 0) {
        problems.invalid("spec.replicas", format!("{replicas} is negative; use 0 or more"));
    }
    match &old {
        Some(old) if old.spec.selector != pool.spec.selector => {
            let message = "cannot be changed, since the VMs of the pool are found by it; create another pool";
            problems.invalid("spec.selector", message);
        }
        _ => check_selector(&pool, &mut problems),
    }
    check_limit(&pool, &mut problems);
    check_strategies(&pool, &mut problems);
    let mut warnings = preservation_warnings(&pool);
    if old.is_none_or(|old| old.spec.virtual_machine_template != pool.spec.virtual_machine_template) {
        warnings.extend(check_template(&pool, request, known, &mut problems));
    }
    object::decided(request.object, &sent, &pool, problems).with_warnings(warnings)
}

/// A selector that misses the template would make VMs for ever and recognise none of them; one that is empty would claim every VM
/// of the namespace.
fn check_selector(pool: &VirtualMachinePool, problems: &mut Problems) {
    let (field, selector) = ("spec.selector", &pool.spec.selector);
    let metadata = pool.spec.virtual_machine_template.metadata.as_ref();
    if selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    {
        let message = "is empty and would match every VM of the namespace; select labels of the template, such as \
                       matchLabels: {app: web}";
        problems.required(field, message);
        return;
    }
    let mut found = Problems::default();
    validate::label_selector(selector, field, &mut found);
    let usable = found.is_empty();
    problems.append("", found);
    let nothing = BTreeMap::new();
    let labels = metadata.and_then(|metadata| metadata.labels.as_ref()).unwrap_or(&nothing);
    if usable && !matches(selector, labels) {
        let message = format!(
            "does not match {TEMPLATE}.metadata.labels, so that no VM would be found again; use the same labels in both"
        );
        problems.invalid(field, message);
    }
}

/// A pool that may lose nobody would never be brought up to date.
fn check_limit(pool: &VirtualMachinePool, problems: &mut Problems) {
    let field = "spec.maxUnavailable";
    match &pool.spec.max_unavailable {
        None => {}
        Some(IntOrString::Int(number)) if *number > 0 => {}
        Some(IntOrString::Int(number)) => {
            problems.invalid(field, format!("{number} is less than 1; use 1 or more, or a percentage such as 25%"));
        }
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<u32>().ok());
            if !percent.is_some_and(|percent| (1..=100).contains(&percent)) {
                let message = format!("{text:?} is not a percentage from 1% to 100%; use one such as 25%, or a number");
                problems.invalid(field, message);
            }
        }
    }
}

fn check_strategies(pool: &VirtualMachinePool, problems: &mut Problems) {
    let mut only_one = |field: &str, given: [bool; 3]| {
        if given.into_iter().filter(|given| *given).count() > 1 {
            problems.invalid(field, "has more than one strategy; keep one of proactive, opportunistic and unmanaged");
        }
    };
    let (update, scale_in) = (&pool.spec.update_strategy, &pool.spec.scale_in_strategy);
    if let Some(one) = update {
        let given = [one.proactive.is_some(), one.opportunistic.is_some(), one.unmanaged.is_some()];
        only_one("spec.updateStrategy", given);
    }
    if let Some(one) = scale_in {
        let given = [one.proactive.is_some(), one.opportunistic.is_some(), one.unmanaged.is_some()];
        only_one("spec.scaleInStrategy", given);
    }
    let of_update = update.as_ref().and_then(|one| one.proactive.as_ref()?.selection_policy.as_ref());
    check_policy(of_update, "spec.updateStrategy.proactive.selectionPolicy", problems);
    let Some(scale_in) = scale_in else { return };
    if let Some(proactive) = &scale_in.proactive {
        let field = "spec.scaleInStrategy.proactive";
        check_policy(proactive.selection_policy.as_ref(), &format!("{field}.selectionPolicy"), problems);
    }
}

fn check_policy(policy: Option<&VirtualMachinePoolSelectionPolicy>, field: &str, problems: &mut Problems) {
    let selector = policy.and_then(|policy| policy.selectors.as_ref()?.label_selector.as_ref());
    if let Some(selector) = selector {
        validate::label_selector(selector, &format!("{field}.selectors.labelSelector"), problems);
    }
}

/// KubeVirt has a word for memory that is kept, and keeps the disks alone, too: its manifests are admitted, with a warning.
fn preservation_warnings(pool: &VirtualMachinePool) -> Vec<String> {
    let Some(scale_in) = &pool.spec.scale_in_strategy else { return Vec::new() };
    let proactive = scale_in.proactive.as_ref().and_then(|one| one.state_preservation.as_ref());
    let opportunistic = scale_in.opportunistic.as_ref().and_then(|one| one.state_preservation.as_ref());
    let given = [("proactive", proactive), ("opportunistic", opportunistic)];
    let online = given.into_iter().filter(|(_, kept)| *kept == Some(&StatePreservation::Online));
    online
        .map(|(strategy, _)| {
            format!(
                "spec.scaleInStrategy.{strategy}.statePreservation: Online keeps the disks and not the memory, as Offline does"
            )
        })
        .collect()
}

/// Checks the VM that would be made of the template.
fn check_template(
    pool: &VirtualMachinePool,
    request: &Request<'_>,
    known: &dyn Known,
    problems: &mut Problems,
) -> Vec<String> {
    let template = &pool.spec.virtual_machine_template;
    let Some(spec) = &template.spec else {
        problems.required(format!("{TEMPLATE}.spec"), "says what the VMs are; set at least runStrategy and template");
        return Vec::new();
    };
    let metadata = template.metadata.as_ref().cloned().unwrap_or_default();
    let machine = VirtualMachine { metadata, spec: spec.clone(), ..VirtualMachine::default() };
    let (found, warnings) = vm::check_as_template(&machine, request, known);
    problems.append(&format!("{TEMPLATE}."), found);
    warnings.into_iter().map(|warning| format!("{TEMPLATE}.{warning}")).collect()
}
