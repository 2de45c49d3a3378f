//! Brings the stored policy to what every cluster should have: what is missing is added, and nothing is taken away.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::compiled::{CLUSTER_ROLES, ROLES};
use super::cover;
use super::policy::{AUTO_UPDATE, Wanted, wanted};
use super::rule::Rule;
use crate::clock;
use crate::server::Inner;
use crate::store::{Draft, Expect, Key, Object, OpenError, Write};

/// What has to be written.
///
/// # Errors
/// When an object cannot be read or made.
pub(crate) fn writes(server: &Inner) -> Result<Vec<Write>, OpenError> {
    let snapshot = server.store.snapshot();
    let mut writes = Vec::new();
    for wanted in wanted() {
        let current = snapshot.get(wanted.table, &wanted.key);
        let problem = problem(&wanted);
        if let Some(write) = write(server, wanted, current).map_err(problem)? {
            writes.push(write);
        }
    }
    Ok(writes)
}

fn problem(wanted: &Wanted) -> impl FnOnce(serde_json::Error) -> OpenError + use<> {
    let (table, name) = (wanted.table.to_owned(), wanted.key.name.to_string());
    move |source| OpenError::Object { table, name, source }
}

fn write(server: &Inner, wanted: Wanted, current: Option<&Arc<Object>>) -> Result<Option<Write>, serde_json::Error> {
    let Wanted { table, key, object } = wanted;
    let (object, expect) = match current {
        None => (fresh(server, &key, object), Expect::Absent),
        Some(current) if !current.draft.is_readable() => {
            (fresh(server, &key, object), Expect::Revision(current.revision))
        }
        Some(current) => {
            let old = current.draft.value()?;
            let new = if matches!(table, ROLES | CLUSTER_ROLES) {
                reconciled_role(&old, &object)
            } else if is_kept(&old) && old["roleRef"] != object["roleRef"] {
                // What a binding binds cannot be changed: it is recreated.
                Some(fresh(server, &key, object))
            } else {
                reconciled_binding(&old, &object)
            };
            let Some(new) = new else { return Ok(None) };
            (new, Expect::Revision(current.revision))
        }
    };
    let draft = Draft::new(&object, &server.registry.load().fields(table))?;
    let write =
        Write { table: table.into(), key, expect, put: Some(draft), in_living_namespace: false, of_definition: None };
    Ok(Some(write))
}

fn fresh(server: &Inner, key: &Key, mut object: Value) -> Value {
    let metadata = &mut object["metadata"];
    metadata["name"] = (&*key.name).into();
    if !key.namespace.is_empty() {
        metadata["namespace"] = (&*key.namespace).into();
    }
    metadata["uid"] = server.chance.uid().into();
    metadata["creationTimestamp"] = clock::text(server.clock.now()).into();
    object
}

/// Whether the object is kept up to date at all.
fn is_kept(object: &Value) -> bool {
    object["metadata"]["annotations"][AUTO_UPDATE] != "false"
}

/// A role with the labels, rules and selectors that it lacks; none, if it lacks nothing.
fn reconciled_role(old: &Value, wanted: &Value) -> Option<Value> {
    let mut new = with_metadata(old, wanted)?;
    let rules = |role: &Value| -> Vec<Rule> { serde_json::from_value(role["rules"].clone()).unwrap_or_default() };
    let missing = cover::compact(cover::missing(&rules(old), &rules(wanted)));
    let missing = missing.iter().filter_map(|rule| serde_json::to_value(rule).ok());
    append(&mut new, &["rules"], missing);
    let selectors = wanted["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten();
    let held = old["aggregationRule"]["clusterRoleSelectors"].as_array();
    let missing = selectors.filter(|one| !held.is_some_and(|held| held.contains(one))).cloned();
    append(&mut new, &["aggregationRule", "clusterRoleSelectors"], missing);
    (new != *old).then_some(new)
}

/// A binding with the labels and subjects that it lacks; none, if it lacks nothing.
fn reconciled_binding(old: &Value, wanted: &Value) -> Option<Value> {
    let mut new = with_metadata(old, wanted)?;
    let same = |a: &Value, b: &Value| ["kind", "namespace", "name"].iter().all(|field| a[field] == b[field]);
    let held = || old["subjects"].as_array().into_iter().flatten();
    let subjects = wanted["subjects"].as_array().into_iter().flatten();
    let missing = subjects.filter(|one| !held().any(|held| same(held, one))).cloned();
    append(&mut new, &["subjects"], missing);
    (new != *old).then_some(new)
}

/// With labels and annotations that are not there; those that are there stay. None, if it is not kept up to date.
fn with_metadata(old: &Value, wanted: &Value) -> Option<Value> {
    if !is_kept(old) {
        return None;
    }
    let mut new = old.clone();
    for part in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][part].as_object().into_iter().flatten() {
            let missing = old["metadata"][part].get(key).is_none();
            if let Some(slot) = new["metadata"].get_mut(part).filter(|_| missing) {
                slot[key] = value.clone();
            } else if missing {
                let mut map = Map::new();
                map.insert(key.clone(), value.clone());
                new["metadata"][part] = map.into();
            }
        }
    }
    Some(new)
}

/// Adds to a list that may not be there.
fn append(object: &mut Value, way: &[&str], more: impl Iterator<Item = Value>) {
    let mut more = more.peekable();
    if more.peek().is_none() {
        return;
    }
    let place = way.iter().fold(object, |place, step| &mut place[*step]);
    match place.as_array_mut() {
        Some(list) => list.extend(more),
        None => *place = more.collect(),
    }
}
