//! The KubeVirt CR as the cluster's configuration: one accessor per knob, with its default.
//!
//! ```text
//! KubeVirt (or none) ──> ClusterConfig ──> render, defaults, controllers
//! ```
//! Owns nothing, emits [`ClusterConfig::problems`]: what the CR says and nobody can follow, by its path.
//! Absent on purpose: a client. Whoever watches the CR makes a new [`ClusterConfig`] on each change; a value read twice
//! from one of them is the same twice.

mod architecture;
mod gates;
mod hotplug;
mod migrations;
mod overhead;
mod selector;

use std::collections::{BTreeMap, BTreeSet};

use api::configuration::{
    InstancetypeReferencePolicy, InterfaceBindingPlugin, KubeVirtConfiguration, ResourceRequirementsWithoutClaims,
    TokenBucketRateLimiter, VMRolloutStrategy,
};
use api::kubevirt::KubeVirt;
use api::quantity::Amount;
use api::vmi::EvictionStrategy;
use api::volumes::PullPolicy;
use k8s_openapi::api::core::v1::SeccompProfile;

pub use architecture::Architecture;
pub use gates::{Gate, Gates, Stage};
pub use hotplug::Hotplug;
pub use migrations::Migrations;
pub use overhead::Ratio;
pub use selector::matches;

/// CPU models too old to schedule by, unless the CR has a list of its own.
const OBSOLETE: [&str; 17] = [
    "486",
    "pentium",
    "pentium2",
    "pentium3",
    "pentiumpro",
    "coreduo",
    "n270",
    "core2duo",
    "Conroe",
    "athlon",
    "phenom",
    "qemu64",
    "qemu32",
    "kvm64",
    "kvm32",
    "Opteron_G1",
    "Opteron_G2",
];

/// The cluster's configuration. The default is what holds without a KubeVirt CR.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterConfig {
    gates: Gates,
    ratio: Option<Ratio>,
    problems: Vec<String>,
    spec: KubeVirtConfiguration,
    pull_secrets: Vec<String>,
}

/// The guest's network when its spec lists none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultInterface {
    /// Bridged to the pod's network.
    Bridge,
    /// Behind the pod's address.
    Masquerade,
}

impl ClusterConfig {
    /// Reads the CR; without one every knob has its default.
    #[must_use]
    pub fn new(kubevirt: Option<&KubeVirt>) -> Self {
        let Some(kubevirt) = kubevirt else { return Self::default() };
        let mut spec = kubevirt.spec.configuration.clone().unwrap_or_default();
        // The installation's own policy stands in for the guests', as in KubeVirt.
        spec.image_pull_policy = spec.image_pull_policy.or_else(|| kubevirt.spec.image_pull_policy.clone());
        let pull_secrets = kubevirt.spec.image_pull_secrets.iter().flatten().map(|secret| secret.name.clone());
        let developer = spec.developer_configuration.as_ref();
        let on = developer.and_then(|developer| developer.feature_gates.as_deref()).unwrap_or_default();
        let off = developer.and_then(|developer| developer.disabled_feature_gates.as_deref()).unwrap_or_default();
        let gates = Gates::new(on, off);
        let unknown = gates
            .unknown()
            .iter()
            .map(|name| format!("spec.configuration.developerConfiguration: unknown feature gate {name:?} is ignored"));
        let mut problems: Vec<String> = unknown.collect();
        let ratio = match spec.additional_guest_memory_overhead_ratio.as_deref().map(str::parse::<Ratio>) {
            None => None,
            Some(Ok(ratio)) => Some(ratio),
            Some(Err(error)) => {
                problems.push(format!("spec.configuration.additionalGuestMemoryOverheadRatio: {error}"));
                None
            }
        };
        Self { gates, ratio, problems, pull_secrets: pull_secrets.collect(), spec }
    }

    /// What the CR says and nobody can follow, by its path. Worth one event or log line per change of the CR.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Whether a feature gate is on.
    #[must_use]
    pub fn enabled(&self, gate: Gate) -> bool {
        self.gates.enabled(gate)
    }

    /// The CPU model of instances that set none; host-model unless the CR says otherwise.
    #[must_use]
    pub fn cpu_model(&self) -> Option<&str> {
        self.spec.cpu_model.as_deref().filter(|model| !model.is_empty())
    }

    /// The CPU request of instances that set none, if it is not to follow from their vCPUs.
    #[must_use]
    pub fn cpu_request(&self) -> Option<Amount> {
        self.spec.cpu_request.as_ref().map(api::quantity::Quantity::amount).filter(|amount| *amount > Amount::default())
    }

    /// vCPUs per requested CPU; 10 if unset.
    #[must_use]
    pub fn cpu_allocation_ratio(&self) -> u32 {
        self.developer(|developer| developer.cpu_allocation_ratio).filter(|ratio| *ratio > 0).unwrap_or(10)
    }

    /// Guest memory as a percentage of the pod's request; 100 if unset.
    #[must_use]
    pub fn memory_overcommit(&self) -> u32 {
        self.developer(|developer| developer.memory_overcommit).filter(|percent| *percent > 0).unwrap_or(100)
    }

