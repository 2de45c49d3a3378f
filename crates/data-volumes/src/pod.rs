//! The pod that imports: a pure function of the DataVolume.

use api::data_volume::DataVolume;
use api::owner::controller_reference;
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::source::Origin;

/// The label of CDI's pods, and its value for importers.
const LABEL: (&str, &str) = ("cdi.kubevirt.io", "importer");
const GROUP: &str = "cdi.kubevirt.io";
/// The program in the machine's image.
const PROGRAM: &str = "/usr/bin/orlop";
/// The group that may use the disks of virtual machines.
const QEMU: i64 = 107;
/// Where the importer tells how far it is.
pub(crate) const PROGRESS_PORT: u16 = 8443;
const TARGET: &str = "/data";
const SCRATCH: &str = "/scratch";
const CREDENTIALS: &str = "/secret/credentials";
const CERTIFICATES: &str = "/certificates";
const LAST_WORDS: &str = "/dev/termination-log";
/// The longest name of a pod that is a label as well.
const MAX_NAME: usize = 63;

/// Whether a pod imports for a DataVolume, by what only the controller of DataVolumes is let write together with the machine's
/// image: its label, and the DataVolume that controls it.
#[must_use]
pub fn is_importer(pod: &Pod) -> bool {
    let label = pod.labels().get(LABEL.0).is_some_and(|value| value == LABEL.1);
    let mut owners = pod.owner_references().iter().filter(|owner| owner.controller == Some(true));
    label
        && owners.any(|owner| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.kind == DataVolume::kind(&()) && group == Some(GROUP)
        })
}

/// What the names of importers begin with.
pub(crate) const PREFIX: &str = "importer-";

/// What the importer's pod is called: the same name for whoever makes it again.
pub(crate) fn name(volume: &DataVolume) -> String {
    let whole = format!("{PREFIX}{}", volume.name_any());
    if whole.len() <= MAX_NAME {
        return whole;
    }
    let uid = manager::names::safe(manager::names::fnv1a(volume.uid().unwrap_or_default().as_bytes()));
    let kept: String = whole.chars().take(MAX_NAME.saturating_sub(uid.len() + 1)).collect();
    format!("{}-{uid}", kept.trim_end_matches(['-', '.']))
}

/// The pod that fills the claim of a DataVolume with a disk of this size; none if no pod is needed.
pub(crate) fn render(volume: &DataVolume, origin: &Origin, claim: &str, size: u64, image: &str) -> Option<Pod> {
    let mut arguments = vec![
        format!("--size={size}"),
        format!("--target={TARGET}"),
        format!("--scratch={SCRATCH}"),
        format!("--progress-port={PROGRESS_PORT}"),
        format!("--last-words={LAST_WORDS}"),
    ];
    let mut mounts = Mounts::default();
    mounts.add("claim", TARGET, false, &json!({ "persistentVolumeClaim": { "claimName": claim } }));
    mounts.add("scratch", SCRATCH, false, &json!({ "emptyDir": {} }));
    let (secret, certificates) = match origin {
        Origin::Web(http) => {
            arguments.push(format!("--url={}", http.url));
            arguments.extend(http.checksum.iter().map(|checksum| format!("--checksum={checksum}")));
            arguments.extend(http.extra_headers.iter().flatten().map(|header| format!("--header={header}")));
            for (index, secret) in http.secret_extra_headers.iter().flatten().enumerate() {
                let path = format!("/secret/headers-{index}");
                mounts.add(&format!("headers-{index}"), &path, true, &json!({ "secret": { "secretName": secret } }));
                arguments.push(format!("--secret-headers={path}"));
            }
            (&http.secret_ref, &http.cert_config_map)
        }
        Origin::Registry(registry) => {
            arguments.push(format!("--url={}", registry.url.as_deref().unwrap_or_default()));
            (&registry.secret_ref, &registry.cert_config_map)
        }
        Origin::Blank | Origin::Claim | Origin::Copy { .. } | Origin::Snapshot { .. } => return None,
    };
    if let Some(secret) = secret.as_deref().filter(|name| !name.is_empty()) {
        mounts.add("credentials", CREDENTIALS, true, &json!({ "secret": { "secretName": secret } }));
        arguments.push(format!("--credentials={CREDENTIALS}"));
    }
    if let Some(map) = certificates.as_deref().filter(|name| !name.is_empty()) {
        mounts.add("certificates", CERTIFICATES, true, &json!({ "configMap": { "name": map } }));
        arguments.push(format!("--certificates={CERTIFICATES}"));
    }
    if volume.spec.preallocation == Some(true) {
        arguments.push("--preallocate".to_owned());
    }
    object(volume, &arguments, &mounts, image)
}

