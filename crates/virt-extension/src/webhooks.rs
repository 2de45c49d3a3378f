//! Admission as Kubernetes asks for it: a review in, a review out, by the rules that `orlop up` has in process.

use api::vmi::VirtualMachineInstance;
use bytes::Bytes;
use futures_util::future::try_join_all;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use manager::context::Chance;
use manager::errors::chain;
use serde_json::Value;
use tokio::sync::Semaphore;
use virt_api::Mark;
use virt_api::review::{Answer, ReviewError};
use virt_server::VirtualMachines;

use crate::facts::{Facts, Watched};

/// Reviews at the same time; the next ones wait.
const MOST: usize = 64;
/// How often the rules ask for more. They follow references, which are not that deep.
const ROUNDS: usize = 8;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Webhook {
    /// May change the object.
    Mutate,
    /// May only refuse it.
    Validate,
}

impl Webhook {
    pub(crate) const ALL: [Self; 2] = [Self::Mutate, Self::Validate];

    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }

    /// Where it is asked.
    pub(crate) fn path(self) -> String {
        format!("/admission/{}", self.verb())
    }

    pub(crate) fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.path() == path)
    }
}

/// Why a review gets no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error("read the review")]
    Unreadable(#[source] serde_json::Error),
    #[error("answer the review")]
    Review(#[from] ReviewError),
    #[error("look up what the rules need")]
    Lookup(#[source] Box<kube::Error>),
    #[error("the rules ask for more than {ROUNDS} things after each other")]
    Endless,
}

impl WebhookError {
    /// Whether whoever asked is to blame.
    pub(crate) fn is_asked_wrong(&self) -> bool {
        matches!(self, Self::Unreadable(_) | Self::Review(_))
    }
}

pub(crate) struct Webhooks {
    rules: VirtualMachines,
    client: Client,
    watched: Watched,
    places: Semaphore,
}

impl Webhooks {
    pub(crate) fn new(client: Client, watched: Watched, chance: Chance) -> Self {
        Self { rules: VirtualMachines::new(chance), client, watched, places: Semaphore::new(MOST) }
    }

    /// Answers a review, with the rules as they are and the cluster as it is now.
    pub(crate) async fn answer(&self, webhook: Webhook, body: &Bytes) -> Result<Value, WebhookError> {
        let _place = self.places.acquire().await;
        let asked: Value = serde_json::from_slice(body).map_err(WebhookError::Unreadable)?;
        self.watched.synced().await;
        let mut facts = Facts::new(&self.watched);
        for _ in 0..ROUNDS {
            let answer = self.rules.review(&asked, &facts)?;
            let missing = facts.missing();
            if missing.is_empty() {
                return Ok(cut(webhook, self.marked(&asked, answer).await));
            }
            let found = missing.into_iter().map(async |lookup| {
                let found = lookup.find(&self.client).await;
                found.map(|found| (lookup, found)).map_err(|error| WebhookError::Lookup(Box::new(error)))
            });
            for (lookup, found) in try_join_all(found).await? {
                facts.learn(lookup, found);
            }
        }
        Err(WebhookError::Endless)
    }

    /// The review that goes back, after what must be written before it.
    async fn marked(&self, asked: &Value, answer: Answer) -> Value {
        let Some(Mark { instance, patch }) = &answer.mark else { return answer.review };
        let namespace = asked["request"]["namespace"].as_str().unwrap_or_default();
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), namespace);
        match api.patch(instance, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => answer.review,
            Err(error) => answer.unmarked(chain(&error)),
        }
    }
}

/// Whoever only validates has no patch. What was changed before is changed no more: the rules leave it as it is.
fn cut(webhook: Webhook, mut answer: Value) -> Value {
    if let (Webhook::Validate, Some(response)) = (webhook, answer["response"].as_object_mut()) {
        response.remove("patch");
        response.remove("patchType");
    }
    answer
}
