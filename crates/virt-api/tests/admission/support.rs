//! A cluster to ask, small objects, and their changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::instancetype::VirtualMachineInstancetypeSpec;
use api::preference::VirtualMachinePreferenceSpec;
use api::preset::VirtualMachineInstancePreset;
use api::vmi::VirtualMachineInstance;
pub(crate) use json_patch::merge;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use virt_api::{Denial, Known, Operation, Request, Requester, Response, admit};
use virt_rules::config::ClusterConfig;
use virt_rules::instancetype::matcher::Reference;

/// A cluster that knows what it is told.
#[derive(Default)]
pub(crate) struct Cluster {
    presets: Vec<VirtualMachineInstancePreset>,
    config: Arc<ClusterConfig>,
    instancetypes: BTreeMap<String, Arc<VirtualMachineInstancetypeSpec>>,
    preferences: BTreeMap<String, Arc<VirtualMachinePreferenceSpec>>,
    pub(crate) instances: BTreeMap<String, Arc<VirtualMachineInstance>>,
    pub(crate) pods: BTreeMap<String, Pod>,
    /// The migration of an instance that is under way, by the name of the instance.
    pub(crate) migrations: BTreeMap<String, String>,
    pub(crate) restores: BTreeMap<String, String>,
    pub(crate) kubevirts: usize,
    pub(crate) workloads: bool,
    pub(crate) data_volumes: bool,
    architecture: &'static str,
    uuids: AtomicU64,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::on("amd64")
    }

    pub(crate) fn on(architecture: &'static str) -> Self {
        Self { architecture, ..Self::default() }
    }

    pub(crate) fn configured(mut self, configuration: &Value) -> Self {
        let kubevirt = json!({ "metadata": { "name": "kubevirt" }, "spec": { "configuration": configuration } });
        self.config = Arc::new(ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap())));
        self
    }

    pub(crate) fn with_gates(self, gates: &[&str]) -> Self {
        self.configured(&json!({ "developerConfiguration": { "featureGates": gates } }))
    }

    /// Adds one by its name, or that of its revision.
    pub(crate) fn instancetype(mut self, name: &str, spec: Value) -> Self {
        self.instancetypes.insert(name.to_owned(), Arc::new(serde_json::from_value(spec).unwrap()));
        self
    }

    pub(crate) fn preset(mut self, name: &str, spec: &Value) -> Self {
        let preset = json!({ "metadata": { "name": name, "namespace": "default" }, "spec": spec });
        self.presets.push(serde_json::from_value(preset).unwrap());
        self
    }

    pub(crate) fn preference(mut self, name: &str, spec: Value) -> Self {
        self.preferences.insert(name.to_owned(), Arc::new(serde_json::from_value(spec).unwrap()));
        self
    }
}

impl Known for Cluster {
    fn config(&self) -> Arc<ClusterConfig> {
        Arc::clone(&self.config)
    }

    fn architecture(&self) -> &str {
        self.architecture
    }

    fn instancetype(&self, _namespace: &str, reference: &Reference) -> Option<Arc<VirtualMachineInstancetypeSpec>> {
        self.instancetypes.get(reference.revision.as_ref().unwrap_or(&reference.name)).cloned()
    }

    fn preference(&self, _namespace: &str, reference: &Reference) -> Option<Arc<VirtualMachinePreferenceSpec>> {
        self.preferences.get(reference.revision.as_ref().unwrap_or(&reference.name)).cloned()
    }

    fn instance(&self, _namespace: &str, name: &str) -> Option<Arc<VirtualMachineInstance>> {
        self.instances.get(name).cloned()
    }

    fn pod(&self, _namespace: &str, name: &str) -> Option<Pod> {
        self.pods.get(name).cloned()
    }

    fn migration_of(&self, _namespace: &str, instance: &str) -> Option<String> {
        self.migrations.get(instance).cloned()
    }

    fn restore_of(&self, _namespace: &str, vm: &str) -> Option<String> {
        self.restores.get(vm).cloned()
    }

    fn presets(&self, _namespace: &str) -> Vec<VirtualMachineInstancePreset> {
        self.presets.clone()
    }

    fn kubevirts(&self) -> usize {
        self.kubevirts
    }

    fn has_workloads(&self) -> bool {
        self.workloads
    }

    fn serves_data_volumes(&self) -> bool {
        self.data_volumes
    }

    fn random_uuid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.uuids.fetch_add(1, Ordering::Relaxed))
    }
}