/// The pod that runs the importer with these arguments.
fn object(volume: &DataVolume, arguments: &[String], mounts: &Mounts, image: &str) -> Option<Pod> {
    let pod = json!({
        "metadata": {
            "name": name(volume),
            "namespace": volume.metadata.namespace,
            "labels": {
                LABEL.0: LABEL.1,
                "app": "containerized-data-importer",
                "app.kubernetes.io/component": "storage",
                "app.kubernetes.io/managed-by": "cdi-controller",
            },
            "ownerReferences": [controller_reference(volume)?],
        },
        "spec": {
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "priorityClassName": volume.spec.priority_class_name,
            "securityContext": {
                "runAsUser": QEMU, "runAsGroup": QEMU, "runAsNonRoot": true, "fsGroup": QEMU,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "importer",
                "image": image,
                "command": [PROGRAM, "virt-import"],
                "args": arguments,
                "volumeMounts": mounts.mounts,
                "terminationMessagePath": LAST_WORDS,
                "ports": [{ "name": "progress", "containerPort": PROGRESS_PORT, "protocol": "TCP" }],
                "resources": {
                    "requests": { "cpu": "100m", "memory": "60M" },
                    "limits": { "cpu": "1", "memory": "600M" },
                },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                },
            }],
            "volumes": mounts.volumes,
        },
    });
    serde_json::from_value(pod).ok()
}

#[derive(Default)]
struct Mounts {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
}

impl Mounts {
    fn add(&mut self, name: &str, path: &str, read_only: bool, source: &Value) {
        let mut volume = source.clone();
        volume["name"] = name.into();
        self.volumes.push(volume);
        self.mounts.push(json!({ "name": name, "mountPath": path, "readOnly": read_only }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> DataVolume {
        let spec = json!({ "source": { "http": { "url": "http://a/b" } } });
        let metadata = json!({ "name": name, "namespace": "n", "uid": "u" });
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": metadata, "spec": spec,
        }))
        .unwrap()
    }

    fn web(more: &Value) -> Origin {
        let mut http = json!({ "url": "http://a/b" });
        http.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        Origin::Web(serde_json::from_value(http).unwrap())
    }

    #[test]
    fn what_users_write_is_one_word_each() {
        let headers = json!({ "extraHeaders": ["X: --target=/etc", "Y: a b"], "checksum": "sha256:00 --x" });
        let pod = render(&volume("v"), &web(&headers), "v", 42, "machine").unwrap();
        let arguments = pod.spec.unwrap().containers.remove(0).args.unwrap();
        assert!(arguments.contains(&"--header=X: --target=/etc".to_owned()), "{arguments:?}");
        assert!(arguments.iter().all(|word| word.starts_with("--")), "{arguments:?}");
        assert!(arguments.contains(&"--size=42".to_owned()));
    }

    #[test]
    fn an_importer_has_no_token_and_only_the_secrets_that_are_named() {
        let secrets = json!({ "secretRef": "s", "certConfigMap": "c", "secretExtraHeaders": ["h"] });
        let pod = render(&volume("v"), &web(&secrets), "v", 42, "machine").unwrap();
        assert!(is_importer(&pod));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.automount_service_account_token, Some(false));
        let names: Vec<String> = spec.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
        assert_eq!(names, ["claim", "scratch", "headers-0", "credentials", "certificates"]);
        let bare = render(&volume("v"), &web(&json!({})), "v", 42, "machine").unwrap();
        assert_eq!(bare.spec.unwrap().volumes.unwrap().len(), 2);
    }

    #[test]
    fn only_what_a_data_volume_controls_is_an_importer() {
        let mut pod = render(&volume("v"), &web(&json!({})), "v", 42, "machine").unwrap();
        let owners = pod.metadata.owner_references.take();
        assert!(!is_importer(&pod));
        pod.metadata.owner_references = owners;
        pod.labels_mut().clear();
        assert!(!is_importer(&pod));
    }

    #[test]
    fn a_pod_has_a_name_however_long_that_of_the_volume_is() {
        assert_eq!(name(&volume("v")), "importer-v");
        let (one, other) = (name(&volume(&"a".repeat(200))), name(&volume(&"b".repeat(54))));
        assert!(one.len() <= MAX_NAME && one.starts_with("importer-aaa"), "{one}");
        assert_eq!(other.len(), MAX_NAME);
    }
}
