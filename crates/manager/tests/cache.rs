//! A cache that follows the watcher of kube on the embedded API server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use apiserver::{ApiServer, Identity, Place};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use manager::cache::Index;
use manager::caches::Caches;
use manager::context::Chance;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::sleep;

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

/// A config map whose `number` must be there: for this program, others are bad.
#[derive(Clone, Debug, serde::Deserialize)]
struct Numbered {
    metadata: ObjectMeta,
    data: Number,
}

#[derive(Clone, Debug, serde::Deserialize)]
struct Number {
    number: String,
}

impl Resource for Numbered {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_object_is_left_out_and_counted_and_the_watch_goes_on() {
    let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
    let client = Client::new(server.for_identity(Identity::admin()), "default");
    let api = Api::<ConfigMap>::default_namespaced(client.clone());
    let make = async |name: &str, key: &str| {
        let data = Some(BTreeMap::from([(key.to_owned(), "1".to_owned())]));
        let object = ConfigMap { data, ..map(name, "any") };
        api.create(&PostParams::default(), &object).await.unwrap();
    };
    make("bad-from-the-start", "other").await;
    make("good", "number").await;
    let caches = Caches::new(client.clone(), Chance::seeded(1));
    let mut registry = Registry::default();
    caches.register(&mut registry);
    let cache = caches.of::<Numbered>(&[]);
    tokio::spawn(async move { caches.run().await });
    cache.synced().await;
    let names = || cache.all().iter().map(|one| one.metadata.name.clone().unwrap()).collect::<Vec<_>>();
    assert_eq!((names(), cache.unreadable()), (vec!["good".to_owned()], 1));
    make("bad-later", "other").await;
    make("later", "number").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!((names(), cache.unreadable()), (vec!["good".to_owned(), "later".to_owned()], 2));
    assert_eq!(cache.all()[0].data.number, "1");
    // One that turns bad stays as it was last known; one that is deleted is gone, bad or not, and need not be read.
    let spoil = json!({ "data": null });
    api.patch("good", &PatchParams::default(), &Patch::Merge(&spoil)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(names(), ["good", "later"]);
    api.delete("good", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(names(), ["later"]);
    let mut shown = String::new();
    encode(&mut shown, &registry).unwrap();
    assert!(shown.contains("cache_unreadable_objects_total{kind=\"ConfigMap\"} 3"), "{shown}");
}
