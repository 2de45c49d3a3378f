//! Observes, decides and acts: the part of the endpoints controller that speaks to the server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::api::PostParams;
use kube::{Api, Client};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Context, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Kit, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{delete, is_namespace_terminating, log_changed, log_created};

use super::{MANAGER, Observed, Plan, decide, goes_with_service};
use crate::indexes;
use crate::services::trigger::Times;
use crate::services::{selector, selects, woken};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "endpoints-controller";

/// The controller.
#[must_use]
pub fn start(context: &Context, workers: usize) -> Started {
    let kit = Kit::new(NAME, context);
    let controller = Controller {
        client: context.client.clone(),
        services: context.caches.of(&indexes::SERVICES),
        pods: indexes::pods(&context.caches),
        endpoints: context.caches.of(&[]),
        written: kit.written(),
        times: kit.remembers("times of changes"),
        gone: Gone::default(),
        recorder: context.recorder.of(MANAGER),
    };
    let Controller { services, pods, endpoints, written, gone, .. } = &controller;
    let (services, pods, endpoints) = (services.clone(), pods.clone(), endpoints.clone());
    let (of_pods, written, gone) = (services.clone(), written.clone(), gone.clone());
    kit.reconciles(&services)
        .watch(&services, move |change| gone.saw(change))
        .watch(&pods, move |change| woken(&of_pods, change))
        .watch(&endpoints, move |change| {
            if change.new.is_none() {
                written.forget(&change.key);
            }
            [change.key.clone()]
        })
        .run(workers, controller)
}

/// Services that were seen to go, and whose Endpoints are still to follow: what is not remembered of an object, because it
/// is about what is left of it. Clones share it.
#[derive(Clone, Default)]
struct Gone(Arc<Mutex<BTreeSet<Key>>>);

impl Gone {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, change: &Changed<Service>) -> [Key; 1] {
        match change.new {
            Some(_) => self.keys().remove(&change.key),
            None => self.keys().insert(change.key.clone()),
        };
        [change.key.clone()]
    }
}

struct Controller {
    client: Client,
    services: Cache<Service>,
    pods: Cache<Pod>,
    endpoints: Cache<Endpoints>,
    written: Written,
    times: Remembered<Times>,
    gone: Gone,
    recorder: Recorder,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let current = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            self.follow(key, current.as_deref()).await?;
            return Ok(Next::Wait);
        };
        // What its cache does not show yet comes, and is news then.
        let is_behind = current.as_ref().is_some_and(|current| self.written.is_behind(key, &**current));
        if selector(&service).is_none() || is_behind {
            return Ok(Next::Wait);
        }
        let near = self.pods.find("namespace", &key.namespace);
        let pods: Vec<&Pod> = near.iter().map(|pod| &**pod).filter(|pod| selects(&service, pod)).collect();
        let times = Times::of(&service, &pods);
        let trigger = times.since(self.times.get(key).as_ref());
        match decide(&Observed { service: &service, pods, current: current.as_deref(), trigger }) {
            Plan::Nothing => {}
            Plan::Create(endpoints) => self.create(key, &endpoints).await?,
            Plan::Update(endpoints) => self.update(key, &endpoints).await?,
        }
        self.times.set(key, times);
        Ok(Next::Wait)
    }
}

impl Controller {
    fn api(&self, key: &Key) -> Api<Endpoints> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn create(&self, key: &Key, endpoints: &Endpoints) -> Result<(), kube::Error> {
        match self.api(key).create(&PostParams::default(), endpoints).await {
            Ok(made) => {
                log_created(&made);
                self.written.note(key, &made);
                Ok(())
            }
            // The namespace goes, and the service with it: there is nothing to try again.
            Err(kube::Error::Api(status)) if is_namespace_terminating(&status) => Ok(()),
            // An answer was lost, or another leader was faster: the cache will show it.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => {
                let message =
                    format!("Failed to create endpoint for service {}/{}: {}", key.namespace, key.name, chain(&error));
                self.recorder.record(endpoints, Kind::Warning, "FailedToCreateEndpoint", message);
                Err(error)
            }
        }
    }

    async fn update(&self, key: &Key, endpoints: &Endpoints) -> Result<(), kube::Error> {
        match self.api(key).replace(&key.name, &PostParams::default(), endpoints).await {
            Ok(made) => {
                log_changed::<Endpoints>(&key.name);
                self.written.note(key, &made);
                Ok(())
            }
            // Somebody was faster: the next look tells.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Err(kube::Error::Api(status)),
            Err(error) => {
                let message = format!("Failed to update endpoint {}/{}: {}", key.namespace, key.name, chain(&error));
                self.recorder.record(endpoints, Kind::Warning, "FailedToUpdateEndpoint", message);
                Err(error)
            }
        }
    }

    /// The service is gone: what belongs to it goes as well.
    async fn follow(&self, key: &Key, current: Option<&Endpoints>) -> Result<(), kube::Error> {
        let seen_to_go = self.gone.keys().remove(key);
        let Some(current) = current.filter(|current| goes_with_service(current, seen_to_go)) else { return Ok(()) };
        let deleted = delete(&self.api(key), &key.name, current.metadata.uid.as_deref(), None).await;
        if deleted.is_err() && seen_to_go {
            self.gone.keys().insert(key.clone());
        }
        deleted
    }
}
