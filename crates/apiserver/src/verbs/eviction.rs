//! POST of an `Eviction`: a deletion that a disruption budget may refuse.
//!
//! ```text
//! admission refuses the eviction itself ─────────────────────────────> what it says, such as 429 while a guest is moved
//! the pod is pending, has ended or goes anyway ──────────────────────> delete it
//! no budget ─────────────────────────────────────────────────────────> delete it
//! two budgets ───────────────────────────────────────────────────────> 500
//! it is unready, and its budget does not count it ───────────────────> delete it, unless it changes meanwhile (429)
//! its budget has a disruption left ──> take it, in one guarded write ─> delete it
//! its budget has none, or is behind ─────────────────────────────────> 429
//! ```
//! What was taken is noted in the budget with the pod's name: the disruption controller counts the pod as gone from then on. If
//! the deletion fails after that, the note lapses after two minutes.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Call;
use super::delete::{self, Options};
use crate::body::Body;
use crate::meta;
use crate::registry::Resource;
use crate::request::WriteOptions;
use crate::selector::LabelSelector;
use crate::status::{Status, Subject};
use crate::store::{Draft, Expect, Key, Object, Write, WriteError};
use crate::strategy::set_condition;

const ATTEMPTS: usize = 20;
/// More than this many evictions that the controller has not seen yet: it is not there.
const MOST_DISRUPTED: usize = 2000;
/// Seconds after which a client may ask again, where it is known that it should.
const RETRY_AFTER: u32 = 10;

pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Status> {
    let asked = WriteOptions::parse(&call.query, "CreateOptions")?;
    let mut eviction = call.document_of(("policy", "v1", "Eviction"))?;
    let named = eviction["metadata"]["name"].as_str().unwrap_or_default();
    if !named.is_empty() && named != call.name() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let dry = asked.dry_run || options_of(&eviction)?.dry;
    call.admit_eviction(&mut eviction, dry).await?;
    let mut options = options_of(&eviction)?;
    options.dry |= dry;
    evict(&mut call, &options).await?;
    let success = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    call.answer_value(StatusCode::CREATED, &success)
}

fn options_of(eviction: &Value) -> Result<Options, Status> {
    Options::from_value(&eviction["deleteOptions"].as_object().map_or(json!({}), |map| map.clone().into()))
}

async fn evict(call: &mut Call, options: &Options) -> Result<(), Status> {
    let mut selectors = Selectors::default();
    for _ in 0..ATTEMPTS {
        let pod = call.renderer().stored_value(&*call.current()?)?;
        match standing(&pod) {
            Standing::Over => return delete(call, options).await,
            Standing::Pending => {
                if options.names_version() {
                    return delete(call, options).await;
                }
                match delete(call, &options.as_seen(meta::text(&pod, "resourceVersion"))).await {
                    // It may run and be ready by now: then a budget has its say.
                    Err(status) if status.code == StatusCode::CONFLICT && is_still(call, &pod) => {}
                    done => return done,
                }
            }
            Standing::Running { ready } => match ask_budget(call, &mut selectors, (&pod, ready), options.dry).await? {
                Verdict::Granted => return delete(call, options).await,
                Verdict::AsSeen { budget } => {
                    let as_seen = options.as_seen(meta::text(&pod, "resourceVersion"));
                    let chosen = if options.names_version() { options } else { &as_seen };
                    return match delete(call, chosen).await {
                        Err(status) if status.code == StatusCode::CONFLICT && !options.names_version() => {
                            Err(behind(&budget))
                        }
                        done => done,
                    };
                }
            },
        }
    }
    Err(Status::conflict(call.resource.subject(), call.name(), "it changes too often; please try again"))
}

/// Whether a pod is the same one, changed or not: a precondition of the client that fails fails again.
fn is_still(call: &Call, pod: &Value) -> bool {
    let current = call.current().ok().and_then(|object| call.renderer().stored_value(&object).ok());
    current.is_some_and(|current| {
        meta::text(&current, "uid") == meta::text(pod, "uid")
            && meta::text(&current, "resourceVersion") != meta::text(pod, "resourceVersion")
    })
}