    /// Whether nodes without KVM may run guests, slowly.
    #[must_use]
    pub fn emulation(&self) -> Option<bool> {
        self.developer(|developer| developer.use_emulation)
    }

    /// Labels that every launcher pod's node must have.
    #[must_use]
    pub fn node_selectors(&self) -> Option<&BTreeMap<String, String>> {
        self.spec.developer_configuration.as_ref()?.node_selectors.as_ref()
    }

    /// The TSC frequency to assume instead of the slowest node's, in Hz.
    #[must_use]
    pub fn minimum_tsc_frequency(&self) -> Option<i64> {
        self.developer(|developer| developer.minimum_cluster_tsc_frequency)
    }

    /// Percent that a claim may fall short of its disk; 10 if unset.
    #[must_use]
    pub fn pvc_tolerated_shortfall_percent(&self) -> u32 {
        self.developer(|developer| developer.pvc_tolerate_less_space_up_to_percent).unwrap_or(10)
    }

    /// Bytes kept free on a claim when a disk is made on it; 128 KiB if unset.
    #[must_use]
    pub fn minimum_reserve_pvc_bytes(&self) -> i64 {
        self.developer(|developer| developer.minimum_reserve_pvc_bytes).unwrap_or(131_072)
    }

    /// The level of the launchers' logs; 2 if unset.
    #[must_use]
    pub fn launcher_verbosity(&self) -> u32 {
        self.developer(|developer| developer.log_verbosity.as_ref()?.virt_launcher).unwrap_or(2)
    }

