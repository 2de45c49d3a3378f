//! Broken controllers of deployments and of what every cluster has.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kube_controllers::table::Settings;
use manager::cache::Key;
use manager::context::{Context, Started};
use manager::descriptor::{Descriptor, Start};
use manager::worker::{Next, work};
use serde_json::json;
use simulation::{Options, check};
use tokio::time::sleep;

use super::{NONE, deployments, must_catch};

/// A controller that has the rights of another: what it does wrong, it may do.
fn with_rights_of(account: &'static str, name: &'static str, start: Start<Settings>) -> Descriptor<Settings> {
    Descriptor { account, ..Descriptor::new(name, &[], start) }
}

/// Creates what its cache does not show, without waiting for what it has created, under names that the server chooses: after
/// a lost answer or a late watch there are too many.
fn hasty(context: &Context) -> Started {
    let (client, queue) = (context.client.clone(), context.queue::<Key>("hasty"));
    let (sets, pods) = (context.caches.of::<ReplicaSet>(&[]), context.caches.of::<Pod>(&[]));
    Started::new(async move {
        sets.synced().await;
        pods.synced().await;
        let feed = async {
            let (mut of_sets, mut of_pods) = (sets.subscribe(), pods.subscribe());
            loop {
                tokio::select! {
                    biased;
                    change = of_sets.next() => queue.add(change.key),
                    _ = of_pods.next() => sets.all().iter().for_each(|set| queue.add(Key::of(&**set))),
                }
            }
        };
        let reconcile = |key: Key| {
            let (client, sets, pods) = (client.clone(), sets.clone(), pods.clone());
            async move {
                let Some(set) = sets.get(&key) else { return Ok(Next::Wait) };
                let (uid, spec) = (set.uid(), set.spec.clone().unwrap_or_default());
                let mine = |pod: &Pod| pod.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
                let have = pods.all().iter().filter(|pod| mine(pod)).count();
                let api: Api<Pod> = Api::namespaced(client, &key.namespace);
                for _ in have..usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0) {
                    let template = spec.template.clone().unwrap_or_default();
                    let mut pod = Pod { spec: template.spec, ..Pod::default() };
                    pod.metadata = template.metadata.unwrap_or_default();
                    pod.metadata.generate_name = Some(format!("{}-", key.name));
                    pod.metadata.owner_references =
                        kube::Resource::controller_owner_ref(&*set, &()).map(|one| vec![one]);
                    api.create(&PostParams::default(), &pod).await?;
                }
                Ok::<_, kube::Error>(Next::Wait)
            }
        };
        tokio::select! {
            biased;
            () = work("hasty", &queue, 3, reconcile) => {}
            () = feed => {}
        }
    })
}

#[test]
fn a_controller_that_creates_too_much_is_caught() {
    let broken = with_rights_of("replicaset-controller", "hasty-controller", |context, _| Ok(hasty(context)));
    must_catch(
        &["of a replica set that never asked for more than"],
        deployments("replicaset-controller", Some(broken)),
    );
}

