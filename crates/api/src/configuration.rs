//! The cluster-wide configuration inside a KubeVirt.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::enums::closed_enum;
use crate::host_devices::{MediatedDevicesConfiguration, PermittedHostDevices};
use crate::migration::MigrationConfiguration;
use crate::nullable::Nullable;
use crate::quantity::Quantity;
use crate::schema;
use crate::schema::core;
use crate::vmi::EvictionStrategy;
use crate::volumes::PullPolicy;

/// Cluster-wide defaults and limits for guests and daemons.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtConfiguration {
    /// Factor on the estimated pod memory overhead, such as 1.5.
    pub additional_guest_memory_overhead_ratio: Option<String>,
    /// API client tuning for virt-api.
    pub api_configuration: Option<ReloadableComponentConfiguration>,
    /// Machine types and firmware for each CPU architecture.
    pub architecture_configuration: Option<ArchConfiguration>,
    /// Namespaces whose VMIs get a CPU limit equal to their vCPUs.
    #[serde(rename = "autoCPULimitNamespaceLabelSelector")]
    #[schemars(with = "Option<core::LabelSelector>")]
    pub auto_cpu_limit_namespace_label_selector: Option<LabelSelector>,
    /// VMs prepared for incremental backup.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub changed_block_tracking_label_selectors: Nullable<ChangedBlockTrackingSelectors>,
    /// Whether the bundled instance types are installed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub common_instancetypes_deployment: Nullable<CommonInstancetypesDeployment>,
    /// Settings for encrypted-memory guests.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub confidential_compute: Nullable<ConfidentialComputeConfiguration>,
    /// API client tuning for virt-controller.
    pub controller_configuration: Option<ReloadableComponentConfiguration>,
    /// CPU model of VMIs that set none; host-model if unset.
    pub cpu_model: Option<String>,
    /// Host CPU request of VMIs that set none.
    pub cpu_request: Option<Quantity>,
    /// RuntimeClass given to virt-launcher pods.
    pub default_runtime_class: Option<String>,
    /// Feature gates, overcommit and debugging knobs.
    pub developer_configuration: Option<DeveloperConfiguration>,
    /// Deprecated: use architectureConfiguration.
    pub emulated_machines: Option<Vec<String>>,
    /// Drain default: LiveMigrate, LiveMigrateIfPossible, External or None.
    pub eviction_strategy: Option<EvictionStrategy>,
    /// API client tuning for virt-handler.
    pub handler_configuration: Option<ReloadableComponentConfiguration>,
    /// Hypervisors guests run on; KVM if empty.
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "maxItems" = 1))]
    pub hypervisors: Option<Vec<HypervisorConfiguration>>,
    /// Pull policy for the containers of virt-launcher pods.
    pub image_pull_policy: Option<PullPolicy>,
    /// How VMs relate to their instance type and preference.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub instancetype: Nullable<InstancetypeConfiguration>,
    /// Nodes that merge identical memory pages.
    pub ksm_configuration: Option<KSMConfiguration>,
    /// Ceilings for CPU and memory hotplug.
    pub live_update_configuration: Option<LiveUpdateConfiguration>,
    /// Deprecated: use architectureConfiguration.
    pub machine_type: Option<String>,
    /// vGPU types KubeVirt creates on the nodes.
    pub mediated_devices_configuration: Option<MediatedDevicesConfiguration>,
    /// Seconds between balloon statistics; 10 if unset, 0 is off.
    pub mem_balloon_stats_period: Option<u32>,
    /// Bandwidth, parallelism and timeouts of live migrations.
    pub migrations: Option<MigrationConfiguration>,
    /// Baseline CPU model whose features get no node labels.
    #[serde(rename = "minCPUModel")]
    pub min_cpu_model: Option<String>,
    /// Interface defaults and network binding plugins.
    pub network: Option<NetworkConfiguration>,
    /// CPU models mapped to true are not advertised on nodes.
    #[serde(rename = "obsoleteCPUModels")]
    pub obsolete_cpu_models: Option<BTreeMap<String, bool>>,
    /// Deprecated: use architectureConfiguration.
    pub ovmf_path: Option<String>,
    /// Host devices guests may use; all others are refused.
    pub permitted_host_devices: Option<PermittedHostDevices>,
    /// SCSI persistent reservation support for LUN disks.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub persistent_reservation_configuration: Nullable<PersistentReservationConfiguration>,
    /// Whether KubeVirt roles extend admin, edit and view, or Manual.
    pub role_aggregation_strategy: Option<RoleAggregationStrategy>,
    /// Seccomp profiles for virt-launcher pods.
    pub seccomp_configuration: Option<SeccompConfiguration>,
    /// SELinux type virt-launcher containers run as.
    pub selinux_launcher_type: Option<String>,
    /// Vendor strings guests read from their SMBIOS tables.
    pub smbios: Option<SMBiosConfiguration>,
    /// CPU and memory of the helper containers beside the guest.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub support_container_resources: Option<Vec<SupportContainerResources>>,
    /// Deprecated: agents are judged by the commands they offer.
    pub supported_guest_agent_versions: Option<Vec<String>>,
    /// TLS floor and ciphers of all KubeVirt endpoints.
    pub tls_configuration: Option<TLSConfiguration>,
    /// Whether the VM template API and controller are installed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub virt_template_deployment: Nullable<VirtTemplateDeployment>,
    /// Most VMIs one node may run.
    #[schemars(with = "Option<schema::Integer>")]
    pub virtual_machine_instances_per_node: Option<u32>,
    /// Guest features switched off for the whole cluster.
    pub virtual_machine_options: Option<VirtualMachineOptions>,
    /// Stage applies VM edits at restart; LiveUpdate tries at once.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub vm_rollout_strategy: Nullable<VMRolloutStrategy>,
    /// StorageClass of the PVCs that keep TPM and EFI state.
    pub vm_state_storage_class: Option<String>,
    /// API client tuning for the admission webhooks.
    pub webhook_configuration: Option<ReloadableComponentConfiguration>,
}

