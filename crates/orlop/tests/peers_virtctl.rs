//! virtctl, unmodified, against `orlop up` with a real guest: what its users do, and what they are told when that is not possible.
#![expect(clippy::needless_pass_by_value, clippy::panic, reason = "a test fails by panicking")]

#[path = "virtctl/datagrams.rs"]
mod datagrams;
#[path = "virtctl/exports.rs"]
mod exports;
#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "up/guests.rs"]
mod guests;
#[path = "virtctl/moving.rs"]
mod moving;
#[path = "virtctl/objects.rs"]
mod objects;
#[path = "virtctl/refused.rs"]
mod refused;
#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "up/test_host.rs"]
mod test_host;
#[path = "virtctl/ways.rs"]
mod ways;

use std::io::BufReader;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use serde_json::Value;
use testkit::{Harness, Need, tests};

use guests::{Terminal, linux};
use test_host::{TestHost, qemus};

fn main() -> std::process::ExitCode {
    let needs = [Need::Peers, Need::Root, Need::Qemu, Need::Guest, Need::Program("script"), Need::Program("cc")];
    let harness = Harness::default().needing(&needs);
    harness.on_own_machine().run(tests![virtctl_does_to_a_vm_what_its_users_ask_for])
}

type Story = fn(&Virtctl<'_>) -> Result<()>;

/// What is done to one VM, in this order: it starts with one story, and others find it running until the last stops it. Verbs that
/// tell what they do not do are among them.
const OF_A_VM: &[(&str, Story)] = &[
    ("verbs while nothing runs", nothing_runs),
    ("start", start),
    ("pause", pause),
    ("unpause", unpause),
    ("console", ways::console),
    ("port-forward", ways::port_forward),
    ("port-forward --stdio", ways::port_forward_stdio),
    ("ssh", ways::ssh),
    ("scp", ways::scp),
    ("port-forward udp/", datagrams::port_forward_udp),
    ("vnc", ways::vnc),
    ("vnc screenshot", ways::screenshot),
    ("guestosinfo", guestosinfo),
    ("userlist", userlist),
    ("fslist", fslist),
    ("expand --vm", objects::expand),
    ("expose", objects::expose),
    ("credentials", objects::credentials),
    ("who may", who_may),
    ("migrate", moving::migrate),
    ("migrate-cancel", moving::migrate_cancel),
    ("evacuate-cancel", refused::evacuate_cancel),
    ("addvolume", refused::addvolume),
    ("removevolume", refused::removevolume),
    ("memory-dump", refused::memory_dump),
    ("objectgraph", refused::objectgraph),
    ("guestfs", refused::guestfs),
    ("usbredir", refused::usbredir),
    ("reset", reset),
    ("soft-reboot", soft_reboot),
    ("restart", restart),
    ("stop", stop),
];

/// What needs none, meanwhile.
const OF_OBJECTS: &[(&str, Story)] = &[
    ("version", version),
    ("adm log-verbosity", objects::adm),
    ("permitted-devices", objects::permitted_devices),
    ("expand --file", objects::expand_file),
    ("create instancetype", objects::create_instancetype),
    ("create preference", objects::create_preference),
    ("create vm", objects::create_vm),
    ("create clone", objects::create_clone),
    ("vmexport", exports::vmexport),
    ("image-upload", refused::image_upload),
];

/// One VM, from its first start to its last stop, on a machine of two nodes; and all else beside that.
fn virtctl_does_to_a_vm_what_its_users_ask_for() -> Result<()> {
    let machine = TestHost::with(&["--nodes", "2"])?;
    machine.create::<VirtualMachine>(linux("v", "Manual")?)?;
    machine.status("v", "Stopped")?;
    let virtctl = Virtctl(&machine);
    let tell = |stories: &[(&str, Story)]| -> Result<()> {
        for (name, story) in stories {
            story(&virtctl).with_context(|| format!("{name}\n{}", machine.log()))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others = scope.spawn(|| tell(OF_OBJECTS));
        let told = tell(OF_A_VM);
        told.and(others.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// virtctl as the admin of a machine.
struct Virtctl<'a>(&'a TestHost);

impl Virtctl<'_> {
    fn words(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let program = e2e::peer("virtctl")?.display().to_string();
        let kubeconfig = self.0.kubeconfig().display().to_string();
        let own = [program, "--kubeconfig".to_owned(), kubeconfig];
        Ok(own.into_iter().chain(arguments.iter().map(|&word| word.to_owned())).collect())
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new("timeout");
        command.arg("300").args(self.words(arguments)?).env("HOME", self.0.data()).stdin(Stdio::null());
        Ok(command)
    }

    /// What it prints, when all is well.
    fn ok(&self, arguments: &[&str]) -> Result<String> {
        e2e::output(&mut self.command(arguments)?)
    }

    /// What it says when it fails, which it must.
    fn refused(&self, arguments: &[&str], words: &str) -> Result<()> {
        let output = self.command(arguments)?.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "{arguments:?} did not fail");
        ensure!(said.contains(words), "{arguments:?} said {said}");
        Ok(())
    }

    /// Runs for as long as it is kept.
    fn spawn(&self, arguments: &[&str]) -> Result<Running> {
        let mut command = self.command(arguments)?;
        // Open as long as it runs: some end with their input.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let errors = child.stderr.take().context("no standard error")?;
        let output = child.stdout.take().context("no standard output")?;
        Ok(Running { child, output: BufReader::new(Box::new(output)), errors: BufReader::new(Box::new(errors)) })
    }
}

/// A virtctl under way.
struct Running {
    child: Child,
    output: BufReader<Box<dyn std::io::Read>>,
    errors: BufReader<Box<dyn std::io::Read>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CONFLICT: &str = "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"v\": ";
const VMI_CONFLICT: &str = "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"v\": ";

fn version(virtctl: &Virtctl<'_>) -> Result<()> {
    let said = virtctl.ok(&["version"])?;
    let server = said.lines().find(|line| line.starts_with("Server Version:")).context("no server")?;
    ensure!(server.contains("v1.7.0+orlop."), "{server}");
    Ok(())
}

fn nothing_runs(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.refused(&["stop", "v"], &format!("{CONFLICT}VM is not running"))?;
    virtctl.refused(&["restart", "v"], &format!("{CONFLICT}VM is not running: Halted"))?;
    virtctl.refused(&["start", "nobody"], "virtualmachine.kubevirt.io \"nobody\" not found")?;
    virtctl.refused(&["pause", "vm", "v"], "not found")?;
    for verb in ["guestosinfo", "userlist", "fslist"] {
        virtctl.refused(&[verb, "v"], r#"virtualmachineinstance.kubevirt.io \"v\" not found"#)?;
    }
    virtctl.refused(&["console", "v", "--timeout", "1"], "virtualmachineinstance.kubevirt.io \"v\" not found")
}

fn start(virtctl: &Virtctl<'_>) -> Result<()> {
    ensure!(virtctl.ok(&["start", "v", "--dry-run"])?.contains("VM v was scheduled to start"));
    ensure!(virtctl.0.get::<VirtualMachineInstance>("v")?.is_none(), "a dry run started it");
    // It begins paused, and goes on when it is told to.
    ensure!(virtctl.ok(&["start", "v", "--paused"])?.trim() == "VM v was scheduled to start");
    virtctl.0.phase("v", Phase::Running, None)?;
    virtctl.0.status("v", "Paused")?;
    ensure!(virtctl.ok(&["unpause", "vm", "v"])?.trim() == "VMI v was scheduled to unpause");
    virtctl.0.status("v", "Running")?;
    virtctl.refused(&["start", "v"], &format!("{CONFLICT}VM is already running"))
}

fn pause(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.refused(&["unpause", "vm", "v"], &format!("{VMI_CONFLICT}VMI is not paused"))?;
    ensure!(virtctl.ok(&["pause", "vm", "v", "--dry-run"])?.contains("VMI v was scheduled to pause"));
    ensure!(virtctl.ok(&["pause", "vmi", "v"])?.trim() == "VMI v was scheduled to pause");
    virtctl.0.status("v", "Paused").map(drop)
}

fn unpause(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.refused(&["pause", "vm", "v"], &format!("{VMI_CONFLICT}VMI is already paused"))?;
    virtctl.refused(&["soft-reboot", "v"], &format!("{VMI_CONFLICT}VMI is paused"))?;
    virtctl.refused(&["port-forward", "--stdio", "vmi/v", "22"], &format!("{VMI_CONFLICT}VMI is paused"))?;
    ensure!(virtctl.ok(&["unpause", "vmi", "v"])?.trim() == "VMI v was scheduled to unpause");
    virtctl.0.status("v", "Running").map(drop)
}

/// Waits until the guest's agent is there.
fn agent(virtctl: &Virtctl<'_>) -> Result<()> {
    let connected = |vmi: Option<&VirtualMachineInstance>| {
        let conditions = vmi.and_then(|vmi| vmi.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "AgentConnected"))
    };
    virtctl.0.wait::<VirtualMachineInstance>("v", "an agent", connected).map(drop)
}

fn guestosinfo(virtctl: &Virtctl<'_>) -> Result<()> {
    agent(virtctl)?;
    let info: Value = serde_json::from_str(&virtctl.ok(&["guestosinfo", "v"])?)?;
    ensure!(info["guestAgentVersion"].is_string() && info["os"]["kernelRelease"].is_string(), "{info}");
    Ok(())
}

fn userlist(virtctl: &Virtctl<'_>) -> Result<()> {
    let users: Value = serde_json::from_str(&virtctl.ok(&["userlist", "v"])?)?;
    ensure!(users["items"].is_array() || users["items"].is_null(), "{users}");
    Ok(())
}

fn fslist(virtctl: &Virtctl<'_>) -> Result<()> {
    let mounted: Value = serde_json::from_str(&virtctl.ok(&["fslist", "v"])?)?;
    ensure!(mounted["items"].is_array() || mounted["items"].is_null(), "{mounted}");
    Ok(())
}

fn who_may(virtctl: &Virtctl<'_>) -> Result<()> {
    let words =
        "User \"nobody\" cannot update resource \"virtualmachines/stop\" in API group \"subresources.kubevirt.io\"";
    virtctl.refused(&["--as", "nobody", "stop", "v"], words)
}

fn reset(virtctl: &Virtctl<'_>) -> Result<()> {
    let mut terminal = Terminal::open(virtctl.0, "v")?;
    ensure!(virtctl.ok(&["reset", "v"])?.trim() == "VMI v was scheduled to reset");
    terminal.console.expect("login:").map(drop)
}

fn soft_reboot(virtctl: &Virtctl<'_>) -> Result<()> {
    agent(virtctl)?;
    let mut terminal = Terminal::open(virtctl.0, "v")?;
    ensure!(virtctl.ok(&["soft-reboot", "v"])?.starts_with("VMI v was scheduled to soft"));
    terminal.console.expect("login:").map(drop)
}

fn restart(virtctl: &Virtctl<'_>) -> Result<()> {
    let before = virtctl.0.phase("v", Phase::Running, None)?;
    virtctl.refused(
        &["restart", "v", "--force", "--grace-period", "5"],
        "For force restart, only gracePeriod=0 is supported for now",
    )?;
    ensure!(virtctl.ok(&["restart", "v"])?.trim() == "VM v was scheduled to restart");
    virtctl.0.phase("v", Phase::Running, before.metadata.uid.as_deref())?;
    virtctl.0.status("v", "Running").map(drop)
}

fn stop(virtctl: &Virtctl<'_>) -> Result<()> {
    ensure!(virtctl.ok(&["stop", "v", "--force", "--grace-period", "0"])?.trim() == "VM v was scheduled to stop");
    virtctl.0.gone::<VirtualMachineInstance>("v")?;
    virtctl.0.status("v", "Stopped")?;
    ensure!(qemus("v").is_empty());
    Ok(())
}
