//! Service accounts: every active namespace has the account `default`.
//!
//! Watches: Namespace, ServiceAccount. Owns: the account `default`, only its being there. Emits: its
//! creation. Absent on purpose: what is in the account, which is the user's; and tokens, see
//! [`crate::service_account_token`].

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Context, Started};
use manager::kit::{Kit, Reconciler};
use manager::worker::Next;
use manager::writing::create;

use crate::writing::is_active;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "serviceaccount-controller";
/// The account that pods have who name none.
const ACCOUNT: &str = "default";
/// As in Kubernetes: a creation per namespace is little work.
const WORKERS: usize = 1;

/// The controller.
#[must_use]
pub fn start(context: &Context) -> Started {
    let (namespaces, accounts) = (context.caches.of(&[]), context.caches.of(&[]));
    Kit::new(NAME, context)
        .watch(&namespaces, |change| [change.key.clone()])
        .watch(&accounts, |change: &Changed<ServiceAccount>| {
            let lost = change.key.name == ACCOUNT && change.new.is_none();
            lost.then(|| Key::cluster(&change.key.namespace))
        })
        .run(WORKERS, ServiceAccounts { client: context.client.clone(), namespaces, accounts })
}

struct ServiceAccounts {
    client: Client,
    namespaces: Cache<Namespace>,
    accounts: Cache<ServiceAccount>,
}

impl Reconciler for ServiceAccounts {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let namespace = self.namespaces.get(key);
        let account = self.accounts.get(&Key { namespace: key.name.clone(), name: ACCOUNT.to_owned() });
        if decide(namespace.as_deref(), account.as_deref()) == Plan::Create {
            let metadata = ObjectMeta { name: Some(ACCOUNT.to_owned()), ..ObjectMeta::default() };
            let account = ServiceAccount { metadata, ..ServiceAccount::default() };
            create(&Api::namespaced(self.client.clone(), &key.name), &account).await?;
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
