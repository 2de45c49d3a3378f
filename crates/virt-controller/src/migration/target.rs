//! The pod that a guest moves to: the launcher pod of its instance, elsewhere, with what the guest must find again.

use std::collections::BTreeMap;

use api::migration::VirtualMachineInstanceMigration as Migration;
use api::names::{annotation, label};
use k8s_openapi::api::core::v1::{Container, Node, Pod, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::render::{self, COMPUTE, Input, RenderError, fingerprint};
use virt_rules::launchers::name;

/// Nodes are told apart by this.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Whether a pod was made for this migration.
#[must_use]
pub fn is_of(pod: &Pod, migration: &Migration) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let uid = labels.and_then(|labels| labels.get(label::MIGRATION_JOB_UID));
    uid.is_some() && uid == migration.metadata.uid.as_ref()
}

/// # Guarantees
/// - The same input gives the same pod. Its name follows from the migration's UID: a lost answer makes no second one.
/// - It keeps away from every node that has a launcher of the instance, and stays with the CPU vendor, the CPU model and the board
///   that the guest knows.
/// - Images of disks are those that the source has, by their digests, where its node told them: a tag may have moved.
///
/// # Errors
/// As [`render::render`].
pub fn render(
    input: &Input<'_>,
    migration: &Migration,
    source: Option<&Pod>,
    node: Option<&Node>,
) -> Result<Pod, RenderError> {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let uid = text(&migration.metadata.uid);
    let mut pod = render::render(input)?;
    pod.metadata.name = Some(name::target(input.vmi.metadata.name.as_deref().unwrap_or_default(), &uid));
    pod.metadata.labels.get_or_insert_default().insert(label::MIGRATION_JOB_UID.to_owned(), uid);
    let name = text(&migration.metadata.name);
    pod.metadata.annotations.get_or_insert_default().insert(annotation::MIGRATION_JOB_NAME.to_owned(), name);
    let spec = pod.spec.get_or_insert_default();
    keep_away(spec, input.vmi.metadata.uid.as_deref().unwrap_or_default());
    let selector = spec.node_selector.get_or_insert_default();
    // What the instance itself asks for counts more.
    for (key, value) in migration.spec.added_node_selector.iter().flatten() {
        selector.entry(key.clone()).or_insert_with(|| value.clone());
    }
    selector.extend(known_hardware(input, node));
    pin_images(spec, source);
    fingerprint::sign(&mut pod);
    Ok(pod)
}

/// No node has two launchers of one instance.
fn keep_away(spec: &mut PodSpec, uid: &str) {
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(label::CREATED_BY.to_owned(), uid.to_owned())])),
            ..LabelSelector::default()
        }),
        topology_key: HOSTNAME.to_owned(),
        ..PodAffinityTerm::default()
    };
    let affinity = spec.affinity.get_or_insert_default().pod_anti_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default().push(term);
}

/// Labels of the source's node that the target's must have, too, so that the guest finds the hardware that it knows.
fn known_hardware(input: &Input<'_>, node: Option<&Node>) -> BTreeMap<String, String> {
    let none = BTreeMap::new();
    let labels = node.and_then(|node| node.metadata.labels.as_ref()).unwrap_or(&none);
    let mut needed = BTreeMap::new();
    let mut need = |key: String| _ = needed.insert(key, "true".to_owned());
    labels.keys().filter(|key| key.starts_with(label::CPU_VENDOR_PREFIX)).cloned().for_each(&mut need);
    let of_host = input.vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.as_deref()).unwrap_or("host-model");
    if of_host == "host-model" {
        let renamed = [
            (label::HOST_MODEL_CPU_PREFIX, label::CPU_MODEL_MIGRATION_PREFIX),
            (label::HOST_MODEL_REQUIRED_FEATURES_PREFIX, label::CPU_FEATURE_PREFIX),
        ];
        for (of_source, of_target) in renamed {
            let names = labels.keys().filter_map(|key| key.strip_prefix(of_source));
            names.map(|name| format!("{of_target}{name}")).for_each(&mut need);
        }
    }
    // The board that an alias stood for when the guest started.
    let board = input.vmi.status.as_ref().and_then(|status| status.machine.as_ref()?.type_.as_ref());
    if let Some(board) = board.map(|board| format!("{}{board}", label::MACHINE_TYPE_PREFIX)) {
        Some(board).filter(|board| labels.contains_key(board)).into_iter().for_each(&mut need);
    }
    needed
}

/// Disks that come in containers: the same content as on the source.
fn pin_images(spec: &mut PodSpec, source: Option<&Pod>) {
    let Some(status) = source.and_then(|pod| pod.status.as_ref()) else { return };
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let digests: BTreeMap<&str, &str> =
        all.filter_map(|one| Some((one.name.as_str(), digest(&one.image_id)?))).collect();
    let pin = |container: &mut Container| {
        if let Some(digest) = digests.get(container.name.as_str()).filter(|_| container.name != COMPUTE) {
            container.image = Some((*digest).to_owned());
        }
    };
    spec.containers.iter_mut().for_each(pin);
    spec.init_containers.iter_mut().flatten().for_each(pin);
}

/// An image by its digest, without the scheme that some container runtimes put before it.
fn digest(image: &str) -> Option<&str> {
    let plain = image.split_once("://").map_or(image, |(_, rest)| rest);
    plain.contains("@sha256:").then_some(plain)
}
