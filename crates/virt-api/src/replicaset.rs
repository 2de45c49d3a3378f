//! Replica sets of instances: their template is checked as the instances that would be made of it, and their selector must find
//! those instances again.

use std::collections::BTreeMap;

use api::replicaset::VirtualMachineInstanceReplicaSet;
use api::vmi::VirtualMachineInstance;
use virt_rules::config::matches;

use crate::denial::Problems;
use crate::object;
use crate::request::{Known, Operation, Request, Response};
use crate::vmi::defaults;
use crate::{validate, vmi, warnings};

const TEMPLATE: &str = "spec.template.";

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    match request.operation {
        // The status is the controller's, and whoever scales says no more than a number, which the server checks.
        Operation::Update if !request.subresource.is_empty() => Response::allowed(),
        Operation::Create | Operation::Update => write(request, known),
        Operation::Delete => Response::allowed(),
    }
}

fn write(request: &Request<'_>, known: &dyn Known) -> Response {
    let sent: VirtualMachineInstanceReplicaSet = match object::read(request.object) {
        Ok(set) => set,
        Err(denial) => return Response::denied(denial),
    };
    let old = match request.operation {
        Operation::Create => None,
        Operation::Update | Operation::Delete => match object::read::<VirtualMachineInstanceReplicaSet>(request.old) {
            Ok(old) => Some(old),
            Err(denial) => return Response::denied(denial),
        },
    };
    // What is being deleted only loses finalizers; and what was admitted once is not judged again while it stays.
    if sent.metadata.deletion_timestamp.is_some() || old.as_ref().is_some_and(|old| old.spec == sent.spec) {
        return Response::allowed();
    }
    let mut set = sent.clone();
    if request.operation == Operation::Create {
        vmi::stamp(&mut set.metadata);
    }
    let mut problems = Problems::default();
    if let Some(replicas) = set.spec.replicas.filter(|replicas| *replicas < 0) {
        problems.invalid("spec.replicas", format!("{replicas} is negative; use 0 or more"));
    }
    check_selector(&set, &mut problems);
    let mut warnings = Vec::new();
    if old.is_none_or(|old| old.spec.template != set.spec.template) {
        warnings = check_template(&set, request, known, &mut problems);
    }
    object::decided(request.object, &sent, &set, problems).with_warnings(warnings)
}

/// A selector that misses the template would make instances for ever and recognise none of them; one that is empty would claim
/// every instance of the namespace.
fn check_selector(set: &VirtualMachineInstanceReplicaSet, problems: &mut Problems) {
    let (field, selector) = ("spec.selector", &set.spec.selector);
    let template = set.spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    if selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    {
        let message = "is empty and would claim every instance of the namespace; select labels of the template, such as \
                       matchLabels: {app: web}";
        problems.required(field, message);
        return;
    }
    let mut found = Problems::default();
    validate::label_selector(selector, field, &mut found);
    let usable = found.is_empty();
    problems.append("", found);
    let nothing = BTreeMap::new();
    if usable && !matches(selector, template.unwrap_or(&nothing)) {
        let message = "does not match spec.template.metadata.labels, so that no instance would be found again; use the same \
                       labels in both";
        problems.invalid(field, message);
    }
}

fn check_template(
    set: &VirtualMachineInstanceReplicaSet,
    request: &Request<'_>,
    known: &dyn Known,
    problems: &mut Problems,
) -> Vec<String> {
    let template = &set.spec.template;
    let Some(spec) = &template.spec else {
        problems.required("spec.template.spec", "says what the instances are; set at least domain");
        return Vec::new();
    };
    let config = known.config();
    let metadata = template.metadata.as_ref().cloned().unwrap_or_default();
    let mut instance = VirtualMachineInstance {
        api_version: set.api_version.clone(),
        metadata,
        spec: spec.clone(),
        ..VirtualMachineInstance::default()
    };
    let warnings = warnings::instance(&instance, TEMPLATE);
    defaults::fill_in_spec(&mut instance.spec, &config, known.architecture());
    problems.append(TEMPLATE, validate::instance(&instance, &config, request.requester));
    warnings
}
