//! Images of one pod, fetched while its worker does other things.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, Client, Resource as _};
use manager::errors::chain;
use manager::events::Kind;
use storage::cache::PullPolicy;
use storage::image::{Reference, Version};
use storage::pull::Registries;
use tokio::time::Instant;

use super::{Ends, Shared, Worker};
use crate::agent::backoff;
use crate::agent::decide::{Fetch, Trouble};
use crate::agent::parts::{Held, ImageFailure};
use crate::agent::view;

/// What is fetched, by container or volume.
#[derive(Clone, Default)]
pub(super) struct Fetches(Arc<Mutex<BTreeMap<String, Fetching>>>);

enum Fetching {
    Pulling(#[expect(dead_code, reason = "held so that the task ends with the pod")] Ends),
    Held(Held),
    Failed(Trouble),
}

impl Fetches {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Fetching>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn states(&self) -> BTreeMap<String, Fetch> {
        let states = self.lock();
        let state = |fetching: &Fetching| match fetching {
            Fetching::Pulling(_) => Fetch::Pulling,
            Fetching::Held(_) => Fetch::Held,
            Fetching::Failed(trouble) => Fetch::Failed(trouble.clone()),
        };
        states.iter().map(|(key, fetching)| (key.clone(), state(fetching))).collect()
    }

    pub(super) fn held(&self, key: &str) -> Option<Held> {
        match self.lock().get(key) {
            Some(Fetching::Held(held)) => Some(held.clone()),
            _ => None,
        }
    }

