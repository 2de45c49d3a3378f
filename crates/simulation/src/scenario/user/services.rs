//! A user of services, replication controllers and disruption budgets, who evicts pods.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ReplicationController, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};

use super::{NAMESPACES, policy, read, told, tolerate};
use crate::chance::Chance;
use crate::witness::Witness;
use crate::world::World;

const NAMES: [&str; 2] = ["web", "db"];
/// So long a budget waits for a pod that it let go. Times are whole seconds.
const WAITS: SignedDuration = SignedDuration::from_secs(121);

pub(in crate::scenario) struct User {
    client: Client,
    witness: Witness,
    world: Arc<World>,
    chance: Chance,
}

impl User {
    pub(super) fn new(client: Client, witness: Witness, world: Arc<World>, seed: u64) -> Self {
        Self { client, witness, world, chance: Chance::new(seed, 3) }
    }

    pub(super) async fn begin(&mut self) -> Result<(), kube::Error> {
        super::make_namespaces(&self.client).await?;
        self.make_controller("blue", "web").await?;
        self.make_budget("blue", "web").await?;
        self.make_service("blue", "web").await.map(drop)
    }

    /// Does something, and tells what.
    pub(super) async fn act(&mut self) -> Result<String, kube::Error> {
        let namespace = self.chance.one_of(&NAMESPACES).copied().unwrap_or("blue");
        let name = self.chance.one_of(&NAMES).copied().unwrap_or("web");
        match self.chance.below(24) {
            0..=2 => self.make_controller(namespace, name).await,
            3 => self.make_deployment(namespace, name).await,
            4 | 5 => {
                let scale = json!({ "spec": { "replicas": self.chance.below(6) } });
                self.change::<ReplicationController>(namespace, name, scale).await
            }
            6 => {
                let scale = json!({ "spec": { "replicas": self.chance.below(6) } });
                self.change::<Deployment>(namespace, name, scale).await
            }
            7 => self.delete::<ReplicationController>(namespace, name).await,
            8 => self.delete::<Deployment>(namespace, name).await,
            9 | 10 => self.make_service(namespace, name).await,
            11 => {
                let other = self.chance.one_of(&NAMES).copied().unwrap_or("web");
                self.change::<Service>(namespace, name, json!({ "spec": { "selector": { "app": other } } })).await
            }
            12 => self.delete::<Service>(namespace, name).await,
            13..=15 => self.make_budget(namespace, name).await,
            16 => {
                let limit = self.limit();
                self.change::<PodDisruptionBudget>(namespace, name, json!({ "spec": limit })).await
            }
            17 => self.delete::<PodDisruptionBudget>(namespace, name).await,
            18..=20 => self.evict(namespace).await,
            21 => self.evict_half(namespace).await,
            22 => super::cordon(&self.client, &mut self.chance).await,
            _ => super::renew_namespace(&self.client, namespace).await,
        }
    }

    /// Lets go of everything that would not come to rest by itself.
    pub(super) async fn let_go(&mut self) -> Result<(), kube::Error> {
        super::uncordon(&self.client).await
    }

    /// What others wait for: something that runs.
    pub(super) async fn tend(&mut self) -> Result<Option<String>, kube::Error> {
        if self.witness.progress().ran > 0 {
            return Ok(None);
        }
        let (namespace, name) = ("blue", "certain");
        super::make_namespace(&self.client, namespace).await?;
        let made = self.make(namespace, name, json!({ "replicas": 1, "template": template(name) })).await;
        let made: Option<ReplicationController> = made?;
        Ok(made.map(|_| format!("create replication controller {namespace}/{name}, which runs")))
    }

    async fn make_controller(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let spec = json!({ "replicas": self.chance.below(6), "selector": { "app": name }, "template": template(name) });
        let made: Option<ReplicationController> = self.make(namespace, name, spec).await?;
        Ok(format!("create replication controller {namespace}/{name}: {}", told(&made)))
    }

    async fn make_deployment(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let labels = json!({ "matchLabels": { "app": name, "of": "deployment" } });
        let mut template = template(name);
        template["metadata"]["labels"]["of"] = "deployment".into();
        let spec = json!({ "replicas": self.chance.below(4), "selector": labels, "template": template });
        let made: Option<Deployment> = self.make(namespace, name, spec).await?;
        Ok(format!("create deployment {namespace}/{name}: {}", told(&made)))
    }

    async fn make_service(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let address = if self.chance.permille(300) { "None" } else { "10.96.0.9" };
        let spec = json!({
            "selector": { "app": name },
            "clusterIP": address,
            "ipFamilies": ["IPv4"],
            "publishNotReadyAddresses": self.chance.permille(200),
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
        });
        let made: Option<Service> = self.make(namespace, name, spec).await?;
        Ok(format!("create service {namespace}/{name}: {}", told(&made)))
    }

