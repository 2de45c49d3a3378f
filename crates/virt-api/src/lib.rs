//! virt-api, in two halves that share nothing but the rules.
//!
//! Admission of virtual machines: what is filled in, what is refused and what is warned about when an object is written.
//!
//! ```text
//! Request ──> admit ──> the kind's module ──> decode ──> defaults ──> validate ──> Response
//!               ^                                  ^
//!      review (a webhook's JSON)              Known: the KubeVirt object, instancetypes, presets, chance
//! ```
//! Watches nothing, owns nothing, emits answers: pure functions. Every problem of an object is told at once, each by its
//! field and with what to do. Absent on purpose: a client, a clock, and how it is mounted.
//!
//! [`subresources`] is what is done to VMs that run: a service with a client, whose decisions about VMs ([`lifecycle`]) are pure.

mod change;
mod clone;
mod denial;
mod export;
mod instancetype;
mod kind;
mod kubevirt;
pub mod lifecycle;
mod migration;
mod object;
mod pod;
mod pool;
mod preset;
mod replicaset;
mod request;
mod restore;
pub mod review;
mod snapshot;
pub mod subresources;
mod validate;
mod vm;
mod vmi;
mod warnings;

pub use denial::{Cause, Denial, Reason};
pub use request::{Known, Mark, Operation, Request, Requester, Response};

use kind::Kind;

/// Decides about one write.
///
/// # Guarantees
/// - An object that was admitted is admitted unchanged when it is created again.
/// - Whatever the JSON, there is an answer: nothing panics.
#[must_use]
pub fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    match Kind::of(request.group, request.resource) {
        Kind::VirtualMachine => vm::admit(request, known),
        Kind::Instance => vmi::admit(request, known),
        Kind::ReplicaSet => replicaset::admit(request, known),
        Kind::Migration => migration::admit(request, known),
        Kind::MigrationPolicy => migration::admit_policy(request),
        Kind::Pool => pool::admit(request, known),
        Kind::Preset => preset::admit(request),
        Kind::KubeVirt => kubevirt::admit(request, known),
        Kind::Instancetype => instancetype::admit(request),
        Kind::Preference => instancetype::admit_preference(request),
        Kind::Snapshot => snapshot::admit(request, known),
        Kind::SnapshotContent => Response::allowed(),
        Kind::Restore => restore::admit(request, known),
        Kind::Clone => clone::admit(request, known),
        Kind::Export => export::admit(request),
        Kind::Pod => pod::admit(request, known),
        Kind::Unbuilt(refusal) => kind::admit_unbuilt(request, &refusal),
        Kind::Foreign => Response::allowed(),
    }
}
