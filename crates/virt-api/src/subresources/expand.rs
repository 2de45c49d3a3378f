//! A VM with what its instancetype and its preference make of it written out.

use std::sync::Arc;

use api::instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype};
use api::kubevirt::KubeVirt;
use api::nullable::Nullable;
use api::preference::{VirtualMachineClusterPreference, VirtualMachinePreference};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use virt_rules::config::ClusterConfig;
use virt_rules::instancetype::matcher::{self, Reference, Scope, Subject};
use virt_rules::instancetype::revision::{Kept, from_revision};
use virt_rules::instancetype::{expand, storage_class};

use super::answer::{self, Problem};
use super::vms::whole;
use super::{Call, Inner};
use crate::vm::kept;

type Answer = Result<Response<Full<Bytes>>, Problem>;

/// Why a VM cannot be written out; the caller's fault if the VM is.
type Why = String;

impl Inner {
    /// Of a VM that is stored.
    pub(super) async fn expand(&self, call: &Call) -> Answer {
        let vm = self.vm(call).await?;
        self.expanded(vm, &call.matched.namespace).await.map_err(Problem::internal)
    }

    /// Of a VM that the caller gives.
    pub(super) async fn expand_given(&self, call: &Call) -> Answer {
        if call.body.is_empty() {
            return Err(Problem::bad_request("empty request body"));
        }
        let given: Value = serde_json::from_slice(&call.body).map_err(|error| super::unreadable(&error))?;
        let mut vm: VirtualMachine = match api::decode::object(given) {
            Ok(decoded) => decoded.object,
            Err(error) => {
                let refused = Problem::bad_request("Object is not a valid VirtualMachine");
                return Err(refused.with_causes([error.to_string()]));
            }
        };
        let namespace = &call.matched.namespace;
        if vm.metadata.namespace.as_ref().is_some_and(|own| !own.is_empty() && own != namespace) {
            return Err(Problem::bad_request(format!("VM namespace must be empty or {namespace}")));
        }
        vm.metadata.namespace = Some(namespace.clone());
        self.expanded(vm, namespace).await.map_err(Problem::bad_request)
    }

    async fn expanded(&self, mut vm: VirtualMachine, namespace: &str) -> Result<Response<Full<Bytes>>, Why> {
        let status = vm.status.as_ref();
        let sizes = matcher::instancetype(&vm.spec).map_err(|error| error.to_string())?.map(|reference| {
            let bound = kept(&reference, status.and_then(|status| status.instancetype_ref.as_ref()));
            bound.unwrap_or(reference)
        });
        let likes = matcher::preference(&vm.spec).map_err(|error| error.to_string())?.map(|reference| {
            let bound = kept(&reference, status.and_then(|status| status.preference_ref.as_ref()));
            bound.unwrap_or(reference)
        });
        if sizes.is_none() && likes.is_none() {
            return shown(&vm);
        }
        let sizes = match sizes {
            Some(reference) => match self.kept(namespace, &reference).await? {
                Kept::Instancetype(spec) => Some(spec),
                Kept::Preference(_) => return Err(format!("{} is not an instancetype", reference.name)),
            },
            None => None,
        };
        let likes = match likes {
            Some(reference) => match self.kept(namespace, &reference).await? {
                Kept::Preference(spec) => Some(spec),
                Kept::Instancetype(_) => return Err(format!("{} is not a preference", reference.name)),
            },
            None => None,
        };
        let config = self.config().await.map_err(|_| "Failed getting KubeVirt config".to_owned())?;
        let mut vmi = VirtualMachineInstance::default();
        vmi.metadata.annotations = vm.spec.template.metadata.as_ref().and_then(|data| data.annotations.clone());
        vmi.spec = vm.spec.template.spec.clone().unwrap_or_default();
        expand(&mut vmi, &config, sizes.as_ref(), likes.as_ref()).map_err(|error| error.to_string())?;
        vm.spec.template.spec = Some(vmi.spec);
        if let Some(annotations) = vmi.metadata.annotations {
            let mut metadata = std::mem::take(&mut vm.spec.template.metadata).into_option().unwrap_or_default();
            metadata.annotations = Some(annotations);
            vm.spec.template.metadata = Nullable::Value(metadata);
        }
        if let (Some(likes), Some(templates)) = (&likes, &mut vm.spec.data_volume_templates) {
            storage_class(templates, likes);
        }
        vm.spec.instancetype = None;
        vm.spec.preference = None;
        shown(&vm)
    }

    /// What a reference stands for: the revision that it is bound to, or the object as it is now.
    async fn kept(&self, namespace: &str, reference: &Reference) -> Result<Kept, Why> {
        if let Some(revision) = &reference.revision {
            let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace);
            let revision = found(api.get(revision).await)?;
            return from_revision(&revision).map_err(|error| error.to_string());
        }
        let (client, name) = (&self.client, &reference.name);
        Ok(match (reference.subject, reference.scope) {
            (Subject::Instancetype, Scope::Namespaced) => {
                let api = Api::<VirtualMachineInstancetype>::namespaced(client.clone(), namespace);
                Kept::Instancetype(found(api.get(name).await)?.spec)
            }
            (Subject::Instancetype, Scope::Cluster) => {
                let api: Api<VirtualMachineClusterInstancetype> = Api::all(client.clone());
                Kept::Instancetype(found(api.get(name).await)?.spec)
            }
            (Subject::Preference, Scope::Namespaced) => {
                let api = Api::<VirtualMachinePreference>::namespaced(client.clone(), namespace);
                Kept::Preference(found(api.get(name).await)?.spec)
            }
            (Subject::Preference, Scope::Cluster) => {
                let api: Api<VirtualMachineClusterPreference> = Api::all(client.clone());
                Kept::Preference(found(api.get(name).await)?.spec)
            }
        })
    }

    /// What the KubeVirt object says; with several, the oldest counts.
    pub(super) async fn config(&self) -> Result<Arc<ClusterConfig>, Problem> {
        let api: Api<KubeVirt> = Api::all(self.client.clone());
        let all = api.list(&ListParams::default()).await.map_err(Problem::internal)?;
        let object = all.items.into_iter().min_by_key(|one| (one.creation_timestamp(), one.uid()));
        Ok(Arc::new(ClusterConfig::new(object.as_ref())))
    }
}

/// In the API server's own words, if it has not.
fn found<K>(answer: Result<K, kube::Error>) -> Result<K, Why> {
    answer.map_err(|error| match error {
        kube::Error::Api(status) => status.message,
        other => other.to_string(),
    })
}

fn shown(vm: &VirtualMachine) -> Result<Response<Full<Bytes>>, Why> {
    let object = serde_json::to_value(vm).map_err(|error| error.to_string())?;
    Ok(answer::json(&whole("VirtualMachine", object)))
}