    async fn make_budget(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let mut spec = self.limit();
        spec["selector"] = json!({ "matchLabels": { "app": name } });
        let made: Option<PodDisruptionBudget> = self.make(namespace, name, spec).await?;
        Ok(format!("create budget {namespace}/{name}: {}", told(&made)))
    }

    fn limit(&mut self) -> Value {
        let limits = [json!(0), json!(1), json!(2), json!("34%"), json!("50%"), json!("100%")];
        let limit = self.chance.one_of(&limits).cloned().unwrap_or_default();
        match self.chance.permille(500) {
            true => json!({ "minAvailable": limit, "maxUnavailable": null }),
            false => json!({ "maxUnavailable": limit, "minAvailable": null }),
        }
    }

    async fn evict(&mut self, namespace: &str) -> Result<String, kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pods = api.list(&ListParams::default()).await?;
        let pods: Vec<String> = pods.iter().map(kube::ResourceExt::name_any).collect();
        let Some(name) = self.chance.one_of(&pods) else { return Ok("evict no pod".to_owned()) };
        let evicted = tolerate(api.evict(name, &EvictParams::default()).await)?;
        Ok(format!("evict pod {namespace}/{name}: {}", told(&evicted)))
    }

    /// What an API server leaves behind that is killed in the middle of an eviction: the budget has let the pod go, and it stays.
    async fn evict_half(&mut self, namespace: &str) -> Result<String, kube::Error> {
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        let budgets = api.list(&ListParams::default()).await?.items;
        let allows = |budget: &&PodDisruptionBudget| {
            let status = budget.status.clone().unwrap_or_default();
            status.observed_generation == budget.metadata.generation && status.disruptions_allowed > Some(0)
        };
        let budgets: Vec<PodDisruptionBudget> = budgets.iter().filter(allows).cloned().collect();
        let Some(mut budget) = self.chance.one_of(&budgets).cloned() else { return Ok("evict no pod half".to_owned()) };
        let labels = budget.spec.clone().and_then(|spec| spec.selector?.match_labels).unwrap_or_default();
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace).list(&ListParams::default()).await?.items;
        let stays = |pod: &&Pod| {
            let has = |(key, value): (&String, &String)| pod.labels().get(key) == Some(value);
            pod.metadata.deletion_timestamp.is_none() && labels.iter().all(has)
        };
        let pods: Vec<String> = pods.iter().filter(stays).map(kube::ResourceExt::name_any).collect();
        let Some(pod) = self.chance.one_of(&pods).cloned() else { return Ok("evict no pod half".to_owned()) };
        let status = budget.status.get_or_insert_default();
        status.disruptions_allowed = status.disruptions_allowed.map(|allowed| allowed - 1);
        let now = Timestamp::from_second(self.world.time().as_second()).unwrap_or_default();
        status.disrupted_pods.get_or_insert_default().insert(pod.clone(), Time(now));
        // Only over what was seen, as the server does.
        let noted = tolerate(api.replace_status(&budget.name_any(), &PostParams::default(), &budget).await)?;
        Ok(format!("evict pod {namespace}/{pod} half: {}", told(&noted)))
    }

    /// A budget that has let a pod go waits for it.
    pub(super) async fn sees_patience(&self, now: Timestamp) -> Result<bool, kube::Error> {
        let budgets = Api::<PodDisruptionBudget>::all(self.client.clone()).list(&ListParams::default()).await?;
        let waits = |budget: &PodDisruptionBudget| {
            let noted = budget.status.iter().flat_map(|status| status.disrupted_pods.iter().flatten());
            noted.into_iter().any(|(_, since)| now.duration_since(since.0) < WAITS)
        };
        Ok(budgets.iter().any(waits))
    }

    async fn make<T>(&self, namespace: &str, name: &str, spec: Value) -> Result<Option<T>, kube::Error>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Kind,
    {
        let api: Api<T> = Api::namespaced(self.client.clone(), namespace);
        let object = read(json!({ "metadata": { "name": name }, "spec": spec }))?;
        tolerate(api.create(&PostParams::default(), &object).await)
    }

    async fn change<T>(&self, namespace: &str, name: &str, patch: Value) -> Result<String, kube::Error>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Kind,
    {
        let api: Api<T> = Api::namespaced(self.client.clone(), namespace);
        let changed = tolerate(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        Ok(format!("change {} {namespace}/{name} {patch}: {}", T::kind(&()), told(&changed)))
    }

    async fn delete<T>(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Kind,
    {
        let policy = policy(&mut self.chance);
        let what = format!("delete {} {namespace}/{name}, {policy:?}", T::kind(&()));
        let api: Api<T> = Api::namespaced(self.client.clone(), namespace);
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let deleted = tolerate(api.delete(name, &parameters).await)?;
        Ok(format!("{what}: {}", told(&deleted)))
    }
}

/// What all kinds of this user are.
trait Kind: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize {}

impl<T: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize> Kind for T {}

fn template(name: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": name } },
        "spec": { "containers": [{ "name": "c", "image": "image:0" }], "terminationGracePeriodSeconds": 5 },
    })
}