/// Deletes the pod, and says in it why it goes.
async fn delete(call: &mut Call, options: &Options) -> Result<(), Status> {
    let now = call.server.clock.now();
    let say = |pod: &mut Value| {
        if !pod["status"].is_object() {
            pod["status"] = json!({});
        }
        let message = "Eviction API: evicting";
        set_condition(&mut pod["status"], "DisruptionTarget", true, "EvictionByEvictionAPI", message, now);
    };
    delete::delete_saying(call, options, say).await.map(drop)
}

/// What a pod is to a budget.
enum Standing {
    /// It has ended, or goes anyway.
    Over,
    /// It does not run yet, and nobody would miss it.
    Pending,
    Running {
        ready: bool,
    },
}

fn standing(pod: &Value) -> Standing {
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return Standing::Over;
    }
    match pod["status"]["phase"].as_str() {
        Some("Succeeded" | "Failed") => Standing::Over,
        Some("Pending") => Standing::Pending,
        _ => {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            Standing::Running { ready }
        }
    }
}

/// What a budget says, if it does not refuse.
enum Verdict {
    /// There is none, or a disruption was taken from it.
    Granted,
    /// It does not count the pod as it is now.
    AsSeen { budget: String },
}

/// Takes one of the disruptions that the pod's budget still allows; a dry run only looks whether there is one.
async fn ask_budget(
    call: &Call,
    selectors: &mut Selectors,
    (pod, ready): (&Value, bool),
    dry: bool,
) -> Result<Verdict, Status> {
    let registry = call.server.registry.load_full();
    let Some(budgets) = registry.get("policy", "poddisruptionbudgets") else { return Ok(Verdict::Granted) };
    for _ in 0..ATTEMPTS {
        let snapshot = call.server.store.snapshot();
        let objects = snapshot.objects(&budgets.table);
        let own = objects.iter().filter(|(key, _)| *key.namespace == *call.namespace());
        let own: Vec<_> = own.filter(|(key, object)| selectors.cover(key, object, pod)).collect();
        let (key, object) = match own.as_slice() {
            [] => return Ok(Verdict::Granted),
            [one] => *one,
            _ => {
                let problem =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", problem));
            }
        };
        let mut budget = object.value().map_err(Status::internal)?;
        if !ready && spares_unready(&budget) {
            return Ok(Verdict::AsSeen { budget: key.name.to_string() });
        }
        take(&mut budget, key, call.name(), call.server.clock.now())?;
        if dry || write(call, budgets, key, object, &budget).await? {
            return Ok(Verdict::Granted);
        }
        // Whoever was faster may have taken the last one: look again.
    }
    let problem = "couldn't update PodDisruptionBudget, it changes too often";
    let mut status = Status::too_many_requests(problem);
    status.retry_after = Some(RETRY_AFTER);
    Err(status)
}

/// Writes a budget, unless it has changed since it was read.
async fn write(call: &Call, budgets: &Resource, key: &Key, old: &Object, new: &Value) -> Result<bool, Status> {
    let draft = Draft::new(new, &budgets.fields).map_err(Status::internal)?;
    let write = Write {
        table: budgets.table.clone(),
        key: key.clone(),
        expect: Expect::Revision(old.revision),
        put: Some(draft),
        in_living_namespace: false,
        of_definition: None,
    };
    match call.server.store.write(write).await {
        Ok(_) => Ok(true),
        Err(WriteError::Changed) => Ok(false),
        Err(error) => Err(call.refusal(error, &key.name)),
    }
}

/// Whether an unready pod may go although nothing is allowed: it counts for nothing, and what counts is healthy without it.
fn spares_unready(budget: &Value) -> bool {
    if budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
        return true;
    }
    let (healthy, desired) = (figure(budget, "currentHealthy"), figure(budget, "desiredHealthy"));
    healthy >= desired && desired > 0
}

