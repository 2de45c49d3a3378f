//! Observes, decides and acts: the part of the endpoint-slice controller that speaks to the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Changed, Index, Key, controller_of};
use manager::context::{Context, Started};
use manager::kit::{Expected, Kit, Reconciler, Remembered};
use manager::queue::Queue;
use manager::worker::Next;
use manager::writing::{is_namespace_terminating, log_changed, log_created, log_deleted};

use super::{MANAGED_BY, MANAGER, Observed, Plan, SERVICE_NAME, decide};
use crate::reading::find;
use crate::services::trigger::Times;
use crate::services::{affected, node_name, selector, selects};
use crate::{indexes, services};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "endpointslice-controller";
const ZONE: &str = "topology.kubernetes.io/zone";
const BY_SERVICE: &str = "service";
const SLICES: [(&str, Index<EndpointSlice>); 1] = [(BY_SERVICE, service_of)];

/// How it works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Services that are worked on at the same time.
    pub workers: usize,
    /// How many endpoints a slice has at most.
    pub most: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5, most: 100 }
    }
}

/// The controller.
#[must_use]
pub fn start(context: &Context, options: Options) -> Started {
    let kit = Kit::new(NAME, context);
    let controller = Slices {
        client: context.client.clone(),
        services: context.caches.of(&indexes::SERVICES),
        pods: indexes::pods(&context.caches),
        nodes: context.caches.of(&[]),
        slices: context.caches.of(&SLICES),
        queue: kit.queue(),
        expected: kit.expected(),
        taken_names: kit.remembers("names of others' slices"),
        times: kit.remembers("times of changes"),
        most: options.most,
    };
    let Slices { services, pods, nodes, slices, expected, .. } = &controller;
    let (services, pods, nodes, slices, expected) =
        (services.clone(), pods.clone(), nodes.clone(), slices.clone(), expected.clone());
    let (of_pods, of_nodes, on_node) = (services.clone(), services.clone(), pods.clone());
    kit.reconciles(&services)
        .watch(&pods, move |change| services::woken(&of_pods, change))
        .watch(&nodes, move |change| moved(&of_nodes, &on_node, change))
        .watch(&slices, move |change| {
            let [old, new] = [&change.old, &change.new].map(|slice| slice.as_ref().and_then(|slice| key_of(slice)));
            expected.saw(old.as_ref(), new.as_ref(), change);
            old.into_iter().chain(new).collect::<BTreeSet<Key>>()
        })
        .run(options.workers, controller)
}

/// The zone of a node, and whether there is one, is news for the services of its pods.
fn moved(services: &Cache<Service>, pods: &Cache<Pod>, change: &Changed<Node>) -> BTreeSet<Key> {
    let zone = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.labels().get(ZONE).cloned());
    if zone(&change.old) == zone(&change.new) {
        return BTreeSet::new();
    }
    pods.find("node", &change.key.name).iter().flat_map(|pod| services_of(services, pod)).collect()
}

struct Slices {
    client: Client,
    services: Cache<Service>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    slices: Cache<EndpointSlice>,
    queue: Queue<Key>,
    expected: Expected,
    taken_names: Remembered<BTreeSet<String>>,
    times: Remembered<Times>,
    most: usize,
}

impl Reconciler for Slices {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(service) = self.services.get(key).filter(|service| selector(service).is_some()) else {
            return Ok(Next::Wait);
        };
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
        }
        let near = self.pods.find("namespace", &key.namespace);
        let pods: Vec<&Pod> = near.iter().map(|pod| &**pod).filter(|pod| selects(&service, pod)).collect();
        let all = self.slices.find(BY_SERVICE, &key.to_string());
        let (slices, going): (Vec<&EndpointSlice>, Vec<&EndpointSlice>) =
            all.iter().map(|slice| &**slice).partition(|slice| slice.metadata.deletion_timestamp.is_none());
        let mut taken_names = self.taken_names.get(key).unwrap_or_default();
        taken_names.extend(going.iter().map(|slice| slice.name_any()));
        let times = Times::of(&service, &pods);
        let trigger = times.since(self.times.get(key).as_ref());
        let (zones, most) = (self.zones(&pods), self.most);
        let plan = decide(&Observed { service: &service, pods, zones, slices, taken_names, trigger, most });
        self.act(key, &plan).await?;
        self.times.set(key, times);
        // What was asked for may come and go unseen, and then nobody else brings the service here again.
        Ok(self.expected.remaining(key).map_or(Next::Wait, Next::After))
    }
}