    /// All that are held, by key.
    pub(super) fn all_held(&self) -> BTreeMap<String, Held> {
        let held = |(key, fetching): (&String, &Fetching)| match fetching {
            Fetching::Held(held) => Some((key.clone(), held.clone())),
            _ => None,
        };
        self.lock().iter().filter_map(held).collect()
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

/// What is to be fetched.
struct Order {
    image: String,
    policy: PullPolicy,
    failures: u32,
    pod: Pod,
    namespace: String,
    secrets: Vec<String>,
}

impl Worker<'_> {
    /// Starts fetching an image for a container or a volume.
    pub(super) fn fetch(&self, fetches: &Fetches, key: &str) {
        let Some(pod) = self.pod else { return };
        let Some((image, policy)) = wanted(pod, key) else { return };
        let failures = match fetches.lock().get(key) {
            Some(Fetching::Failed(trouble)) => trouble.times,
            _ => 0,
        };
        let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
        let order = Order {
            policy: pull_policy(&image, policy.as_deref()),
            image,
            failures,
            pod: pod.clone(),
            namespace: self.which.namespace.clone(),
            secrets: secrets.map(|one| one.name.clone()).collect(),
        };
        let (shared, which, results, name) = (self.shared.clone(), self.which.clone(), fetches.clone(), key.to_owned());
        let mut slot = fetches.lock();
        let task = tokio::spawn(async move {
            let result = match fetch(&shared, &order).await {
                Ok(held) => Fetching::Held(held),
                Err(error) => {
                    let times = order.failures.saturating_add(1);
                    let (reason, message, until) = match error {
                        FetchError::Final { reason, message } => (reason, message, None),
                        FetchError::Retryable { message } => {
                            let reason = if times > 1 { "ImagePullBackOff" } else { "ErrImagePull" };
                            (reason, message, Some((shared.now)() + backoff::restart(times)))
                        }
                    };
                    Fetching::Failed(Trouble { reason, message, times, until })
                }
            };
            results.lock().insert(name, result);
            shared.queue.add(which);
        });
        slot.insert(key.to_owned(), Fetching::Pulling(Ends(task.abort_handle())));
    }
}

fn wanted(pod: &Pod, key: &str) -> Option<(String, Option<String>)> {
    let spec = pod.spec.as_ref()?;
    let of_volume = || {
        let volume = spec.volumes.iter().flatten().find(|volume| view::volume_key(&volume.name) == key)?;
        let image = volume.image.as_ref()?;
        Some((image.reference.clone().unwrap_or_default(), image.pull_policy.clone()))
    };
    let container = view::containers(spec).find(|container| container.name == key);
    container
        .map(|container| (container.image.clone().unwrap_or_default(), container.image_pull_policy.clone()))
        .or_else(of_volume)
}

/// What is not said follows from the tag, as the API server defaults it.
fn pull_policy(image: &str, asked: Option<&str>) -> PullPolicy {
    match asked {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ => match image.parse() {
            Ok(Reference::Registry { version: Version::Tag(tag), .. }) if tag == "latest" => PullPolicy::Always,
            _ => PullPolicy::IfNotPresent,
        },
    }
}

/// Why there is no image, as the pod's status reports it.
enum FetchError {
    /// A retry ends the same way.
    Final { reason: &'static str, message: String },
    /// The pull failed, and may succeed later.
    Retryable { message: String },
}

async fn fetch(shared: &Shared, order: &Order) -> Result<Held, FetchError> {
    let Shared { client, recorder, settings, pulls, .. } = shared;
    let (images, mut registries) = (&settings.images, settings.registries.clone());
    let Order { image, policy, namespace, .. } = order;
    let about = order.pod.object_ref(&());
    let event = |kind: Kind, reason: &str, message: String| recorder.record_about(about.clone(), kind, reason, message);
    let reference: Reference = match image.parse() {
        Ok(reference) => reference,
        Err(error) => {
            let message = format!("Failed to apply default image tag {image:?}: {error}");
            event(Kind::Warning, "InspectFailed", message.clone());
            return Err(FetchError::Final { reason: "InvalidImageName", message });
        }
    };
    // A directory on this machine is asked each time: it costs nothing.
    let is_local = matches!(reference, Reference::Layout { .. });
    if *policy == PullPolicy::Never || *policy == PullPolicy::IfNotPresent && !is_local {
        if let Ok(held) = images.image(&reference, PullPolicy::Never, &registries).await {
            event(Kind::Normal, "Pulled", format!("Container image {image:?} already present on machine"));
            return Ok(held);
        }
        if *policy == PullPolicy::Never {
            let message = ImageFailure::NeverPull(image.clone()).to_string();
            event(Kind::Warning, "ErrImageNeverPull", message.clone());
            return Err(FetchError::Final { reason: "ErrImageNeverPull", message });
        }
    }
    add_secrets(client, &mut registries, order).await;
    // What is here already waits for nobody's registry.
    let place = if is_local { Ok(None) } else { pulls.place(namespace).await.map(Some) };
    let _place = place.map_err(|_| FetchError::Retryable { message: "the node is stopping".to_owned() })?;
    event(Kind::Normal, "Pulling", format!("Pulling image {image:?}"));
    let started = Instant::now();
    match images.image(&reference, *policy, &registries).await {
        Ok(held) => {
            let took = started.elapsed().as_millis();
            event(Kind::Normal, "Pulled", format!("Successfully pulled image {image:?} in {took}ms"));
            Ok(held)
        }
        Err(error) => {
            event(Kind::Warning, "Failed", format!("Failed to pull image {image:?}: {error}"));
            if order.failures > 0 {
                event(Kind::Normal, "BackOff", format!("Back-off pulling image {image:?}"));
            }
            Err(FetchError::Retryable { message: error.to_string() })
        }
    }
}

/// Secrets that are missing or unreadable are left out, as a kubelet does: the registry may not need them.
async fn add_secrets(client: &Client, registries: &mut Registries, order: &Order) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &order.namespace);
    for name in &order.secrets {
        let secret = match secrets.get_opt(name).await {
            Ok(secret) => secret,
            Err(error) => {
                tracing::warn!(secret = name, error = chain(&error), "cannot read a pull secret");
                continue;
            }
        };
        let config = secret.and_then(|secret| secret.data).and_then(|mut data| data.remove(".dockerconfigjson"));
        if let Some(config) = config
            && let Err(error) = registries.add_docker_config(&config.0)
        {
            tracing::warn!(secret = name, %error, "a pull secret is not valid");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_follows_from_the_tag() {
        assert_eq!(pull_policy("debian", None), PullPolicy::Always);
        assert_eq!(pull_policy("debian:12", None), PullPolicy::IfNotPresent);
        assert_eq!(pull_policy("debian:latest", Some("IfNotPresent")), PullPolicy::IfNotPresent);
        assert_eq!(pull_policy("debian:12", Some("Always")), PullPolicy::Always);
    }
}
