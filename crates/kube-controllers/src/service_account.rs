//! Service accounts: every active namespace has the account `default`.
//!
//! Watches: Namespace, ServiceAccount. Owns: the account `default`, only its being there. Emits: its
//! creation. Absent on purpose: what is in the account, which is the user's; and tokens, see
//! [`crate::service_account_token`].

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use manager::cache::{Cache, Key};
use manager::context::Context;
use manager::queue::Queue;
use manager::worker::{Next, work};
use manager::writing::create;

use crate::writing::is_active;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "serviceaccount-controller";
/// The account that pods have who name none.
const ACCOUNT: &str = "default";
/// As in Kubernetes: a creation per namespace is little work.
const WORKERS: usize = 1;

/// The controller. Clones share it.
#[derive(Clone)]
pub struct ServiceAccountController {
    client: Client,
    namespaces: Cache<Namespace>,
    accounts: Cache<ServiceAccount>,
    queue: Queue<String>,
}

impl ServiceAccountController {
    /// A controller; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self {
            client: context.client.clone(),
            namespaces: context.caches.of(&[]),
            accounts: context.caches.of(&[]),
            queue: context.queue(NAME),
        }
    }

    /// Runs until the queue is closed.
    pub async fn run(&self) {
        // Before that every account would seem to be missing.
        self.accounts.synced().await;
        let work = work(NAME, &self.queue, WORKERS, |name: String| {
            let controller = self.clone();
            async move { controller.reconcile(&name).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed_namespaces() => {}
            () = self.feed_accounts() => {}
        }
    }

    async fn feed_namespaces(&self) {
        let mut changes = self.namespaces.subscribe();
        loop {
            self.queue.add(changes.next().await.key.name);
        }
    }

    async fn feed_accounts(&self) {
        let mut changes = self.accounts.subscribe();
        loop {
            let change = changes.next().await;
            if change.key.name == ACCOUNT && change.new.is_none() {
                self.queue.add(change.key.namespace);
            }
        }
    }

    async fn reconcile(&self, namespace: &str) -> Result<Next, kube::Error> {
        let found = self.namespaces.get(&Key { namespace: String::new(), name: namespace.to_owned() });
        let account = self.accounts.get(&Key { namespace: namespace.to_owned(), name: ACCOUNT.to_owned() });
        if decide(found.as_deref(), account.as_deref()) == Plan::Create {
            let metadata = ObjectMeta { name: Some(ACCOUNT.to_owned()), ..ObjectMeta::default() };
            let account = ServiceAccount { metadata, ..ServiceAccount::default() };
            create(&Api::namespaced(self.client.clone(), namespace), &account).await?;
        }
        Ok(Next::Wait)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Nothing,
    Create,
}

/// # Guarantees
/// - Nothing is created where there is an account, or where nothing can be created any more.
fn decide(namespace: Option<&Namespace>, account: Option<&ServiceAccount>) -> Plan {
    match (namespace, account) {
        (Some(namespace), None) if is_active(namespace) => Plan::Create,
        _ => Plan::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn namespace(phase: &str, deleted: bool) -> Namespace {
        let time = deleted.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({ "metadata": { "deletionTimestamp": time }, "status": { "phase": phase } }))
            .unwrap()
    }

    #[test]
    fn an_active_namespace_gets_its_account() {
        assert_eq!(decide(Some(&namespace("Active", false)), None), Plan::Create);
        assert_eq!(decide(Some(&namespace("Active", false)), Some(&ServiceAccount::default())), Plan::Nothing);
        assert_eq!(decide(None, None), Plan::Nothing);
    }

    proptest! {
        #[test]
        fn nothing_is_created_on_the_way_out(phase in "Active|Terminating|", deleted: bool, there: bool) {
            let account = there.then(ServiceAccount::default);
            let plan = decide(Some(&namespace(&phase, deleted)), account.as_ref());
            prop_assert_eq!(plan == Plan::Create, phase == "Active" && !deleted && !there);
        }
    }
}
