//! `orlop migrate`: moves a VM to another node while it runs, or cancels that.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::migration::{
    VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationPhase as Phase,
    VirtualMachineInstanceMigrationSpec as Spec, VirtualMachineInstanceMigrationState as State,
};
use futures_util::StreamExt as _;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt};
use tokio::time::Instant;

use crate::controller_program::duration;
use crate::target::{Target, machine};

/// The label by which a node is known.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Move a VM to another node while it runs.
#[derive(clap::Args)]
#[group(id = "migrate")]
pub(crate) struct Arguments {
    /// The VM, or the instance.
    vm: String,
    /// Node to move the VM to. The default is any node that fits.
    #[arg(long, value_name = "NODE", env = "ORLOP_MIGRATE_TO")]
    to: Option<String>,
    /// Show the progress of the migration, and exit when it has ended: with an error if it failed.
    #[arg(long, env = "ORLOP_MIGRATE_WATCH")]
    watch: bool,
    /// Maximum time to watch.
    #[arg(long, default_value = "30m", value_parser = duration, env = "ORLOP_MIGRATE_TIMEOUT")]
    timeout: Duration,
    /// Cancel the VM's migration. The VM goes on where it is.
    #[arg(long, conflicts_with_all = ["to", "watch"])]
    cancel: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let Arguments { vm: name, to, watch, timeout, cancel, target } = arguments;
        let client = target.client().await?;
        machine(&client, name).await?;
        if *cancel {
            return cancel_migration(&client, name, out).await;
        }
        let api: Api<Migration> = Api::default_namespaced(client);
        let made = api.create(&PostParams::default(), &migration(name, to.as_deref())).await;
        let made = made.with_context(|| format!("migrate {name}"))?.name_any();
        writeln!(out, "migration {made} of VM {name} was created").context("write to standard output")?;
        if !watch {
            return Ok(());
        }
        let watched = tokio::time::timeout(*timeout, follow(api, &made, name, out)).await;
        watched.with_context(|| format!("migration {made} did not end within {} s", timeout.as_secs()))?
    })
}

fn migration(vmi: &str, to: Option<&str>) -> Migration {
    let node = to.map(|node| BTreeMap::from([(HOSTNAME.to_owned(), node.to_owned())]));
    Migration {
        api_version: Some(Migration::api_version(&()).into_owned()),
        kind: Some(Migration::kind(&()).into_owned()),
        metadata: ObjectMeta { generate_name: Some(format!("{vmi}-migration-")), ..ObjectMeta::default() },
        spec: Spec { vmi_name: Some(vmi.to_owned()), added_node_selector: node, ..Spec::default() },
        status: None,
    }
}

/// Deletes the migration that is under way, which is how one is cancelled.
async fn cancel_migration(client: &Client, name: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let api: Api<Migration> = Api::default_namespaced(client.clone());
    let all = api.list(&ListParams::default()).await.context("list the migrations")?;
    let is_under_way = |migration: &&Migration| {
        migration.spec.vmi_name.as_deref() == Some(name) && !phase(migration).is_some_and(|phase| phase.is_final())
    };
    let Some(found) = all.items.iter().find(is_under_way).map(ResourceExt::name_any) else {
        bail!("VM {name} is not being migrated");
    };
    api.delete(&found, &DeleteParams::default()).await.with_context(|| format!("cancel migration {found}"))?;
    writeln!(out, "asked to cancel migration {found} of VM {name}").context("write to standard output")
}

/// Shows each phase as it comes, until the last.
async fn follow(api: Api<Migration>, migration: &str, vm: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut changes = std::pin::pin!(watcher::watch_object(api, migration));
    let mut told = None;
    while let Some(change) = changes.next().await {
        let Some(seen) = change.context("watch the migration")? else { bail!("migration {migration} was cancelled") };
        let Some(now) = phase(&seen).filter(|now| told.as_ref() != Some(now)) else { continue };
        writeln!(out, "{:6} ms  {vm}: {now}{}", begun.elapsed().as_millis(), way(&seen))?;
        out.flush()?;
        match now {
            Phase::Succeeded => return Ok(()),
            Phase::Failed => bail!("migration {migration} failed: {}", why(&seen)),
            now => told = Some(now),
        }
    }
    bail!("the watch has ended")
}

fn phase(migration: &Migration) -> Option<Phase> {
    migration.status.as_ref()?.phase.clone()
}

fn state(migration: &Migration) -> Option<&State> {
    migration.status.as_ref()?.migration_state.as_ref()
}

/// From where to where, once that is known.
fn way(migration: &Migration) -> String {
    let nodes = state(migration).and_then(|state| Some((state.source_node.as_ref()?, state.target_node.as_ref()?)));
    nodes.map(|(from, to)| format!(" ({from} -> {to})")).unwrap_or_default()
}

fn why(migration: &Migration) -> &str {
    let told = state(migration).and_then(|state| state.failure_reason.as_deref());
    told.unwrap_or("no reason was given; see the events of the migration and of its instance")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(status: Value) -> Migration {
        let mut whole = serde_json::to_value(migration("v", Some("here-1"))).unwrap();
        whole["status"] = status;
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_migration_names_its_instance_and_the_node_that_was_asked_for() {
        let made = serde_json::to_value(migration("v", Some("here-1"))).unwrap();
        assert_eq!(
            made["spec"],
            json!({ "vmiName": "v", "addedNodeSelector": { "kubernetes.io/hostname": "here-1" } })
        );
        assert_eq!(serde_json::to_value(migration("v", None)).unwrap()["spec"], json!({ "vmiName": "v" }));
    }

    #[test]
    fn the_way_and_the_reason_are_told_once_they_are_known() {
        assert_eq!(way(&with(json!({ "phase": "Pending" }))), "");
        let state = json!({ "sourceNode": "a", "targetNode": "b", "failureReason": "no room" });
        let failed = with(json!({ "phase": "Failed", "migrationState": state }));
        assert_eq!((way(&failed).as_str(), why(&failed)), (" (a -> b)", "no room"));
    }
}
