//! What services, replication controllers and disruption budgets must have come to.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Pod, ReplicationController, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};

use super::Wrong;
use crate::About;

pub(super) async fn check(client: &Client, wrong: &mut Wrong) -> Result<(), kube::Error> {
    super::deployments::check(client, wrong).await?;
    let pods: Vec<Pod> = all(client).await?;
    controllers(client, &pods, wrong).await?;
    budgets(client, &pods, wrong).await?;
    services(client, &pods, wrong).await
}

async fn all<T>(client: &Client) -> Result<Vec<T>, kube::Error>
where
    T: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    Ok(Api::<T>::all(client.clone()).list(&ListParams::default()).await?.items)
}

/// Every replication controller has its pods, and says so.
async fn controllers(client: &Client, pods: &[Pod], wrong: &mut Wrong) -> Result<(), kube::Error> {
    for one in all::<ReplicationController>(client).await? {
        let wanted = one.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let is_mine = |pod: &&Pod| owner(pod).is_some_and(|(_, uid)| Some(uid) == one.uid());
        let has = count(pods.iter().filter(is_mine).count());
        let status = one.status.clone().unwrap_or_default();
        let told = (status.replicas, status.ready_replicas.unwrap_or(0));
        if has != wanted || told != (wanted, wanted) {
            let name = one.name_any();
            let what =
                format!("replication controller {name} asks for {wanted}, has {has} and tells {told:?} in the end");
            wrong.add(Some(About::of(&one.metadata)), what);
        }
    }
    Ok(())
}

/// Every budget says what may go, as anybody could count it.
async fn budgets(client: &Client, pods: &[Pod], wrong: &mut Wrong) -> Result<(), kube::Error> {
    let scales = scales(client).await?;
    for budget in all::<PodDisruptionBudget>(client).await? {
        let spec = budget.spec.clone().unwrap_or_default();
        let labels = spec.selector.and_then(|selector| selector.match_labels).unwrap_or_default();
        let own: Vec<&Pod> = near(pods, &budget.metadata.namespace).filter(|pod| has(pod, &labels)).collect();
        let owners: BTreeSet<String> = own.iter().filter_map(|pod| owner(pod)).map(|(_, uid)| uid).collect();
        let counted: BTreeMap<&String, i32> =
            owners.iter().filter_map(|uid| scales.get(uid)).map(|(owner, replicas)| (owner, *replicas)).collect();
        let by_owners: i32 = counted.values().sum();
        let (expected, desired) = match (&spec.max_unavailable, &spec.min_available) {
            (Some(limit), _) => (by_owners, (by_owners - share(limit, by_owners)).max(0)),
            (None, Some(IntOrString::Int(least))) => (count(own.len()), *least),
            (None, Some(limit)) => (by_owners, share(limit, by_owners)),
            (None, None) => (0, 0),
        };
        let healthy = count(own.iter().filter(|pod| is_ready(pod)).count());
        let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
        let status = budget.status.clone().unwrap_or_default();
        let number = |field: Option<i32>| field.unwrap_or(0);
        let (healthy_told, allowed_told) = (number(status.current_healthy), number(status.disruptions_allowed));
        let told = (number(status.expected_pods), number(status.desired_healthy), healthy_told, allowed_told);
        let about = || Some(About::of(&budget.metadata));
        if told != (expected, desired, healthy, allowed) {
            let right = (expected, desired, healthy, allowed);
            wrong.add(about(), format!("budget {} tells {told:?} and not {right:?} in the end", budget.name_any()));
        }
        if status.observed_generation != budget.metadata.generation {
            wrong.add(about(), format!("budget {} does not tell of its last change", budget.name_any()));
        }
        if let Some(noted) = status.disrupted_pods.filter(|noted| !noted.is_empty()) {
            let what = format!("budget {} waits for {:?} in the end", budget.name_any(), noted.keys());
            wrong.add(about(), what);
        }
    }
    Ok(())
}

/// How many pods the controllers of pods want, and whose word that is, by UID.
async fn scales(client: &Client) -> Result<BTreeMap<String, (String, i32)>, kube::Error> {
    let mut scales = BTreeMap::new();
    for one in all::<ReplicationController>(client).await? {
        let uid = one.uid().unwrap_or_default();
        scales.insert(uid.clone(), (uid, one.spec.and_then(|spec| spec.replicas).unwrap_or(1)));
    }
    let deployments: BTreeMap<String, i32> = all::<Deployment>(client)
        .await?
        .into_iter()
        .map(|one| (one.uid().unwrap_or_default(), one.spec.and_then(|spec| spec.replicas).unwrap_or(1)))
        .collect();
    for set in all::<ReplicaSet>(client).await? {
        let uid = set.uid().unwrap_or_default();
        let above = set.owner_references().iter().find(|one| one.controller == Some(true)).map(|one| one.uid.clone());
        let own = set.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let above = above.and_then(|above| deployments.get(&above).map(|replicas| (above.clone(), *replicas)));
        scales.insert(uid.clone(), above.unwrap_or((uid, own)));
    }
    Ok(scales)
}