/// Feature gates, overcommit and debugging knobs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeveloperConfiguration {
    /// Lets pprof profiles be taken of all KubeVirt components.
    pub cluster_profiler: Option<bool>,
    /// vCPUs per requested host CPU; 10 if unset, so 100m each.
    #[schemars(with = "Option<schema::Integer>")]
    pub cpu_allocation_ratio: Option<u32>,
    /// Feature gates forced off, even if on by default.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub disabled_feature_gates: Option<Vec<String>>,
    /// Limits for the image check done before a guest starts.
    pub disk_verification: Option<DiskVerification>,
    /// Names of optional features to turn on.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub feature_gates: Option<Vec<String>>,
    /// Log levels by component and by node.
    pub log_verbosity: Option<LogVerbosity>,
    /// Guest memory as a percentage of the pod request; 100 if unset.
    #[schemars(with = "Option<schema::Integer>")]
    #[schemars(extend("minimum" = 10))]
    pub memory_overcommit: Option<u32>,
    /// TSC frequency in Hz to assume instead of the slowest node's.
    #[serde(rename = "minimumClusterTSCFrequency")]
    pub minimum_cluster_tsc_frequency: Option<i64>,
    /// Bytes kept free on a PVC when creating disk.img; 131072 if unset.
    #[serde(rename = "minimumReservePVCBytes")]
    pub minimum_reserve_pvc_bytes: Option<i64>,
    /// Node labels every virt-launcher pod must match.
    pub node_selectors: Option<BTreeMap<String, String>>,
    /// Percent a PVC may fall short of the disk size; 10 if unset.
    #[schemars(with = "Option<schema::Integer>")]
    pub pvc_tolerate_less_space_up_to_percent: Option<u32>,
    /// Falls back to slow software emulation on nodes without /dev/kvm.
    pub use_emulation: Option<bool>,
}

/// Log levels, 0 to 9; 2 is the usual default.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogVerbosity {
    /// Levels by node name; they win over the component's level.
    #[schemars(with = "Option<BTreeMap<String, schema::Integer>>")]
    pub node_verbosity: Option<BTreeMap<String, u32>>,
    /// Level of virt-api.
    #[serde(rename = "virtAPI")]
    #[schemars(with = "Option<schema::Integer>")]
    pub virt_api: Option<u32>,
    /// Level of virt-controller.
    #[schemars(with = "Option<schema::Integer>")]
    pub virt_controller: Option<u32>,
    /// Level of virt-handler on every node.
    #[schemars(with = "Option<schema::Integer>")]
    pub virt_handler: Option<u32>,
    /// Level of virt-launcher; 10 means everything.
    #[schemars(with = "Option<schema::Integer>")]
    pub virt_launcher: Option<u32>,
    /// Level of virt-operator.
    #[schemars(with = "Option<schema::Integer>")]
    pub virt_operator: Option<u32>,
    /// Level of the cross-cluster migration controller.
    #[schemars(with = "Option<schema::Integer>")]
    pub virt_synchronization_controller: Option<u32>,
}

/// Limits on the qemu-img process that inspects disk images.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskVerification {
    /// Address space qemu-img may use; 2000M if unset.
    pub memory_limit: Quantity,
}

