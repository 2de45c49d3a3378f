//! Admission of virtual machines in the embedded API server: its reviews in, its refusals out. The same rules answer Kubernetes'
//! webhooks, over objects that somebody else looks up.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use api::instancetype::VirtualMachineInstancetypeSpec;
use api::kubevirt::KubeVirt;
use api::preference::VirtualMachinePreferenceSpec;
use api::preset::VirtualMachineInstancePreset;
use api::vmi::VirtualMachineInstance;
use apiserver::{Admission, Eviction, MASTERS, Review, Status, Stored};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use manager::context::Chance;
use manager::errors::chain;
use serde_json::Value;
use virt_api::review::{self, Answer, ReviewError};
use virt_api::{Denial, Known, Mark, Operation, Request, Requester, Response, admit};
use virt_rules::config::ClusterConfig;
use virt_rules::instancetype::matcher::{Reference, Scope, Subject};
use virt_rules::instancetype::revision::{Kept, from_revision};

use crate::components::{Component, keeps_virtual_machines};

const KUBEVIRT: &str = api::names::group::KUBEVIRT;
const INSTANCETYPES: &str = "instancetype.kubevirt.io";

/// Where the rules look up what they know of the cluster.
pub trait Objects {
    /// One object; its namespace is empty if it is in none.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;
    /// All objects of a resource.
    fn all(&self, group: &str, plural: &str) -> Vec<Value>;
    /// How many there are.
    fn count(&self, group: &str, plural: &str) -> usize;
    /// Those of a namespace.
    fn within(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let all = self.all(group, plural).into_iter();
        all.filter(|one| one["metadata"]["namespace"].as_str() == Some(namespace)).collect()
    }
}

impl Objects for Stored<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        Stored::get(self, group, plural, namespace, name)
    }

    fn all(&self, group: &str, plural: &str) -> Vec<Value> {
        Stored::all(self, group, plural)
    }

    fn count(&self, group: &str, plural: &str) -> usize {
        Stored::count(self, group, plural)
    }
}

/// The rules of `virt-api` as a link of the server's admission chain.
pub struct VirtualMachines {
    chance: Chance,
    read: Mutex<Option<Read>>,
}

/// The KubeVirt object as it was last read, so that it is read once.
struct Read {
    version: String,
    config: Arc<ClusterConfig>,
}

impl VirtualMachines {
    /// New UUIDs come from `chance`.
    #[must_use]
    pub fn new(chance: Chance) -> Self {
        Self { chance, read: Mutex::default() }
    }

    /// Answers a webhook's `AdmissionReview` with one, and with what must be written before it goes back.
    ///
    /// # Errors
    /// When it is no review that can be answered; an object that is refused is an answer.
    pub fn review(&self, asked: &Value, objects: &impl Objects) -> Result<Answer, ReviewError> {
        review::answer(asked, &Looking { rules: self, stored: objects }, keeps_virtual_machines)
    }
}

fn requester(review: &Review<'_>) -> Requester {
    let identity = review.identity;
    if keeps_virtual_machines(&identity.user) {
        Requester::Component
    } else if identity.groups.iter().any(|group| group == MASTERS) {
        Requester::Admin
    } else {
        Requester::User
    }
}

impl VirtualMachines {
    /// What the rules say about a write; none about what is not one.
    fn decide(&self, review: &Review<'_>, object: Option<&Value>) -> Option<Response> {
        let attributes = review.attributes;
        let operation = match attributes.verb {
            "create" => Operation::Create,
            "update" => Operation::Update,
            "delete" => Operation::Delete,
            _ => return None,
        };
        let request = Request {
            operation,
            group: attributes.group,
            resource: attributes.resource,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
            name: attributes.name,
            requester: requester(review),
            object,
            old: review.old,
            dry_run: review.dry_run,
        };
        Some(admit(&request, &Looking { rules: self, stored: &review.stored }))
    }