/// Every service is told where its pods are, all of them and each once, in both forms.
async fn services(client: &Client, pods: &[Pod], wrong: &mut Wrong) -> Result<(), kube::Error> {
    let (slices, endpoints): (Vec<EndpointSlice>, Vec<Endpoints>) = (all(client).await?, all(client).await?);
    let services: Vec<Service> = all(client).await?;
    for service in services.iter().filter(|one| one.metadata.deletion_timestamp.is_none()) {
        let spec = service.spec.clone().unwrap_or_default();
        let Some(labels) = spec.selector else { continue };
        let publishes = spec.publish_not_ready_addresses == Some(true);
        let own = near(pods, &service.metadata.namespace).filter(|pod| has(pod, &labels) && is_reached(pod));
        let mut right: Vec<(String, bool)> = own.map(|pod| (pod.name_any(), publishes || is_ready(pod))).collect();
        right.sort();
        let (name, about) = (service.name_any(), Some(About::of(&service.metadata)));
        let told = in_slices(service, &slices);
        if told.as_ref() != Some(&right) {
            wrong.add(about.clone(), format!("service {name} has {right:?} and its slices tell {told:?} in the end"));
        }
        let told = in_endpoints(service, &endpoints);
        if told.as_ref() != Some(&right) {
            wrong.add(about, format!("service {name} has {right:?} and its endpoints tell {told:?} in the end"));
        }
    }
    let keys: BTreeSet<_> = services.iter().map(|one| (one.namespace(), one.name_any())).collect();
    for left in endpoints.iter().filter(|one| !keys.contains(&(one.namespace(), one.name_any()))) {
        let what = format!("endpoints {} are there in the end, and their service is not", left.name_any());
        wrong.add(Some(About::of(&left.metadata)), what);
    }
    Ok(())
}

/// What the slices of a service tell, in order; none, if there are none.
fn in_slices(service: &Service, slices: &[EndpointSlice]) -> Option<Vec<(String, bool)>> {
    let is_its =
        |slice: &&EndpointSlice| slice.owner_references().iter().any(|one| Some(&one.uid) == service.uid().as_ref());
    let own: Vec<&EndpointSlice> = slices.iter().filter(is_its).collect();
    let endpoints = own.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let mut told: Vec<(String, bool)> = endpoints
        .filter_map(|one| {
            let ready = one.conditions.as_ref().and_then(|conditions| conditions.ready);
            Some((one.target_ref.as_ref()?.name.clone()?, ready == Some(true)))
        })
        .collect();
    told.sort();
    (!own.is_empty()).then_some(told)
}

fn in_endpoints(service: &Service, endpoints: &[Endpoints]) -> Option<Vec<(String, bool)>> {
    let own =
        endpoints.iter().find(|one| (one.namespace(), one.name_any()) == (service.namespace(), service.name_any()))?;
    let names = |addresses: &Option<Vec<EndpointAddress>>, ready: bool| -> Vec<(String, bool)> {
        let targets = addresses.iter().flatten().filter_map(|one| one.target_ref.as_ref()?.name.clone());
        targets.map(|name| (name, ready)).collect()
    };
    let subsets = own.subsets.iter().flatten();
    let mut told: Vec<_> = subsets
        .flat_map(|one| [names(&one.addresses, true), names(&one.not_ready_addresses, false)].concat())
        .collect();
    told.sort();
    Some(told)
}

fn near<'a>(pods: &'a [Pod], namespace: &Option<String>) -> impl Iterator<Item = &'a Pod> {
    pods.iter().filter(move |pod| pod.metadata.namespace == *namespace)
}

fn has(pod: &Pod, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

fn owner(pod: &Pod) -> Option<(String, String)> {
    let owner = pod.owner_references().iter().find(|one| one.controller == Some(true))?;
    Some((owner.kind.clone(), owner.uid.clone()))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

fn is_reached(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    !matches!(phase, "Succeeded" | "Failed")
        && status.and_then(|status| status.pod_ips.as_ref()).is_some_and(|addresses| !addresses.is_empty())
}

/// A number, or a part of a hundred, rounded up.
fn share(limit: &IntOrString, of: i32) -> i32 {
    match limit {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            (percent * of + 99) / 100
        }
    }
}

fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