/// Takes a disruption from a budget and notes for which pod, or says why there is none.
fn take(budget: &mut Value, key: &Key, pod: &str, now: jiff::Timestamp) -> Result<(), Status> {
    let observed = figure(budget, "observedGeneration");
    if observed < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(behind(&key.name));
    }
    let allowed = figure(budget, "disruptionsAllowed");
    let noted = budget["status"]["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
    if allowed < 0 {
        return Err(forbidden(&key.name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative"));
    }
    if noted > MOST_DISRUPTED {
        return Err(forbidden(
            &key.name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(refused(&key.name, budget));
    }
    let status = &mut budget["status"];
    status["disruptionsAllowed"] = (allowed - 1).into();
    status["disruptedPods"][pod] = crate::clock::text(now).into();
    if allowed == 1 {
        set_condition(status, "DisruptionAllowed", false, "InsufficientPods", "", now);
        let conditions = status["conditions"].as_array_mut().into_iter().flatten();
        for condition in conditions.filter(|one| one["type"] == "DisruptionAllowed") {
            condition["observedGeneration"] = observed.into();
        }
    }
    Ok(())
}

fn figure(budget: &Value, field: &str) -> i64 {
    budget["status"][field].as_i64().unwrap_or(0)
}

/// The budget, or the pod, is not what was looked at: ask again soon.
fn behind(budget: &str) -> Status {
    let cause = format!("The disruption budget {budget} is still being processed by the server.");
    let mut status = Status::too_many_requests(REFUSED).with_cause("DisruptionBudget", &cause);
    status.retry_after = Some(RETRY_AFTER);
    status
}

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

fn refused(name: &str, budget: &Value) -> Status {
    let (healthy, desired) = (figure(budget, "currentHealthy"), figure(budget, "desiredHealthy"));
    let conditions = budget["status"]["conditions"].as_array().into_iter().flatten();
    let denied = conditions.into_iter().find(|one| one["type"] == "DisruptionAllowed" && one["status"] == "False");
    let said = |field: &str| denied.and_then(|one| one[field].as_str()).unwrap_or_default();
    let cause = match (said("reason"), said("message")) {
        // What was counted is not to be trusted then.
        ("SyncFailed", message) if !message.is_empty() => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        (reason, message) if !message.is_empty() => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        _ => format!("The disruption budget {name} does not allow evicting pods currently"),
    };
    Status::too_many_requests(REFUSED).with_cause("DisruptionBudget", &cause)
}

fn forbidden(name: &str, problem: &str, why: &str) -> Status {
    let subject = Subject { group: "policy", resource: "poddisruptionbudget", kind: "PodDisruptionBudget" };
    let cause = format!("The disruption budget {name} does not allow evicting pods currently: {why}");
    Status::forbidden(subject, name, problem).with_cause("DisruptionBudget", &cause)
}

/// What budgets select, each read once for as long as it does not change: who is asked again looks at the others again as well.
#[derive(Default)]
struct Selectors(BTreeMap<Key, (u64, Option<LabelSelector>)>);

impl Selectors {
    /// Whether a budget selects the pod. One that selects nothing by name selects all of its namespace.
    fn cover(&mut self, key: &Key, budget: &Object, pod: &Value) -> bool {
        let known = self.0.get(key).is_some_and(|(revision, _)| *revision == budget.revision);
        if !known {
            self.0.insert(key.clone(), (budget.revision, selector_of(budget)));
        }
        let label = |key: &str| pod["metadata"]["labels"][key].as_str();
        let selector = self.0.get(key).and_then(|(_, selector)| selector.as_ref());
        selector.is_some_and(|selector| selector.matches(label))
    }
}

fn selector_of(budget: &Object) -> Option<LabelSelector> {
    let budget = budget.value().ok()?;
    LabelSelector::parse(&LabelSelector::text_of(&budget["spec"]["selector"])?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_read_once_for_as_long_as_it_does_not_change() {
        let key = Key::new("n", "b");
        let budget = |revision: u64, labels: Value| {
            let value = json!({ "metadata": {}, "spec": { "selector": { "matchLabels": labels } } });
            Object { revision, draft: Draft::new(&value, &[]).unwrap() }
        };
        let pod = json!({ "metadata": { "labels": { "a": "b" } } });
        let mut selectors = Selectors::default();
        assert!(selectors.cover(&key, &budget(1, json!({ "a": "b" })), &pod));
        // Had it been read again, it would not select the pod.
        assert!(selectors.cover(&key, &budget(1, json!({ "a": "c" })), &pod));
        assert!(!selectors.cover(&key, &budget(2, json!({ "a": "c" })), &pod));
        assert!(selectors.cover(&key, &budget(3, json!({})), &pod), "one that names nothing selects everything");
    }
}