    async fn admit_eviction(&self, eviction: Eviction<'_>) -> Result<(), Status> {
        let Eviction { review, object, warnings, server } = eviction;
        let Some(Response { outcome, warnings: heard, mark }) = self.decide(review, Some(object)) else {
            return Ok(());
        };
        warnings.extend(heard);
        if let Some(Mark { instance, patch }) = mark {
            let client = Client::new(server.for_identity(Component::VirtApi.identity()), "default");
            let api: Api<VirtualMachineInstance> = Api::namespaced(client, review.attributes.namespace);
            let written = api.patch(&instance, &PatchParams::default(), &Patch::Merge(&patch)).await;
            written.map_err(|error| status(&Denial::unmarked(chain(&error)), review))?;
        }
        outcome.map(drop).map_err(|denial| status(&denial, review))
    }
}

impl Admission for VirtualMachines {
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>, warnings: &mut Vec<String>) -> Result<(), Status> {
        let Some(response) = self.decide(review, object.as_deref()) else { return Ok(()) };
        warnings.extend(response.warnings);
        let changed = response.outcome.map_err(|denial| status(&denial, review))?;
        if let (Some(object), Some(changed)) = (object, changed) {
            *object = changed;
        }
        Ok(())
    }

    fn evict<'a>(&'a self, eviction: Eviction<'a>) -> Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>> {
        Box::pin(self.admit_eviction(eviction))
    }
}

/// What the rules know of the cluster, at the moment of the request.
struct Looking<'a, O> {
    rules: &'a VirtualMachines,
    stored: &'a O,
}

impl<O: Objects> Looking<'_, O> {
    /// The revision that a reference is bound to, or else the object that it names.
    fn kept(&self, namespace: &str, reference: &Reference) -> Option<Kept> {
        let bound = reference.revision.as_ref();
        let revision = bound.and_then(|name| self.stored.get("apps", "controllerrevisions", namespace, name));
        if let Some(revision) = revision {
            return from_revision(&serde_json::from_value(revision).ok()?).ok();
        }
        let (plural, namespace) = match (reference.subject, reference.scope) {
            (Subject::Instancetype, Scope::Namespaced) => ("virtualmachineinstancetypes", namespace),
            (Subject::Instancetype, Scope::Cluster) => ("virtualmachineclusterinstancetypes", ""),
            (Subject::Preference, Scope::Namespaced) => ("virtualmachinepreferences", namespace),
            (Subject::Preference, Scope::Cluster) => ("virtualmachineclusterpreferences", ""),
        };
        let mut object = self.stored.get(INSTANCETYPES, plural, namespace, &reference.name)?;
        let spec = object.get_mut("spec").map(Value::take).unwrap_or_default();
        match reference.subject {
            Subject::Instancetype => serde_json::from_value(spec).ok().map(Kept::Instancetype),
            Subject::Preference => serde_json::from_value(spec).ok().map(Kept::Preference),
        }
    }
}

