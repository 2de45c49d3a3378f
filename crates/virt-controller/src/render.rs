//! The launcher pod of an instance: a pure function of what is known.
//!
//! ```text
//! Input ──> refuse ──> metadata, placement, security, resources, volumes, disks, network, probes, arguments ──> Pod
//! ```
//! Each part is a file of its own, and only [`render`] puts them together. What other tools read of a pod (labels,
//! annotations, names of volumes and containers, paths) is as KubeVirt has it; the deliberate differences are listed
//! one by one in `tests/golden/deviations.yaml`.
//!
//! Absent on purpose: a client, a clock, randomness; libvirt's folders, a monitor process, a process for the console's
//! log. The usual pod has one process.

mod arguments;
mod container_disks;
mod cpu;
mod devices;
mod error;
pub mod fingerprint;
mod memory;
mod metadata;
mod mounts;
pub mod name;
mod network;
mod overhead;
mod placement;
mod probes;
mod resources;
mod security;
mod volumes;

use std::collections::BTreeMap;

use api::owner::controller_reference;
use api::vmi::VirtualMachineInstance;
use api::volumes::PullPolicy;
use k8s_openapi::api::core::v1::{Container, LocalObjectReference, Pod, PodReadinessGate, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mounts::Mounts;
use virt_rules::config::{ClusterConfig, Gate};
use virt_rules::support;

pub use error::RenderError;
pub use overhead::{Part, overhead, parts};

/// The container that runs the guest.
pub const COMPUTE: &str = "compute";
/// The container whose log is the guest's console, as KubeVirt names it.
pub const CONSOLE_LOG: &str = "guest-console-log";
/// The program in the launcher's image.
const PROGRAM: &str = "/usr/bin/orlop";
/// Seconds between the guest's own grace and the launcher's end.
const LAUNCHER_GRACE: i64 = 15;
/// Seconds that the pod's grace exceeds the launcher's by, for the node to see its end.
const POD_GRACE: i64 = 15;
/// Seconds a guest has to shut down, if its spec does not say.
const GUEST_GRACE: i64 = 30;

/// All that a launcher pod follows from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The instance, as the API server stored it.
    pub vmi: &'a VirtualMachineInstance,
    /// The cluster's configuration.
    pub config: &'a ClusterConfig,
    /// How launchers are run here.
    pub launcher: &'a Launcher,
    /// What is known of persistent volume claims in the instance's namespace, by name.
    pub claims: &'a BTreeMap<String, Claim>,
    /// What matters of the namespace.
    pub namespace: &'a Namespace,
    /// Whether nodes can mount images as volumes.
    pub image_volumes: bool,
}

/// How launchers are run: the flags of virt-controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The launcher's image.
    pub image: String,
    /// Secrets for pulling it, besides those of the KubeVirt CR.
    pub pull_secrets: Vec<String>,
    /// When it is pulled, if the KubeVirt CR does not say.
    pub pull_policy: PullPolicy,
    /// Where things are inside the pod.
    pub directories: Directories,
    /// What nodes offer.
    pub nodes: Nodes,
    /// The QEMU that they run, where it is not the one they find.
    pub qemu: Option<String>,
    /// The release of what is in the image, where the image's name does not tell it.
    pub version: Option<String>,
    /// The image of the container whose log is the guest's console, where nodes can show it without a process.
    pub console_log: Option<String>,
}

/// What nodes are known to offer, where somebody knows. On a cluster nobody does: as KubeVirt's, launchers ask for what they
/// would like to have, and run where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Guests run under KVM, unless the KubeVirt object says otherwise.
    pub kvm: bool,
    /// The kernel can carry guests' packets.
    pub vhost_net: bool,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { kvm: true, vhost_net: true }
    }
}

/// Folders inside the launcher pod. Their names are known to virt-handler and to other tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    /// What virt-handler and the launcher share.
    pub share: String,
    /// The launcher's own files and sockets, and where claims, secrets and config maps are mounted.
    pub private: String,
    /// Disks that go with the pod.
    pub ephemeral_disks: String,
    /// Where virt-handler brings container disks that come in containers of their own.
    pub container_disks: String,
}

/// What is known of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whether it is a raw block device instead of a filesystem.
    pub block: bool,
}

