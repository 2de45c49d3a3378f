//! What an export makes: its service, and the exporter's pod.

use std::collections::BTreeSet;

use api::export::VirtualMachineExport as Export;
use api::names::label;
use api::owner::{controller_of, controller_reference};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manager::names::{fnv1a, safe};
use serde_json::{Value, json};

use super::source::Volume;
use super::{Exporter, Making, Source, manifests};

/// On the exporter's pod: the certificate of the authority that signed its own, as PEM.
pub const AUTHORITY: &str = "orlop.dev/export-authority";
/// The label of exporters' pods, as KubeVirt has it.
const SELECTED: &str = "kubevirt.io.virt-export-service";
const APP: &str = "virt-exporter";
/// The program in the image of launchers.
const PROGRAM: &str = "/usr/bin/orlop";
/// The group that may use the disks of virtual machines.
const QEMU: i64 = 107;
const PORT: i32 = 8443;
const VOLUMES: &str = "/export-volumes";
const CERTIFICATE: &str = "/cert";
const TOKEN: &str = "/token";
/// The name of a service is a label.
const LONGEST: usize = 63;

/// What the service and the pod of an export are called: the same for whoever makes them again, or looks for them.
#[must_use]
pub fn exporter_name(export: &str) -> String {
    let whole = format!("virt-export-{export}");
    if whole.len() <= LONGEST && !whole.contains('.') {
        return whole;
    }
    let hash = safe(fnv1a(export.as_bytes()));
    let kept: String = whole.replace('.', "-").chars().take(LONGEST - hash.len() - 1).collect();
    format!("{}-{hash}", kept.trim_end_matches('-'))
}

/// Whether a pod is an exporter, by what only virt-controller is let write together with the image: its label, and the export that
/// controls it.
#[must_use]
pub fn is_exporter(pod: &Pod) -> bool {
    let has_label = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(SELECTED));
    has_label
        && controller_of(&pod.metadata).is_some_and(|owner| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.kind == Export::KIND && group == Some(Export::GROUP)
        })
}

/// The name of a token's secret that the export makes: that of an export of the same name may still be there.
pub(super) fn token_name(export: &Export) -> String {
    let (name, uid) = (text(&export.metadata.name), text(&export.metadata.uid));
    let kept: String = name.chars().take(LONGEST).collect();
    format!("export-token-{}-{}", kept.trim_end_matches(['-', '.']), safe(fnv1a(uid.as_bytes())))
}

/// The name that the exporter's certificate is for.
pub(super) fn host(export: &Export) -> String {
    format!("{}.{}.svc", exporter_name(text(&export.metadata.name)), text(&export.metadata.namespace))
}

pub(super) fn service(export: &Export) -> Service {
    let mut metadata = metadata(export);
    metadata.labels = Some([(label::APP.to_owned(), APP.to_owned())].into());
    let port = ServicePort {
        port: 443,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(PORT)),
        ..ServicePort::default()
    };
    let selector = [(SELECTED.to_owned(), exporter_name(text(&export.metadata.name)))];
    Service {
        metadata,
        spec: Some(ServiceSpec { ports: Some(vec![port]), selector: Some(selector.into()), ..ServiceSpec::default() }),
        status: None,
    }
}

/// The claims that a pod has.
pub(super) fn claims_of(pod: &Pod) -> BTreeSet<&str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str())).collect()
}

