//! `virtctl migrate` and `migrate-cancel`: a guest moves to the other node, and goes on there.

use anyhow::{Context as _, Result, ensure};
use api::kubevirt::KubeVirt;
use api::migration::{
    VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationPhase as MigrationPhase,
};
use api::vmi::VirtualMachineInstance;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::Virtctl;
use super::guests::Terminal;

fn node(virtctl: &Virtctl<'_>) -> Result<String> {
    let vmi = virtctl.0.get::<VirtualMachineInstance>("v")?.context("no instance")?;
    vmi.status.and_then(|status| status.node_name).context("it is on no node")
}

/// The name of the one migration that has not ended.
fn under_way(virtctl: &Virtctl<'_>) -> Result<String> {
    let api = virtctl.0.api::<Migration>();
    virtctl.0.until_some("migration under way", || {
        let all = virtctl.0.runtime.block_on(api.list(&ListParams::default())).ok()?;
        let phase = |one: &Migration| one.status.as_ref().and_then(|status| status.phase.clone());
        all.items.into_iter().find(|one| phase(one) == Some(MigrationPhase::Running))?.metadata.name
    })
}

pub(crate) fn migrate(virtctl: &Virtctl<'_>) -> Result<()> {
    let before = node(virtctl)?;
    let mut terminal = Terminal::open(virtctl.0, "v")?;
    terminal.console.send("")?;
    let boot = terminal.run("cat /proc/sys/kernel/random/boot_id")?;
    drop(terminal);
    ensure!(virtctl.ok(&["migrate", "v", "--dry-run"])?.contains("VM v was scheduled to migrate"));
    ensure!(virtctl.0.runtime.block_on(virtctl.0.api::<Migration>().list(&ListParams::default()))?.items.is_empty());
    ensure!(virtctl.ok(&["migrate", "v"])?.trim() == "VM v was scheduled to migrate");
    let elsewhere = move |vmi: Option<&VirtualMachineInstance>| {
        let status = vmi.and_then(|vmi| vmi.status.as_ref());
        let is_done = status.and_then(|status| status.migration_state.as_ref()?.completed) == Some(true);
        is_done && status.and_then(|status| status.node_name.as_deref()).is_some_and(|node| node != before)
    };
    virtctl.0.wait::<VirtualMachineInstance>("v", "on the other node", elsewhere)?;
    // Whoever was logged in still is.
    let mut terminal = Terminal::open(virtctl.0, "v")?;
    terminal.console.send("")?;
    ensure!(terminal.run("cat /proc/sys/kernel/random/boot_id")? == boot, "it has booted again");
    virtctl.refused(&["migrate", "nobody"], "virtualmachine.kubevirt.io \"nobody\" not found")
}

pub(crate) fn migrate_cancel(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.refused(&["migrate-cancel", "v"], "Found no migration to cancel for v")?;
    let bandwidth = |value: serde_json::Value| {
        let patch = json!({ "spec": { "configuration": { "migrations": { "bandwidthPerMigration": value } } } });
        let api: Api<KubeVirt> = Api::namespaced(virtctl.0.client(), "kubevirt");
        virtctl.0.runtime.block_on(api.patch("kubevirt", &PatchParams::default(), &Patch::Merge(&patch)))
    };
    // So slow that it stays under way.
    bandwidth(json!("64Ki"))?;
    let before = node(virtctl)?;
    virtctl.ok(&["migrate", "v"])?;
    let name = under_way(virtctl)?;
    virtctl.refused(&["migrate", "v"], "in-flight migration detected")?;
    ensure!(virtctl.ok(&["migrate-cancel", "v"])?.trim() == "VM v was scheduled to migrate-cancel");
    virtctl.0.gone::<Migration>(&name)?;
    bandwidth(serde_json::Value::Null)?;
    ensure!(node(virtctl)? == before, "it moved");
    Ok(())
}
