//! A cache that follows the watcher of kube on the embedded API server.

use std::collections::BTreeMap;

use apiserver::{ApiServer, Identity, Place};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use manager::cache::Index;
use manager::caches::Caches;
use manager::context::Chance;

fn by_tier(map: &ConfigMap) -> Vec<String> {
    map.metadata.labels.iter().filter_map(|labels| labels.get("tier").cloned()).collect()
}

fn map(name: &str, tier: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.labels = Some(BTreeMap::from([("tier".to_owned(), tier.to_owned())]));
    map
}

#[tokio::test]
async fn it_shows_what_the_server_has_and_tells_every_change() {
    let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    let api = Api::<ConfigMap>::default_namespaced(client.clone());
    api.create(&PostParams::default(), &map("a", "front")).await.unwrap();
    let caches = Caches::new(client.clone(), Chance::seeded(1));
    let unindexed = caches.of::<ConfigMap>(&[]);
    let cache = caches.of(&[("tier", by_tier as Index<ConfigMap>)]);
    let follower = tokio::spawn(async move { caches.run().await });
    unindexed.synced().await;
    cache.synced().await;
    let mut subscriber = cache.subscribe();
    assert!(subscriber.next().await.new.is_some());
    api.create(&PostParams::default(), &map("b", "front")).await.unwrap();
    let added = subscriber.next().await;
    assert_eq!((added.key.name.as_str(), added.old.is_none()), ("b", true));
    let names =
        |tier: &str| cache.find("tier", tier).iter().map(|map| map.metadata.name.clone().unwrap()).collect::<Vec<_>>();
    assert_eq!(names("front"), ["a", "b"]);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let gone = subscriber.next().await;
    assert_eq!((gone.key.name.as_str(), gone.old.is_some(), gone.new.is_none()), ("a", true, true));
    assert_eq!(names("front"), ["b"]);
    follower.abort();
}
