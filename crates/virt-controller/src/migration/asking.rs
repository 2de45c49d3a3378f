//! Asking for a migration, by the controllers that want guests elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use api::migration::{
    MigrationPriority, VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationPhase as Phase,
    VirtualMachineInstanceMigrationSpec as Spec,
};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use manager::names::free_names;
use manager::writing::{is_namespace_terminating, log_created};

use super::{is_final, phase};

/// A migration of an instance. Its name is the first of the instance's that none of its migrations has: whoever decides the same
/// again, after a lost answer or as another leader, makes the same.
pub(crate) fn migration(
    vmi: &VirtualMachineInstance,
    siblings: &[&Migration],
    prefix: &str,
    annotations: BTreeMap<String, String>,
    priority: MigrationPriority,
) -> Migration {
    let metadata = &vmi.metadata;
    let in_use: BTreeSet<&str> = siblings.iter().filter_map(|one| one.metadata.name.as_deref()).collect();
    let name = free_names(prefix, metadata.uid.as_deref().unwrap_or_default(), &in_use, 1).pop();
    let namespace = metadata.namespace.clone();
    Migration {
        api_version: Some(Migration::api_version(&()).into_owned()),
        kind: Some(Migration::kind(&()).into_owned()),
        metadata: ObjectMeta { name, namespace, annotations: Some(annotations), ..ObjectMeta::default() },
        spec: Spec { vmi_name: metadata.name.clone(), priority: Some(priority), ..Spec::default() },
        status: None,
    }
}

/// Whether a migration counts against the limits of whoever asked for it. One that waits after an earlier one of its instance has
/// failed does not: others need not wait for it.
pub(crate) fn takes_room(migration: &Migration, siblings: &[&Migration]) -> bool {
    let waits = matches!(phase(migration), Phase::Unset | Phase::Pending);
    let after_failure = siblings.iter().any(|one| phase(one) == &Phase::Failed);
    !(is_final(migration) || waits && after_failure)
}

/// Whether the handlers have been told of a migration that has not ended, be its object there or not.
pub(crate) fn is_moving(vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    state.is_some_and(|state| {
        state.completed != Some(true) && state.failed != Some(true) && state.end_timestamp.as_ref().is_none()
    })
}

/// Makes a migration whose name says what it is for: one of that name that moves the same instance is the same, made by whoever was
/// faster or before an answer was lost.
///
/// # Errors
/// When the server refuses it for another reason than that.
pub(crate) async fn ask_for(client: &Client, migration: &Migration) -> Result<(), kube::Error> {
    let api: Api<Migration> = Api::namespaced(client.clone(), &migration.namespace().unwrap_or_default());
    match api.create(&PostParams::default(), migration).await {
        Ok(made) => {
            log_created(&made);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let found = api.get_opt(&migration.name_any()).await?;
            let is_same = found.is_none_or(|found| found.spec.vmi_name == migration.spec.vmi_name);
            if is_same { Ok(()) } else { Err(kube::Error::Api(status)) }
        }
        // The namespace goes, and the instance with it.
        Err(kube::Error::Api(status)) if is_namespace_terminating(&status) => Ok(()),
        Err(error) => Err(error),
    }
}
