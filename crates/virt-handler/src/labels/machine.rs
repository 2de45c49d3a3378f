//! What the kernel tells of this node's CPU.

use std::fs;
use std::path::Path;

/// This node's CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processor {
    /// `Intel` or `AMD`.
    pub(crate) vendor: Option<String>,
    /// In Hertz, where the kernel tells.
    pub(crate) tsc_frequency: Option<u64>,
    /// Whether a guest may have another frequency.
    pub(crate) tsc_scalable: bool,
    /// Whether a process may use a CPU for as long as it likes.
    pub(crate) is_realtime: bool,
}

impl Processor {
    /// Reads what there is; what cannot be read is not known.
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(Path::new(path)).unwrap_or_default();
        Self::of(
            &text("/proc/cpuinfo"),
            &text("/sys/devices/system/cpu/cpu0/tsc_freq_khz"),
            &text("/proc/sys/kernel/sched_rt_runtime_us"),
        )
    }

    fn of(cpuinfo: &str, tsc_khz: &str, realtime_budget: &str) -> Self {
        let field = |name: &str| {
            let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next().unwrap_or_default()
        };
        let vendor = match field("vendor_id") {
            "GenuineIntel" => Some("Intel"),
            "AuthenticAMD" => Some("AMD"),
            _ => None,
        };
        let has = |line: &str, flag: &str| line.split(' ').any(|one| one == flag);
        Self {
            vendor: vendor.map(str::to_owned),
            tsc_frequency: tsc_khz.trim().parse::<u64>().ok().map(|khz| khz * 1000),
            tsc_scalable: has(field("flags"), "tsc_scale") || has(field("vmx flags"), "tsc_scaling"),
            is_realtime: realtime_budget.trim() == "-1",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_known_by_what_the_kernel_tells() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vmx\nvmx flags\t: ept tsc_scaling\n\n";
        let known = Processor::of(&intel.repeat(2), "2100000\n", "-1\n");
        let vendor = Some("Intel".to_owned());
        let wanted = Processor { vendor, tsc_frequency: Some(2_100_000_000), tsc_scalable: true, is_realtime: true };
        assert_eq!(known, wanted);
        assert_eq!(Processor::of("", "", "950000\n"), Processor::default());
    }
}
