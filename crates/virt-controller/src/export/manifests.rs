//! The objects that import an exported VM elsewhere: the VM itself, DataVolumes that download its disks, and the certificate that they
//! trust.

use api::export::VirtualMachineExport as Export;
use api::names::annotation;
use api::vm::{VirtualMachine, VirtualMachineSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::source::Volume;
use super::status::external_path;
use super::{External, objects};

/// The key of the secret, and the name of the file.
pub const FILE: &str = "manifests.json";

/// A VM and how its disks are downloaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    export: String,
    vm: Value,
    /// Disks that no template of the VM makes: name, and the claim's specification.
    disks: Vec<(String, Value)>,
    /// Names of all disks.
    all: Vec<String>,
    internal: String,
    external: Option<(String, String)>,
}

impl Machine {
    /// As another cluster takes it: what only holds here is left out.
    pub(super) fn of(metadata: &ObjectMeta, spec: &VirtualMachineSpec) -> Self {
        let mut annotations = metadata.annotations.clone().unwrap_or_default();
        annotations.retain(|name, _| name != annotation::GUEST && !name.starts_with("kubectl.kubernetes.io/"));
        let metadata = ObjectMeta {
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            labels: metadata.labels.clone(),
            annotations: Some(annotations).filter(|all| !all.is_empty()),
            ..ObjectMeta::default()
        };
        let mut spec = spec.clone();
        // Revisions stay where they are.
        if let Some(matcher) = &mut spec.instancetype {
            matcher.revision_name = None;
        }
        if let Some(matcher) = &mut spec.preference {
            matcher.revision_name = None;
        }
        let vm = json!(VirtualMachine { metadata, spec, ..VirtualMachine::default() });
        Self { export: String::new(), vm, disks: Vec::new(), all: Vec::new(), internal: String::new(), external: None }
    }

    pub(super) fn with(self, export: &Export, volumes: &[Volume<'_>], external: Option<&External>) -> Self {
        let name = export.metadata.name.clone().unwrap_or_default();
        let namespace = export.metadata.namespace.as_deref().unwrap_or_default();
        let templates: Vec<&str> = templates(&self.vm).iter().filter_map(name_of).collect();
        let own = volumes.iter().filter(|volume| !templates.contains(&volume.name.as_str()));
        let disks = own.map(|volume| (volume.name.clone(), claim_spec(volume))).collect();
        let external = external
            .map(|one| (format!("{}{}", one.host, external_path(namespace, &name)), one.authority.trim().to_owned()));
        let all = volumes.iter().map(|volume| volume.name.clone()).collect();
        Self { internal: objects::host(export), export: name, disks, all, external, ..self }
    }

    /// The file that the exporter serves, once it is known which authority signs.
    #[must_use]
    pub fn file(&self, authority: &str) -> Value {
        let external = self.external.as_ref().map(|(base, authority)| self.list(base, authority));
        json!({ "internal": self.list(&self.internal, authority), "external": external })
    }

    fn list(&self, base: &str, authority: &str) -> Vec<Value> {
        let Self { export, vm, disks, all, .. } = self;
        let certificates = format!("export-ca-cm-{export}");
        let source = |name: &str| {
            json!({ "http": {
                "url": format!("https://{base}/volumes/{name}/disk.img.gz"),
                "certConfigMap": certificates, "secretExtraHeaders": [format!("header-secret-{export}")],
            } })
        };
        let mut vm = vm.clone();
        if let Some(templates) = vm.pointer_mut("/spec/dataVolumeTemplates").and_then(Value::as_array_mut) {
            for template in templates {
                let name = name_of(template).unwrap_or_default().to_owned();
                if all.contains(&name)
                    && let Some(spec) = template["spec"].as_object_mut()
                {
                    spec.remove("sourceRef");
                    spec.insert("source".to_owned(), source(&name));
                }
            }
        }
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": certificates }, "data": { "ca.pem": authority.trim() },
        });
        let namespace = vm["metadata"]["namespace"].clone();
        let disks = disks.iter().map(|(name, claim)| {
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                "metadata": { "name": name, "namespace": namespace }, "spec": { "source": source(name), "pvc": claim },
            })
        });
        [map, vm.clone()].into_iter().chain(disks).collect()
    }
}

fn templates(vm: &Value) -> &[Value] {
    vm.pointer("/spec/dataVolumeTemplates").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn name_of(template: &Value) -> Option<&str> {
    template["metadata"]["name"].as_str()
}

/// What another claim of the kind asks for.
fn claim_spec(volume: &Volume<'_>) -> Value {
    let mut spec = volume.claim.spec.clone().unwrap_or_default();
    (spec.volume_name, spec.storage_class_name) = (None, None);
    (spec.data_source, spec.data_source_ref) = (None, None);
    json!(spec)
}
