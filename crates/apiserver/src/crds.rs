//! Follows the definitions of custom resources: accepts their names, serves what they define, and empties what goes.
//!
//! Watches the table of definitions. Owns their `status` (conditions, accepted names) and the clean-up finalizer. Emits
//! changes of the registry. It never waits: a definition is served within a turn of the event loop of its commit.

pub(crate) mod orphans;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::sleep;

use crate::meta;
use crate::metrics::Metrics;
use crate::registry::{Registry, Resource, forget_unused_parts};
use crate::server::Inner;
use crate::store::{DEFINITIONS, Draft, Expect, Key, Object, Table, Write, WriteError};
use crate::strategy::{crd, set_condition};
use crate::verbs::delete_everything;

/// After so long, requests have let go of what was served when they came, and watches of what changed have ended.
const LATER: Duration = Duration::from_secs(10);

/// Runs until the server is gone.
pub(crate) async fn run(server: std::sync::Weak<Inner>) {
    let Some(mut changes) = server.upgrade().map(|server| server.store.history(&DEFINITIONS.into()).follow()) else {
        return;
    };
    // Whether requests and watches may still hold what is no longer served.
    let mut lingers = false;
    loop {
        let Some(alive) = server.upgrade() else { return };
        let Passed { waiting, let_go } = pass(&alive).await;
        lingers |= let_go;
        // Objects that something holds go on their own time; only their table tells when.
        let held = waiting.map(|table| alive.store.history(&table).follow());
        drop(alive);
        let released = async {
            match held {
                Some(mut held) => held.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        let more = tokio::select! {
            biased;
            changed = changes.changed() => changed.is_ok(),
            changed = released => changed,
            () = sleep(LATER), if lingers => {
                lingers = false;
                forget_unused_parts();
                // A request that had begun before was counted after its definition had gone.
                if let Some(alive) = server.upgrade() {
                    keep_counts(&alive.metrics, &alive.registry.load());
                }
                true
            }
        };
        if !more {
            return;
        }
    }
}

/// What came of a look at all definitions.
struct Passed {
    /// A table that it waits for, if a definition that goes has objects left.
    waiting: Option<Table>,
    /// Whether something is served no longer, or in another form.
    let_go: bool,
}

/// Looks at all definitions once.
async fn pass(server: &Arc<Inner>) -> Passed {
    let mut waiting = None;
    let objects = server.store.snapshot().objects(DEFINITIONS);
    for (key, object) in &objects {
        if Head::read(object.draft.text()).is_some_and(|head| head.is_settled()) {
            continue;
        }
        let Ok(definition) = object.value() else { continue };
        let result = if definition["metadata"]["deletionTimestamp"].is_null() {
            accept(server, key, object, definition).await
        } else {
            match remove(server, key, object, definition).await {
                Ok(None) => Ok(()),
                Ok(Some(table)) => {
                    waiting = Some(table);
                    Ok(())
                }
                Err(error) => Err(error),
            }
        };
        if let Err(error) = result {
            // Somebody else changed it; the change wakes the next pass.
            tracing::debug!(definition = %key.name, %error, "cannot update a definition");
        }
    }
    let current = server.store.snapshot().objects(DEFINITIONS);
    let let_go = publish(server, &current);
    if let Err(error) = orphans::remove(server).await {
        tracing::warn!(%error, "cannot delete objects without a definition");
    }
    Passed { waiting, let_go }
}

/// Sets conditions and accepted names; all at once, because nothing in between is of use to anyone.
async fn accept(server: &Inner, key: &Key, object: &Object, mut definition: Value) -> Result<(), WriteError> {
    let now = server.clock.now();
    let (names, conflict) = accepted_names(&server.registry.load(), &definition);
    let status = &mut definition["status"];
    let renamed = status["acceptedNames"] != names;
    status["acceptedNames"] = names;
    let changed = match conflict {
        None => {
            let accepted = set_condition(status, "NamesAccepted", true, "NoConflicts", "no conflicts found", now);
            let message = "the initial names have been accepted";
            let established = set_condition(status, "Established", true, "InitialNamesAccepted", message, now);
            renamed | accepted | established
        }
        Some((reason, message)) => {
            let refused = set_condition(status, "NamesAccepted", false, reason, &message, now);
            let established = !crd::is_true(&definition, "Established")
                && set_condition(
                    &mut definition["status"],
                    "Established",
                    false,
                    "NotAccepted",
                    "not all names are accepted",
                    now,
                );
            renamed | refused | established
        }
    };
    if changed { write(server, key, object, Some(&definition)).await } else { Ok(()) }
}

/// The names that no other resource of the group has, those accepted before in the place of others, and the last
/// conflict.
fn accepted_names(registry: &Registry, definition: &Value) -> (Value, Option<(&'static str, String)>) {
    let wanted = &definition["spec"]["names"];
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let others = || registry.of_group(group).filter(|one| wanted["plural"] != one.plural.as_str());
    let mut resources: BTreeSet<&str> = BTreeSet::new();
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    for other in others() {
        resources.extend([other.plural.as_str(), other.singular.as_str()]);
        resources.extend(other.short_names.iter().map(String::as_str));
        kinds.extend([other.kind.as_str(), other.list_kind.as_str()]);
    }
    let mut names = definition["status"]["acceptedNames"].clone();
    let mut conflict = None;
    for (field, reason, taken) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        let given = &wanted[field];
        let texts = given.as_array().map_or(std::slice::from_ref(given), |list| list);
        match texts.iter().filter_map(Value::as_str).find(|name| taken.contains(name)) {
            Some(name) => conflict = Some((reason, format!("\"{name}\" is already in use"))),
            None if given.is_null() => {}
            None => names[field] = given.clone(),
        }
    }
    if !wanted["categories"].is_null() {
        names["categories"] = wanted["categories"].clone();
    }
    (names, conflict)
}

/// Deletes the objects of a definition that goes, then lets it go. Gives the table that still has some.
async fn remove(
    server: &Arc<Inner>,
    key: &Key,
    object: &Object,
    mut definition: Value,
) -> Result<Option<Table>, WriteError> {
    let now = server.clock.now();
    if !meta::list(&definition, "finalizers").contains(&crd::CLEANUP) {
        return Ok(None);
    }
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
    let resource = server.registry.load().get(group, plural).cloned();
    let own = resource.filter(|resource| resource.definition.as_deref() == definition["metadata"]["uid"].as_str());
    if let Some(resource) = own {
        let marked = set_condition(
            &mut definition["status"],
            "Terminating",
            true,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            now,
        );
        if marked {
            // The write wakes the next pass, which does the deleting.
            return write(server, key, object, Some(&definition)).await.map(|()| None);
        }
        match delete_everything(server, &resource).await {
            Ok(true) => {}
            Ok(false) => return Ok(Some(resource.table.clone())),
            Err(error) => {
                tracing::warn!(definition = %key.name, %error, "cannot delete objects");
                return Ok(Some(resource.table.clone()));
            }
        }
    }
    if let Some(list) = definition["metadata"]["finalizers"].as_array_mut() {
        list.retain(|one| one != crd::CLEANUP);
    }
    let held = !meta::list(&definition, "finalizers").is_empty();
    write(server, key, object, held.then_some(&definition)).await.map(|()| None)
}

async fn write(server: &Inner, key: &Key, object: &Object, put: Option<&Value>) -> Result<(), WriteError> {
    let draft =
        put.map(|value| Draft::new(value, &[])).transpose().map_err(|error| WriteError::Failed(error.to_string()))?;
    let write = Write {
        table: DEFINITIONS.into(),
        key: key.clone(),
        expect: Expect::Revision(object.revision),
        put: draft,
        in_living_namespace: false,
        of_definition: None,
    };
    server.store.write(write).await.map(drop)
}

/// Serves what is established, and no longer what is gone. Tells whether something was served before that is not any more.
fn publish(server: &Inner, definitions: &crate::store::Objects) -> bool {
    let before = server.registry.load_full();
    let mut registry = Registry::clone(&before);
    if !refresh(&mut registry, definitions.iter().map(|(_, object)| (object.revision, object.draft.text()))) {
        return false;
    }
    let registry = Arc::new(registry);
    server.registry.store(registry.clone());
    server.registry_changes.raise();
    let is_kept = |one: &Arc<Resource>| registry.get(&one.group, &one.plural).is_some_and(|now| Arc::ptr_eq(now, one));
    let let_go = !before.resources().all(is_kept);
    if let_go {
        drop(before);
        forget_unused_parts();
        keep_counts(&server.metrics, &registry);
    }
    let_go
}

/// Forgets what was counted for what is no longer served.
fn keep_counts(metrics: &Metrics, registry: &Registry) {
    metrics.keep(|group, version, resource| {
        registry.get(group, resource).is_some_and(|resource| resource.version(version).is_some())
    });
}

/// Brings a registry up to date with definitions. Tells whether anything changed.
pub(crate) fn refresh<'a>(registry: &mut Registry, definitions: impl Iterator<Item = (u64, &'a Bytes)>) -> bool {
    let mut changed = false;
    let mut served = BTreeSet::new();
    for (revision, text) in definitions {
        let Some(head) = Head::read(text).filter(|head| head.is("Established")) else { continue };
        let Some((group, plural)) = head.names() else { continue };
        let (group, plural) = (group.as_str(), plural.as_str());
        served.insert((group.to_owned(), plural.to_owned()));
        let fingerprint = head.fingerprint();
        let known = registry.get(group, plural);
        if known.is_some_and(|known| !known.is_custom() || known.fingerprint == Some(fingerprint)) {
            continue;
        }
        match Resource::from_definition(text, revision) {
            Ok(mut resource) => {
                resource.fingerprint = Some(fingerprint);
                registry.add(Arc::new(resource));
                changed = true;
            }
            Err(error) => tracing::warn!(plural, group, %error, "a definition cannot be served"),
        }
    }
    let gone: Vec<(String, String)> = registry
        .resources()
        .filter(|resource| resource.is_custom())
        .map(|resource| (resource.group.clone(), resource.plural.clone()))
        .filter(|name| !served.contains(name))
        .collect();
    for (group, plural) in gone {
        registry.remove(&group, &plural);
        changed = true;
    }
    changed
}

