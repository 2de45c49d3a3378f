//! Live migration between nodes of one machine, with real guests: they go on where they were, and whatever fails on the way leaves
//! one of them.

use anyhow::{Context as _, Result, ensure};
use api::kubevirt::KubeVirt;
use api::migration::{
    VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationPhase as MigrationPhase,
};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Test;
use super::guests::{Terminal, add_volume, bare, template};
use super::test_host::{TestHost, kill, qemus};

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("a_guest_moves_to_another_node_and_back", a_guest_moves_to_another_node_and_back),
    ("a_migration_that_fails_leaves_one_guest", a_migration_that_fails_leaves_one_guest),
];

/// The demo guest on a disk that only its pod has.
fn demo(machine: &TestHost, name: &str) -> Result<VirtualMachineInstance> {
    let mut vm = bare(name, "Always");
    add_volume(&mut vm, "root", "containerDisk", json!({ "image": e2e::guest::image("demo")? }))?;
    template(&mut vm)["domain"]["memory"]["guest"] = json!("256Mi");
    machine.create::<VirtualMachine>(vm)?;
    machine.phase(name, Phase::Running, None)
}

fn migrate(machine: &TestHost, name: &str, vmi: &str) -> Result<()> {
    machine.create::<Migration>(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": name }, "spec": { "vmiName": vmi },
    }))?;
    Ok(())
}

fn phase(migration: Option<&Migration>) -> Option<MigrationPhase> {
    migration?.status.as_ref()?.phase.clone()
}

/// Waits until a migration has ended, and tells how.
fn ended(machine: &TestHost, name: &str) -> Result<(MigrationPhase, String)> {
    let has_ended = |migration: Option<&Migration>| phase(migration).is_some_and(|phase| phase.is_final());
    let migration = machine.wait::<Migration>(name, "it ends", has_ended)?.context("the migration is gone")?;
    let reason = migration.status.as_ref().and_then(|status| status.migration_state.as_ref()?.failure_reason.clone());
    Ok((phase(Some(&migration)).context("no phase")?, reason.unwrap_or_default()))
}

/// Waits until a guest is on its way.
fn under_way(machine: &TestHost, name: &str) -> Result<()> {
    let runs = |migration: Option<&Migration>| phase(migration) == Some(MigrationPhase::Running);
    machine.wait::<Migration>(name, "it is under way", runs).map(drop)
}

fn node_of(machine: &TestHost, name: &str) -> Result<String> {
    let vmi = machine.get::<VirtualMachineInstance>(name)?.context("the instance is gone")?;
    vmi.status.and_then(|status| status.node_name).context("no node")
}

/// Waits until one QEMU is left of a guest.
fn one_is_left(machine: &TestHost, name: &str) -> Result<u32> {
    machine.until_some("one QEMU is left", || match qemus(name).as_slice() {
        [one] => Some(*one),
        _ => None,
    })
}

fn a_guest_moves_to_another_node_and_back() -> Result<()> {
    let machine = TestHost::with(&["--nodes", "2"])?;
    demo(&machine, "v")?;
    let from = node_of(&machine, "v")?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    terminal.run("until grep -q ' /data ' /proc/mounts; do sleep 0.2; done")?;
    let boot = terminal.run("cat /proc/sys/kernel/random/boot_id")?;
    let sum =
        terminal.run("dd if=/dev/urandom of=/data/mark bs=1M count=2 2> /dev/null; sync; sha256sum < /data/mark")?;
    drop(terminal);
    let mut nodes = vec![from];
    for round in ["there", "back"] {
        migrate(&machine, round, "v")?;
        let (phase, why) = ended(&machine, round)?;
        ensure!(phase == MigrationPhase::Succeeded, "{round}: {phase}: {why}\n{}", machine.log());
        nodes.push(node_of(&machine, "v")?);
        one_is_left(&machine, "v")?;
        let mut terminal = Terminal::log_in(&machine, "v")?;
        ensure!(terminal.run("cat /proc/sys/kernel/random/boot_id")? == boot, "{round}: it has booted again");
        // Not from the guest's memory.
        let read = "echo 3 > /proc/sys/vm/drop_caches; sha256sum < /data/mark";
        ensure!(terminal.run(read)? == sum, "{round}: its disk is another");
        terminal.run("echo more > /data/more && sync")?;
    }
    ensure!(nodes[0] != nodes[1] && nodes[0] == nodes[2], "it went {nodes:?}");
    machine.delete::<VirtualMachine>("v")?;
    machine.gone::<VirtualMachineInstance>("v")?;
    Ok(())
}

fn a_migration_that_fails_leaves_one_guest() -> Result<()> {
    let machine = TestHost::with(&["--nodes", "2"])?;
    // So slow that a guest stays under way.
    let slow = json!({ "spec": { "configuration": { "migrations": { "bandwidthPerMigration": "64Ki" } } } });
    let settings: Api<KubeVirt> = Api::namespaced(machine.client(), "kubevirt");
    machine.runtime.block_on(settings.patch("kubevirt", &PatchParams::default(), &Patch::Merge(&slow)))?;
    let vmi = demo(&machine, "v")?;
    let (uid, from) = (vmi.metadata.uid.clone(), node_of(&machine, "v")?);
    let [before] = qemus("v").as_slice().try_into().context("one QEMU")?;

    // Somebody cancels it.
    migrate(&machine, "cancelled", "v")?;
    under_way(&machine, "cancelled")?;
    machine.delete::<Migration>("cancelled")?;
    machine.gone::<Migration>("cancelled")?;
    ensure!(one_is_left(&machine, "v")? == before && node_of(&machine, "v")? == from, "it moved");

    // The target's QEMU dies.
    migrate(&machine, "bereft", "v")?;
    under_way(&machine, "bereft")?;
    let target = machine.until_some("the target's QEMU", || qemus("v").into_iter().find(|pid| *pid != before))?;
    kill(target)?;
    let (phase, why) = ended(&machine, "bereft")?;
    ensure!(phase == MigrationPhase::Failed && !why.is_empty(), "{phase}: {why}");
    ensure!(one_is_left(&machine, "v")? == before && node_of(&machine, "v")? == from, "it moved");
    let vmi = machine.phase("v", Phase::Running, None)?;
    ensure!(vmi.metadata.uid == uid, "it was started again");

    // The source's QEMU dies: the guest is lost, and its VM starts another.
    migrate(&machine, "lost", "v")?;
    under_way(&machine, "lost")?;
    kill(before)?;
    let (phase, _) = ended(&machine, "lost")?;
    ensure!(phase == MigrationPhase::Failed, "{phase}");
    machine.phase("v", Phase::Running, uid.as_deref())?;
    one_is_left(&machine, "v")?;
    Ok(())
}
