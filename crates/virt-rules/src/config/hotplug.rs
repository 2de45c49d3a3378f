//! How far guests may grow while they run.

use api::configuration::LiveUpdateConfiguration;
use api::quantity::Quantity;

/// Ceilings of CPU and memory hotplug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hotplug<'a> {
    /// The ceiling as a multiple of the size at boot; 4 if unset.
    pub ratio: u32,
    /// Most sockets, whatever the ratio says.
    pub max_cpu_sockets: Option<u32>,
    /// Most memory, whatever the ratio says.
    pub max_guest: Option<&'a Quantity>,
}

impl<'a> Hotplug<'a> {
    pub(super) fn of(spec: Option<&'a LiveUpdateConfiguration>) -> Self {
        let ratio = spec.and_then(|spec| spec.max_hotplug_ratio).filter(|ratio| *ratio > 0);
        Self {
            ratio: ratio.unwrap_or(4),
            max_cpu_sockets: spec.and_then(|spec| spec.max_cpu_sockets).filter(|most| *most > 0),
            max_guest: spec.and_then(|spec| spec.max_guest.as_ref()),
        }
    }
}
