//! A user of deployments, families of objects, kinds of its own, namespaces, nodes.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{NAMESPACES, policy, read, told, tolerate};
use crate::chance::Chance;
use crate::witness::{HOLD, Witness};

const NAMES: [&str; 3] = ["web", "db", "cache"];

pub(in crate::scenario) struct User {
    client: Client,
    witness: Witness,
    chance: Chance,
    /// Numbers what must be new each time.
    count: u32,
}

impl User {
    pub(super) fn new(client: Client, witness: Witness, seed: u64) -> Self {
        Self { client, witness, chance: Chance::new(seed, 3), count: 0 }
    }

    pub(super) async fn begin(&mut self) -> Result<(), kube::Error> {
        super::make_namespaces(&self.client).await?;
        self.create_deployment("blue", "web").await.map(drop)
    }

    /// Does something, and tells what.
    pub(super) async fn act(&mut self) -> Result<String, kube::Error> {
        let namespace = self.chance.one_of(&NAMESPACES).copied().unwrap_or("blue");
        let name = self.chance.one_of(&NAMES).copied().unwrap_or("web");
        match self.chance.below(24) {
            0..=4 => self.create_deployment(namespace, name).await,
            5..=7 => {
                self.count += 1;
                let image = format!("image:{}", self.count);
                let template = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
                self.change(namespace, name, json!({ "spec": { "template": template } })).await
            }
            8..=10 => {
                let replicas = self.chance.below(6);
                self.change(namespace, name, json!({ "spec": { "replicas": replicas } })).await
            }
            11 => {
                let paused = self.chance.permille(500);
                self.change(namespace, name, json!({ "spec": { "paused": paused } })).await
            }
            12 | 13 => self.delete_deployment(namespace, name).await,
            14 => self.delete_pod(namespace).await,
            15 | 16 => self.make_family(namespace).await,
            17 => self.delete_family(namespace).await,
            18 => super::cordon(&self.client, &mut self.chance).await,
            19 => self.vandalize(namespace).await,
            20 => self.ask_for_token(namespace).await,
            21 | 22 => self.make_custom(namespace).await,
            _ => super::renew_namespace(&self.client, namespace).await,
        }
    }