impl Slices {
    /// The zones of the pods' nodes, as far as these are there.
    fn zones(&self, pods: &[&Pod]) -> BTreeMap<String, Option<String>> {
        let names: BTreeSet<&str> = pods.iter().filter_map(|pod| node_name(pod)).collect();
        let zone = |name: &str| {
            let node = self.nodes.get(&Key::cluster(name))?;
            Some((name.to_owned(), node.labels().get(ZONE).filter(|zone| !zone.is_empty()).cloned()))
        };
        names.into_iter().filter_map(zone).collect()
    }

    async fn act(&self, key: &Key, plan: &Plan) -> Result<(), kube::Error> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        if plan.create.len() + plan.delete.len() > 0 {
            let going = plan.delete.iter().map(|target| target.uid.clone());
            self.expected.expect(key, plan.create.len(), going);
        }
        let mut result = Ok(());
        for (done, slice) in plan.create.iter().enumerate() {
            result = self.create(key, &api, slice).await;
            if result.is_err() {
                // Those that were not asked for are not to come.
                (done..plan.create.len()).for_each(|_| self.expected.created(key));
                break;
            }
        }
        for slice in &plan.update {
            if result.is_err() {
                break;
            }
            let name = slice.name_any();
            // Over what was observed, and nothing else.
            let written = api.replace(&name, &PostParams::default(), slice).await;
            result = written.map(|_| log_changed::<EndpointSlice>(&name));
        }
        for target in &plan.delete {
            if result.is_ok() {
                let preconditions = Some(Preconditions { uid: Some(target.uid.clone()), ..Preconditions::default() });
                let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
                match api.delete(&target.name, &parameters).await {
                    Ok(_) => {
                        log_deleted::<EndpointSlice>(&target.name, Some(&target.uid));
                        continue;
                    }
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => result = Err(error),
                }
            }
            self.expected.deleted(key, &target.uid);
        }
        result
    }

    /// Creates a slice. One of that name that is ours is there because an answer was lost, or because another leader was faster:
    /// the cache will show it. Only a stranger's makes the name unusable.
    async fn create(&self, key: &Key, api: &Api<EndpointSlice>, slice: &EndpointSlice) -> Result<(), kube::Error> {
        match api.create(&PostParams::default(), slice).await {
            Ok(made) => log_created(&made),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = find(api, &slice.name_any()).await?;
                let is_ours = |found: &EndpointSlice| {
                    controller_of(found) == controller_of(slice) && key_of(found) == key_of(slice)
                };
                if found.as_ref().is_some_and(is_ours) {
                    return Ok(());
                }
                self.expected.created(key);
                self.taken_names.change(key, |names| {
                    names.insert(slice.name_any());
                });
                self.queue.add(key.clone());
            }
            // The namespace goes, and the service with it: there is nothing to try again.
            Err(kube::Error::Api(status)) if is_namespace_terminating(&status) => {
                self.expected.created(key);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The services that select a pod.
fn services_of(services: &Cache<Service>, pod: &Pod) -> Vec<Key> {
    let namespace = pod.namespace().unwrap_or_default();
    let near = services.find("namespace", &namespace);
    let names = affected(None, Some(pod), near.iter().map(|service| &**service));
    names.into_iter().map(|name| Key { namespace: namespace.clone(), name }).collect()
}

/// Finds the slices that this controller manages by the key of their service.
fn service_of(slice: &EndpointSlice) -> Vec<String> {
    key_of(slice).map(|key| key.to_string()).into_iter().collect()
}

/// The service that a slice of this controller names.
fn key_of(slice: &EndpointSlice) -> Option<Key> {
    let labels = slice.labels();
    let is_ours = labels.get(MANAGED_BY).is_some_and(|by| by == MANAGER);
    let name = labels.get(SERVICE_NAME).filter(|_| is_ours)?.clone();
    Some(Key { namespace: slice.namespace().unwrap_or_default(), name })
}
