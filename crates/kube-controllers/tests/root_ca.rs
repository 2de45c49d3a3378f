//! The publisher of the certificate authority on the embedded API server.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_controllers::root_ca;
use serde_json::json;
use testkit::world::{self, World};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn every_active_namespace_has_the_authority_whatever_is_done_to_it() {
    let world = World::start().await;
    let context = world.kubernetes("root-ca-cert-publisher");
    tokio::spawn(root_ca::start(&context, "ca".to_owned()).run);
    world::watch(&context);
    let client = world.client();
    let settle = async || sleep(Duration::from_secs(2)).await;
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    settle().await;
    Api::<ConfigMap>::namespaced(client.clone(), "kube-system").get("kube-root-ca.crt").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "n");
    let right = BTreeMap::from([("ca.crt".to_owned(), "ca".to_owned())]);
    let check = async || {
        settle().await;
        let map = maps.get("kube-root-ca.crt").await.unwrap();
        assert_eq!(map.data.as_ref(), Some(&right));
        assert!(map.annotations()["kubernetes.io/description"].starts_with("The authority behind the certificate"));
        map.resource_version()
    };
    check().await;
    let wrong = json!({ "metadata": { "annotations": null }, "data": { "ca.crt": "x", "more": "y" } });
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &Patch::Merge(&wrong)).await.unwrap();
    check().await;
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.unwrap();
    let before = check().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(check().await, before, "at rest nothing is written");
}
