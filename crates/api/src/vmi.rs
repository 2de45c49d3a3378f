//! VirtualMachineInstance: one run of a VM, from pod to power-off.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, ExecAction, HTTPGetAction, PodDNSConfig, TCPSocketAction, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::access::AccessCredential;
use crate::domain::DomainSpec;
use crate::enums::open_enum;
use crate::networks::Network;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;
use crate::vmi_status::{VirtualMachineInstancePhase, VirtualMachineInstanceStatus};
use crate::volumes::{UtilityVolume, Volume};

/// One running guest, backed by a virt-launcher pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineInstance {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Wanted guest; mostly immutable once created.
    pub spec: VirtualMachineInstanceSpec,
    /// Observed state, written by virt-controller and virt-handler.
    pub status: Option<VirtualMachineInstanceStatus>,
}

resource!(VirtualMachineInstance is namespaced "virtualmachineinstances" of "kubevirt.io" in "v1" with { spec, status });

/// A page of virtual machine instances.
pub type VirtualMachineInstanceList = k8s_openapi::List<VirtualMachineInstance>;

/// The guest and how its pod is scheduled.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceSpec {
    /// Virtual hardware: CPU, memory, firmware and devices.
    pub domain: DomainSpec,
    /// SSH keys and passwords to put into the guest.
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "maxItems" = 256))]
    pub access_credentials: Option<Vec<AccessCredential>>,
    /// Node and pod affinity rules of the launcher pod.
    #[schemars(with = "Option<core::Affinity>")]
    pub affinity: Option<Affinity>,
    /// CPU architecture: amd64, arm64 or s390x; cluster default if unset.
    pub architecture: Option<String>,
    /// Name servers, search domains and options for the guest.
    #[schemars(with = "Option<core::PodDNSConfig>")]
    pub dns_config: Option<PodDNSConfig>,
    /// ClusterFirst (default), ClusterFirstWithHostNet, Default or None.
    pub dns_policy: Option<DnsPolicy>,
    /// On node drain: None, LiveMigrate, LiveMigrateIfPossible or External.
    pub eviction_strategy: Option<EvictionStrategy>,
    /// Host name for DHCP and cloud-init; VMI name if unset.
    pub hostname: Option<String>,
    /// Check that kills the VMI when it keeps failing.
    pub liveness_probe: Option<Probe>,
    /// Networks that interfaces of the same name plug into.
    #[schemars(extend("maxItems" = 256))]
    pub networks: Option<Vec<Network>>,
    /// Labels a node must have to run the guest.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// PriorityClass of the launcher pod.
    pub priority_class_name: Option<String>,
    /// Check that must pass before services send traffic.
    pub readiness_probe: Option<Probe>,
    /// Claims on DRA devices that GPUs and host devices use.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resource_claims: Option<Vec<VirtualMachineInstanceResourceClaim>>,
    /// Scheduler for the launcher pod; default-scheduler if unset.
    pub scheduler_name: Option<String>,
    /// Service account of the launcher pod.
    pub service_account_name: Option<String>,
    /// Paused starts the guest with its CPUs halted.
    pub start_strategy: Option<StartStrategy>,
    /// Headless service that gives the guest a DNS name.
    pub subdomain: Option<String>,
    /// Seconds the guest gets to power off before it is killed.
    pub termination_grace_period_seconds: Option<i64>,
    /// Node taints the launcher pod may ignore.
    #[schemars(with = "Option<Vec<core::Toleration>>")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Rules that spread similar guests over zones or nodes.
    #[schemars(with = "Option<Vec<core::TopologySpreadConstraint>>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["topologyKey", "whenUnsatisfiable"]))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Claims mounted in the launcher pod but hidden from the guest.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"], "maxItems" = 256))]
    pub utility_volumes: Option<Vec<UtilityVolume>>,
    /// Data behind disks and filesystems of the same name.
    #[schemars(extend("maxItems" = 256))]
    pub volumes: Option<Vec<Volume>>,
}

/// A DRA claim the guest may take devices from.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceResourceClaim {
    /// Name that GPUs and host devices refer to.
    pub name: String,
    /// Existing ResourceClaim in the namespace of the VMI.
    pub resource_claim_name: Option<String>,
    /// Template for a claim that is created for each launcher pod.
    pub resource_claim_template_name: Option<String>,
}

/// A repeated health check of the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Command the guest agent runs; exit code 0 passes.
    #[schemars(with = "Option<core::ExecAction>")]
    pub exec: Option<ExecAction>,
    /// Failures in a row that count as down; 3 if unset.
    pub failure_threshold: Option<i32>,
    /// Passes when the QEMU guest agent answers.
    pub guest_agent_ping: Option<GuestAgentPing>,
    /// HTTP request to the guest; codes 200 to 399 pass.
    #[schemars(with = "Option<core::HTTPGetAction>")]
    pub http_get: Option<HTTPGetAction>,
    /// Seconds after start before the first check.
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between checks; 10 if unset.
    pub period_seconds: Option<i32>,
    /// Passes in a row that count as up again; 1 if unset.
    pub success_threshold: Option<i32>,
    /// Passes when this guest port accepts a connection.
    #[schemars(with = "Option<core::TCPSocketAction>")]
    pub tcp_socket: Option<TCPSocketAction>,
    /// Seconds to wait for an answer; 1 if unset.
    pub timeout_seconds: Option<i32>,
}

/// Ping of the QEMU guest agent; has no settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct GuestAgentPing {}

open_enum! {
    /// What happens to an instance when its node is drained.
    pub enum EvictionStrategy {
        None = "None",
        LiveMigrate = "LiveMigrate",
        LiveMigrateIfPossible = "LiveMigrateIfPossible",
        External = "External",
    }
}

open_enum! {
    /// How an instance begins.
    pub enum StartStrategy {
        /// QEMU starts with the vCPUs stopped.
        Paused = "Paused",
    }
}

open_enum! {
    /// Which name servers the pod, and so the guest, is given.
    pub enum DnsPolicy {
        ClusterFirst = "ClusterFirst",
        ClusterFirstWithHostNet = "ClusterFirstWithHostNet",
        Default = "Default",
        None = "None",
    }
}

impl VirtualMachineInstance {
    /// Its phase; unset before any controller has seen it.
    #[must_use]
    pub fn phase(&self) -> &VirtualMachineInstancePhase {
        const UNSET: &VirtualMachineInstancePhase = &VirtualMachineInstancePhase::Unset;
        self.status.as_ref().and_then(|status| status.phase.as_ref()).unwrap_or(UNSET)
    }

    /// It has ended and never comes back.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.phase().is_final()
    }

    /// QEMU runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.phase().is_running()
    }

    /// Somebody asked for its end.
    #[must_use]
    pub fn is_marked_for_deletion(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}