    /// What one CPU architecture's guests get.
    #[must_use]
    pub fn architecture(&self, name: Option<&str>) -> Architecture<'_> {
        Architecture::of(&self.spec, name)
    }

    /// The architecture of instances that name none, if the CR says so; else that of the control plane.
    #[must_use]
    pub fn default_architecture(&self) -> Option<&str> {
        self.spec.architecture_configuration.as_ref()?.default_architecture.as_deref().filter(|name| !name.is_empty())
    }

    /// The interface of instances that list none; masquerade if unset, as nothing makes bridges yet.
    #[must_use]
    pub fn default_interface(&self) -> DefaultInterface {
        let name = self.spec.network.as_ref().and_then(|network| network.default_network_interface.as_deref());
        if name == Some("bridge") { DefaultInterface::Bridge } else { DefaultInterface::Masquerade }
    }

    /// Whether guests may bridge to the pod's network; true if unset.
    #[must_use]
    pub fn permit_bridge_on_pod_network(&self) -> bool {
        let network = self.spec.network.as_ref();
        network.and_then(|network| network.permit_bridge_interface_on_pod_network).unwrap_or(true)
    }

    /// A network binding plugin by its name.
    #[must_use]
    pub fn binding_plugin(&self, name: &str) -> Option<&InterfaceBindingPlugin> {
        self.spec.network.as_ref()?.binding.as_ref()?.get(name)
    }

    /// What a drain does to instances that do not say; nothing special if unset.
    #[must_use]
    pub fn eviction_strategy(&self) -> EvictionStrategy {
        self.spec.eviction_strategy.clone().unwrap_or(EvictionStrategy::None)
    }

    /// The factor on the computed memory overhead.
    #[must_use]
    pub fn overhead_ratio(&self) -> Option<Ratio> {
        self.ratio
    }

    /// Resources that replace the built-in ones of a kind of helper container, such as `container-disk`.
    #[must_use]
    pub fn support_container(&self, kind: &str) -> Option<&ResourceRequirementsWithoutClaims> {
        let listed = self.spec.support_container_resources.iter().flatten();
        listed.filter(|entry| entry.type_ == kind).map(|entry| &entry.resources).next()
    }

    /// The RuntimeClass of launcher pods.
    #[must_use]
    pub fn runtime_class(&self) -> Option<&str> {
        self.spec.default_runtime_class.as_deref().filter(|name| !name.is_empty())
    }

    /// The SELinux type of launcher pods.
    #[must_use]
    pub fn selinux_launcher_type(&self) -> Option<&str> {
        self.spec.selinux_launcher_type.as_deref().filter(|name| !name.is_empty())
    }

    /// The seccomp profile of launcher pods, if there is a special one.
    #[must_use]
    pub fn seccomp(&self) -> Option<SeccompProfile> {
        if !self.enabled(Gate::KubevirtSeccompProfile) {
            return None;
        }
        let profile = self.spec.seccomp_configuration.as_ref()?.virtual_machine_instance_profile.as_ref()?;
        let custom = profile.custom_profile.as_ref()?;
        match (&custom.localhost_profile, custom.runtime_default_profile) {
            (Some(file), _) => {
                Some(SeccompProfile { type_: "Localhost".to_owned(), localhost_profile: Some(file.clone()) })
            }
            (None, Some(true)) => Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            (None, Some(false) | None) => None,
        }
    }

    /// CPU models that nobody schedules by. A list in the CR replaces the built-in one.
    #[must_use]
    pub fn obsolete_cpu_models(&self) -> BTreeSet<&str> {
        match &self.spec.obsolete_cpu_models {
            Some(models) => models.iter().filter(|(_, obsolete)| **obsolete).map(|(name, _)| name.as_str()).collect(),
            None => BTreeSet::from(OBSOLETE),
        }
    }

    /// When the images of launcher pods are pulled, if the CR says so.
    #[must_use]
    pub fn image_pull_policy(&self) -> Option<&PullPolicy> {
        self.spec.image_pull_policy.as_ref()
    }

    /// Secrets with registry credentials for the launcher's image.
    #[must_use]
    pub fn image_pull_secrets(&self) -> &[String] {
        &self.pull_secrets
    }

    /// How far guests may grow while they run.
    #[must_use]
    pub fn hotplug(&self) -> Hotplug<'_> {
        Hotplug::of(self.spec.live_update_configuration.as_ref())
    }

    /// Whether edits of a VM are tried on its running instance; they are if unset.
    #[must_use]
    pub fn rollout_strategy(&self) -> VMRolloutStrategy {
        self.spec.vm_rollout_strategy.as_ref().copied().unwrap_or(VMRolloutStrategy::LiveUpdate)
    }

    /// What a VM keeps of its instancetype and preference; references if unset.
    #[must_use]
    pub fn instancetype_reference_policy(&self) -> InstancetypeReferencePolicy {
        let instancetype = self.spec.instancetype.as_ref();
        let policy = instancetype.and_then(|instancetype| instancetype.reference_policy.as_ref().copied());
        policy.unwrap_or(InstancetypeReferencePolicy::Reference)
    }

    /// Whether the serial console of an instance is logged if it does not say; it is if unset.
    #[must_use]
    pub fn logs_serial_console(&self) -> bool {
        let options = self.spec.virtual_machine_options.as_ref();
        options.is_none_or(|options| options.disable_serial_console_log.is_none())
    }

    /// Whether guests hand unused memory back to the host; they do if unset.
    #[must_use]
    pub fn reports_free_pages(&self) -> bool {
        let options = self.spec.virtual_machine_options.as_ref();
        options.is_none_or(|options| options.disable_free_page_reporting.is_none())
    }

    /// Whether instances of a namespace with these labels get a CPU limit of their vCPUs.
    #[must_use]
    pub fn limits_cpu(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.spec.auto_cpu_limit_namespace_label_selector.as_ref();
        selector.is_some_and(|selector| matches(selector, labels))
    }

    /// Requests per second and burst of virt-controller's client, if the object limits them.
    #[must_use]
    pub fn controller_rate(&self) -> Option<TokenBucketRateLimiter> {
        let client = self.spec.controller_configuration.as_ref().and_then(|controller| controller.rest_client.as_ref());
        let limiter = client.and_then(|client| client.rate_limiter.as_ref());
        let bucket = limiter.and_then(|limiter| limiter.token_bucket_rate_limiter.clone());
        // A rate of zero would silence the controller, and the CR could then not be read to undo it.
        bucket.filter(|bucket| bucket.qps > 0.0 && bucket.burst > 0)
    }

    /// The knobs of live migrations.
    #[must_use]
    pub fn migrations(&self) -> Migrations<'_> {
        Migrations::of(self.spec.migrations.as_ref())
    }

    /// Whether the CR permits this resource name for host devices.
    #[must_use]
    pub fn permits_host_device(&self, resource: &str) -> bool {
        let Some(permitted) = &self.spec.permitted_host_devices else { return false };
        let pci = permitted.pci_host_devices.iter().flatten().map(|device| &device.resource_name);
        let mediated = permitted.mediated_devices.iter().flatten().map(|device| &device.resource_name);
        let usb = permitted.usb.iter().flatten().map(|device| &device.resource_name);
        pci.chain(mediated).chain(usb).any(|name| name == resource)
    }

    /// The StorageClass of claims that keep TPM and EFI state.
    #[must_use]
    pub fn vm_state_storage_class(&self) -> Option<&str> {
        self.spec.vm_state_storage_class.as_deref().filter(|name| !name.is_empty())
    }

    /// Most instances on one node; 1000 if unset.
    #[must_use]
    pub fn instances_per_node(&self) -> u32 {
        self.spec.virtual_machine_instances_per_node.filter(|most| *most > 0).unwrap_or(1000)
    }

    /// Seconds between balloon statistics; 10 if unset, 0 is off.
    #[must_use]
    pub fn mem_balloon_stats_period(&self) -> u32 {
        self.spec.mem_balloon_stats_period.unwrap_or(10)
    }

    /// Anything not named above, as it stands in the CR.
    #[must_use]
    pub fn raw(&self) -> &KubeVirtConfiguration {
        &self.spec
    }

    fn developer<T>(&self, read: impl Fn(&api::configuration::DeveloperConfiguration) -> Option<T>) -> Option<T> {
        self.spec.developer_configuration.as_ref().and_then(read)
    }
}

#[cfg(test)]
mod tests;
