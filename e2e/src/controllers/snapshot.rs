//! What is there, without what differs from one run to the next: names that are made up, times, identities, order.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::clients::kubectl::Kubectl;

/// The names of replica sets that were seen, in the order of their revisions: those that are gone are still named by
/// events.
#[derive(Default)]
pub(super) struct Names {
    /// The hash in a set's name, and what stands for it.
    sets: BTreeMap<String, String>,
    /// How many sets each deployment has had.
    count: BTreeMap<String, usize>,
}

impl Names {
    /// All that the controllers made and said, in the namespace `default`.
    pub(super) fn snapshot(&mut self, kubectl: &Kubectl, kinds: &str) -> Result<Value> {
        self.read(&kubectl.ok(&["get", kinds, "-o", "json"])?)
    }

    fn read(&mut self, printed: &str) -> Result<Value> {
        let list: Value = serde_json::from_str(printed)?;
        let items = list["items"].as_array().context("kubectl printed no list")?;
        self.learn(items);
        let plain = self.plain(printed)?;
        let list: Value = serde_json::from_str(&plain)?;
        let items = list["items"].as_array().context("names made it no list")?;
        let mut found = json!({
            "deployments": {}, "sets": {}, "pods": {}, "events": {}, "controllers": {}, "services": {}, "endpoints": {}, "slices": {},
            "budgets": {},
        });
        for item in items {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            match item["kind"].as_str() {
                Some("Deployment") => found["deployments"][name] = object(item),
                Some("ReplicaSet") => found["sets"][name] = object(item),
                Some("ReplicationController") => found["controllers"][name] = object(item),
                // The server looks after the way to itself.
                Some("Service" | "Endpoints" | "EndpointSlice") if is_of_the_server(item) => {}
                Some("Service") => found["services"][name] = object(item),
                Some("Endpoints") => found["endpoints"][name] = addresses(item),
                Some("EndpointSlice") => push(&mut found["slices"], name, addresses(item)),
                Some("PodDisruptionBudget") => found["budgets"][name] = object(item),
                Some("Pod") => push(&mut found["pods"], name, pod(item)),
                Some("Event") if is_by_controllers(item) => count(&mut found["events"], item),
                _ => {}
            }
        }
        for pods in found["pods"].as_object_mut().into_iter().flat_map(Map::values_mut) {
            pods.as_array_mut().into_iter().for_each(|pods| pods.sort_by_key(Value::to_string));
        }
        Ok(found)
    }

    /// Gives every new replica set a name: its deployment and a number, in the order of revisions.
    fn learn(&mut self, items: &[Value]) {
        let mut sets: Vec<(u64, &str, &str)> = items
            .iter()
            .filter(|item| item["kind"] == "ReplicaSet")
            .filter_map(|set| {
                let revision = set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str()?;
                let hash = set["metadata"]["labels"]["pod-template-hash"].as_str()?;
                Some((revision.parse().ok()?, hash, set["metadata"]["labels"]["app"].as_str()?))
            })
            .collect();
        sets.sort_unstable();
        for (_, hash, app) in sets {
            if !self.sets.contains_key(hash) {
                let number = self.count.entry(app.to_owned()).or_default();
                *number += 1;
                self.sets.insert(hash.to_owned(), format!("SET{number}"));
            }
        }
    }

