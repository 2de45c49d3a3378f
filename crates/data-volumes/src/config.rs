//! The CDIConfig `config`: how data is imported here, for clients that ask before they import.
//!
//! Watches: CDIConfig, StorageClass. Owns: that CDIConfig, except what an administrator asks for in its spec. Emits: its creation, with the
//! first StorageClass, and its status.

use std::sync::Arc;

use api::cdi::{CDIConfig, CDIConfigStatus, FilesystemOverhead};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Started};
use manager::kit::{Kit, Reconciler, Written};
use manager::worker::Next;
use manager::writing::{create, difference, guarded};
use serde_json::{Value, json};

use crate::overhead;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "cdiconfig-controller";
/// The name of the only CDIConfig.
pub(crate) const CONFIG: &str = "config";
const WORKERS: usize = 1;

/// The controller.
#[must_use]
pub fn start(context: &Context) -> Started {
    let kit = Kit::new(NAME, context);
    let controller = Configs {
        client: context.client.clone(),
        classes: context.caches.of(&[]),
        configs: context.caches.of(&[]),
        written: kit.written(),
    };
    let (classes, configs) = (controller.classes.clone(), controller.configs.clone());
    kit.reconciles(&configs).watch(&classes, |_| [Key::cluster(CONFIG)]).run(WORKERS, controller)
}

struct Configs {
    client: Client,
    classes: Cache<StorageClass>,
    configs: Cache<CDIConfig>,
    written: Written,
}

#[derive(Debug, PartialEq)]
enum Plan {
    Nothing,
    Create(Box<CDIConfig>),
    Status(Value),
}

impl Reconciler for Configs {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let config = self.configs.get(key);
        // One of another name says nothing here.
        if key.name != CONFIG || config.as_ref().is_some_and(|config| self.written.is_behind(key, &**config)) {
            return Ok(Next::Wait);
        }
        let api: Api<CDIConfig> = Api::all(self.client.clone());
        match decide(config.as_deref(), &self.classes.all()) {
            Plan::Nothing => {}
            Plan::Create(config) => create(&api, &config).await?,
            Plan::Status(patch) => drop(self.written.patch_status(&api, key, &patch).await?),
        }
        Ok(Next::Wait)
    }
}

/// # Guarantees
/// The status says what imports go by, even if the spec asks for a share that is no number.
fn decide(config: Option<&CDIConfig>, classes: &[Arc<StorageClass>]) -> Plan {
    let Some(config) = config else {
        let metadata = ObjectMeta { name: Some(CONFIG.to_owned()), ..ObjectMeta::default() };
        return Plan::Create(Box::new(CDIConfig { metadata, ..CDIConfig::default() }));
    };
    let of_class = |class: &Arc<StorageClass>| {
        let name = class.name_any();
        let share = overhead::told(config, Some(&name));
        (name, share)
    };
    let shares = FilesystemOverhead {
        global: Some(overhead::told(config, None)),
        storage_class: Some(classes.iter().map(of_class).collect()),
    };
    let new = CDIConfigStatus { filesystem_overhead: Some(shares) };
    let old = config.status.clone().unwrap_or_default();
    match difference(&json!(old), &json!(new)) {
        Some(patch) => Plan::Status(guarded(&config.metadata, json!({ "status": patch }))),
        None => Plan::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_says_what_imports_go_by() {
        let class = |name: &str| -> Arc<StorageClass> {
            Arc::new(serde_json::from_value(json!({ "metadata": { "name": name }, "provisioner": "p" })).unwrap())
        };
        let classes = [class("local"), class("other")];
        let Plan::Create(mut config) = decide(None, &classes) else { panic!("not made") };
        assert_eq!(config.name_any(), "config");
        let mut says = |spec: Value, shares: Value| {
            config.spec = serde_json::from_value(json!({ "filesystemOverhead": spec })).unwrap();
            config.status = None;
            let Plan::Status(patch) = decide(Some(&config), &classes) else { panic!("no status") };
            assert_eq!(patch["status"]["filesystemOverhead"], shares);
            config.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
            assert_eq!(decide(Some(&config), &classes), Plan::Nothing);
        };
        says(json!({}), json!({ "global": "0", "storageClass": { "local": "0", "other": "0" } }));
        let own = json!({ "global": "0.055", "storageClass": { "other": "0.1" } });
        says(own, json!({ "global": "0.055", "storageClass": { "local": "0.055", "other": "0.1" } }));
        let nonsense = json!({ "global": "0.055", "storageClass": { "other": "much" } });
        says(nonsense, json!({ "global": "0.055", "storageClass": { "local": "0.055", "other": "0" } }));
    }
}