/// What can be told of a definition without taking its schemas in.
#[derive(Deserialize)]
struct Head<'a> {
    metadata: HeadMetadata,
    #[serde(borrow)]
    spec: &'a RawValue,
    #[serde(default, borrow)]
    status: HeadStatus<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMetadata {
    uid: String,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct HeadSpec<'a> {
    group: String,
    #[serde(borrow)]
    names: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadStatus<'a> {
    #[serde(borrow)]
    accepted_names: Option<&'a RawValue>,
    conditions: Option<Vec<HeadCondition>>,
}

#[derive(Deserialize)]
struct HeadCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
struct HeadNames {
    plural: String,
}

impl<'a> Head<'a> {
    fn read(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    fn is(&self, condition: &str) -> bool {
        let conditions = self.status.conditions.iter().flatten();
        conditions.into_iter().any(|one| one.kind == condition && one.status == "True")
    }

    /// Whether there is nothing to do about it.
    fn is_settled(&self) -> bool {
        let names = serde_json::from_str::<HeadSpec<'_>>(self.spec.get()).map(|spec| spec.names.get()).ok();
        let accepted = self.status.accepted_names.map(RawValue::get);
        let same = names.is_some() && names == accepted;
        self.metadata.deletion_timestamp.is_none() && self.is("Established") && self.is("NamesAccepted") && same
    }

    /// Its group and the plural that was accepted.
    fn names(&self) -> Option<(String, String)> {
        let spec: HeadSpec<'_> = serde_json::from_str(self.spec.get()).ok()?;
        let names: HeadNames = serde_json::from_str(self.status.accepted_names?.get()).ok()?;
        Some((spec.group, names.plural))
    }

    /// Changes with whatever matters for serving.
    fn fingerprint(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for part in [self.metadata.uid.as_str(), self.spec.get(), self.status.accepted_names.map_or("", RawValue::get)]
        {
            hasher.update(part.as_bytes());
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};
    use http_body_util::Full;
    use serde_json::json;
    use tower::Service as _;

    use crate::identity::Identity;
    use crate::registry::parts;
    use crate::{ApiServer, Place};

    use super::*;

    async fn ask(server: &ApiServer, method: Method, path: &str, body: &Value) -> u16 {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        server.for_identity(Identity::admin()).call(request).await.unwrap().status().as_u16()
    }

    /// Other tests of this process take in some schemas meanwhile, but none of so many parts.
    #[tokio::test(start_paused = true)]
    async fn the_parts_of_a_schema_go_with_its_definition() {
        const MANY: usize = 20_000;
        let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
        let fields: serde_json::Map<String, Value> =
            (0..MANY).map(|turn| (format!("f{turn}"), json!({ "type": "string", "maxLength": turn }))).collect();
        let version = json!({
            "name": "v1",
            "served": true,
            "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object", "properties": fields } },
        });
        let definition = json!({
            "metadata": { "name": "shrubs.example.com" },
            "spec": {
                "group": "example.com",
                "scope": "Cluster",
                "names": { "plural": "shrubs", "singular": "shrub", "kind": "Shrub" },
                "versions": [version],
            },
        });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let shrubs = "/apis/example.com/v1/shrubs";
        assert_eq!(ask(&server, Method::POST, definitions, &definition).await, 201);
        while ask(&server, Method::GET, shrubs, &Value::Null).await != 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let shrub = json!({ "apiVersion": "example.com/v1", "kind": "Shrub", "metadata": { "name": "s" } });
        assert_eq!(ask(&server, Method::POST, shrubs, &shrub).await, 201);
        assert!(parts() >= MANY);
        let path = format!("{definitions}/shrubs.example.com");
        assert_eq!(ask(&server, Method::DELETE, &path, &json!({})).await, 200);
        // What deleted the definition still held all that was served when it began.
        let deadline = tokio::time::Instant::now() + LATER * 2;
        while parts() >= MANY {
            assert!(tokio::time::Instant::now() < deadline, "they stay");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