impl<O: Objects> Known for Looking<'_, O> {
    fn config(&self) -> Arc<ClusterConfig> {
        let object = self.stored.all(KUBEVIRT, "kubevirts").into_iter().next();
        let version = object.as_ref().and_then(|object| object["metadata"]["resourceVersion"].as_str());
        let version = version.unwrap_or_default().to_owned();
        let mut read = self.rules.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = read.as_ref().filter(|read| read.version == version) {
            return read.config.clone();
        }
        let object: Option<KubeVirt> = object.and_then(|object| serde_json::from_value(object).ok());
        let config = Arc::new(ClusterConfig::new(object.as_ref()));
        *read = Some(Read { version, config: config.clone() });
        config
    }

    fn architecture(&self) -> &str {
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    fn instancetype(&self, namespace: &str, reference: &Reference) -> Option<Arc<VirtualMachineInstancetypeSpec>> {
        match self.kept(namespace, reference)? {
            Kept::Instancetype(spec) => Some(Arc::new(spec)),
            Kept::Preference(_) => None,
        }
    }

    fn preference(&self, namespace: &str, reference: &Reference) -> Option<Arc<VirtualMachinePreferenceSpec>> {
        match self.kept(namespace, reference)? {
            Kept::Preference(spec) => Some(Arc::new(spec)),
            Kept::Instancetype(_) => None,
        }
    }

    fn instance(&self, namespace: &str, name: &str) -> Option<Arc<VirtualMachineInstance>> {
        let object = self.stored.get(KUBEVIRT, "virtualmachineinstances", namespace, name)?;
        serde_json::from_value(object).ok().map(Arc::new)
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        serde_json::from_value(self.stored.get("", "pods", namespace, name)?).ok()
    }

    fn migration_of(&self, namespace: &str, instance: &str) -> Option<String> {
        let near = self.stored.within(KUBEVIRT, "virtualmachineinstancemigrations", namespace);
        let moves = |one: &&Value| {
            let has_ended = matches!(one["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            one["spec"]["vmiName"] == instance && !has_ended
        };
        near.iter().find(moves)?["metadata"]["name"].as_str().map(str::to_owned)
    }

    fn restore_of(&self, namespace: &str, vm: &str) -> Option<String> {
        let near = self.stored.within("snapshot.kubevirt.io", "virtualmachinerestores", namespace);
        let goes_on = |one: &&Value| {
            let conditions = one["status"]["conditions"].as_array().into_iter().flatten();
            let failed = conditions.into_iter().any(|condition| condition["type"] == "Failure");
            one["spec"]["target"]["name"] == vm && one["status"]["complete"] != true && !failed
        };
        near.iter().find(goes_on)?["metadata"]["name"].as_str().map(str::to_owned)
    }

    fn presets(&self, namespace: &str) -> Vec<VirtualMachineInstancePreset> {
        let plural = "virtualmachineinstancepresets";
        // Hardly anybody has any, and every instance asks.
        if self.stored.count(KUBEVIRT, plural) == 0 {
            return Vec::new();
        }
        let near = self.stored.within(KUBEVIRT, plural, namespace).into_iter();
        near.filter_map(|preset| serde_json::from_value(preset).ok()).collect()
    }

    fn kubevirts(&self) -> usize {
        self.stored.count(KUBEVIRT, "kubevirts")
    }

    fn has_workloads(&self) -> bool {
        ["virtualmachines", "virtualmachineinstances"].iter().any(|plural| self.stored.count(KUBEVIRT, plural) > 0)
    }

    fn serves_data_volumes(&self) -> bool {
        let definitions = ("apiextensions.k8s.io", "customresourcedefinitions");
        self.stored.get(definitions.0, definitions.1, "", "datavolumes.cdi.kubevirt.io").is_some()
    }

    fn random_uuid(&self) -> String {
        let bits = (u128::from(self.rules.chance.number()) << 64) | u128::from(self.rules.chance.number());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }
}

fn status(denial: &Denial, review: &Review<'_>) -> Status {
    match denial.code {
        422 => {}
        429 => return Status::too_many_requests(denial.message.clone()),
        _ => return Status::denied(denial.message.clone()),
    }
    let causes = denial.causes.iter();
    let causes = causes.map(|cause| (cause.reason.as_str(), cause.message.as_str(), cause.field.as_str()));
    let about = (review.attributes.group, denial.kind.as_str(), denial.name.as_str());
    Status::unprocessable(denial.message.clone(), about, causes)
}

#[cfg(test)]
mod tests {
    use apiserver::{ApiServer, Identity, Place};
    use http::Request;
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;
    use crate::{Component, Settings};

    struct Client(kube::Client);

    impl Client {
        async fn send(
            &self,
            method: &str,
            path: &str,
            content_type: &str,
            body: &Value,
        ) -> (u16, http::HeaderMap, Value) {
            let request = Request::builder().method(method).uri(path).header("content-type", content_type);
            let request = request.body(kube::client::Body::from(body.to_string().into_bytes())).unwrap();
            let (parts, body) = self.0.send(request).await.unwrap().into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            (parts.status.as_u16(), parts.headers, serde_json::from_slice(&bytes).unwrap_or_default())
        }

        async fn create(&self, path: &str, body: &Value) -> (u16, http::HeaderMap, Value) {
            self.send("POST", path, "application/json", body).await
        }
    }

    async fn server() -> ApiServer {
        let mut settings = Settings::new(Chance::seeded(1)).unwrap();
        let needed = ["VirtualMachine", "VirtualMachineInstance", "VirtualMachinePool"];
        settings.kinds.retain(|kind| needed.contains(&kind.spec.names.kind.as_str()));
        let server = crate::start(ApiServer::builder(Place::Memory).seed(1), settings).await.unwrap();
        let admin = Client(kube::Client::new(server.for_identity(Identity::admin()), "default"));
        let users = json!({
            "metadata": { "name": "users" },
            "roleRef": { "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "Group", "name": "users" }],
        });
        let answer = admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &users).await;
        assert_eq!(answer.0, 201, "{}", answer.2);
        server
    }

    fn user(server: &ApiServer, name: &str) -> Client {
        Client(kube::Client::new(server.for_identity(Identity::new(name, ["users".to_owned()])), "default"))
    }

    const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
    const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
    const MERGE: &str = "application/merge-patch+json";

    fn instance(spec: &Value) -> Value {
        let mut whole = json!({ "domain": { "devices": {}, "memory": { "guest": "64Mi" } } });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "v" }, "spec": whole })
    }

    #[tokio::test]
    async fn an_instance_is_filled_in_and_then_frozen() {
        let server = server().await;
        let somebody = user(&server, "somebody");
        let (code, _, made) = somebody.create(INSTANCES, &instance(&json!({}))).await;
        assert_eq!(code, 201, "{made}");
        assert_eq!(made["spec"]["domain"]["machine"]["type"], "q35");
        assert_eq!(made["status"]["phase"], "Pending");
        let path = format!("{INSTANCES}/v");
        let (code, _, refused) = somebody.send("PATCH", &path, MERGE, &json!({ "spec": { "hostname": "h" } })).await;
        assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
        assert_eq!(refused["details"]["causes"][0]["field"], "spec.hostname");
        let running = json!({ "status": { "phase": "Running" } });
        let (_, _, kept) = somebody.send("PATCH", &path, MERGE, &running).await;
        assert_eq!(kept["status"]["phase"], "Pending");
        let handler = server.for_identity(Component::VirtHandler.identity());
        let handler = Client(kube::Client::new(handler, "default"));
        let (_, _, set) = handler.send("PATCH", &path, MERGE, &running).await;
        assert_eq!(set["status"]["phase"], "Running");
    }

    #[tokio::test]
    async fn problems_and_warnings_reach_the_client() {
        let server = server().await;
        let somebody = user(&server, "somebody");
        let wrong = instance(&json!({ "hostname": "Bad", "subdomain": "a_b" }));
        let (code, _, refused) = somebody.create(INSTANCES, &wrong).await;
        let causes = refused["details"]["causes"].as_array().unwrap();
        let fields: Vec<&Value> = causes.iter().map(|cause| &cause["field"]).collect();
        assert_eq!((code, fields), (422, vec![&json!("spec.hostname"), &json!("spec.subdomain")]));
        let details = &refused["details"];
        assert_eq!((&details["kind"], &details["name"]), (&json!("VirtualMachineInstance"), &json!("v")));
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "v" },
            "spec": { "running": false, "template": { "spec": instance(&json!({}))["spec"] } },
        });
        let (code, headers, made) = somebody.create(MACHINES, &machine).await;
        assert_eq!(code, 201, "{made}");
        assert_eq!(headers["warning"], "299 - \"spec.running: is deprecated; use spec.runStrategy\"");
        assert_eq!(
            made["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"],
            "f9681a64-d330-4861-b0f4-d125cc0d694a"
        );
        let pool = json!({
            "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": { "name": "p" },
            "spec": { "selector": {}, "virtualMachineTemplate": { "spec": machine["spec"] } },
        });
        let path = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools";
        let (code, _, refused) = somebody.create(path, &pool).await;
        assert_eq!(code, 422, "{refused}");
        assert_eq!(refused["details"]["causes"][0]["field"], "spec.selector", "{refused}");
    }
}
