//! `orlop snapshot`, `restore` and `clone`: copies of VMs, by the objects that KubeVirt's users know.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::clone::{VirtualMachineClone, VirtualMachineClonePhase as ClonePhase};
use api::conditions::{self, ConditionStatus};
use api::restore::{TargetReadinessPolicy, VirtualMachineRestore};
use api::snapshot::{Condition, VirtualMachineSnapshot, VirtualMachineSnapshotPhase as SnapshotPhase};
use futures_util::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::controller_program::duration;
use crate::progress::{Bar, Progress};
use crate::target::{Target, machine};

/// Whether to wait for what was asked for.
#[derive(clap::Args)]
#[group(id = "copying")]
pub(crate) struct Waiting {
    /// Show the progress, and exit when it has ended: with an error if it failed.
    #[arg(long, env = "ORLOP_WAIT")]
    wait: bool,
    /// Maximum time to wait.
    #[arg(long, default_value = "10m", value_parser = duration, env = "ORLOP_WAIT_TIMEOUT")]
    timeout: Duration,
}

/// Take a snapshot of a VM and its disks, while it runs or not.
#[derive(clap::Args)]
#[group(id = "snapshot")]
pub(crate) struct SnapshotArguments {
    /// The VM.
    vm: String,
    /// Name of the snapshot. The default is generated from the VM's name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    target: Target,
}

/// Set a VM back to a snapshot, or make a new VM of one.
#[derive(clap::Args)]
#[group(id = "restore")]
pub(crate) struct RestoreArguments {
    /// The snapshot.
    snapshot: String,
    /// VM to set back or to create. The default is the VM that the snapshot was taken of.
    #[arg(long, value_name = "VM")]
    to: Option<String>,
    /// Stop the VM if it runs. Without this, the restore waits until somebody stops it.
    #[arg(long)]
    stop: bool,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    target: Target,
}

/// Make a new VM that is like another one, with copies of its disks.
#[derive(clap::Args)]
#[group(id = "clone")]
pub(crate) struct CloneArguments {
    /// The VM to copy.
    vm: String,
    /// Name of the new VM.
    new: String,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn snapshot(arguments: &SnapshotArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let SnapshotArguments { vm, name, waiting, target } = arguments;
    with_client(target, async |client| {
        has_vm(&client, vm).await?;
        let object = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot", "metadata": named(name.as_deref(), vm),
            "spec": { "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm } },
        });
        let made = create::<VirtualMachineSnapshot>(&client, object)
            .await
            .with_context(|| format!("take a snapshot of {vm}"))?;
        writeln!(out, "snapshot {made} of VM {vm} was created").context("write to standard output")?;
        follow(&client, &made, waiting, of_snapshot, out).await
    })
}

pub(crate) fn restore(arguments: &RestoreArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let RestoreArguments { snapshot, to, stop, waiting, target } = arguments;
    with_client(target, async |client| {
        let snapshots: Api<VirtualMachineSnapshot> = Api::default_namespaced(client.clone());
        let Some(found) = snapshots.get_opt(snapshot).await.context("ask the API server")? else {
            bail!("snapshot {snapshot:?} was not found in namespace {}", client.default_namespace());
        };
        let vm = to.clone().unwrap_or(found.spec.source.name);
        let policy = stop.then_some(TargetReadinessPolicy::StopTarget).unwrap_or(TargetReadinessPolicy::WaitEventually);
        let object = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": named(None, snapshot),
            "spec": {
                "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm },
                "virtualMachineSnapshotName": snapshot, "targetReadinessPolicy": policy,
            },
        });
        let made =
            create::<VirtualMachineRestore>(&client, object).await.with_context(|| format!("restore {snapshot}"))?;
        writeln!(out, "restore {made} of snapshot {snapshot} to VM {vm} was created")
            .context("write to standard output")?;
        follow(&client, &made, waiting, of_restore, out).await
    })
}

