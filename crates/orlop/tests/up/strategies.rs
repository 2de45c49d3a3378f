//! What comes of a guest that powers itself off, crashes or is deleted, under every run strategy.

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use super::Test;
use super::guests::{Terminal, bare, linux, template};
use super::test_host::processes::kill;
use super::test_host::{TestHost, qemus};

pub(crate) const TESTS: &[(&str, Test)] =
    &[("every_run_strategy_answers_power_off_crash_and_delete", every_run_strategy_answers_power_off_crash_and_delete)];

/// VMs whose guests power themselves off, and their strategies.
const OFF: [(&str, &str); 4] =
    [("off-always", "Always"), ("off-rerun", "RerunOnFailure"), ("off-manual", "Manual"), ("off-once", "Once")];
/// VMs whose QEMU is killed.
const CRASHED: [(&str, &str); 4] =
    [("crash-always", "Always"), ("crash-rerun", "RerunOnFailure"), ("crash-manual", "Manual"), ("crash-once", "Once")];
/// A VM whose guest's kernel panics.
const PANICS: &str = "panics";
/// A VM that is not to run.
const HALTED: &str = "halted";

fn every_run_strategy_answers_power_off_crash_and_delete() -> Result<()> {
    let machine = TestHost::up()?;
    // The slow ones first: they boot while the others are looked at.
    for (name, strategy) in OFF {
        machine.create::<VirtualMachine>(linux(name, strategy)?)?;
    }
    let mut panics = linux(PANICS, "RerunOnFailure")?;
    template(&mut panics)["domain"]["devices"]["panicDevices"] = json!([{ "model": "pvpanic" }]);
    machine.create::<VirtualMachine>(panics)?;
    for (name, strategy) in CRASHED {
        machine.create::<VirtualMachine>(bare(name, strategy))?;
    }
    machine.create::<VirtualMachine>(bare(HALTED, "Halted"))?;
    // Nothing of these is started unless somebody asks for it.
    for name in ["off-manual", "crash-manual", HALTED] {
        machine.status(name, "Stopped")?;
        ensure!(machine.get::<VirtualMachineInstance>(name)?.is_none() && qemus(name).is_empty(), "{name} runs");
    }
    for name in ["off-manual", "crash-manual"] {
        e2e::output(&mut machine.orlop(&["start", name]))?;
    }
    crashes(&machine)?;
    halts(&machine)?;
    deletes_of_instances(&machine)?;
    panics_of_the_guest(&machine)?;
    power_offs(&machine)?;
    deletes(&machine)
}

/// The UID of a VM's instance, when it runs as one process.
fn running(machine: &TestHost, name: &str, not: Option<&str>) -> Result<String> {
    let instance = machine.phase(name, Phase::Running, not)?;
    machine.status(name, "Running")?;
    ensure!(qemus(name).len() == 1, "{name} is run by {:?}", qemus(name));
    instance.metadata.uid.context("a UID")
}

/// The instance is the same, has ended so, and nothing runs.
fn ended(machine: &TestHost, name: &str, phase: Phase, uid: &str) -> Result<()> {
    let instance = machine.phase(name, phase, None)?;
    ensure!(instance.metadata.uid.as_deref() == Some(uid), "{name} has another instance");
    machine.status(name, "Stopped")?;
    ensure!(qemus(name).is_empty(), "{name} is run by {:?}", qemus(name));
    Ok(())
}

/// There is no instance.
fn stopped(machine: &TestHost, name: &str) -> Result<()> {
    machine.gone::<VirtualMachineInstance>(name)?;
    machine.status(name, "Stopped")?;
    ensure!(qemus(name).is_empty(), "{name} is run by {:?}", qemus(name));
    Ok(())
}