/// What matters of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    pub labels: BTreeMap<String, String>,
    /// A quota bounds the sum of CPU limits, so that each pod must have one.
    pub quota_on_cpu_limits: bool,
    /// A quota bounds the sum of memory limits, so that each pod must have one.
    pub quota_on_memory_limits: bool,
}

impl Default for Directories {
    fn default() -> Self {
        Self {
            share: "/var/run/kubevirt".to_owned(),
            private: "/var/run/kubevirt-private".to_owned(),
            ephemeral_disks: "/var/run/kubevirt-ephemeral-disks".to_owned(),
            container_disks: "/var/run/kubevirt/container-disks".to_owned(),
        }
    }
}

impl Launcher {
    /// Launchers from an image, everything else as usual.
    #[must_use]
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            pull_secrets: Vec::new(),
            pull_policy: PullPolicy::IfNotPresent,
            directories: Directories::default(),
            nodes: Nodes::default(),
            qemu: None,
            version: None,
            console_log: None,
        }
    }

    /// What launchers run that are made now, as `status.launcherContainerImageVersion` tells it.
    #[must_use]
    pub fn runs(&self) -> String {
        metadata::image_and_version(&self.image, self.version.as_deref())
    }
}

/// The same of a launcher pod that was made at some time; none if it has no launcher.
#[must_use]
pub fn runs(pod: &Pod) -> Option<String> {
    let compute = pod.spec.iter().flat_map(|spec| &spec.containers).find(|one| one.name == COMPUTE);
    Some(metadata::image_and_version(compute?.image.as_deref()?, metadata::version_of(pod)))
}

