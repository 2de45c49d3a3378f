//! Feature gates: which there are, and which are on.
//!
//! The rule, first match wins: a gate that is GA is on; one listed in `featureGates` is on; one listed in
//! `disabledFeatureGates` is off; a Beta one is on; everything else is off.

use std::collections::BTreeSet;

/// How mature a feature is, which decides what its gate is without a word from the CR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// On unless refused.
    Beta,
    /// On.
    GeneralAvailability,
    /// On its way out; off unless asked for.
    Deprecated,
    /// Gone; off, whatever is asked.
    Discontinued,
}

macro_rules! gates {
    ($($stage:ident { $($name:ident)* })*) => {
        /// A feature that can be switched, by KubeVirt's name of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Gate {
            $($(#[doc = concat!("`", stringify!($name), "`")] $name,)*)*
        }

        impl Gate {
            /// All of them.
            pub const ALL: &'static [Self] = &[$($(Self::$name,)*)*];

            /// Its name in the CR.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($(Self::$name => stringify!($name),)*)* }
            }

            /// How mature its feature is.
            #[must_use]
            pub fn stage(self) -> Stage {
                match self { $($(Self::$name => Stage::$stage,)*)* }
            }
        }
    };
}

gates! {
    Beta {
        ImageVolume Snapshot WorkloadEncryptionSEV KubevirtSeccompProfile NodeRestriction GPUsWithDRA
        HostDevicesWithDRA DecentralizedLiveMigration DeclarativeHotplugVolumes PasstBinding
        PodSecondaryInterfaceNamingUpgrade ExternalNetResourceInjection RebootPolicy Template OptOutRoleAggregation
    }
    Alpha {
        CPUManager ExperimentalIgnitionSupport HypervStrictCheck Sidecar HostDevices HostDisk DownwardMetrics Root
        WorkloadEncryptionTDX VSOCK AlignCPUs EnableVirtioFsStorageVolumes PCINUMAAwareTopology NetworkDevicesWithDRA
        ObjectGraph UtilityVolumes ConfigurableHypervisor IncrementalBackup ContainerPathVolumes
        ReservedOverheadMemlock VGPULiveMigration VMStatsCollector OCIExport Plugins GraceIOVirtualization IOMMUFD
        FirmwareAutoSelection MigrationStallDetection MigrationDowntimeTuning CrossArchitectureVirtualization
        PortRangesSpec
    }
    GeneralAvailability {
        LiveMigration SRIOVLiveMigration NonRoot PSA CPUNodeDiscovery NUMA CommonInstancetypesDeploymentGate GPU
        HotplugNICs BochsDisplayForEFIGuests VMLiveUpdateFeatures NetworkBindingPlugins DynamicPodInterfaceNaming
        VolumesUpdateStrategy VolumeMigration DisableCustomSELinuxPolicy AutoResourceLimitsGate ClusterProfiler
        VMPersistentState VMExport PersistentReservation InstancetypeReferencePolicy EnableVirtioFsConfigVolumes
        ExpandDisks PanicDevices LiveUpdateNADRef VideoConfig SecureExecution MigrationPriorityQueue
        VmiMemoryOverheadReport LibvirtHooksServerAndClient
    }
    Deprecated { DockerSELinuxMCSWorkaround MultiArchitecture DisableMDEVConfiguration HotplugVolumes }
    Discontinued { ExperimentalVirtiofsSupport Passt Macvtap PasstIPStackMigration }
}

/// The gates as the CR sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    on: BTreeSet<Gate>,
    off: BTreeSet<Gate>,
    unknown: Vec<String>,
}

impl Gates {
    /// Reads both lists of the CR.
    #[must_use]
    pub fn new(on: &[String], off: &[String]) -> Self {
        let known = |names: &[String]| names.iter().filter_map(|name| Self::find(name)).collect();
        let unknown: BTreeSet<&String> = on.iter().chain(off).filter(|name| Self::find(name).is_none()).collect();
        Self { on: known(on), off: known(off), unknown: unknown.into_iter().cloned().collect() }
    }

    /// Whether a gate is on, by the four-level rule.
    #[must_use]
    pub fn enabled(&self, gate: Gate) -> bool {
        match gate.stage() {
            Stage::GeneralAvailability => true,
            Stage::Discontinued => false,
            Stage::Beta => self.on.contains(&gate) || !self.off.contains(&gate),
            Stage::Alpha | Stage::Deprecated => self.on.contains(&gate),
        }
    }

    /// Names in either list that no gate has, sorted.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    fn find(name: &str) -> Option<Gate> {
        Gate::ALL.iter().copied().find(|gate| gate.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(on: &[&str], off: &[&str]) -> Gates {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        Gates::new(&owned(on), &owned(off))
    }

    #[test]
    fn without_a_word_beta_and_ga_are_on() {
        let gates = gates(&[], &[]);
        assert!(gates.enabled(Gate::LiveMigration) && gates.enabled(Gate::ImageVolume));
        assert!(!gates.enabled(Gate::HostDisk) && !gates.enabled(Gate::MultiArchitecture));
    }

    #[test]
    fn ga_cannot_be_refused_and_discontinued_cannot_be_asked_for() {
        let gates = gates(&["Passt"], &["LiveMigration"]);
        assert!(gates.enabled(Gate::LiveMigration));
        assert!(!gates.enabled(Gate::Passt));
    }

    #[test]
    fn a_gate_in_both_lists_is_on() {
        let gates = gates(&["Snapshot", "HostDisk"], &["Snapshot", "HostDisk"]);
        assert!(gates.enabled(Gate::Snapshot) && gates.enabled(Gate::HostDisk));
    }

    #[test]
    fn beta_can_be_refused_and_alpha_asked_for() {
        let gates = gates(&["VSOCK"], &["ImageVolume"]);
        assert!(gates.enabled(Gate::VSOCK) && !gates.enabled(Gate::ImageVolume));
    }

    #[test]
    fn unknown_names_are_reported_once_and_harm_nothing() {
        let gates = gates(&["Warp", "VSOCK", "Warp"], &["Impulse"]);
        assert_eq!(gates.unknown(), ["Impulse", "Warp"]);
        assert!(gates.enabled(Gate::VSOCK));
    }

    #[test]
    fn every_name_is_found_again_and_there_is_one_of_each() {
        let names: BTreeSet<&str> = Gate::ALL.iter().map(|gate| gate.name()).collect();
        assert_eq!(names.len(), Gate::ALL.len());
        assert!(Gate::ALL.iter().all(|gate| Gates::find(gate.name()) == Some(*gate)));
    }
}