/// Machine types and firmware for each CPU architecture.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchConfiguration {
    /// Settings for x86-64 guests.
    pub amd64: Option<ArchSpecificConfiguration>,
    /// Settings for 64-bit Arm guests.
    pub arm64: Option<ArchSpecificConfiguration>,
    /// Architecture of VMs that name none; the control plane's if unset.
    pub default_architecture: Option<String>,
    /// Settings for little-endian POWER guests.
    pub ppc64le: Option<ArchSpecificConfiguration>,
    /// Settings for IBM Z guests.
    pub s390x: Option<ArchSpecificConfiguration>,
}

/// Machine and firmware defaults of one architecture.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchSpecificConfiguration {
    /// Glob patterns of QEMU machine types VMs may ask for.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub emulated_machines: Option<Vec<String>>,
    /// QEMU machine type of VMs that set none, such as q35.
    pub machine_type: Option<String>,
    /// Directory of the UEFI firmware images in virt-launcher.
    pub ovmf_path: Option<String>,
}

/// Interface defaults and network binding plugins.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfiguration {
    /// Plugins by the name VM interfaces refer to.
    pub binding: Option<BTreeMap<String, InterfaceBindingPlugin>>,
    /// Binding of VMs that list no interface: bridge or masquerade.
    pub default_network_interface: Option<String>,
    /// False forbids bridge binding there; true if unset.
    pub permit_bridge_interface_on_pod_network: Option<bool>,
    /// Deprecated: the slirp binding was removed.
    pub permit_slirp_interface: Option<bool>,
}

/// A custom way to connect guest NICs to pod networks.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceBindingPlugin {
    /// Resources added to the pod, once per plugin in use.
    pub compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
    /// How QEMU attaches the NIC: tap or managedTap.
    pub domain_attachment_type: Option<String>,
    /// device-info hands network device details to the sidecar.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<String>,
    /// Marks the binding as migratable; migration is refused if unset.
    pub migration: Option<InterfaceBindingMigration>,
    /// Multus network of the plugin's CNI, as namespace/name.
    pub network_attachment_definition: Option<String>,
    /// Hook sidecar that rewrites the domain XML for the NIC.
    pub sidecar_image: Option<String>,
}

/// How a plugin's interface behaves in live migration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InterfaceBindingMigration {
    /// link-refresh bounces the guest link once it has moved.
    pub method: Option<String>,
}

/// Container resources, without dynamic resource claims.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ResourceRequirementsWithoutClaims {
    /// Most a container may use, by resource name.
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// Amount the scheduler sets aside, by resource name.
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// CPU and memory for one kind of helper container.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SupportContainerResources {
    /// Requests and limits that replace the built-in ones.
    pub resources: ResourceRequirementsWithoutClaims,
    /// Which helper: container-disk, virtiofs, sidecar, vmexport and others.
    pub type_: String,
}

/// Ceilings for CPU and memory hotplug.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveUpdateConfiguration {
    /// Most sockets a guest can grow to while running.
    pub max_cpu_sockets: Option<u32>,
    /// Most memory a guest can grow to while running.
    pub max_guest: Option<Quantity>,
    /// Ceiling as a multiple of the boot-time size; 4 if unset.
    pub max_hotplug_ratio: Option<u32>,
}

/// Guest features switched off for the whole cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineOptions {
    /// Stops guests from handing unused memory back to the host.
    pub disable_free_page_reporting: Option<DisableFreePageReporting>,
    /// Stops copying guest serial output to the pod log.
    pub disable_serial_console_log: Option<DisableSerialConsoleLog>,
}

/// Empty; its presence turns free page reporting off.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DisableFreePageReporting {}

/// Empty; its presence turns serial console logging off.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DisableSerialConsoleLog {}

/// How VMs relate to their instance type and preference.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstancetypeConfiguration {
    /// Keep the reference, expand new VMs into full specs, or expandAll.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub reference_policy: Nullable<InstancetypeReferencePolicy>,
}

/// Control over the bundled instance types and preferences.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CommonInstancetypesDeployment {
    /// Whether the operator installs them; true if unset.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub enabled: Nullable<bool>,
}

/// Control over the VM template component.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtTemplateDeployment {
    /// Whether the operator installs it.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub enabled: Nullable<bool>,
}

/// A hypervisor virt-launcher can run guests on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HypervisorConfiguration {
    /// Hypervisor to use: kvm or hyperv-direct.
    pub name: Option<HypervisorName>,
}

/// Where the kernel merges identical memory pages.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KSMConfiguration {
    /// Nodes on which virt-handler manages KSM; empty means all.
    #[schemars(with = "Option<core::LabelSelector>")]
    pub node_label_selector: Option<LabelSelector>,
}

