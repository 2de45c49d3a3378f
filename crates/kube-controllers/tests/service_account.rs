//! Service accounts and their tokens on the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_controllers::service_account;
use kube_controllers::service_account_token::TokenController;
use serde_json::json;
use testkit::world::{self, World};
use tokens::{SignError, Signer};
use tokio::time::sleep;
use virt_server::Component;

#[derive(Debug)]
struct Seal;

impl Signer for Seal {
    fn algorithm(&self) -> &str {
        "none"
    }

    fn key_id(&self) -> &str {
        "seal"
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        Ok(message.len().to_be_bytes().to_vec())
    }
}

async fn start() -> Client {
    let world = World::start().await;
    let (context, of_tokens) =
        (world.kubernetes("service-account-controller"), world.program(&Component::ControllerManager));
    let tokens = TokenController::new(&of_tokens, Arc::new(Seal), Some("ca".to_owned()));
    tokio::spawn(service_account::start(&context).run);
    tokio::spawn(async move { tokens.run(2).await });
    world::watch(&context);
    world::watch(&of_tokens);
    world.client()
}

async fn settle() {
    sleep(Duration::from_secs(2)).await;
}

fn secret(name: &str, account: &str) -> Secret {
    serde_json::from_value(json!({
        "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": account } },
        "type": "kubernetes.io/service-account-token",
    }))
    .unwrap()
}

fn text(secret: &Secret, key: &str) -> String {
    String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_active_namespace_has_its_account() {
    let client = start().await;
    settle().await;
    let accounts = |namespace: &str| Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        accounts(namespace).get("default").await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    settle().await;
    let first = accounts("n").get("default").await.unwrap();
    accounts("n").delete("default", &DeleteParams::default()).await.unwrap();
    settle().await;
    assert_ne!(accounts("n").get("default").await.unwrap().uid(), first.uid());
    // On its way out nothing comes back.
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    accounts("n").delete("default", &DeleteParams::default()).await.unwrap();
    settle().await;
    assert!(accounts("n").get_opt("default").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_token_is_filled_in_once_and_kept_right() {
    let client = start().await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    settle().await;
    secrets.create(&PostParams::default(), &secret("t", "default")).await.unwrap();
    settle().await;
    let filled = secrets.get("t").await.unwrap();
    assert_eq!((text(&filled, "ca.crt"), text(&filled, "namespace")), ("ca".to_owned(), "default".to_owned()));
    let token = text(&filled, "token");
    assert_eq!(token.split('.').count(), 3);
    let account = Api::<ServiceAccount>::default_namespaced(client).get("default").await.unwrap();
    assert_eq!(filled.annotations()["kubernetes.io/service-account.uid"], account.uid().unwrap());
    let wrong = json!({ "data": { "ca.crt": "eA==" } });
    secrets.patch("t", &PatchParams::default(), &Patch::Merge(&wrong)).await.unwrap();
    settle().await;
    let again = secrets.get("t").await.unwrap();
    assert_eq!((text(&again, "ca.crt"), text(&again, "token")), ("ca".to_owned(), token));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        secrets.get("t").await.unwrap().resource_version(),
        again.resource_version(),
        "at rest nothing is written"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_goes_with_its_account_and_leaves_its_list() {
    let client = start().await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client);
    let account = json!({ "metadata": { "name": "a" }, "secrets": [{ "name": "t" }, { "name": "other" }] });
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    secrets.create(&PostParams::default(), &secret("t", "a")).await.unwrap();
    secrets.create(&PostParams::default(), &secret("u", "a")).await.unwrap();
    secrets.create(&PostParams::default(), &secret("nobodys", "nobody")).await.unwrap();
    let plain = json!({ "metadata": { "name": "plain" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(plain).unwrap()).await.unwrap();
    settle().await;
    assert!(secrets.get_opt("nobodys").await.unwrap().is_none());
    secrets.delete("t", &DeleteParams::default()).await.unwrap();
    settle().await;
    let list = accounts.get("a").await.unwrap().secrets.unwrap();
    assert_eq!(list.iter().map(|one| one.name.as_deref().unwrap()).collect::<Vec<_>>(), ["other"]);
    accounts.delete("a", &DeleteParams::default()).await.unwrap();
    settle().await;
    assert!(secrets.get_opt("u").await.unwrap().is_none());
    secrets.get("plain").await.unwrap();
}
