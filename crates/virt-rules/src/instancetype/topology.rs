//! How many sockets, cores and threads a number of vCPUs becomes.

use api::preference::{PreferredCPUTopology, SpreadAcross, VirtualMachinePreferenceSpec};

use super::Conflict;

/// Threads of a core when vCPUs are spread over all three.
const THREADS: u32 = 2;
/// vCPUs of the smaller unit in the larger one, if the preference does not say.
const RATIO: u32 = 2;

/// A guest's CPU as it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Topology {
    pub(super) sockets: u32,
    pub(super) cores: u32,
    pub(super) threads: u32,
}

/// What the vCPUs of a guest are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Every vCPU is a socket.
    Sockets,
    /// Every vCPU is a core.
    Cores,
    /// Every vCPU is a thread.
    Threads,
    /// Any of the three; sockets where somebody must choose.
    Any,
    /// `ratio` cores in each socket.
    SocketsCores { ratio: u32 },
    /// `ratio` threads in each core.
    CoresThreads { ratio: u32 },
    /// `ratio` cores in each socket, two threads in each core.
    SocketsCoresThreads { ratio: u32 },
}

impl Unit {
    /// What a preference wants; sockets if it does not say.
    pub(super) fn of(preference: Option<&VirtualMachinePreferenceSpec>) -> Result<Self, Conflict> {
        use PreferredCPUTopology as Preferred;
        let cpu = preference.and_then(|preference| preference.cpu.as_ref());
        match cpu.and_then(|cpu| cpu.preferred_cpu_topology.as_ref()) {
            None | Some(Preferred::Sockets | Preferred::PreferSockets) => Ok(Self::Sockets),
            Some(Preferred::Any | Preferred::PreferAny) => Ok(Self::Any),
            Some(Preferred::Cores | Preferred::PreferCores) => Ok(Self::Cores),
            Some(Preferred::Threads | Preferred::PreferThreads) => Ok(Self::Threads),
            Some(Preferred::Spread | Preferred::PreferSpread) => Self::spread(preference),
            Some(Preferred::Other(value)) => {
                Err(unknown("cpu.preferredCPUTopology", value, PreferredCPUTopology::KNOWN))
            }
        }
    }

    fn spread(preference: Option<&VirtualMachinePreferenceSpec>) -> Result<Self, Conflict> {
        let options = preference.and_then(|preference| preference.cpu.as_ref()?.spread_options.as_ref());
        let old = preference.and_then(|preference| preference.prefer_spread_socket_to_core_ratio);
        let ratio = options.and_then(|options| options.ratio).filter(|ratio| *ratio > 0);
        let ratio = ratio.or(old.filter(|ratio| *ratio > 0)).unwrap_or(RATIO);
        match options.and_then(|options| options.across.as_ref()) {
            None | Some(SpreadAcross::SocketsCores) => Ok(Self::SocketsCores { ratio }),
            Some(SpreadAcross::CoresThreads) => Ok(Self::CoresThreads { ratio }),
            Some(SpreadAcross::SocketsCoresThreads) => Ok(Self::SocketsCoresThreads { ratio }),
            Some(SpreadAcross::Other(value)) => Err(unknown("cpu.spreadOptions.across", value, SpreadAcross::KNOWN)),
        }
    }
}

/// Lays out the vCPUs of an instancetype as the preference wants them.
pub(super) fn topology(guest: u32, preference: Option<&VirtualMachinePreferenceSpec>) -> Result<Topology, Conflict> {
    let one = Topology { sockets: 1, cores: 1, threads: 1 };
    let unit = Unit::of(preference)?;
    if guest <= 1 {
        return Ok(one);
    }
    let steps = |step: u32| match guest % step {
        0 => Ok(guest / step),
        _ => Err(Conflict::Spread { guest, step }),
    };
    Ok(match unit {
        Unit::Sockets | Unit::Any => Topology { sockets: guest, ..one },
        Unit::Cores => Topology { cores: guest, ..one },
        Unit::Threads => Topology { threads: guest, ..one },
        Unit::SocketsCores { ratio } => Topology { sockets: steps(ratio)?, cores: ratio, ..one },
        Unit::CoresThreads { ratio } => Topology { cores: steps(ratio)?, threads: ratio, ..one },
        Unit::SocketsCoresThreads { ratio } => {
            Topology { sockets: steps(ratio.saturating_mul(THREADS))?, cores: ratio, threads: THREADS }
        }
    })
}

