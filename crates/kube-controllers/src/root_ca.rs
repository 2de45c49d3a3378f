//! The cluster's certificate authority: every active namespace has it in the config map `kube-root-ca.crt`, so that pods
//! can tell the API server from another.
//!
//! Watches: Namespace, ConfigMap (those of that name). Owns: those config maps, all of their data. Emits: a creation or one
//! update. Absent on purpose: any reading of files; what the authority is comes with the settings.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Started};
use manager::kit::{Kit, Reconciler};
use manager::worker::Next;
use manager::writing::{create, log_changed, unless_gone};

use crate::writing::is_active;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "root-ca-certificate-publisher-controller";
const CONFIG_MAP: &str = "kube-root-ca.crt";
const FIELD: &str = "ca.crt";
const ANNOTATION: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "The authority behind the certificate of this cluster's API server. Programs in pods check the server's \
    certificate with it; it vouches for nothing else.";
/// As in Kubernetes: a write per namespace is little work.
const WORKERS: usize = 1;

/// The controller for an authority in PEM.
#[must_use]
pub fn start(context: &Context, root_ca: String) -> Started {
    let namespaces = context.caches.of(&[]);
    let maps = context.caches.with_fields(&format!("metadata.name={CONFIG_MAP}"), &[]);
    Kit::new(NAME, context)
        .watch(&namespaces, |change| [change.key.clone()])
        .watch(&maps, |change| [Key::cluster(&change.key.namespace)])
        .run(WORKERS, RootCa { client: context.client.clone(), root_ca, namespaces, maps })
}

struct RootCa {
    client: Client,
    root_ca: String,
    namespaces: Cache<Namespace>,
    maps: Cache<ConfigMap>,
}

impl Reconciler for RootCa {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let namespace = self.namespaces.get(key);
        let map = self.maps.get(&Key { namespace: key.name.clone(), name: CONFIG_MAP.to_owned() });
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.name);
        match decide(namespace.as_deref(), map.as_deref(), &self.root_ca) {
            Plan::Nothing => {}
            Plan::Create(map) => create(&api, &map).await?,
            // Kubernetes lets this controller update, not patch.
            Plan::Replace(map) => {
                let written = api.replace(CONFIG_MAP, &PostParams::default(), &map).await;
                unless_gone(written.inspect(|_| log_changed::<ConfigMap>(CONFIG_MAP)))?;
            }
        }
        Ok(Next::Wait)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Plan {
    Nothing,
    Create(Box<ConfigMap>),
    Replace(Box<ConfigMap>),
}

/// # Guarantees
/// - The data of the map are the authority and nothing else; labels and further annotations stay.
/// - A map that is right is not written.
fn decide(namespace: Option<&Namespace>, map: Option<&ConfigMap>, root_ca: &str) -> Plan {
    if !namespace.is_some_and(is_active) {
        return Plan::Nothing;
    }
    let Some(map) = map else {
        let metadata = ObjectMeta {
            name: Some(CONFIG_MAP.to_owned()),
            annotations: Some(BTreeMap::from([(ANNOTATION.to_owned(), DESCRIPTION.to_owned())])),
            ..ObjectMeta::default()
        };
        let data = Some(BTreeMap::from([(FIELD.to_owned(), root_ca.to_owned())]));
        return Plan::Create(Box::new(ConfigMap { metadata, data, ..ConfigMap::default() }));
    };
    let described = map.annotations().get(ANNOTATION).is_some_and(|text| !text.is_empty());
    let data = Some(BTreeMap::from([(FIELD.to_owned(), root_ca.to_owned())]));
    if described && map.data == data {
        return Plan::Nothing;
    }
    let mut right = ConfigMap { data, ..map.clone() };
    right.annotations_mut().insert(ANNOTATION.to_owned(), DESCRIPTION.to_owned());
    Plan::Replace(Box::new(right))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn active() -> Namespace {
        serde_json::from_value(json!({ "status": { "phase": "Active" } })).unwrap()
    }

    #[test]
    fn a_namespace_without_it_gets_it_described() {
        let Plan::Create(map) = decide(Some(&active()), None, "ca") else { panic!("there is none") };
        let expected = "The authority behind the certificate of this cluster's API server. Programs in pods check the \
                        server's certificate with it; it vouches for nothing else.";
        assert_eq!(map.annotations()[ANNOTATION], expected);
        assert_eq!(decide(Some(&active()), Some(&map), "ca"), Plan::Nothing);
        assert_eq!(decide(None, None, "ca"), Plan::Nothing);
    }

    proptest! {
        /// Whatever somebody made of it, one write puts it right, and then there is nothing more to do.
        #[test]
        fn one_write_puts_it_right(
            data in prop::collection::btree_map("ca.crt|other|x", "ca|y", 0..3),
            annotations in prop::collection::btree_map("kubernetes.io/description|a", "|text", 0..3),
        ) {
            let metadata = ObjectMeta { uid: Some("u".to_owned()), annotations: Some(annotations.clone()), ..ObjectMeta::default() };
            let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
            match decide(Some(&active()), Some(&map), "ca") {
                Plan::Nothing => prop_assert_eq!(map.data.unwrap(), BTreeMap::from([(FIELD.to_owned(), "ca".to_owned())])),
                Plan::Create(_) => prop_assert!(false, "it is there"),
                Plan::Replace(right) => {
                    prop_assert_eq!(&right.metadata.uid, &map.metadata.uid);
                    prop_assert_eq!(right.annotations().get("a"), annotations.get("a"));
                    prop_assert_eq!(decide(Some(&active()), Some(&right), "ca"), Plan::Nothing);
                }
            }
        }
    }
}
