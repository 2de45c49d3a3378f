//! Whether an instance can be what it says: one module per part of it, all problems at once.
//!
//! Instances are checked after their defaults were filled in, templates of VMs as the instance that would be made of
//! them. Paths begin at the instance.

mod architecture;
mod cloud_init;
mod cpu;
mod credentials;
mod devices;
mod disks;
mod dns;
mod features;
mod firmware;
pub(crate) mod interfaces;
mod memory;
mod metadata;
mod networks;
mod placement;
mod probes;
mod security;
mod selectors;
mod volumes;

use api::vmi::VirtualMachineInstance;
use virt_rules::config::ClusterConfig;
use virt_rules::support::{self, Refusal};

use crate::denial::{Problems, Reason};
use crate::request::Requester;

pub(crate) use metadata::reserved;
pub(crate) use selectors::check_selector as label_selector;

/// Everything that is wrong with an instance: what nobody acts on, by the table, and then what the table does not know.
pub(crate) fn instance(vmi: &VirtualMachineInstance, config: &ClusterConfig, requester: Requester) -> Problems {
    let mut problems = unsupported(vmi, config);
    let mut others = Problems::default();
    let spec = &vmi.spec;
    metadata::check(&vmi.metadata, requester, &mut others);
    architecture::check(spec, config, &mut others);
    cpu::check(spec, &mut others);
    memory::check(spec, config, &mut others);
    firmware::check(spec, &mut others);
    features::check(&spec.domain, &mut others);
    devices::check(spec, config, &mut others);
    disks::check(spec, &mut others);
    volumes::check(spec, &mut others);
    networks::check(spec, &mut others);
    interfaces::check(spec, config, &mut others);
    security::check(spec, &mut others);
    credentials::check(spec, &mut others);
    probes::check(spec, &mut others);
    dns::check(spec, &mut others);
    placement::check(spec, &mut others);
    problems.append_untold(others);
    problems
}

fn unsupported(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Problems {
    let mut problems = Problems::default();
    for refusal in support::refusals(vmi, config) {
        let reason = match refusal {
            Refusal::Unsupported { .. } => Reason::NotSupported,
            Refusal::Gated { .. } | Refusal::Value { .. } => Reason::Invalid,
        };
        problems.add(reason, refusal.path(), refusal.problem());
    }
    problems
}

/// One of the known words, or a problem that lists them.
fn word(value: Option<&str>, known: &[&str], field: impl Into<String>, problems: &mut Problems) {
    if let Some(value) = value.filter(|value| !value.is_empty() && !known.contains(value)) {
        problems.unsupported(field, format!("{value:?} is unknown; use one of {}", known.join(", ")));
    }
}

/// Whether a switch that is there is on; on is what it is without a word.
fn is_on(state: Option<&api::features::FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled != Some(false))
}