/// System strings guests read from SMBIOS table type 1.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SMBiosConfiguration {
    /// Product line; KubeVirt if unset.
    pub family: Option<String>,
    /// Vendor name shown in the guest; KubeVirt if unset.
    pub manufacturer: Option<String>,
    /// Model name shown in the guest; None if unset.
    pub product: Option<String>,
    /// Stock number of the pretended machine; empty if unset.
    pub sku: Option<String>,
    /// Hardware revision shown in the guest.
    pub version: Option<String>,
}

/// Syscall filtering for the pods KubeVirt creates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeccompConfiguration {
    /// Profile for virt-launcher pods.
    pub virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
}

/// Seccomp choice for virt-launcher pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceProfile {
    /// Profile from the node, or the runtime's default.
    pub custom_profile: Option<CustomProfile>,
}

/// Choice of seccomp profile; set one of the two fields.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomProfile {
    /// Profile file, relative to the kubelet's seccomp directory.
    pub localhost_profile: Option<String>,
    /// True uses the container runtime's built-in profile.
    pub runtime_default_profile: Option<bool>,
}

/// Which VMs track changed blocks for incremental backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedBlockTrackingSelectors {
    /// Matches namespaces; all their VMs are tracked.
    #[schemars(with = "Option<core::LabelSelector>")]
    pub namespace_label_selector: Option<LabelSelector>,
    /// Matches individual VMs by their own labels.
    #[schemars(with = "Option<core::LabelSelector>")]
    pub virtual_machine_label_selector: Option<LabelSelector>,
}

/// SCSI persistent reservation support for LUN disks.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PersistentReservationConfiguration {
    /// True runs qemu-pr-helper next to virt-handler.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub enabled: Nullable<bool>,
}

/// Cluster settings for encrypted-memory guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ConfidentialComputeConfiguration {
    /// Settings for Intel TDX guests.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub tdx: Nullable<TDXConfiguration>,
}

/// Cluster settings for Intel TDX guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TDXConfiguration {
    /// Access to the host service that signs guest quotes.
    pub attestation: Option<TDXAttestationConfiguration>,
}

/// How TDX guests get quotes that prove what they run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TDXAttestationConfiguration {
    /// True makes every TDX guest use the quote service.
    #[schemars(extend("default" = false))]
    pub enforced: Option<bool>,
    /// Host Unix socket of the Quote Generation Service.
    #[schemars(extend("default" = "/var/run/tdx-qgs/qgs.socket"))]
    pub qgs_socket_path: Option<String>,
}

/// TLS policy of KubeVirt's servers and clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TLSConfiguration {
    /// Allowed suites by IANA name; has no effect on TLS 1.3.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub ciphers: Option<Vec<String>>,
    /// Oldest version accepted; VersionTLS12 if unset.
    #[serde(rename = "minTLSVersion")]
    pub min_tls_version: Option<TLSProtocolVersion>,
}

/// Component settings that apply without a restart.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadableComponentConfiguration {
    /// Tuning of the component's Kubernetes API client.
    pub rest_client: Option<RESTClientConfiguration>,
}

/// Tuning of a component's Kubernetes API client.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RESTClientConfiguration {
    /// Client-side throttle on API requests.
    pub rate_limiter: Option<RateLimiter>,
}

/// Choice of client-side throttling algorithm.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimiter {
    /// Steady rate with room for short bursts.
    pub token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
}

/// Token bucket limits of an API client.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TokenBucketRateLimiter {
    /// Requests that may go out at once before throttling.
    #[schemars(with = "schema::Integer")]
    pub burst: u32,
    /// Sustained requests per second.
    pub qps: f64,
}

closed_enum! {
    /// A hypervisor of a node.
    pub enum HypervisorName {
        Kvm = "kvm",
        HypervDirect = "hyperv-direct",
    }
}

closed_enum! {
    /// What a VM keeps of its instancetype.
    pub enum InstancetypeReferencePolicy {
        Reference = "reference",
        Expand = "expand",
        ExpandAll = "expandAll",
    }
}

closed_enum! {
    /// Whether VM roles join the default cluster roles.
    pub enum RoleAggregationStrategy {
        AggregateToDefault = "AggregateToDefault",
        Manual = "Manual",
    }
}

closed_enum! {
    /// The oldest TLS version accepted.
    pub enum TLSProtocolVersion {
        VersionTLS10 = "VersionTLS10",
        VersionTLS11 = "VersionTLS11",
        VersionTLS12 = "VersionTLS12",
        VersionTLS13 = "VersionTLS13",
    }
}

closed_enum! {
    /// How a changed template reaches a running instance.
    pub enum VMRolloutStrategy {
        Stage = "Stage",
        LiveUpdate = "LiveUpdate",
    }
}
