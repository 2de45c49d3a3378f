//! The status of the KubeVirt object, for those who wait until an installation is complete, or watch whether it stays healthy. On
//! Kubernetes an operator writes it.
//!
//! Watches: KubeVirt, and the health of the components. Emits: one patch of its status for each change of its settings, of this
//! program's release, or of what is wrong.

use std::time::Duration;

use anyhow::Context as _;
use api::kubevirt::{KubeVirt, KubeVirtCondition, KubeVirtPhase, KubeVirtStatus};
use futures_util::StreamExt as _;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use virt_api::subresources::release;

use super::defaults::NAMESPACE;
use super::report::{Report, Reporter};

/// Between two looks at the components, which nobody is told of.
const LOOK: Duration = Duration::from_secs(5);
/// Troubles that a message names; of a thousand nodes without room the first ones say enough.
const NAMED: usize = 3;

/// What is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
struct Health {
    /// Components, each with its trouble: VMs may not run.
    components: Vec<String>,
    /// Nodes that take no further VMs, each with its trouble.
    nodes: Vec<String>,
}

impl Health {
    fn of(report: &Report) -> Self {
        let components = report.components.iter();
        let nodes = report.nodes.iter();
        Self {
            components: components
                .filter_map(|(name, trouble)| Some(format!("{name}: {}", trouble.as_ref()?)))
                .collect(),
            nodes: nodes.filter_map(|(name, trouble)| Some(format!("{name}: {}", trouble.as_ref()?.why))).collect(),
        }
    }

    /// The conditions that say it, in KubeVirt's words where it has some.
    fn conditions(&self) -> [Told; 4] {
        let Self { components, nodes } = self;
        let told = |type_, status, reason, message: &str| Told { type_, status, reason, message: message.to_owned() };
        let ready = |type_, status| told(type_, status, "AllComponentsReady", "All components are ready.");
        let available = match components.as_slice() {
            [] => ready("Available", "True"),
            ill => told("Available", "False", "ComponentsNotReady", &listed(ill)),
        };
        let degraded = match (components.as_slice(), nodes.as_slice()) {
            ([], []) => ready("Degraded", "False"),
            ([], full) => told("Degraded", "True", "NodesNotReady", &listed(full)),
            (ill, _) => told("Degraded", "True", "ComponentsNotReady", &listed(ill)),
        };
        let created = told("Created", "True", "AllResourcesCreated", "All resources were created.");
        [available, ready("Progressing", "False"), degraded, created]
    }
}