pub(crate) fn clone(arguments: &CloneArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let CloneArguments { vm, new, waiting, target } = arguments;
    with_client(target, async |client| {
        has_vm(&client, vm).await?;
        let reference = |name: &str| json!({ "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name });
        let object = json!({
            "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "metadata": named(None, new),
            "spec": { "source": reference(vm), "target": reference(new) },
        });
        let made = create::<VirtualMachineClone>(&client, object).await.with_context(|| format!("clone {vm}"))?;
        writeln!(out, "clone {made} of VM {vm} to VM {new} was created").context("write to standard output")?;
        follow(&client, &made, waiting, of_clone, out).await
    })
}

pub(crate) fn with_client(target: &Target, run: impl AsyncFnOnce(Client) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async { run(target.client().await?).await })
}

async fn has_vm(client: &Client, name: &str) -> anyhow::Result<()> {
    match machine(client, name).await? {
        (Some(_), _) => Ok(()),
        (None, _) => bail!("{name} is an instance without a VM; only VMs can be copied"),
    }
}

/// Metadata with a name, or with one that the server completes.
fn named(name: Option<&str>, after: &str) -> Value {
    name.map_or_else(|| json!({ "generateName": format!("{after}-") }), |name| json!({ "name": name }))
}

pub(crate) async fn create<K>(client: &Client, object: Value) -> anyhow::Result<String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let object: K = serde_json::from_value(object).context("make the object")?;
    match Api::<K>::default_namespaced(client.clone()).create(&PostParams::default(), &object).await {
        Ok(made) => Ok(made.name_any()),
        Err(kube::Error::Api(status)) => bail!("{}", status.message),
        Err(error) => Err(error).context("ask the API server"),
    }
}

/// Shows each step as it comes, until the last.
pub(crate) async fn follow<K>(
    client: &Client,
    name: &str,
    waiting: &Waiting,
    progress: fn(&K) -> Progress,
    out: &mut impl Write,
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    if !waiting.wait {
        return Ok(());
    }
    let mut bar = Bar::begin();
    let steps = async {
        let mut changes = std::pin::pin!(watcher::watch_object(Api::<K>::default_namespaced(client.clone()), name));
        while let Some(change) = changes.next().await {
            let Some(seen) = change.context("ask the API server")? else { bail!("{name} was deleted") };
            match progress(&seen) {
                Progress::Goes(step) => bar.show(out, &step, None)?,
                Progress::Part { step, percent } => bar.show(out, &step, Some(percent))?,
                Progress::Done => return Ok(bar.end(out, "done")?),
                Progress::Failed(why) => bail!("{name} failed: {why}"),
            }
        }
        bail!("the watch has ended")
    };
    let late = || format!("{name} did not end within {} s", waiting.timeout.as_secs());
    let ended = tokio::time::timeout(waiting.timeout, steps).await.with_context(late).flatten();
    // What is said next has a line of its own.
    bar.leave(out)?;
    ended
}

fn of_snapshot(snapshot: &VirtualMachineSnapshot) -> Progress {
    let status = snapshot.status.as_ref();
    let error = status.and_then(|status| status.error.as_ref()?.message.clone());
    let all = status.and_then(|status| status.conditions.as_deref());
    match status.and_then(|status| status.phase.as_ref()) {
        Some(SnapshotPhase::Failed) => Progress::Failed(error.or_else(|| failure(all)).unwrap_or_else(unknown)),
        Some(SnapshotPhase::Succeeded) if status.is_some_and(|status| status.ready_to_use == Some(true)) => {
            Progress::Done
        }
        _ => Progress::Goes(error.or_else(|| step(all)).unwrap_or_else(|| "copying the disks".to_owned())),
    }
}

fn of_restore(restore: &VirtualMachineRestore) -> Progress {
    let status = restore.status.as_ref();
    let all = status.and_then(|status| status.conditions.as_deref());
    match failure(all) {
        Some(why) => Progress::Failed(why),
        None if status.is_some_and(|status| status.complete == Some(true)) => Progress::Done,
        None => Progress::Goes(step(all).unwrap_or_else(|| "waiting for the controller".to_owned())),
    }
}

