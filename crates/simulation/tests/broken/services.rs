//! Broken controllers of services, replication controllers and disruption budgets.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use kube_controllers::table::{self as kubernetes, Settings};
use manager::context::{Context, Started};
use manager::descriptor::{Descriptor, Start};
use serde_json::json;
use simulation::Options;
use tokio::time::sleep;

use super::{NONE, must_catch, without};

/// The scene, with another in the place of one.
fn services(one: &str, broken: Option<Descriptor<Settings>>) -> impl Fn(u64) -> Options + use<> {
    let controllers = without(kubernetes::DESCRIPTORS, one, broken);
    move |seed| Options { controllers, ..Options::services(seed) }
}

fn with_rights_of(account: &'static str, name: &'static str, start: Start<Settings>) -> Descriptor<Settings> {
    Descriptor { account, ..Descriptor::new(name, &[], start) }
}

#[test]
fn without_their_controller_replication_controllers_have_no_pods() {
    must_catch(&["replication controller web asks for"], services("replicationcontroller-controller", None));
}

#[test]
fn without_their_controller_budgets_tell_nothing() {
    must_catch(&["does not tell of its last change", "and not ("], services("disruption-controller", None));
}

#[test]
fn without_their_controllers_nobody_finds_the_pods_of_a_service() {
    must_catch(&["its slices tell None"], services("endpointslice-controller", None));
    must_catch(&["its endpoints tell None"], services("endpoints-controller", None));
}

/// Looks at budgets now and then, and writes what it makes of them, whatever was there.
fn writing(context: &Context, status: fn(&PodDisruptionBudget) -> Option<serde_json::Value>) -> Started {
    let (client, budgets) = (context.client.clone(), context.caches.of::<PodDisruptionBudget>(&[]));
    Started::new(async move {
        let mut changes = budgets.subscribe();
        loop {
            let Some(budget) = changes.next().await.new else { continue };
            let Some(status) = status(&budget) else { continue };
            // Not long after, and over whatever is there by then.
            sleep(Duration::from_millis(200)).await;
            let api: Api<PodDisruptionBudget> =
                Api::namespaced(client.clone(), &budget.namespace().unwrap_or_default());
            let Ok(Some(mut current)) = api.get_opt(&budget.name_any()).await else { continue };
            let mut whole = json!(current.status);
            for (field, value) in status.as_object().into_iter().flatten() {
                whole[field] = value.clone();
            }
            current.status = serde_json::from_value(whole).ok();
            drop(api.replace_status(&budget.name_any(), &PostParams::default(), &current).await);
        }
    })
}

#[test]
fn a_controller_that_forgets_what_was_granted_is_caught() {
    let broken = with_rights_of("disruption-controller", "forgetful-controller", |context, _| {
        Ok(writing(context, |budget| {
            let noted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
            noted.is_some_and(|noted| !noted.is_empty()).then(|| json!({ "disruptedPods": null }))
        }))
    });
    must_catch(&["forgot that"], services(NONE, Some(broken)));
}

#[test]
fn a_controller_that_allows_too_much_is_caught() {
    let broken = with_rights_of("disruption-controller", "generous-controller", |context, _| {
        Ok(writing(context, |budget| {
            let status = budget.status.clone().unwrap_or_default();
            let (healthy, allowed) = (status.current_healthy.unwrap_or(0), status.disruptions_allowed);
            (healthy > 0 && allowed != Some(healthy)).then(|| json!({ "disruptionsAllowed": healthy }))
        }))
    });
    must_catch(&["disruptions with"], services(NONE, Some(broken)));
}

/// Writes a slice for each pod that it sees, under a name that the server chooses.
fn talkative(context: &Context) -> Started {
    let (client, pods) = (context.client.clone(), context.caches.of::<Pod>(&[]));
    let services = context.caches.of::<Service>(&[]);
    Started::new(async move {
        services.synced().await;
        let mut changes = pods.subscribe();
        loop {
            let Some(pod) = changes.next().await.new else { continue };
            for service in services.all().iter().filter(|one| one.namespace() == pod.namespace()) {
                let owner = kube::Resource::controller_owner_ref(&**service, &());
                let target = json!({ "kind": "Pod", "name": pod.name_any(), "uid": pod.uid() });
                let slice = json!({
                    "metadata": { "generateName": "more-", "ownerReferences": [owner] },
                    "addressType": "IPv4",
                    "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "targetRef": target }],
                });
                let Ok(slice) = serde_json::from_value(slice) else { continue };
                let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
                drop(api.create(&PostParams::default(), &slice).await);
            }
        }
    })
}

#[test]
fn a_controller_that_tells_of_a_pod_twice_is_caught() {
    let broken =
        with_rights_of("endpointslice-controller", "talkative-controller", |context, _| Ok(talkative(context)));
    must_catch(&["its slices tell Some"], services(NONE, Some(broken)));
}

/// Evicts by its own: takes pods away and says that an eviction did it, without asking a budget.
fn ruthless(context: &Context) -> Started {
    let (client, pods) = (context.client.clone(), context.caches.of::<Pod>(&[]));
    Started::new(async move {
        let mut changes = pods.subscribe();
        loop {
            let Some(pod) = changes.next().await.new else { continue };
            let status = pod.status.clone().unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let has = |kind: &str| conditions.iter().any(|one| one.type_ == kind && one.status == "True");
            if pod.metadata.deletion_timestamp.is_some() || !has("Ready") {
                continue;
            }
            let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
            if has("DisruptionTarget") {
                let preconditions = Some(Preconditions { uid: pod.uid(), ..Preconditions::default() });
                let parameters = kube::api::DeleteParams { preconditions, ..Default::default() };
                drop(api.delete(&pod.name_any(), &parameters).await);
            } else if status.start_time.is_some_and(|time| time.0.as_second() % 7 == 0) {
                let target = json!({ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI" });
                let patch = json!({ "status": { "conditions": [target] } });
                let patch = kube::api::Patch::Strategic(&patch);
                drop(api.patch_status(&pod.name_any(), &kube::api::PatchParams::default(), &patch).await);
            }
        }
    })
}

#[test]
fn an_eviction_that_asks_no_budget_is_caught() {
    let broken = with_rights_of("node-controller", "ruthless-controller", |context, _| Ok(ruthless(context)));
    must_catch(&["its budget knows nothing of it"], services(NONE, Some(broken)));
}