/// Which resource an object is of.
fn resource(object: &Value) -> (&str, String) {
    let group = object["apiVersion"].as_str().unwrap_or_default().split('/').next().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let plural = if kind.ends_with('y') { format!("{}ies", &kind[..kind.len() - 1]) } else { format!("{kind}s") };
    (group, plural)
}

pub(crate) fn write(
    cluster: &Cluster,
    requester: Requester,
    subresource: &str,
    old: Option<&Value>,
    object: &Value,
) -> Response {
    write_as(object, cluster, requester, subresource, old, object)
}

/// Writes an object to where others of the kind of `like` are.
pub(crate) fn write_as(
    like: &Value,
    cluster: &Cluster,
    requester: Requester,
    subresource: &str,
    old: Option<&Value>,
    object: &Value,
) -> Response {
    let (group, plural) = resource(like);
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let request = Request {
        operation,
        group,
        resource: &plural,
        subresource,
        namespace: "default",
        name: "",
        requester,
        object: Some(object),
        old,
        dry_run: false,
    };
    admit(&request, cluster)
}

pub(crate) fn create(cluster: &Cluster, object: &Value) -> Response {
    write(cluster, Requester::User, "", None, object)
}

pub(crate) fn update(cluster: &Cluster, requester: Requester, old: &Value, object: &Value) -> Response {
    write(cluster, requester, "", Some(old), object)
}

/// The object as it is stored.
#[track_caller]
pub(crate) fn stored(response: Response, sent: &Value) -> Value {
    response.outcome.unwrap_or_else(|denial| panic!("{denial}")).unwrap_or_else(|| sent.clone())
}

#[track_caller]
pub(crate) fn denied(response: Response) -> Denial {
    match response.outcome {
        Err(denial) => denial,
        Ok(changed) => panic!("admitted as {changed:?}"),
    }
}

/// The fields that an object is refused for; none if it is admitted.
pub(crate) fn fields(response: Response) -> Vec<String> {
    response.outcome.err().into_iter().flat_map(|denial| denial.causes).map(|cause| cause.field).collect()
}

pub(crate) fn changed(base: &Value, patch: &Value) -> Value {
    let mut object = base.clone();
    merge(&mut object, patch);
    object
}

/// A small instance.
pub(crate) fn vmi() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "v" },
        "spec": {
            "domain": {
                "devices": {
                    "disks": [{ "name": "root", "disk": { "bus": "virtio" } }],
                    "interfaces": [{ "name": "default", "masquerade": {} }],
                },
                "memory": { "guest": "1Gi" },
            },
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [{ "name": "root", "containerDisk": { "image": "disk:1" } }],
        },
    })
}

/// A small VM.
pub(crate) fn vm() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": { "name": "v" },
        "spec": { "runStrategy": "Always", "template": { "spec": vmi()["spec"] } },
    })
}

/// A change of an instance's domain.
pub(crate) fn domain(domain: &Value) -> Value {
    json!({ "spec": { "domain": domain } })
}

/// A change of an instance's devices.
pub(crate) fn devices(devices: &Value) -> Value {
    domain(&json!({ "devices": devices }))
}

/// Each change of an object must be refused for exactly these fields, with words that say what to do.
#[track_caller]
pub(crate) fn refuses(cluster: &Cluster, base: &Value, rows: &[(Value, &[&str])]) {
    assert_eq!(fields(create(cluster, base)), [""; 0], "the object itself must be admitted");
    for (patch, expected) in rows {
        assert_refused(create(cluster, &changed(base, patch)), expected, patch);
    }
}

/// An object is refused for these fields and, besides them, for nothing but fields that the table refuses as they are: rules about a
/// field hold whether or not somebody acts on it already.
#[track_caller]
pub(crate) fn assert_refused(response: Response, expected: &[&str], patch: &Value) {
    let causes = response.outcome.err().map_or_else(Vec::new, |denial| {
        assert_eq!(denial.code, 422);
        denial.causes
    });
    assert!(causes.iter().all(|cause| cause.message.len() > 8 && !cause.message.ends_with('.')), "{causes:?}");
    let is_expected = |field: &str| expected.contains(&field);
    let told =
        causes.iter().filter(|cause| is_expected(&cause.field) || !cause.message.starts_with("is not supported yet; "));
    let mut told: Vec<&str> = told.map(|cause| cause.field.as_str()).collect();
    let mut expected = expected.to_vec();
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(told, expected, "{patch}");
}
