//! Labels and annotations of the pod, as other tools look for them.

use std::collections::BTreeMap;

use api::names::{annotation, app, label};
use api::quantity::Amount;
use k8s_openapi::api::core::v1::Pod;

use super::{COMPUTE, Input, RenderError, name, network};

/// On a pod: the instance's name, cut to fit a label.
const INSTANCE_ID: &str = "vmi.kubevirt.io/id";
/// As [`INSTANCE_ID`], for tools that know the older label.
const VM_NAME: &str = "vm.kubevirt.io/name";
/// On a pod: what of its memory is not the guest's, in bytes.
const MEMORY_OVERHEAD: &str = "kubevirt.io/memory-overhead-bytes";
/// On a pod: migrations reach it through a socket.
const MIGRATION_TRANSPORT: &str = "kubevirt.io/migrationTransportUnix";
/// Asks the descheduler to evict through the API, where an instance can be moved instead of killed.
const EVICT_ONLY: &str = "descheduler.alpha.kubernetes.io/request-evict-only";
/// On a pod: the release of its launcher, where the image does not tell it.
const LAUNCHER_VERSION: &str = "orlop.dev/launcher-version";
/// Where `kubectl logs` and `kubectl exec` go.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The instance's own labels, and those by which its pod is found.
pub(super) fn labels(input: &Input<'_>) -> BTreeMap<String, String> {
    let mut labels = input.vmi.metadata.labels.clone().unwrap_or_default();
    // That is said of a launcher that runs; this one is new.
    labels.remove(label::OUTDATED_LAUNCHER_IMAGE);
    let name = name::label_value(input.name());
    labels.insert(VM_NAME.to_owned(), name.clone());
    labels.insert(INSTANCE_ID.to_owned(), name);
    labels.insert(label::APP.to_owned(), app::LAUNCHER.to_owned());
    labels.insert(label::CREATED_BY.to_owned(), input.uid().to_owned());
    labels
}

/// The instance's own annotations, and what networks, tools and virt-handler read.
pub(super) fn annotations(input: &Input<'_>, overhead: Amount) -> Result<BTreeMap<String, String>, RenderError> {
    let mut annotations = input.vmi.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !is_about_the_instance_alone(key));
    annotations.extend(network::annotations(input)?);
    let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    set(annotation::DOMAIN, input.name().to_owned());
    set(MEMORY_OVERHEAD, overhead.units().to_string());
    set(MIGRATION_TRANSPORT, "true".to_owned());
    set(EVICT_ONLY, String::new());
    set(DEFAULT_CONTAINER, COMPUTE.to_owned());
    if let Some(version) = &input.launcher.version {
        set(LAUNCHER_VERSION, version.clone());
    }
    Ok(annotations)
}

/// What kubectl keeps of an object, API versions, and who wants the guest to leave say nothing about its pod.
fn is_about_the_instance_alone(key: &str) -> bool {
    let others = [
        annotation::LATEST_OBSERVED_API_VERSION,
        annotation::STORAGE_OBSERVED_API_VERSION,
        annotation::EVICTION_SOURCE,
        LAUNCHER_VERSION,
    ];
    key.starts_with("kubectl.kubernetes.io/") || others.contains(&key)
}

/// The release that a pod's launcher is of, where its image does not tell it.
pub(super) fn version_of(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(LAUNCHER_VERSION).map(String::as_str)
}

pub(super) fn image_and_version(image: &str, version: Option<&str>) -> String {
    version.map_or_else(|| image.to_owned(), |version| format!("{image}:{version}"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::json;

    #[test]
    fn the_instance_cannot_hide_its_pod() {
        let mut vmi = vmi(json!({}));
        let own = [(label::APP, "mine"), (label::CREATED_BY, "other"), ("team", "blue")];
        vmi.metadata.labels = Some(own.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let labels = labels(&Bench::default().input(&vmi));
        assert_eq!(labels[label::APP], "virt-launcher");
        assert_eq!(labels[label::CREATED_BY], vmi.metadata.uid.unwrap());
        assert_eq!(labels["team"], "blue");
    }

    #[test]
    fn annotations_about_the_object_alone_stay_behind() {
        let mut vmi = vmi(json!({}));
        let own = [("kubectl.kubernetes.io/last-applied-configuration", "{}"), (annotation::VM_GENERATION, "3")];
        vmi.metadata.annotations = Some(own.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let annotations = annotations(&Bench::default().input(&vmi), Amount::bytes(7)).unwrap();
        assert!(!annotations.contains_key("kubectl.kubernetes.io/last-applied-configuration"));
        assert_eq!(
            (annotations[annotation::VM_GENERATION].as_str(), annotations[MEMORY_OVERHEAD].as_str()),
            ("3", "7")
        );
    }
}
