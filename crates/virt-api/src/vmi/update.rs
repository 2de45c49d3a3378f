//! Changes of an instance: its spec, and the labels and annotations that controllers go by, are not for users.

use api::vmi::VirtualMachineInstance;

use crate::denial::Problems;
use crate::object::{self, differences};
use crate::request::{Request, Requester, Response};
use crate::validate::reserved;

/// As many changed fields as a person reads.
const MOST: usize = 8;

pub(crate) fn admit(request: &Request<'_>) -> Response {
    let read = object::read::<VirtualMachineInstance>(request.object)
        .and_then(|new| Ok((object::read::<VirtualMachineInstance>(request.old)?, new)));
    let (old, sent) = match read {
        Ok(both) => both,
        Err(denial) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    let mut new = sent.clone();
    if request.requester != Requester::Component && new.spec != old.spec {
        let (before, after) = (json(&old.spec), json(&new.spec));
        for path in differences("spec", &before, &after, MOST) {
            let message = "an instance cannot be changed once it is created; change its VirtualMachine and restart it";
            problems.unsupported(path, message);
        }
    }
    if request.requester == Requester::User {
        let (before, after) = (reserved(&old.metadata), reserved(&new.metadata));
        let fields = before.keys().chain(after.keys().filter(|field| !before.contains_key(*field)));
        for field in fields.filter(|field| before.get(*field) != after.get(*field)) {
            problems.unsupported(field.clone(), "may only be changed by controllers; leave it as it was");
        }
        new.status.clone_from(&old.status);
    }
    object::decided(request.object, &sent, &new, problems)
}

fn json(spec: &api::vmi::VirtualMachineInstanceSpec) -> serde_json::Value {
    serde_json::to_value(spec).unwrap_or_default()
}