/// Scales every new replica set to all that its deployment asks for, whatever runs beside it.
fn eager(context: &Context) -> Started {
    let (client, sets) = (context.client.clone(), context.caches.of::<ReplicaSet>(&[]));
    let deployments = context.caches.of::<Deployment>(&[]);
    Started::new(async move {
        deployments.synced().await;
        let mut changes = sets.subscribe();
        loop {
            let Some(set) = changes.next().await.new else { continue };
            let Some(owner) = set.owner_references().first().cloned() else { continue };
            let namespace = set.namespace().unwrap_or_default();
            let Some(deployment) = deployments.get(&Key { namespace: namespace.clone(), name: owner.name }) else {
                continue;
            };
            let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            if set.spec.as_ref().and_then(|spec| spec.replicas).is_some_and(|now| now < replicas) {
                let api: Api<ReplicaSet> = Api::namespaced(client.clone(), &namespace);
                let patch = json!({ "spec": { "replicas": replicas } });
                drop(api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        }
    })
}

#[test]
fn a_controller_that_surges_too_much_is_caught() {
    let broken = with_rights_of("deployment-controller", "eager-controller", |context, _| Ok(eager(context)));
    must_catch(&["of a deployment that never asked for more than"], deployments(NONE, Some(broken)));
}

/// Writes the time somewhere, again and again.
fn restless(context: &Context) -> Started {
    let (client, now) = (context.client.clone(), context.now.clone());
    Started::new(async move {
        let api: Api<ConfigMap> = Api::namespaced(client, "kube-system");
        let mut heartbeat = ConfigMap::default();
        heartbeat.metadata.name = Some("heartbeat".to_owned());
        loop {
            sleep(Duration::from_secs(60)).await;
            heartbeat.data = Some([("at".to_owned(), now().to_string())].into());
            drop(api.create(&PostParams::default(), &heartbeat).await);
            drop(api.replace("heartbeat", &PostParams::default(), &heartbeat).await);
        }
    })
}

#[test]
fn a_controller_that_never_rests_is_caught() {
    let broken = with_rights_of("root-ca-cert-publisher", "restless-controller", |context, _| Ok(restless(context)));
    must_catch(&["somebody writes for ever"], deployments(NONE, Some(broken)));
}

/// Its account has no role: what it asks for, it may not do.
#[test]
fn a_controller_without_rights_is_caught() {
    let broken = Descriptor::new("restless-controller", &[], |context, _| Ok(restless(context)));
    let rule = "restless-controller: create configmaps is refused by its role";
    must_catch(&[rule], deployments(NONE, Some(broken)));
}

/// Goes on in the background when its process does not lead any more.
fn undead(context: &Context) -> Started {
    let restless = restless(context);
    Started::new(async move {
        drop(tokio::spawn(restless.run));
        std::future::pending::<()>().await;
    })
}

#[test]
fn a_process_that_acts_after_its_lease_is_caught() {
    let broken = with_rights_of("root-ca-cert-publisher", "undead-controller", |context, _| Ok(undead(context)));
    let options = deployments(NONE, Some(broken));
    must_catch(&["leads"], |seed| Options { fenced: false, ..options(seed) });
}

/// Clears away what is deleted, and the finalizers of others with it.
fn careless(context: &Context) -> Started {
    let (client, maps) = (context.client.clone(), context.caches.of::<ConfigMap>(&[]));
    Started::new(async move {
        let mut changes = maps.subscribe();
        loop {
            let Some(map) = changes.next().await.new else { continue };
            if map.metadata.deletion_timestamp.is_some() {
                let api: Api<ConfigMap> = Api::namespaced(client.clone(), &map.namespace().unwrap_or_default());
                let patch = json!({ "metadata": { "finalizers": null } });
                drop(api.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        }
    })
}

#[test]
fn a_controller_that_drops_finalizers_is_caught() {
    let broken = with_rights_of("generic-garbage-collector", "careless-controller", |context, _| Ok(careless(context)));
    must_catch(&["lost the finalizer"], deployments(NONE, Some(broken)));
}

/// Lets namespaces go without a look at what is in them.
fn sloppy(context: &Context) -> Started {
    let (client, namespaces) = (context.client.clone(), context.caches.of::<Namespace>(&[]));
    Started::new(async move {
        let mut changes = namespaces.subscribe();
        loop {
            let Some(namespace) = changes.next().await.new else { continue };
            if namespace.metadata.deletion_timestamp.is_some() {
                let mut empty = Namespace::clone(&namespace);
                empty.spec.get_or_insert_default().finalizers = None;
                let api: Api<Namespace> = Api::all(client.clone());
                let name = namespace.name_any();
                let let_go = api.replace_subresource("finalize", &name, &PostParams::default(), &empty).await;
                drop::<Result<Namespace, _>>(let_go);
            }
        }
    })
}

#[test]
fn a_controller_that_leaves_things_in_namespaces_is_caught() {
    let broken = with_rights_of("namespace-controller", "sloppy-controller", |context, _| Ok(sloppy(context)));
    must_catch(&["is in a namespace that is gone"], deployments("namespace-controller", Some(broken)));
}

/// Says of some pods that they have failed.
fn slanderous(context: &Context) -> Started {
    let (client, pods) = (context.client.clone(), context.caches.of::<Pod>(&[]));
    Started::new(async move {
        let (mut changes, mut told) = (pods.subscribe(), BTreeSet::new());
        loop {
            let Some(pod) = changes.next().await.new else { continue };
            let owner = pod.owner_references().first().map(|owner| owner.uid.clone());
            // One of each owner, so that it ends.
            if owner.is_some_and(|owner| told.insert(owner)) {
                let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
                let patch = json!({ "status": { "phase": "Failed" } });
                drop(api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await);
            }
        }
    })
}

#[test]
fn a_controller_that_fails_pods_is_caught() {
    let broken = with_rights_of("node-controller", "slanderous-controller", |context, _| Ok(slanderous(context)));
    must_catch(&["is Failed in the end"], deployments(NONE, Some(broken)));
}

/// Remembers what was before this run, as a static variable would, or the order of a hash map.
fn remembering(context: &Context) -> Started {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let client = context.client.clone();
    let name = format!("run-{}", RUNS.fetch_add(1, Ordering::Relaxed));
    Started::new(async move {
        let api: Api<ConfigMap> = Api::namespaced(client, "kube-system");
        drop(api.get_opt(&name).await);
        std::future::pending::<()>().await;
    })
}

#[test]
fn a_controller_that_acts_by_chance_is_caught() {
    let broken =
        with_rights_of("generic-garbage-collector", "remembering-controller", |context, _| Ok(remembering(context)));
    let report = check(&deployments(NONE, Some(broken))(0)).unwrap_err();
    assert!(report.contains("is not repeatable") && report.contains("/configmaps/run-"), "{report}");
}
