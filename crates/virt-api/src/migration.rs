//! Migrations of instances: whether the instance can move, and that it moves once at a time. Their policies are only settings.

use api::conditions::{self, ConditionStatus};
use api::migration::VirtualMachineInstanceMigration as Migration;
use api::migration_policy::MigrationPolicy;
use api::names::{finalizer, label};
use virt_rules::launchers::name::label_value;

use crate::denial::{Denial, Problems};
use crate::object;
use crate::request::{Known, Operation, Request, Requester, Response};

const SPEC: &str = "spec";
/// What is said of a setting that allows post-copy.
pub(crate) const NO_POST_COPY: &str = "has no effect; post-copy is not done. Set allowWorkloadDisruption to stop a guest whose migration runs out of time";

pub(crate) fn admit(request: &Request<'_>, known: &dyn Known) -> Response {
    match request.operation {
        Operation::Create => create(request, known),
        Operation::Update if request.is_about_status() => Response::allowed(),
        Operation::Update => update(request),
        Operation::Delete => Response::allowed(),
    }
}

fn create(request: &Request<'_>, known: &dyn Known) -> Response {
    let sent: Migration = match object::read(request.object) {
        Ok(migration) => migration,
        Err(denial) => return Response::denied(denial),
    };
    let mut migration = sent.clone();
    let mut problems = Problems::default();
    let between_clusters = "migrations between clusters are not supported; set vmiName alone, to move the instance to another node \
                            of this cluster";
    if migration.spec.send_to.is_some() {
        problems.unsupported("spec.sendTo", between_clusters);
    }
    if migration.spec.receive.is_some() {
        problems.unsupported("spec.receive", between_clusters);
    }
    if migration.spec.priority.is_some() && request.requester != Requester::Component {
        problems.invalid("spec.priority", "only Orlop's own controllers may set it; leave it out");
    }
    let name = migration.spec.vmi_name.clone().unwrap_or_default();
    if name.is_empty() {
        problems.required("spec.vmiName", "names the instance to move");
    }
    if problems.is_empty()
        && let Some(reason) = why_not(request, &name, known)
    {
        return Response::denied(Denial::forbidden(reason));
    }
    object::add_finalizer(&mut migration.metadata, finalizer::MIGRATION);
    let labels = migration.metadata.labels.get_or_insert_default();
    labels.insert(label::MIGRATION_SELECTOR.to_owned(), label_value(&name));
    object::decided(request.object, &sent, &migration, problems)
}

/// Why the instance cannot move now, in the words that KubeVirt's clients know.
fn why_not(request: &Request<'_>, name: &str, known: &dyn Known) -> Option<String> {
    let namespace = request.namespace;
    let Some(vmi) = known.instance(namespace, name) else {
        return Some(format!("the VMI \"{namespace}/{name}\" does not exist"));
    };
    if vmi.is_final() {
        return Some("Cannot migrate VMI in finalized state.".to_owned());
    }
    let all = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    if let Some(no) = conditions::find(all, "LiveMigratable").filter(|one| one.status == ConditionStatus::False) {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        return Some(format!("Cannot migrate VMI, Reason: {}, Message: {}", text(&no.reason), text(&no.message)));
    }
    let busy = known.migration_of(namespace, name)?;
    Some(format!(
        "in-flight migration detected. Active migration job ({busy}) is currently already in progress for VMI {name}."
    ))
}

fn update(request: &Request<'_>) -> Response {
    let (sent, old) = match (object::read::<Migration>(request.object), object::read::<Migration>(request.old)) {
        (Ok(sent), Ok(old)) => (sent, old),
        (Err(denial), _) | (_, Err(denial)) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    if sent.spec != old.spec {
        let message = "update of Migration object's spec is restricted; delete the migration and create another";
        problems.invalid(SPEC, message);
    }
    let instance =
        |one: &Migration| one.metadata.labels.as_ref().and_then(|all| all.get(label::MIGRATION_SELECTOR).cloned());
    if instance(&sent) != instance(&old) && request.requester != Requester::Component {
        let field = format!("metadata.labels[{}]", label::MIGRATION_SELECTOR);
        problems.invalid(field, "tells which instance is moved and cannot be changed");
    }
    object::decided(request.object, &sent, &sent, problems)
}

/// A policy that could never be kept is refused.
pub(crate) fn admit_policy(request: &Request<'_>) -> Response {
    if request.operation == Operation::Delete || request.is_about_status() {
        return Response::allowed();
    }
    let policy: MigrationPolicy = match object::read(request.object) {
        Ok(policy) => policy,
        Err(denial) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    if policy.spec.completion_timeout_per_gib.is_some_and(|seconds| seconds < 0) {
        problems.invalid("spec.completionTimeoutPerGiB", "must not be negative");
    }
    if policy.spec.bandwidth_per_migration.as_ref().is_some_and(|one| one.amount().units() < 0) {
        problems.invalid("spec.bandwidthPerMigration", "must not be negative");
    }
    let mut warnings = Vec::new();
    if policy.spec.allow_post_copy == Some(true) {
        warnings.push(format!("spec.allowPostCopy: {NO_POST_COPY}"));
    }
    if policy.spec.experimental.is_some() {
        warnings.push("spec.experimental: has no effect; nothing in it is done".to_owned());
    }
    object::decided(request.object, &policy, &policy, problems).with_warnings(warnings)
}