fn unknown(field: &'static str, value: &str, known: &[&str]) -> Conflict {
    Conflict::Unknown { field, value: value.to_owned(), known: known.join(", ") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn laid_out(guest: u32, preference: serde_json::Value) -> Result<(u32, u32, u32), Conflict> {
        let preference: VirtualMachinePreferenceSpec = serde_json::from_value(preference).unwrap();
        topology(guest, Some(&preference)).map(|topology| (topology.sockets, topology.cores, topology.threads))
    }

    fn preferred(topology: &str) -> serde_json::Value {
        json!({ "cpu": { "preferredCPUTopology": topology } })
    }

    #[test]
    fn vcpus_become_what_the_preference_says() {
        for (word, expected) in [
            ("sockets", (4, 1, 1)),
            ("preferSockets", (4, 1, 1)),
            ("any", (4, 1, 1)),
            ("preferAny", (4, 1, 1)),
            ("cores", (1, 4, 1)),
            ("preferCores", (1, 4, 1)),
            ("threads", (1, 1, 4)),
            ("preferThreads", (1, 1, 4)),
            ("spread", (2, 2, 1)),
            ("preferSpread", (2, 2, 1)),
        ] {
            assert_eq!(laid_out(4, preferred(word)), Ok(expected), "{word}");
        }
        assert_eq!(topology(4, None), Ok(Topology { sockets: 4, cores: 1, threads: 1 }));
    }

    #[test]
    fn spreading_follows_its_options() {
        let spread = |options: serde_json::Value| json!({ "cpu": { "preferredCPUTopology": "spread", "spreadOptions": options } });
        assert_eq!(laid_out(8, spread(json!({ "ratio": 4 }))), Ok((2, 4, 1)));
        assert_eq!(laid_out(8, spread(json!({ "across": "CoresThreads" }))), Ok((1, 4, 2)));
        assert_eq!(laid_out(8, spread(json!({ "across": "SocketsCoresThreads" }))), Ok((2, 2, 2)));
        let mut old = preferred("spread");
        old["preferSpreadSocketToCoreRatio"] = json!(4);
        assert_eq!(laid_out(8, old), Ok((2, 4, 1)));
        assert_eq!(laid_out(8, spread(json!({ "ratio": 0 }))), Ok((4, 2, 1)), "zero is no ratio");
    }

    #[test]
    fn vcpus_that_do_not_divide_are_refused() {
        assert_eq!(laid_out(3, preferred("spread")), Err(Conflict::Spread { guest: 3, step: 2 }));
        assert_eq!(laid_out(1, preferred("spread")), Ok((1, 1, 1)), "one vCPU is laid out in one way");
    }

    #[test]
    fn a_word_from_the_future_is_refused_by_name() {
        let error = laid_out(2, preferred("dies")).unwrap_err().to_string();
        assert!(error.contains("cpu.preferredCPUTopology \"dies\" is unknown"), "{error}");
    }

    proptest! {
        #[test]
        fn no_vcpu_is_lost(
            guest in 1_u32..512,
            word in proptest::sample::select(PreferredCPUTopology::KNOWN),
            across in proptest::sample::select(SpreadAcross::KNOWN),
            ratio in 0_u32..9,
        ) {
            let preference = json!({ "cpu": {
                "preferredCPUTopology": word, "spreadOptions": { "across": across, "ratio": ratio },
            } });
            if let Ok((sockets, cores, threads)) = laid_out(guest, preference) {
                prop_assert_eq!(sockets * cores * threads, guest);
            }
        }
    }
}