fn crashes(machine: &TestHost) -> Result<()> {
    let mut uids = Vec::new();
    for (name, _) in CRASHED {
        uids.push(running(machine, name, None)?);
        kill(qemus(name).first().copied().context("QEMU")?)?;
    }
    let [always, rerun, manual, once] = uids.as_slice() else { anyhow::bail!("four VMs") };
    ended(machine, "crash-manual", Phase::Failed, manual)?;
    ended(machine, "crash-once", Phase::Failed, once)?;
    running(machine, "crash-always", Some(always))?;
    running(machine, "crash-rerun", Some(rerun))?;
    // One that has ended makes room for the next when somebody asks.
    e2e::output(&mut machine.orlop(&["start", "crash-manual"]))?;
    running(machine, "crash-manual", Some(manual)).map(drop)
}

fn halts(machine: &TestHost) -> Result<()> {
    machine.patch::<VirtualMachine>(HALTED, &json!({ "spec": { "runStrategy": "Always" } }))?;
    running(machine, HALTED, None)?;
    machine.patch::<VirtualMachine>(HALTED, &json!({ "spec": { "runStrategy": "Halted" } }))?;
    stopped(machine, HALTED)
}

fn deletes_of_instances(machine: &TestHost) -> Result<()> {
    let mut uids = Vec::new();
    for (name, _) in CRASHED {
        uids.push(machine.get::<VirtualMachineInstance>(name)?.and_then(|vmi| vmi.uid()).context("an instance")?);
        machine.delete::<VirtualMachineInstance>(name)?;
    }
    let [always, _, _, once] = uids.as_slice() else { anyhow::bail!("four VMs") };
    // These want an instance whenever there is none.
    running(machine, "crash-always", Some(always))?;
    running(machine, "crash-once", Some(once))?;
    // These take it for a stop.
    stopped(machine, "crash-rerun")?;
    stopped(machine, "crash-manual")
}

fn panics_of_the_guest(machine: &TestHost) -> Result<()> {
    let first = running(machine, PANICS, None)?;
    let mut terminal = Terminal::log_in(machine, PANICS)?;
    terminal.console.send("echo c > /proc/sysrq-trigger")?;
    // It ended, but unhealthy.
    running(machine, PANICS, Some(&first)).map(drop)
}

fn power_offs(machine: &TestHost) -> Result<()> {
    let mut uids = Vec::new();
    for (name, _) in OFF {
        uids.push(running(machine, name, None)?);
        let mut terminal = Terminal::log_in(machine, name)?;
        terminal.console.send("poweroff")?;
        terminal.console.expect("guest: stopping")?;
    }
    let [always, _, manual, once] = uids.as_slice() else { anyhow::bail!("four VMs") };
    running(machine, "off-always", Some(always))?;
    stopped(machine, "off-rerun")?;
    ended(machine, "off-manual", Phase::Succeeded, manual)?;
    ended(machine, "off-once", Phase::Succeeded, once)?;
    // A VM that ended well starts again only if somebody asks.
    for name in ["off-rerun", "off-manual"] {
        e2e::output(&mut machine.orlop(&["start", name]))?;
        running(machine, name, Some(manual))?;
    }
    let refused = e2e::output(&mut machine.orlop(&["start", "off-once"])).unwrap_err().to_string();
    ensure!(refused.contains("Once does not support manual start requests"), "{refused}");
    Ok(())
}

/// Nothing has started that was not to, and nothing outlives its VM.
fn deletes(machine: &TestHost) -> Result<()> {
    for name in [HALTED, "crash-rerun", "crash-manual"] {
        stopped(machine, name)?;
    }
    let all = || OFF.iter().chain(&CRASHED).map(|(name, _)| *name).chain([PANICS, HALTED]);
    for name in all() {
        machine.delete::<VirtualMachine>(name)?;
    }
    for name in all() {
        machine.gone::<VirtualMachine>(name)?;
        ensure!(machine.get::<VirtualMachineInstance>(name)?.is_none(), "{name} left its instance");
        ensure!(qemus(name).is_empty(), "{name} is run by {:?}", qemus(name));
    }
    let pods = machine.runtime.block_on(machine.api::<Pod>().list(&ListParams::default()))?;
    let left: Vec<String> = pods.iter().map(kube::ResourceExt::name_any).collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}
