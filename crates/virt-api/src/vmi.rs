//! Instances: filled in and checked when they are made, frozen afterwards.

pub(crate) mod defaults;
mod update;

use api::names::{annotation, finalizer};
use api::vmi::VirtualMachineInstance;

use crate::denial::Problems;
use crate::object::{self, add_annotation, add_finalizer};
use crate::request::{Known, Operation, Request, Response};
use crate::{preset, validate, warnings};

/// The API version that objects are stored in and that controllers speak.
pub(crate) const VERSION: &str = "v1";

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    match request.operation {
        Operation::Create => create(request, known),
        Operation::Update => update::admit(request),
        Operation::Delete => Response::allowed(),
    }
}

fn create(request: &Request<'_>, known: &dyn Known) -> Response {
    let sent: VirtualMachineInstance = match object::read(request.object) {
        Ok(vmi) => vmi,
        Err(denial) => return Response::denied(denial),
    };
    let config = known.config();
    let mut vmi = sent.clone();
    let mut problems = Problems::default();
    preset::apply(&mut vmi, &known.presets(request.namespace), &mut problems);
    defaults::fill_in_spec(&mut vmi.spec, &config, known.architecture());
    defaults::fill_in_status(&mut vmi, &config, request.requester);
    add_finalizer(&mut vmi.metadata, finalizer::VMI);
    stamp(&mut vmi.metadata);
    problems.append("", validate::instance(&vmi, &config, request.requester));
    let warnings = warnings::instance(&sent, "");
    object::decided(request.object, &sent, &vmi, problems).with_warnings(warnings)
}

/// Says which versions it was written in, as tools that migrate stored versions look for it.
pub(crate) fn stamp(metadata: &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) {
    add_annotation(metadata, annotation::LATEST_OBSERVED_API_VERSION, VERSION);
    add_annotation(metadata, annotation::STORAGE_OBSERVED_API_VERSION, VERSION);
}
