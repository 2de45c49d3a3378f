//! What an instance may ask for and what becomes of it: one table, from which everybody derives what they refuse.
//!
//! ```text
//! VMI + ClusterConfig ──> refusals ──> admission, virt-controller      whatever would fail later, by its field
//! VMI ──────────────────> unsupported ──> launcher                     the same without the cluster's say
//!                         table ──────> docs/compatibility.md          every field, in the order of the spec
//! ```
//! Each part of the spec has a file. It takes its type apart without `..` and places every field on a [`Sheet`]: a field that
//! nobody has placed does not compile. A walk over an instance finds what is refused; a walk over an empty one lists the table.
//!
//! # Guarantees
//! - A field that nobody acts on is refused, or the table says why it may be left alone.
//! - What [`refusals`] lets through, [`unsupported`] lets through.
//!
//! Absent on purpose: what depends on a node (its CPU, its firmware, its devices) is known there alone.

mod clock;
mod cpu;
mod devices;
mod disks;
mod domain;
mod features;
mod firmware;
mod instance;
mod interfaces;
mod memory;
mod order;
mod placement;
mod refusal;
mod room;
mod sheet;
mod sources;
mod volumes;

use api::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::config::ClusterConfig;

pub use clock::is_zone;
pub use cpu::{MOST_VCPUS, is_cpu_name};
pub use domain::is_board;
pub use firmware::is_uuid;
pub use interfaces::is_unicast;
pub use placement::{Entry, Placement};
pub use refusal::Refusal;
use sheet::{Purpose, Sheet};

/// All fields of an instance that would be accepted and not acted on, in a cluster of this configuration.
#[must_use]
pub fn refusals(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<Refusal> {
    walk(vmi, Purpose::Admit(config)).into_refusals()
}

/// All fields of an instance that no launcher can act on, whatever its cluster permits.
#[must_use]
pub fn unsupported(vmi: &VirtualMachineInstance) -> Vec<Refusal> {
    walk(vmi, Purpose::Launch).into_refusals()
}

/// Every field, in the order of the spec.
#[must_use]
pub fn table() -> Vec<Entry> {
    let spec = VirtualMachineInstanceSpec::default();
    let vmi =
        VirtualMachineInstance { api_version: None, kind: None, metadata: ObjectMeta::default(), spec, status: None };
    walk(&vmi, Purpose::List).into_entries()
}

fn walk<'a>(vmi: &VirtualMachineInstance, purpose: Purpose<'a>) -> Sheet<'a> {
    let mut sheet = Sheet::new(purpose);
    instance::place(&mut sheet, vmi);
    sheet
}

#[cfg(test)]
mod tests;