    /// Lets go of everything that would not come to rest by itself.
    pub(super) async fn let_go(&mut self) -> Result<(), kube::Error> {
        for namespace in NAMESPACES {
            let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
            for map in maps.list(&ListParams::default()).await? {
                if map.finalizers().iter().any(|one| one == HOLD) {
                    self.witness.release(map.uid().unwrap_or_default());
                    let left: Vec<&String> = map.finalizers().iter().filter(|one| *one != HOLD).collect();
                    let patch = json!({ "metadata": { "finalizers": left } });
                    tolerate(maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
                }
            }
            let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
            for deployment in deployments.list(&ListParams::default()).await? {
                self.change(namespace, &deployment.name_any(), json!({ "spec": { "paused": false } })).await?;
            }
        }
        super::uncordon(&self.client).await
    }

    /// What others wait for: something that runs.
    pub(super) async fn tend(&mut self) -> Result<Option<String>, kube::Error> {
        if self.witness.progress().ran > 0 {
            return Ok(None);
        }
        let (namespace, name) = ("blue", "certain");
        super::make_namespace(&self.client, namespace).await?;
        let labels = json!({ "app": name });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "image:0" }] } });
        let spec = json!({ "replicas": 1, "selector": { "matchLabels": labels }, "template": template });
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let deployment = read(json!({ "metadata": { "name": name }, "spec": spec }))?;
        let made = tolerate(api.create(&PostParams::default(), &deployment).await)?;
        Ok(made.map(|_| format!("create deployment {namespace}/{name}, which runs")))
    }

    async fn create_deployment(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let limits = [json!(0), json!(1), json!(2), json!("25%"), json!("50%")];
        let surge = self.chance.one_of(&limits).cloned().unwrap_or_default();
        let mut unavailable = self.chance.one_of(&limits).cloned().unwrap_or_default();
        if surge == json!(0) && unavailable == json!(0) {
            unavailable = json!(1);
        }
        let strategy = match self.chance.below(4) {
            0 => json!({ "type": "Recreate" }),
            _ => {
                json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } })
            }
        };
        let deployment = json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": self.chance.below(6),
                "revisionHistoryLimit": self.chance.below(3),
                "strategy": strategy,
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{ "name": "c", "image": "image:0" }], "terminationGracePeriodSeconds": 5 },
                },
            },
        });
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let made = tolerate(api.create(&PostParams::default(), &read(deployment)?).await)?;
        Ok(format!("create deployment {namespace}/{name}: {}", told(&made)))
    }

    async fn change(&mut self, namespace: &str, name: &str, patch: Value) -> Result<String, kube::Error> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let changed = tolerate(api.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await)?;
        Ok(format!("change deployment {namespace}/{name} {patch}: {}", told(&changed)))
    }

    async fn delete_deployment(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let policy = policy(&mut self.chance);
        let what = format!("delete deployment {namespace}/{name}, {policy:?}");
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let deleted = tolerate(api.delete(name, &parameters).await)?;
        Ok(format!("{what}: {}", told(&deleted)))
    }

    async fn delete_pod(&mut self, namespace: &str) -> Result<String, kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pods: Vec<String> =
            api.list(&ListParams::default()).await?.iter().map(kube::ResourceExt::name_any).collect();
        let Some(name) = self.chance.one_of(&pods) else { return Ok("delete no pod".to_owned()) };
        tolerate(api.delete(name, &DeleteParams::default()).await)?;
        Ok(format!("delete pod {namespace}/{name}"))
    }

    /// A parent with children, some of them held, some of them blocking.
    async fn make_family(&mut self, namespace: &str) -> Result<String, kube::Error> {
        self.count += 1;
        let name = format!("parent-{}", self.count);
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let parent = read(json!({ "metadata": { "name": name, "labels": { "family": "parent" } } }))?;
        let Some(parent) = tolerate(api.create(&PostParams::default(), &parent).await)? else {
            return Ok(format!("make no family in {namespace}"));
        };
        for child in 0..self.chance.below(4) {
            let owner = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": name,
                "uid": parent.uid(),
                "blockOwnerDeletion": self.chance.permille(500),
            });
            let mut metadata = json!({ "name": format!("{name}-child-{child}"), "ownerReferences": [owner] });
            if self.chance.permille(300) {
                metadata["finalizers"] = json!([HOLD]);
            }
            tolerate(api.create(&PostParams::default(), &read(json!({ "metadata": metadata }))?).await)?;
        }
        Ok(format!("make the family {namespace}/{name}"))
    }

    async fn delete_family(&mut self, namespace: &str) -> Result<String, kube::Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let parents = api.list(&ListParams::default().labels("family=parent")).await?;
        let parents: Vec<String> = parents.iter().map(kube::ResourceExt::name_any).collect();
        let policy = policy(&mut self.chance);
        let Some(name) = self.chance.one_of(&parents) else { return Ok("delete no family".to_owned()) };
        let what = format!("delete the family {namespace}/{name}, {policy:?}");
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        tolerate(api.delete(name, &parameters).await)?;
        Ok(what)
    }

    /// Takes away what every namespace has.
    async fn vandalize(&mut self, namespace: &str) -> Result<String, kube::Error> {
        if self.chance.permille(500) {
            let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
            tolerate(api.delete("default", &DeleteParams::default()).await)?;
            return Ok(format!("delete the default account of {namespace}"));
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let patch = json!({ "data": { "ca.crt": "another" } });
        tolerate(api.patch("kube-root-ca.crt", &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        Ok(format!("spoil the authority of {namespace}"))
    }

    async fn ask_for_token(&mut self, namespace: &str) -> Result<String, kube::Error> {
        self.count += 1;
        let name = format!("token-{}", self.count);
        let account = json!({ "kubernetes.io/service-account.name": "default" });
        let secret = json!({
            "metadata": { "name": name, "annotations": account },
            "type": "kubernetes.io/service-account-token",
        });
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let made = tolerate(api.create(&PostParams::default(), &read(secret)?).await)?;
        Ok(format!("ask for the token {namespace}/{name}: {}", told(&made)))
    }

    /// A kind of the user's own comes or goes, with an object that owns another.
    async fn make_custom(&mut self, namespace: &str) -> Result<String, kube::Error> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        if self.chance.permille(250) {
            tolerate(definitions.delete("gadgets.example.com", &DeleteParams::default()).await)?;
            return Ok("delete the kind of gadgets".to_owned());
        }
        let schema = json!({ "openAPIV3Schema": { "type": "object" } });
        let definition = json!({
            "metadata": { "name": "gadgets.example.com" },
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
            },
        });
        tolerate(definitions.create(&PostParams::default(), &read(definition)?).await)?;
        self.count += 1;
        let name = format!("gadget-{}", self.count);
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Gadget"));
        let gadgets: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let Some(gadget) = tolerate(gadgets.create(&PostParams::default(), &DynamicObject::new(&name, &kind)).await)?
        else {
            return Ok(format!("make no gadget in {namespace}"));
        };
        let owner = json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "name": name, "uid": gadget.uid() });
        let map = json!({ "metadata": { "name": format!("of-{name}"), "ownerReferences": [owner] } });
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        tolerate(maps.create(&PostParams::default(), &read(map)?).await)?;
        Ok(format!("make {namespace}/{name}"))
    }
}