impl Input<'_> {
    /// Whether container disks come as image volumes.
    fn mounts_images(&self) -> bool {
        self.image_volumes && self.config.enabled(Gate::ImageVolume)
    }

    /// Whether guests are emulated: what a person wrote into the KubeVirt object counts before what nodes offer.
    fn is_emulated(&self) -> bool {
        self.config.emulation().unwrap_or(!self.launcher.nodes.kvm)
    }

    fn pull_policy(&self) -> String {
        self.config.image_pull_policy().unwrap_or(&self.launcher.pull_policy).to_string()
    }

    fn name(&self) -> &str {
        self.vmi.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace_name(&self) -> &str {
        self.vmi.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.vmi.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// The launcher pod of an instance.
///
/// # Guarantees
/// - The same input gives the same pod, its name included: two leaders cannot make two pods of one instance.
/// - The pod has one container that is named [`COMPUTE`] and is controlled by the instance.
/// - A field of the instance that nobody acts on is refused, never dropped.
///
/// # Errors
/// When the instance asks for what is not supported, contradicts itself, or names a claim that is not there.
pub fn render(input: &Input<'_>) -> Result<Pod, RenderError> {
    let vmi = input.vmi;
    for (field, value) in [("name", input.name()), ("namespace", input.namespace_name()), ("uid", input.uid())] {
        if value.is_empty() {
            return Err(RenderError::NotStored { field });
        }
    }
    if let Some(first) = support::refusals(vmi, input.config).into_iter().next() {
        return Err(first.into());
    }
    draw(input)
}

/// The pod as its parts make it. They know of more than launchers do: each may be tried before the table lets it through.
fn draw(input: &Input<'_>) -> Result<Pod, RenderError> {
    let vmi = input.vmi;
    let owner = controller_reference(vmi).ok_or(RenderError::NotStored { field: "uid" })?;
    let mut mounts = Mounts::default();
    volumes::shared_folders(input, &mut mounts);
    volumes::guest_volumes(input, &mut mounts)?;
    let disks = container_disks::container_disks(input, &mut mounts);
    let overhead = overhead::overhead(vmi, input.config);
    let compute = compute(input, overhead, &mounts)?;
    let metadata = ObjectMeta {
        name: Some(name::launcher(input.name(), input.uid())),
        namespace: vmi.metadata.namespace.clone(),
        labels: Some(metadata::labels(input)),
        annotations: Some(metadata::annotations(input, overhead)?),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let init_containers = console_log(input).into_iter().chain(disks.init_containers).collect();
    let containers = std::iter::once(compute).chain(disks.containers).collect();
    let spec = PodSpec {
        containers,
        init_containers: non_empty(init_containers),
        volumes: non_empty(mounts.volumes),
        image_pull_secrets: non_empty(pull_secrets(input, disks.pull_secrets)),
        termination_grace_period_seconds: Some(launcher_grace(vmi).saturating_add(POD_GRACE)),
        readiness_gates: Some(vec![PodReadinessGate {
            condition_type: api::names::UNPAUSED_READINESS_GATE.to_owned(),
        }]),
        security_context: Some(security::pod(input)),
        restart_policy: Some("Never".to_owned()),
        enable_service_links: Some(false),
        ..placement::spec(input)
    };
    let mut pod = Pod { metadata, spec: Some(spec), status: None };
    fingerprint::sign(&mut pod);
    Ok(pod)
}

/// A pod that goes where the launcher could go, has the same claims, and ends at once.
///
/// Claims that are bound only when somebody uses them need such a user before the launcher, which needs them bound.
///
/// # Guarantees
/// - Its name differs from the launcher's and follows from the same UID.
/// - No guest can run in it: it prints a version and ends.
///
/// # Errors
/// As [`render`].
pub fn provisioning(input: &Input<'_>) -> Result<Pod, RenderError> {
    let mut pod = render(input)?;
    pod.metadata.name = Some(name::provisioning(input.name(), input.uid()));
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(api::names::annotation::EPHEMERAL_PROVISIONING.to_owned(), "true".to_owned());
    if let Some(spec) = &mut pod.spec {
        spec.readiness_gates = None;
        spec.init_containers = None;
        spec.containers.retain(|container| container.name == COMPUTE);
        for compute in &mut spec.containers {
            compute.command = Some(vec![PROGRAM.to_owned(), "--version".to_owned()]);
            compute.args = None;
            compute.readiness_probe = None;
            compute.liveness_probe = None;
        }
    }
    Ok(pod)
}

/// The container whose log tools read as the guest's console. On nodes that cannot show it without a process there is none: it
/// would cost more than all else of the launcher.
fn console_log(input: &Input<'_>) -> Option<Container> {
    let image = input.launcher.console_log.clone().filter(|_| arguments::logs_console(input))?;
    Some(Container {
        name: CONSOLE_LOG.to_owned(),
        image: Some(image),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        restart_policy: Some("Always".to_owned()),
        // It uses nothing. Without a limit, no pod could be Guaranteed, nor be in a namespace whose quota asks for limits.
        resources: Some(resources::least()),
        security_context: Some(security::helper()),
        ..Container::default()
    })
}

fn compute(input: &Input<'_>, overhead: api::quantity::Amount, mounts: &Mounts) -> Result<Container, RenderError> {
    let (readiness_probe, liveness_probe) = probes::probes(input);
    Ok(Container {
        name: COMPUTE.to_owned(),
        image: Some(input.launcher.image.clone()),
        image_pull_policy: Some(input.pull_policy()),
        command: Some(vec![PROGRAM.to_owned(), "virt-launcher".to_owned()]),
        args: Some(arguments::arguments(input, mounts)),
        resources: Some(resources::resources(input, overhead)?),
        security_context: Some(security::compute(input)),
        volume_mounts: non_empty(mounts.mounts.clone()),
        volume_devices: non_empty(mounts.devices.clone()),
        ports: non_empty(network::ports(input.vmi)?),
        readiness_probe,
        liveness_probe,
        // A launcher that fails before it can tell anybody leaves its last words in its log.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    })
}

/// The launcher's grace: the guest's, and time to clean up.
fn launcher_grace(vmi: &VirtualMachineInstance) -> i64 {
    vmi.spec.termination_grace_period_seconds.unwrap_or(GUEST_GRACE).max(0).saturating_add(LAUNCHER_GRACE)
}

/// Each secret once, in the order of first use.
fn pull_secrets(input: &Input<'_>, of_disks: Vec<String>) -> Vec<LocalObjectReference> {
    let mut names: Vec<String> = Vec::new();
    let of_launcher = input.launcher.pull_secrets.iter().chain(input.config.image_pull_secrets()).cloned();
    for name in of_launcher.chain(of_disks).filter(|name| !name.is_empty()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| LocalObjectReference { name }).collect()
}

fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