    /// The text with names and times that are the same in every run.
    fn plain(&self, text: &str) -> Result<String> {
        let mut text = text.to_owned();
        for (hash, name) in &self.sets {
            text = text.replace(hash, name);
        }
        for (pattern, instead) in [
            (r"(-SET\d+)-[a-z0-9]+", "$1-POD"),
            (r"\b(rc[a-z]+)-[a-z0-9]{5}\b", "$1-POD"),
            (r"\b(svc[a-z]+)-[a-z0-9]{5}\b", "$1-SLICE"),
            (r"\b\d+\.\d+\.\d+\.\d+\b", "ADDRESS"),
            (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
            (r"\bhollow-\d+", "NODE"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "TIME"),
            (r"kube-api-access-[a-z0-9]+", "kube-api-access-X"),
        ] {
            text = Regex::new(pattern)?.replace_all(&text, instead).into_owned();
        }
        Ok(text)
    }
}

/// An object without what the server alone says of it.
fn object(item: &Value) -> Value {
    let mut kept = item.clone();
    let metadata = json!({
        "annotations": item["metadata"]["annotations"],
        "labels": item["metadata"]["labels"],
        "generation": item["metadata"]["generation"],
        "finalizers": item["metadata"]["finalizers"],
        "owners": owners(item),
    });
    kept["metadata"] = metadata;
    if let Some(conditions) = kept["status"]["conditions"].as_array() {
        let by_type: Map<String, Value> = conditions
            .iter()
            .map(|condition| {
                let mut condition = condition.clone();
                for time in ["lastTransitionTime", "lastUpdateTime"] {
                    condition[time] = condition[time].is_string().into();
                }
                (condition["type"].as_str().unwrap_or_default().to_owned(), condition)
            })
            .collect();
        kept["status"]["conditions"] = Value::Object(by_type);
    }
    kept
}

fn is_of_the_server(item: &Value) -> bool {
    let labels = &item["metadata"]["labels"];
    item["metadata"]["name"] == "kubernetes" || labels["kubernetes.io/service-name"] == "kubernetes"
}

/// Endpoints or a slice. Their order is nobody's, and how often they were changed depends on who is faster.
fn addresses(item: &Value) -> Value {
    let mut kept = object(item);
    kept["metadata"]["generation"].take();
    let sort = |list: &mut Value| {
        list.as_array_mut().into_iter().for_each(|all| all.sort_by_key(Value::to_string));
    };
    sort(&mut kept["endpoints"]);
    for subset in kept["subsets"].as_array_mut().into_iter().flatten() {
        for field in ["addresses", "notReadyAddresses", "ports"] {
            sort(&mut subset[field]);
        }
    }
    sort(&mut kept["ports"]);
    kept
}

fn owners(item: &Value) -> Value {
    let owners = item["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    owners
        .into_iter()
        .map(|mut owner| {
            owner["uid"] = owner["uid"].is_string().into();
            owner
        })
        .collect()
}

/// What its owner and the scheduler made of a pod; what a node says of it is not theirs.
fn pod(item: &Value) -> Value {
    let mut kept = object(item);
    kept["metadata"]["generateName"] = item["metadata"]["generateName"].clone();
    kept["metadata"]["ending"] = item["metadata"]["deletionTimestamp"].is_string().into();
    let scheduled = kept["status"]["conditions"]["PodScheduled"].take();
    kept["status"] = json!({ "phase": item["status"]["phase"], "scheduled": scheduled });
    kept
}

fn push(lists: &mut Value, name: &str, value: Value) {
    match lists[name].as_array_mut() {
        Some(list) => list.push(value),
        None => lists[name] = json!([value]),
    }
}

/// Whether an event is about something that the compared controllers look after. A server also writes some about itself,
/// such as about the address of its own service, when it happens to look at a bad moment.
fn is_by_controllers(event: &Value) -> bool {
    matches!(
        event["involvedObject"]["kind"].as_str(),
        Some("Deployment" | "ReplicaSet" | "ReplicationController" | "Pod" | "Node")
    )
}

/// Events that tell the same are counted together.
fn count(events: &mut Value, item: &Value) {
    let about = &item["involvedObject"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let component = match text(&item["reportingComponent"]) {
        empty if empty.is_empty() => text(&item["source"]["component"]),
        component => component,
    };
    let key = format!(
        "{} {} {} {} by {component}: {}",
        text(&about["kind"]),
        text(&about["name"]),
        text(&item["type"]),
        text(&item["reason"]),
        text(&item["message"])
    );
    let times = item["series"]["count"].as_u64().or_else(|| item["count"].as_u64()).unwrap_or(1).max(1);
    let before = events[&key].as_u64().unwrap_or_default();
    events[&key] = (before + times).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, reason: &str, component: &str) -> Value {
        json!({
            "kind": "Event", "metadata": { "name": format!("{kind}.{reason}") }, "type": "Normal", "reason": reason,
            "involvedObject": { "kind": kind, "name": "web" }, "source": { "component": component }, "count": 2,
        })
    }

    #[test]
    fn what_a_server_says_of_itself_is_no_word_of_a_controller() {
        let said = [
            event("Deployment", "ScalingReplicaSet", "deployment-controller"),
            event("Service", "ClusterIPNotAllocated", "ipallocator-repair-controller"),
        ];
        let found = Names::default().read(&json!({ "items": said }).to_string()).unwrap();
        let expected = json!({ "Deployment web Normal ScalingReplicaSet by deployment-controller: ": 2 });
        assert_eq!(found["events"], expected);
    }
}
