//! Namespaces: one that is deleted is emptied, kind by kind, and then let go.
//!
//! Watches: Namespace. Owns: the finalizer `kubernetes` of a namespace's spec, and the conditions that tell what is left.
//! Emits: deletions of everything in the namespace, custom objects included. Absent on purpose: any list of kinds; what
//! can be in a namespace is asked of the server each time, because CRDs come and go.

mod contents;
mod decide;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use kube::api::{DeleteParams, ListParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::Context;
use manager::kit::Page;
use manager::queue::Queue;
use manager::worker::{Next, work};

use contents::{Content, contents};
use decide::{Left, Plan, decide};

use crate::discovery::Discovery;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "namespace-controller";
const FINALIZER: &str = "kubernetes";

/// The controller.
#[derive(Clone)]
pub struct NamespaceController {
    client: Client,
    discovery: Arc<Discovery>,
    namespaces: Cache<Namespace>,
    queue: Queue<String>,
    /// The kinds of what is on its way out, by namespace. While there is any of them, there is nothing to gain from
    /// a look at all the others.
    lingering: Arc<Mutex<BTreeMap<String, Vec<ApiResource>>>>,
}

impl NamespaceController {
    /// A controller; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let (client, namespaces) = (context.client.clone(), context.caches.of(&[]));
        let discovery = Arc::new(Discovery::new(client.clone()));
        Self { client, discovery, namespaces, queue: context.queue(NAME), lingering: Arc::default() }
    }

    /// What it shows of itself.
    pub fn page(&self) -> Page<String> {
        let lingering = self.lingering.clone();
        let remembered = move || {
            let all = lingering.lock().unwrap_or_else(PoisonError::into_inner);
            let kinds =
                |kinds: &[ApiResource]| kinds.iter().map(|kind| kind.plural.as_str()).collect::<Vec<_>>().join(", ");
            all.iter().map(|(name, left)| format!("{name}: {} on their way out", kinds(left))).collect()
        };
        Page::new(&self.queue).cache(&self.namespaces).remembers(remembered)
    }

    /// Runs until the queue is closed.
    pub async fn run(&self, workers: usize) {
        let feed = async {
            let mut changes = self.namespaces.subscribe();
            loop {
                let change = changes.next().await;
                if change.new.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
                    self.queue.add(change.key.name);
                }
            }
        };
        let work = work(NAME, &self.queue, workers, |name: String| {
            let controller = self.clone();
            async move { controller.reconcile(&name).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = feed => {}
        }
    }

    fn lingering(&self) -> MutexGuard<'_, BTreeMap<String, Vec<ApiResource>>> {
        self.lingering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn reconcile(&self, name: &str) -> Result<Next, kube::Error> {
        let key = Key { namespace: String::new(), name: name.to_owned() };
        let known = self.lingering().remove(name).unwrap_or_default();
        let Some(namespace) = self.namespaces.get(&key) else { return Ok(Next::Wait) };
        let held = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
        if namespace.metadata.deletion_timestamp.is_none()
            || !held.is_some_and(|list| list.iter().any(|one| one == FINALIZER))
        {
            return Ok(Next::Wait);
        }
        let left = match self.on_its_way(name, &known).await? {
            Some(left) => left,
            None => self.empty(name).await?,
        };
        match decide(&left) {
            Plan::LetGo => {
                self.let_go(name).await?;
                Ok(Next::Wait)
            }
            Plan::LookAgain { after, conditions } => {
                self.lingering().insert(name.to_owned(), left.kinds);
                self.tell(&namespace, &conditions).await?;
                Ok(Next::After(after))
            }
        }
    }

    /// What is left of these kinds; nothing if none is, or something is not on its way out.
    async fn on_its_way(&self, namespace: &str, kinds: &[ApiResource]) -> Result<Option<Left>, kube::Error> {
        let mut left = Left::default();
        for kind in kinds {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, kind);
            let rest = api.list_metadata(&ListParams::default()).await?.items;
            if rest.iter().any(|object| object.metadata.deletion_timestamp.is_none()) {
                return Ok(None);
            }
            left.add(kind, &finalizers(&rest));
        }
        Ok(Some(left).filter(|left| !left.kinds.is_empty()))
    }

    /// Deletes all that is in the namespace, and tells what is left of it. Pods go first: as long as one runs, what it reads and
    /// what guards it stays.
    async fn empty(&self, namespace: &str) -> Result<Left, kube::Error> {
        let mut left = Left::default();
        for Content { resource, as_collection } in contents(&self.discovery.groups().await?) {
            if !left.is_empty() && left.kinds.iter().all(is_pods) {
                return Ok(left);
            }
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
            let found = api.list_metadata(&ListParams::default()).await?;
            if found.items.is_empty() {
                continue;
            }
            let background =
                DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
            if as_collection {
                api.delete_collection(&background, &ListParams::default()).await?;
            } else {
                for object in &found.items {
                    api.delete(&object.name_any(), &background).await?;
                }
            }
            tracing::info!(
                resource = resource.plural,
                count = found.items.len(),
                "deleted the content of the namespace"
            );
            let rest = api.list_metadata(&ListParams::default()).await?;
            left.add(&resource, &finalizers(&rest.items));
        }
        Ok(left)
    }

    /// Takes the finalizer away; nothing else holds an empty namespace.
    async fn let_go(&self, name: &str) -> Result<(), kube::Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let Some(mut namespace) = api.get_opt(name).await? else { return Ok(()) };
        if let Some(list) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
            list.retain(|one| one != FINALIZER);
        }
        let _: Namespace = api.replace_subresource("finalize", name, &PostParams::default(), &namespace).await?;
        tracing::info!("released the namespace, which is empty");
        Ok(())
    }

    /// Writes the conditions, if they say anything new.
    async fn tell(
        &self,
        namespace: &Namespace,
        conditions: &BTreeMap<&'static str, decide::Condition>,
    ) -> Result<(), kube::Error> {
        let current = namespace.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let same = conditions.iter().all(|(kind, new)| {
            current.iter().any(|old| {
                old.type_ == *kind && old.status == new.status() && old.message.as_deref() == Some(new.message.as_str())
            })
        });
        if same {
            return Ok(());
        }
        let list: Vec<_> = conditions
            .iter()
            .map(|(kind, new)| {
                let old = current.iter().find(|old| old.type_ == *kind && old.status == new.status());
                let since = old.and_then(|old| old.last_transition_time.clone());
                NamespaceCondition {
                    type_: (*kind).to_owned(),
                    status: new.status().to_owned(),
                    reason: Some(new.reason.to_owned()),
                    message: Some(new.message.clone()),
                    last_transition_time: since.or_else(|| namespace.metadata.deletion_timestamp.clone()),
                }
            })
            .collect();
        let api: Api<Namespace> = Api::all(self.client.clone());
        let mut written = namespace.clone();
        written.status.get_or_insert_default().conditions = Some(list);
        // Kubernetes lets this controller update, not patch.
        api.replace_status(&namespace.name_any(), &PostParams::default(), &written).await?;
        Ok(())
    }
}

fn is_pods(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

fn finalizers(objects: &[PartialObjectMeta<DynamicObject>]) -> Vec<Vec<String>> {
    objects.iter().map(|object| object.metadata.finalizers.clone().unwrap_or_default()).collect()
}

/// How long a namespace that is not empty is left alone.
const PAUSE: Duration = Duration::from_secs(1);
