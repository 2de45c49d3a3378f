//! Live migration between nodes of one machine, with real guests: they go on where they were, and whatever fails on the way leaves
//! one of them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail, ensure};
use api::conditions::ConditionStatus;
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
use super::test_host::processes::kill;
use super::test_host::{PATIENCE, TestHost, qemus};

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
    machine.phase(name, Phase::Running, None)?;
    let can_move = |vmi: Option<&VirtualMachineInstance>| {
        let conditions = vmi.and_then(|vmi| vmi.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "LiveMigratable" && one.status == ConditionStatus::True)
    };
    machine.wait::<VirtualMachineInstance>(name, "it can move", can_move)?.context("the instance is gone")
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

/// Leaves a console such that somebody else can log in.
fn log_out(mut terminal: Terminal) -> Result<()> {
    terminal.console.send("exit")?;
    terminal.console.expect("login: ").map(drop)
}

/// Waits until one QEMU is left of a guest.
fn one_is_left(machine: &TestHost, name: &str) -> Result<u32> {
    machine.until_some("one QEMU is left", || match qemus(name).as_slice() {
        [one] => Some(*one),
        _ => None,
    })
}

/// Where a guest is reached.
fn address_of(machine: &TestHost, name: &str) -> Result<IpAddr> {
    let vmi = machine.get::<VirtualMachineInstance>(name)?.context("the instance is gone")?;
    let interface = vmi.status.and_then(|status| status.interfaces?.into_iter().next()).context("no interface")?;
    Ok(interface.ip_address.context("no address")?.parse()?)
}

/// One connection to a guest that sends everything back: each number goes there and must be the next to come back.
struct Echo {
    count: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Echo {
    fn connect(to: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).with_context(|| format!("connect to {to}"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (count, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, ends) = (count.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            let mut back = [0; 8];
            while !ends.load(Ordering::Relaxed) {
                let number = counted.load(Ordering::Relaxed).to_be_bytes();
                stream.write_all(&number)?;
                stream.read_exact(&mut back)?;
                ensure!(back == number, "{back:?} came back instead of {number:?}");
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(Self { count, is_over, thread })
    }

    /// Waits until some more have come back.
    fn goes_on(&self) -> Result<()> {
        let now = self.count.load(Ordering::Relaxed);
        let more = || self.thread.is_finished() || self.count.load(Ordering::Relaxed) > now + 5;
        testkit::waiting::until("the connection goes on", more);
        ensure!(!self.thread.is_finished(), "the connection has ended after {now} numbers");
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(ended) => ended,
            Err(_) => bail!("the connection's thread panicked"),
        }
    }
}

fn a_guest_moves_to_another_node_and_back() -> Result<()> {
    let machine = TestHost::with(&["--nodes", "2"])?;
    demo(&machine, "v")?;
    let (from, address) = (node_of(&machine, "v")?, address_of(&machine, "v")?);
    let mut terminal = Terminal::log_in(&machine, "v")?;
    terminal.run(
        "until ip route | grep -q default; do sleep 0.2; done; (setsid nc -ll -p 7000 -e cat > /dev/null 2>&1 &)",
    )?;
    terminal.run("until grep -q :1B58 /proc/net/tcp*; do sleep 0.2; done")?;
    let echo = Echo::connect((address, 7000).into())?;
    echo.goes_on()?;
    terminal.run("until grep -q ' /data ' /proc/mounts; do sleep 0.2; done")?;
    let boot = terminal.run("cat /proc/sys/kernel/random/boot_id")?;
    let sum =
        terminal.run("dd if=/dev/urandom of=/data/mark bs=1M count=2 2> /dev/null; sync; sha256sum < /data/mark")?;
    log_out(terminal)?;
    let mut nodes = vec![from];
    for round in ["there", "back"] {
        let said = e2e::output(&mut machine.orlop(&["migrate", "v", "--watch"]));
        let said = said.with_context(|| format!("{round}: {}", machine.log()))?;
        ensure!(said.contains("v: Running (") && said.contains("v: Succeeded ("), "{said}");
        nodes.push(node_of(&machine, "v")?);
        ensure!(address_of(&machine, "v")? == address, "{round}: it is reached elsewhere");
        echo.goes_on().with_context(|| format!("{round}: {}", machine.log()))?;
        one_is_left(&machine, "v")?;
        let mut terminal = Terminal::log_in(&machine, "v")?;
        ensure!(terminal.run("cat /proc/sys/kernel/random/boot_id")? == boot, "{round}: it has booted again");
        // Not from the guest's memory.
        let read = "echo 3 > /proc/sys/vm/drop_caches; sha256sum < /data/mark";
        ensure!(terminal.run(read)? == sum, "{round}: its disk is another");
        terminal.run("echo more > /data/more && sync")?;
        log_out(terminal)?;
    }
    echo.end()?;
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
    e2e::output(&mut machine.orlop(&["migrate", "v", "--cancel"]))?;
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
