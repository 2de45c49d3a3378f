//! The nodes: which of them take no further VMs, and what to do about it.

use std::collections::BTreeMap;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watching};
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What keeps a node from taking further VMs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) why: String,
    pub(crate) remedies: Vec<String>,
}

/// Nodes by name, each with its trouble if it has one.
pub(crate) type Nodes = BTreeMap<String, Option<Trouble>>;

/// All nodes, now and whenever one changes.
pub(super) fn follow(client: Client) -> watch::Receiver<Nodes> {
    let (told, nodes) = watch::channel(Nodes::default());
    tokio::spawn(async move {
        let mut changes =
            std::pin::pin!(watching(Api::<Node>::all(client), watcher::Config::default()).default_backoff());
        let mut relisted = Nodes::default();
        loop {
            match changes.try_next().await {
                Ok(Some(Event::Init)) => relisted = Nodes::default(),
                Ok(Some(Event::InitApply(node))) => drop(relisted.insert(node.name_any(), trouble(&node))),
                Ok(Some(Event::InitDone)) => drop(told.send_replace(std::mem::take(&mut relisted))),
                Ok(Some(Event::Apply(node))) => {
                    told.send_modify(|nodes| drop(nodes.insert(node.name_any(), trouble(&node))));
                }
                Ok(Some(Event::Delete(node))) => told.send_modify(|nodes| drop(nodes.remove(&node.name_any()))),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "cannot watch the nodes; retrying"),
            }
        }
    });
    nodes
}

/// Why a node takes no further pods; none if it does.
fn trouble(node: &Node) -> Option<Trouble> {
    let conditions: Vec<&NodeCondition> =
        node.status.iter().flat_map(|status| status.conditions.iter().flatten()).collect();
    let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let (mut whys, mut remedies) = (Vec::new(), Vec::new());
    let mut add = |why: String, remedy: String| {
        whys.push(why);
        remedies.push(remedy);
    };
    let log = || "for details run `sudo orlop logs --component node`".to_owned();
    match conditions.iter().find(|one| one.type_ == "Ready") {
        Some(ready) if ready.status == "True" => {}
        Some(ready) => add(format!("not {}", words(ready)), log()),
        None => add("not Ready yet".to_owned(), log()),
    }
    for pressing in conditions.iter().filter(|one| one.status == "True") {
        let remedy = match pressing.type_.as_str() {
            "DiskPressure" => "free some disk space: VMs start again once a tenth of the disk or 5 GiB are free",
            "MemoryPressure" => "stop a VM or another program: VMs start again once there is free memory",
            "PIDPressure" => "stop some programs: the machine is running out of process IDs",
            _ => continue,
        };
        add(words(pressing), remedy.to_owned());
    }
    if is_cordoned {
        add("cordoned".to_owned(), format!("run `kubectl uncordon {}` to let it take VMs again", node.name_any()));
    }
    (!whys.is_empty()).then(|| Trouble { why: whys.join("; "), remedies })
}

fn words(condition: &NodeCondition) -> String {
    let message = condition.message.as_deref().filter(|message| !message.is_empty());
    message.map_or_else(|| condition.type_.clone(), |message| format!("{}: {message}", condition.type_))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(unschedulable: bool, conditions: &[(&str, &str, &str)]) -> Option<(String, usize)> {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, message)| json!({ "type": kind, "status": status, "message": message }))
            .collect();
        let node = json!({
            "metadata": { "name": "b" }, "spec": { "unschedulable": unschedulable },
            "status": { "conditions": conditions },
        });
        trouble(&serde_json::from_value(node).unwrap()).map(|trouble| (trouble.why, trouble.remedies.len()))
    }

    #[test]
    fn a_node_says_why_it_takes_no_more() {
        assert_eq!(told(false, &[("Ready", "True", ""), ("DiskPressure", "False", "no")]), None);
        let full = told(true, &[("Ready", "True", ""), ("DiskPressure", "True", "full")]);
        assert_eq!(full, Some(("DiskPressure: full; cordoned".to_owned(), 2)));
        assert_eq!(told(false, &[("Ready", "Unknown", "")]), Some(("not Ready".to_owned(), 1)));
        assert_eq!(told(false, &[]), Some(("not Ready yet".to_owned(), 1)));
    }
}