/// A condition with its state and why.
#[derive(Debug)]
struct Told {
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Told {
    /// Whether a condition has this state.
    fn has_state_of(&self, condition: &KubeVirtCondition) -> bool {
        condition.type_ == self.type_ && condition.status.as_str() == self.status
    }

    /// Whether it says all of this.
    fn is(&self, condition: &KubeVirtCondition) -> bool {
        self.has_state_of(condition)
            && condition.reason.as_deref() == Some(self.reason)
            && condition.message.as_deref() == Some(self.message.as_str())
    }
}

fn listed(troubles: &[String]) -> String {
    let named = troubles.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match troubles.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// Keeps the status true, until the program ends.
pub(super) fn follow(client: Client, reporter: Reporter) {
    tokio::spawn(async move {
        let api: Api<KubeVirt> = Api::namespaced(client, NAMESPACE);
        let changes = watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects();
        let mut changes = std::pin::pin!(changes);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known = None;
        let mut said = None;
        loop {
            tokio::select! {
                biased;
                change = changes.next() => match change {
                    Some(Ok(object)) => (known, said) = (Some(object), None),
                    Some(Err(error)) => tracing::warn!("cannot watch the KubeVirt object: {error:#}"),
                    None => return,
                },
                _ = looks.tick() => {}
            }
            let health = Health::of(&reporter.report());
            let Some(object) = known.as_ref().filter(|_| said.as_ref() != Some(&health)) else { continue };
            match tell(&api, object, &health).await {
                Ok(()) => said = Some(health),
                Err(error) => tracing::warn!("cannot write the status of the KubeVirt object: {error:#}"),
            }
        }
    });
}

async fn tell(api: &Api<KubeVirt>, object: &KubeVirt, health: &Health) -> anyhow::Result<()> {
    let Some(status) = outdated(object, health, now()) else { return Ok(()) };
    let patch = json!({ "status": status });
    match api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        // Somebody has deleted it.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => written.map(drop).context("patch the status"),
    }
}

/// What the status should say and does not; none if it says all of it. What others write there is left alone.
fn outdated(object: &KubeVirt, health: &Health, now: jiff::Timestamp) -> Option<Value> {
    let none = KubeVirtStatus::default();
    let KubeVirtStatus {
        conditions,
        phase,
        observed_generation,
        observed_kube_virt_version,
        operator_version,
        target_kube_virt_version,
        default_architecture,
        ..
    } = object.status.as_ref().unwrap_or(&none);
    let release = Some(release());
    let known = conditions.as_deref().unwrap_or_default();
    let wanted = health.conditions();
    let is_told = |told: &Told| known.iter().any(|one| told.is(one));
    let is_current = *phase == Some(KubeVirtPhase::Deployed)
        && *observed_generation == object.metadata.generation
        && [observed_kube_virt_version, operator_version, target_kube_virt_version]
            .into_iter()
            .all(|one| *one == release)
        && default_architecture.as_deref() == Some(architecture())
        && wanted.iter().all(is_told);
    if is_current {
        return None;
    }
    let condition = |told: &Told| {
        let same = known.iter().find(|one| told.has_state_of(one));
        let since = same.map(|one| json!(one.last_transition_time)).filter(|since| !since.is_null());
        let Told { type_, status, reason, message } = told;
        json!({
            "type": type_, "status": status, "reason": reason, "message": message, "lastProbeTime": now,
            "lastTransitionTime": since.unwrap_or_else(|| json!(now)),
        })
    };
    let others = known.iter().filter(|one| wanted.iter().all(|told| one.type_ != told.type_));
    let conditions: Vec<Value> = wanted.iter().map(condition).chain(others.map(|one| json!(one))).collect();
    Some(json!({
        "phase": KubeVirtPhase::Deployed,
        "conditions": conditions,
        "observedGeneration": object.metadata.generation,
        "observedKubeVirtVersion": release,
        "operatorVersion": release,
        "targetKubeVirtVersion": release,
        "defaultArchitecture": architecture(),
    }))
}

/// As KubeVirt calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[expect(clippy::disallowed_methods, reason = "only the status tells it; nothing here depends on it")]
fn now() -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(generation: i64, status: Option<Value>) -> KubeVirt {
        let mut object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": { "name": "kubevirt", "generation": generation }, "spec": {},
        });
        if let Some(status) = status {
            object["status"] = status;
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_status_is_written_once_for_each_change_of_the_settings() {
        let healthy = Health::default();
        let status = outdated(&object(1, None), &healthy, jiff::Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!((&status["phase"], &status["observedGeneration"]), (&json!("Deployed"), &json!(1)));
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(outdated(&object(1, Some(status.clone())), &healthy, now()), None, "nothing has changed");
        let later = outdated(&object(2, Some(status.clone())), &healthy, now()).unwrap();
        assert_eq!(later["observedGeneration"], 2);
        for (new, old) in later["conditions"].as_array().unwrap().iter().zip(status["conditions"].as_array().unwrap()) {
            assert_eq!(new["lastTransitionTime"], old["lastTransitionTime"], "a condition that holds keeps its time");
        }
    }

    #[test]
    fn what_is_wrong_with_components_and_nodes_is_told_until_it_is_over() {
        let told = |components: &[&str], nodes: &[&str]| {
            let all = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
            let health = Health { components: all(components), nodes: all(nodes) };
            let status = outdated(&object(1, None), &health, jiff::Timestamp::UNIX_EPOCH).unwrap();
            let again = outdated(&object(1, Some(status.clone())), &health, now());
            assert_eq!(again, None, "what is told is not told again");
            let known = object(1, Some(status.clone()));
            let over = outdated(&known, &Health::default(), now());
            assert_eq!(over.is_some(), !(components.is_empty() && nodes.is_empty()), "{over:?}");
            let words =
                |one: &Value| format!("{} {} {}", one["status"], one["reason"], one["message"]).replace('"', "");
            (status["phase"].clone(), words(&status["conditions"][0]), words(&status["conditions"][2]))
        };
        let ready = |status: &str| format!("{status} AllComponentsReady All components are ready.");
        assert_eq!(told(&[], &[]), (json!("Deployed"), ready("True"), ready("False")));
        let late = |status: &str| format!("{status} ComponentsNotReady scheduler: sync: late");
        assert_eq!(told(&["scheduler: sync: late"], &["a: full"]), (json!("Deployed"), late("False"), late("True")));
        let full = "True NodesNotReady a: full; b: full; c: full; and 1 more".to_owned();
        let nodes = ["a: full", "b: full", "c: full", "d: full"];
        assert_eq!(told(&[], &nodes), (json!("Deployed"), ready("True"), full), "VMs run on other nodes");
    }

    #[test]
    fn what_others_tell_stays() {
        let healthy = Health::default();
        let mut status = outdated(&object(1, None), &healthy, jiff::Timestamp::UNIX_EPOCH).unwrap();
        status["conditions"][0]["status"] = json!("False");
        let other = json!({ "type": "Synchronized", "status": "True" });
        status["conditions"].as_array_mut().unwrap().push(other.clone());
        status["outdatedVirtualMachineInstanceWorkloads"] = json!(3);
        let patch = outdated(&object(1, Some(status)), &healthy, jiff::Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["conditions"][0]["status"], "True");
        assert_eq!(patch["conditions"][4], other);
        assert_eq!(patch.get("outdatedVirtualMachineInstanceWorkloads"), None, "a merge leaves it");
    }
}