fn of_clone(clone: &VirtualMachineClone) -> Progress {
    let status = clone.status.as_ref();
    let all = status.and_then(|status| status.conditions.as_deref());
    match status.and_then(|status| status.phase.as_ref()) {
        Some(ClonePhase::Failed) => Progress::Failed(failure(all).or_else(|| step(all)).unwrap_or_else(unknown)),
        Some(ClonePhase::Succeeded) => Progress::Done,
        Some(phase) if *phase != ClonePhase::Unset => Progress::Goes(phase.to_string()),
        _ => Progress::Goes("waiting for the controller".to_owned()),
    }
}

fn words(condition: &Condition) -> Option<String> {
    let said = condition.message.as_ref().filter(|text| !text.is_empty()).or(condition.reason.as_ref());
    said.filter(|text| !text.is_empty()).cloned()
}

/// Why something failed, if its conditions say so.
fn failure(all: Option<&[Condition]>) -> Option<String> {
    let failed = conditions::find(all, "Failure").filter(|one| one.status == ConditionStatus::True)?;
    Some(words(failed).unwrap_or_else(unknown))
}

/// What is being done.
fn step(all: Option<&[Condition]>) -> Option<String> {
    conditions::find(all, "Progressing").and_then(words)
}

fn unknown() -> String {
    "no reason was given; see its events".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<K: DeserializeOwned>(kind: &str, spec: &Value, status: &Value) -> K {
        let version =
            if kind == "VirtualMachineClone" { "clone.kubevirt.io/v1beta1" } else { "snapshot.kubevirt.io/v1beta1" };
        let object =
            json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x" }, "spec": spec, "status": status });
        serde_json::from_value(object).unwrap()
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({ "type": kind, "status": status, "reason": reason })
    }

    #[test]
    fn a_snapshot_is_done_when_it_can_be_used() {
        let of = |status: &Value| {
            let spec = json!({ "source": { "kind": "VirtualMachine", "name": "v" } });
            of_snapshot(&read("VirtualMachineSnapshot", &spec, status))
        };
        assert_eq!(of(&json!({})), Progress::Goes("copying the disks".to_owned()));
        let waits = json!({ "phase": "InProgress", "conditions": [condition("Progressing", "False", "Waiting")] });
        assert_eq!(of(&waits), Progress::Goes("Waiting".to_owned()));
        assert!(matches!(of(&json!({ "phase": "Succeeded", "readyToUse": false })), Progress::Goes(_)));
        assert_eq!(of(&json!({ "phase": "Succeeded", "readyToUse": true })), Progress::Done);
        let failed = json!({ "phase": "Failed", "conditions": [condition("Failure", "True", "too late")] });
        assert_eq!(of(&failed), Progress::Failed("too late".to_owned()));
    }

    #[test]
    fn a_restore_that_failed_is_not_waited_for() {
        let of = |status: &Value| {
            let spec =
                json!({ "target": { "kind": "VirtualMachine", "name": "v" }, "virtualMachineSnapshotName": "s" });
            of_restore(&read("VirtualMachineRestore", &spec, status))
        };
        assert_eq!(of(&json!({ "complete": true })), Progress::Done);
        let failed = json!({ "complete": false, "conditions": [condition("Failure", "True", "it runs")] });
        assert_eq!(of(&failed), Progress::Failed("it runs".to_owned()));
        let waits = json!({ "conditions": [condition("Progressing", "True", "Creating new PVCs")] });
        assert_eq!(of(&waits), Progress::Goes("Creating new PVCs".to_owned()));
    }

    #[test]
    fn a_clone_shows_its_phases() {
        let of = |status: &Value| {
            let spec = json!({ "source": { "kind": "VirtualMachine", "name": "v" } });
            of_clone(&read("VirtualMachineClone", &spec, status))
        };
        assert_eq!(of(&json!({ "phase": "RestoreInProgress" })), Progress::Goes("RestoreInProgress".to_owned()));
        assert_eq!(of(&json!({ "phase": "Succeeded" })), Progress::Done);
        assert!(matches!(of(&json!({ "phase": "Failed" })), Progress::Failed(_)));
    }
}
