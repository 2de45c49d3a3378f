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
mod interfaces;
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

pub(crate) use metadata::reserved_labels;

/// Everything that is wrong with an instance.
pub(crate) fn instance(vmi: &VirtualMachineInstance, config: &ClusterConfig, requester: Requester) -> Problems {
    let mut problems = Problems::default();
    for refusal in support::refusals(vmi, config) {
        let text = refusal.to_string();
        match refusal {
            Refusal::Unsupported { path, .. } => problems.told(Reason::NotSupported, path, &text),
            Refusal::Gated { path, .. } => problems.told(Reason::Invalid, path, &text),
        }
    }
    let spec = &vmi.spec;
    metadata::check(&vmi.metadata, config, requester, &mut problems);
    architecture::check(spec, config, &mut problems);
    cpu::check(spec, &mut problems);
    memory::check(spec, config, &mut problems);
    firmware::check(spec, &mut problems);
    features::check(&spec.domain, &mut problems);
    devices::check(spec, config, &mut problems);
    disks::check(spec, &mut problems);
    volumes::check(spec, &mut problems);
    networks::check(spec, &mut problems);
    interfaces::check(spec, config, &mut problems);
    security::check(spec, &mut problems);
    credentials::check(spec, &mut problems);
    probes::check(spec, &mut problems);
    dns::check(spec, &mut problems);
    placement::check(spec, &mut problems);
    problems
}

/// One of the known words, or a problem that lists them.
fn word(value: Option<&str>, known: &[&str], field: impl Into<String>, problems: &mut Problems) {
    if let Some(value) = value.filter(|value| !value.is_empty() && !known.contains(value)) {
        problems.unsupported(field, format!("{value:?} is not known; use one of {}", known.join(", ")));
    }
}

/// Whether a switch that is there is on; on is what it is without a word.
fn is_on(state: Option<&api::features::FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled != Some(false))
}

/// Four hexadecimal digits, two, two and an octal one: `0000:81:01.1`.
fn is_pci_address(text: &str) -> bool {
    let hex = |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((slot, function)) = text.rsplit_once('.') else { return false };
    let mut parts = slot.split(':');
    let (domain, bus, device) = (parts.next(), parts.next(), parts.next());
    domain.is_some_and(|domain| hex(domain, 4))
        && bus.is_some_and(|bus| hex(bus, 2))
        && device.is_some_and(|device| hex(device, 2))
        && parts.next().is_none()
        && matches!(function.as_bytes(), [b'0'..=b'7'])
}
