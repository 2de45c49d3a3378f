//! VMs: their template is checked as the instance that would be made of it.

mod data_volumes;
mod template;
mod update;

use api::names::finalizer;
use api::vm::{UpdateVolumesStrategy, VirtualMachine, VirtualMachineRunStrategy};

use crate::denial::Problems;
use crate::object::{self, add_finalizer};
use crate::request::{Known, Operation, Request, Response};
use crate::{vmi, warnings};
pub(crate) use template::kept;

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    match request.operation {
        Operation::Update if request.is_about_status() => update::admit_status(request),
        Operation::Create | Operation::Update => write(request, known),
        Operation::Delete => Response::allowed(),
    }
}

fn write(request: &Request<'_>, known: &dyn Known) -> Response {
    let sent: VirtualMachine = match object::read(request.object) {
        Ok(vm) => vm,
        Err(denial) => return Response::denied(denial),
    };
    let old = match request.operation {
        Operation::Create => None,
        Operation::Update | Operation::Delete => match object::read::<VirtualMachine>(request.old) {
            Ok(old) => Some(old),
            Err(denial) => return Response::denied(denial),
        },
    };
    // What is being deleted only loses finalizers; and what was admitted once is not judged again while its spec stays.
    let unchanged = old.as_ref().is_some_and(|old| old.spec == sent.spec);
    if sent.metadata.deletion_timestamp.is_some() || unchanged {
        return Response::allowed();
    }
    let mut problems = Problems::default();
    let status = old.as_ref().and_then(|old| old.status.as_ref());
    let found = template::find(&sent, status, request.namespace, known, &mut problems);
    let mut vm = sent.clone();
    template::fill_in(&mut vm, &found, known);
    if request.operation == Operation::Create {
        template::name_firmware(&mut vm, known);
        add_finalizer(&mut vm.metadata, finalizer::VM_CONTROLLER);
        vmi::stamp(&mut vm.metadata);
    }
    check_run_strategy(&vm, &mut problems);
    check_update_strategy(&vm, &mut problems);
    data_volumes::check(&vm, known, &mut problems);
    template::check(&vm, &found, known, request.requester, &mut problems);
    if let Some(old) = &old {
        update::check(old, &vm, &mut problems);
    }
    let warnings = warnings::machine(&sent, &template::instance(&sent));
    object::decided(request.object, &sent, &vm, problems).with_warnings(warnings)
}

/// Checks a VM that somebody else will make, and says what to warn about.
pub(crate) fn check_as_template(
    sent: &VirtualMachine,
    request: &Request<'_>,
    known: &dyn Known,
) -> (Problems, Vec<String>) {
    let mut problems = Problems::default();
    let found = template::find(sent, None, request.namespace, known, &mut problems);
    let mut vm = sent.clone();
    template::fill_in(&mut vm, &found, known);
    check_run_strategy(&vm, &mut problems);
    check_update_strategy(&vm, &mut problems);
    data_volumes::check(&vm, known, &mut problems);
    template::check(&vm, &found, known, request.requester, &mut problems);
    (problems, warnings::machine(sent, &template::instance(sent)))
}

fn check_run_strategy(vm: &VirtualMachine, problems: &mut Problems) {
    use VirtualMachineRunStrategy as Strategy;
    let field = "spec.runStrategy";
    match (&vm.spec.run_strategy, vm.spec.running) {
        (Some(_), Some(_)) => problems.invalid("spec.running", "cannot be combined with spec.runStrategy; remove it"),
        (None, None) => problems.required(field, "is required; set it, for instance to Always or Halted"),
        (Some(Strategy::WaitAsReceiver), None) => {
            problems.unsupported(field, "WaitAsReceiver is not supported yet; use Halted and start the VM here");
        }
        (Some(Strategy::Other(other)), None) => {
            let known: Vec<&str> = Strategy::KNOWN.iter().copied().filter(|name| *name != "WaitAsReceiver").collect();
            problems.unsupported(field, format!("{other:?} is unknown; use one of {}", known.join(", ")));
        }
        (
            Some(Strategy::Always | Strategy::RerunOnFailure | Strategy::Manual | Strategy::Halted | Strategy::Once),
            None,
        )
        | (None, Some(_)) => {}
    }
}

fn check_update_strategy(vm: &VirtualMachine, problems: &mut Problems) {
    let field = "spec.updateVolumesStrategy";
    match &vm.spec.update_volumes_strategy {
        None | Some(UpdateVolumesStrategy::Replacement) => {}
        Some(UpdateVolumesStrategy::Migration) => {
            problems.unsupported(field, "Migration is not supported yet; use Replacement and restart the VM");
        }
        Some(UpdateVolumesStrategy::Other(other)) => {
            problems.unsupported(field, format!("{other:?} is unknown; use Replacement"));
        }
    }
}
