//! Finds the VM that a launcher's pod belongs to, so that the VM keeps its addresses; and gives them to the pod that its guest is in.

use std::sync::Arc;

use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use manager::errors::chain;
use network::cni::Cni;
use node::agent::parts::{Answer, Failure, Identities};
use virt_handler::identity;
use virt_handler::networks::{Addresses, Claiming};
use virt_server::is_same_image;

/// Asks the API server: from the pod's instance to its VM, by UID, in the pod's own namespace. Only pods of the machine's own
/// programs are asked about, since nobody but virt-controller makes those.
pub(super) struct OfVms {
    pub(super) client: Client,
    pub(super) image: &'static str,
}

impl Identities for OfVms {
    fn of<'a>(&'a self, pod: &'a Pod) -> Answer<'a, Option<String>> {
        Box::pin(async move { self.vm_of(pod).await.map_err(|error| Failure::of(&error)) })
    }
}

impl OfVms {
    async fn vm_of(&self, pod: &Pod) -> Result<Option<String>, kube::Error> {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut images = containers.filter_map(|container| container.image.as_deref());
        let owner = pod
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true) && owner.kind == VirtualMachineInstance::kind(&()));
        let (Some(owner), Some(namespace), true) =
            (owner, pod.namespace(), images.any(|used| is_same_image(used, self.image)))
        else {
            return Ok(None);
        };
        let vmis: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &namespace);
        match vmis.get_opt(&owner.name).await? {
            // An instance on its own keeps its addresses while it moves.
            Some(vmi) if vmi.metadata.uid.as_ref() == Some(&owner.uid) => {
                Ok(identity::vm_of(&self.client, &vmi).await?.or(vmi.metadata.uid))
            }
            _ => Ok(None),
        }
    }
}

/// The pods' network of this machine, in which a guest's addresses come along with it.
#[derive(Debug)]
pub(super) struct OfGuests(pub(super) Arc<Cni>);

impl Addresses for OfGuests {
    fn claim<'a>(&'a self, pod: &'a str) -> Claiming<'a> {
        Box::pin(async move { self.0.claim(pod).await.map_err(|error| chain(&error)) })
    }
}

#[cfg(test)]
mod tests {
    use api::vm::VirtualMachine;
    use apiserver::{ApiServer, Identity, Place};
    use k8s_openapi::api::core::v1::Namespace;
    use kube::api::PostParams;
    use manager::context::Chance;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    const IMAGE: &str = "example.org/machine";

    struct Bench {
        identities: OfVms,
    }

    impl Bench {
        async fn new() -> Self {
            let settings = virt_server::Settings::new(Chance::seeded(1)).unwrap();
            let server = virt_server::start(ApiServer::builder(Place::Memory), settings).await.unwrap();
            let client = Client::new(server.for_identity(Identity::admin()), "default");
            let bench = Self { identities: OfVms { client, image: IMAGE } };
            for name in ["red", "blue"] {
                let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
                let api: Api<Namespace> = Api::all(bench.identities.client.clone());
                api.create(&PostParams::default(), &namespace).await.unwrap();
            }
            bench
        }

        /// Makes an object; its UID.
        async fn make<K>(&self, namespace: &str, mut object: Value) -> String
        where
            K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
            K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
        {
            object["apiVersion"] = json!(K::api_version(&()));
            object["kind"] = json!(K::kind(&()));
            let api: Api<K> = Api::namespaced(self.identities.client.clone(), namespace);
            let made = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
            made.uid().unwrap()
        }

        async fn vm(&self, namespace: &str, name: &str) -> String {
            let template = json!({ "spec": { "domain": { "devices": {}, "memory": { "guest": "64Mi" } } } });
            let spec = json!({ "runStrategy": "Halted", "template": template });
            self.make::<VirtualMachine>(namespace, json!({ "metadata": { "name": name }, "spec": spec })).await
        }

        /// An instance that says that this is its VM; its UID.
        async fn vmi(&self, namespace: &str, name: &str, owner: Value) -> String {
            let metadata = json!({ "name": name, "ownerReferences": [owner] });
            let spec = json!({ "domain": { "devices": {}, "memory": { "guest": "64Mi" } } });
            self.make::<VirtualMachineInstance>(namespace, json!({ "metadata": metadata, "spec": spec })).await
        }

        async fn of(&self, namespace: &str, owner: Value, image: &str) -> Option<String> {
            let annotations = json!({ "orlop.dev/network-identity": "forged" });
            let metadata =
                json!({ "name": "p", "namespace": namespace, "ownerReferences": [owner], "annotations": annotations });
            let spec = json!({ "containers": [{ "name": "compute", "image": image }] });
            let pod: Pod = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
            self.identities.of(&pod).await.unwrap()
        }
    }

    fn owner(kind: &str, name: &str, uid: &str) -> Value {
        json!({ "apiVersion": "kubevirt.io/v1", "kind": kind, "name": name, "uid": uid, "controller": true })
    }

    #[tokio::test]
    async fn a_vm_comes_back_to_its_addresses_and_nobody_else_does() {
        let bench = Bench::new().await;
        let (red, other) = (bench.vm("red", "v").await, bench.vm("red", "other").await);
        let vmi = bench.vmi("red", "v", owner("VirtualMachine", "v", &red)).await;
        let of_vmi = |name: &str, uid: &str| owner("VirtualMachineInstance", name, uid);
        assert_eq!(bench.of("red", of_vmi("v", &vmi), IMAGE).await, Some(red.clone()));

        assert_eq!(bench.of("red", of_vmi("v", &vmi), "example.org/other").await, None, "a pod of anybody's");
        assert_eq!(bench.of("blue", of_vmi("v", &vmi), IMAGE).await, None, "an instance of another namespace");
        assert_eq!(bench.of("red", of_vmi("v", &red), IMAGE).await, None, "another UID than the instance's");
        assert_eq!(bench.of("red", owner("VirtualMachine", "v", &red), IMAGE).await, None, "no instance between");

        // What users write into their instances.
        let forgeries = [
            ("v", owner("VirtualMachine", "v", &red), "another namespace's VM"),
            ("w", owner("VirtualMachine", "v", &red), "by its name, too"),
        ];
        for (name, forged, what) in forgeries {
            let vmi = bench.vmi("blue", name, forged).await;
            assert_eq!(bench.of("blue", of_vmi(name, &vmi), IMAGE).await, Some(vmi), "{what}");
        }
        let forgeries = [
            ("other", owner("VirtualMachine", "other", &red), "a neighbour's UID under another name"),
            ("x", owner("VirtualMachine", "other", &other), "a VM whose instance has another name"),
            ("y", owner("VirtualMachineInstanceReplicaSet", "y", &red), "another kind"),
        ];
        for (name, forged, what) in forgeries {
            let vmi = bench.vmi("red", name, forged).await;
            assert_eq!(bench.of("red", of_vmi(name, &vmi), IMAGE).await, Some(vmi), "{what}");
        }
    }
}