impl Making<'_> {
    /// The exporter of these volumes.
    pub(super) fn exporter(&self, volumes: &[Volume<'_>]) -> Exporter {
        let export = self.seen.export;
        let machine = match self.seen.source {
            Source::Machine { vm: Some(vm), .. } => Some(manifests::Machine::of(&vm.metadata, &vm.spec)),
            Source::Snapshot { content: Some(content), .. } => {
                let vm = content.spec.source.virtual_machine.as_ref();
                vm.and_then(|vm| Some(manifests::Machine::of(vm.metadata.as_ref()?, vm.spec.as_ref()?)))
            }
            _ => None,
        };
        let machine = machine.map(|machine| machine.with(export, volumes, self.seen.external));
        Exporter { pod: self.pod_of(volumes), host: host(export), until: self.until, machine }
    }

    fn pod_of(&self, volumes: &[Volume<'_>]) -> Pod {
        let export = self.seen.export;
        let name = exporter_name(self.name());
        let mut arguments = vec![
            format!("--name={}", self.name()),
            format!("--listen=[::]:{PORT}"),
            format!("--certificate={CERTIFICATE}"),
            format!("--token={TOKEN}/token"),
            format!("--deadline={}", self.until),
        ];
        let (mut mounted, mut mounts, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for (index, volume) in volumes.iter().enumerate() {
            let (kind, path) = (if volume.is_disk { "disk" } else { "files" }, format!("{VOLUMES}/{index}"));
            arguments.push(format!("--{kind}={}={path}", volume.name));
            let name = format!("volume-{index}");
            let is_block = volume.claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
            if is_block {
                devices.push(json!({ "name": name, "devicePath": path }));
            } else {
                mounts.push(json!({ "name": name, "mountPath": path, "readOnly": true }));
            }
            mounted.push(json!({ "name": name, "persistentVolumeClaim": { "claimName": volume.claim() } }));
        }
        for (name, path, secret) in
            [("certificates", CERTIFICATE, None), ("token", TOKEN, self.status.token_secret_ref.as_deref())]
        {
            mounts.push(json!({ "name": name, "mountPath": path, "readOnly": true }));
            mounted.push(json!({ "name": name, "secret": { "secretName": secret } }));
        }
        let mut labels = export.metadata.labels.clone().unwrap_or_default();
        labels.insert(SELECTED.to_owned(), name);
        let ready =
            json!({ "httpGet": { "scheme": "HTTPS", "path": "/exportready", "port": PORT }, "periodSeconds": 2 });
        let spec = json!({
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": {
                "runAsUser": QEMU, "runAsGroup": QEMU, "runAsNonRoot": true, "fsGroup": QEMU,
                "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "exporter",
                "command": [PROGRAM, "virt-exportserver"],
                "args": arguments,
                "ports": [{ "name": "https", "containerPort": PORT, "protocol": "TCP" }],
                "readinessProbe": ready,
                "resources": {
                    "requests": { "cpu": "100m", "memory": "200Mi" }, "limits": { "cpu": "1", "memory": "1Gi" },
                },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": mounts,
                "volumeDevices": devices,
            }],
            "volumes": mounted,
        });
        let mut metadata = metadata(export);
        (metadata.labels, metadata.annotations) = (Some(labels), export.metadata.annotations.clone());
        Pod { metadata, spec: serde_json::from_value(spec).ok(), status: None }
    }
}

/// What is only known when the pod is made.
pub(super) struct Made<'a> {
    /// The secret with its certificate and its manifests.
    pub(super) secret: &'a str,
    /// The certificate of the authority.
    pub(super) authority: &'a str,
    /// The image of launchers, and how it is pulled.
    pub(super) image: &'a str,
    pub(super) pull_policy: &'a str,
    pub(super) pull_secrets: &'a [String],
    pub(super) has_manifests: bool,
}

/// The pod with all of it.
pub(super) fn complete(mut pod: Pod, made: &Made<'_>) -> Pod {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(AUTHORITY.to_owned(), made.authority.to_owned());
    let Some(spec) = &mut pod.spec else { return pod };
    let secrets: Vec<Value> = made.pull_secrets.iter().map(|name| json!({ "name": name })).collect();
    spec.image_pull_secrets = serde_json::from_value(json!(secrets)).ok().filter(|_| !secrets.is_empty());
    for container in &mut spec.containers {
        container.image = Some(made.image.to_owned());
        container.image_pull_policy = Some(made.pull_policy.to_owned());
        if made.has_manifests {
            container.args.get_or_insert_default().push(format!("--manifests={CERTIFICATE}/{}", manifests::FILE));
        }
    }
    for volume in spec.volumes.iter_mut().flatten().filter(|volume| volume.name == "certificates") {
        if let Some(secret) = &mut volume.secret {
            secret.secret_name = Some(made.secret.to_owned());
        }
    }
    pod
}

/// Metadata of what is named after the export.
fn metadata(export: &Export) -> ObjectMeta {
    ObjectMeta {
        name: Some(exporter_name(text(&export.metadata.name))),
        namespace: export.metadata.namespace.clone(),
        owner_references: controller_reference(export).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn text(part: &Option<String>) -> &str {
    part.as_deref().unwrap_or_default()
}
