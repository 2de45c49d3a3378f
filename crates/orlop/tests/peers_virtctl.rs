//! virtctl, unmodified, against `orlop up` with a real guest: what its users do, and what they are told when that is not possible.
#![expect(clippy::needless_pass_by_value, clippy::panic, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "up/guests.rs"]
mod guests;
#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "up/test_host.rs"]
mod test_host;

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use e2e::console::Console;
use serde_json::Value;
use testkit::{Harness, Need, tests};

use guests::{Terminal, linux};
use test_host::{TestHost, qemus};

fn main() -> std::process::ExitCode {
    let needs = [Need::Peers, Need::Root, Need::Qemu, Need::Guest, Need::Program("script")];
    let harness = Harness::default().needing(&needs);
    harness.on_own_machine().run(tests![virtctl_does_to_a_vm_what_its_users_ask_for])
}

type Story = fn(&Virtctl<'_>) -> Result<()>;

/// One VM, from its first start to its last stop.
fn virtctl_does_to_a_vm_what_its_users_ask_for() -> Result<()> {
    let machine = TestHost::up()?;
    machine.create::<VirtualMachine>(linux("v", "Manual")?)?;
    machine.status("v", "Stopped")?;
    let virtctl = Virtctl(&machine);
    let stories: [(&str, Story); 13] = [
        ("version", version),
        ("nothing runs", nothing_runs),
        ("start", start),
        ("pause and unpause", pause),
        ("console", console),
        ("port-forward", port_forward),
        ("vnc", vnc),
        ("the guest's agent", agent),
        ("expand", expand),
        ("who may", who_may),
        ("not yet", not_yet),
        ("reset and reboot", reboots),
        ("restart and stop", stop),
    ];
    for (name, story) in stories {
        story(&virtctl).with_context(|| format!("{name}\n{}", machine.log()))?;
    }
    Ok(())
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
        let mut child = self.command(arguments)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
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

/// The first line with these words.
fn line(lines: &mut impl std::io::BufRead, words: &str) -> Result<String> {
    loop {
        let mut line = String::new();
        ensure!(lines.read_line(&mut line)? > 0, "it never said {words:?}");
        if line.contains(words) {
            return Ok(line);
        }
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
    // virtctl reads these answers without looking at the Status in them, and has words of its own for a 404.
    virtctl.refused(&["guestosinfo", "v"], "the server could not find the requested resource")?;
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
    virtctl.0.status("v", "Paused")?;
    virtctl.refused(&["pause", "vm", "v"], &format!("{VMI_CONFLICT}VMI is already paused"))?;
    virtctl.refused(&["soft-reboot", "v"], &format!("{VMI_CONFLICT}VMI is paused"))?;
    virtctl.ok(&["unpause", "vmi", "v"])?;
    virtctl.0.status("v", "Running").map(drop)
}

/// virtctl wants a terminal, which `script` gives it.
fn console(virtctl: &Virtctl<'_>) -> Result<()> {
    let words = virtctl.words(&["console", "v"])?.join(" ");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &words, "/dev/null"]).env("HOME", virtctl.0.data());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let input = child.stdin.take().context("no standard input")?;
    let output = child.stdout.take().context("no standard output")?;
    let mut first = Console::new(input, output);
    first.expect("Successfully connected to v console")?;
    first.send("")?;
    first.log_in("root", "orlop")?;
    ensure!(first.run("echo $((6 * 7))")? == "42");
    // A second one takes over, and the first ends.
    let mut second = Terminal::open(virtctl.0, "v")?;
    second.console.send("")?;
    ensure!(second.run("echo still here")? == "still here");
    first.rest();
    child.wait()?;
    Ok(())
}

fn port_forward(virtctl: &Virtctl<'_>) -> Result<()> {
    let mut terminal = Terminal::open(virtctl.0, "v")?;
    terminal.console.send("")?;
    terminal.run("mkdir -p /tmp/www && head -c 3000000 /dev/urandom > /tmp/www/page && httpd -p 8080 -h /tmp/www")?;
    let sum = terminal.run("sha256sum < /tmp/www/page")?;
    drop(terminal);
    let mut forwarding = virtctl.spawn(&["port-forward", "vm/v", "18080:8080", "18081:8081"])?;
    line(&mut forwarding.errors, "forwarding tcp 127.0.0.1:18081 to 8081")?;
    for _ in 0..3 {
        let mut stream = TcpStream::connect("127.0.0.1:18080")?;
        stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no header")? + 4;
        ensure!(answer.len() - body == 3_000_000, "{} bytes came", answer.len() - body);
        ensure!(sum.starts_with(&checksum(&answer[body..])?), "other bytes came");
    }
    // Where nobody listens.
    let mut stream = TcpStream::connect("127.0.0.1:18081")?;
    let mut nothing = Vec::new();
    let _ = stream.read_to_end(&mut nothing);
    ensure!(nothing.is_empty());
    line(&mut forwarding.errors, "dialing VM: port 8081: Connection refused")?;
    Ok(())
}

fn checksum(bytes: &[u8]) -> Result<String> {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(bytes)?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().next().context("no sum")?.to_owned())
}

fn vnc(virtctl: &Virtctl<'_>) -> Result<()> {
    let mut proxy = virtctl.spawn(&["vnc", "v", "--proxy-only", "--port", "15900"])?;
    line(&mut proxy.output, "\"port\":15900")?;
    let mut stream = TcpStream::connect("127.0.0.1:15900")?;
    let mut greeting = [0; 12];
    stream.read_exact(&mut greeting)?;
    ensure!(greeting.starts_with(b"RFB 003."), "{greeting:?}");
    drop((stream, proxy));
    let picture = virtctl.0.data().join("picture.png");
    virtctl.ok(&["vnc", "screenshot", "v", "--file", &picture.display().to_string()])?;
    ensure!(std::fs::read(&picture)?.starts_with(b"\x89PNG"));
    Ok(())
}

fn agent(virtctl: &Virtctl<'_>) -> Result<()> {
    let connected = |vmi: Option<&VirtualMachineInstance>| {
        let conditions = vmi.and_then(|vmi| vmi.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "AgentConnected"))
    };
    virtctl.0.wait::<VirtualMachineInstance>("v", "an agent", connected)?;
    let info: Value = serde_json::from_str(&virtctl.ok(&["guestosinfo", "v"])?)?;
    ensure!(info["guestAgentVersion"].is_string() && info["os"]["kernelRelease"].is_string(), "{info}");
    let users: Value = serde_json::from_str(&virtctl.ok(&["userlist", "v"])?)?;
    ensure!(users["items"].is_array() || users["items"].is_null(), "{users}");
    let mounted: Value = serde_json::from_str(&virtctl.ok(&["fslist", "v"])?)?;
    ensure!(mounted["items"].is_array() || mounted["items"].is_null(), "{mounted}");
    Ok(())
}

fn expand(virtctl: &Virtctl<'_>) -> Result<()> {
    let said = virtctl.ok(&["expand", "--vm", "v", "--output", "json"])?;
    let vm: Value = serde_json::from_str(&said)?;
    ensure!(vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "256Mi", "{vm}");
    Ok(())
}

fn who_may(virtctl: &Virtctl<'_>) -> Result<()> {
    let words =
        "User \"nobody\" cannot update resource \"virtualmachines/stop\" in API group \"subresources.kubevirt.io\"";
    virtctl.refused(&["--as", "nobody", "stop", "v"], words)
}

fn not_yet(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.refused(&["migrate", "v"], "Cannot migrate VMI, Reason: MigrationNotSupported")?;
    // virtctl itself looks whether a volume that is to be added is there, and never asks for this one.
    let none = "Volume data is not a DataVolume or PersistentVolumeClaim";
    virtctl.refused(&["addvolume", "v", "--volume-name", "data"], none)?;
    let words = "adding and removing volumes of a running VM is not supported yet";
    virtctl.refused(&["removevolume", "v", "--volume-name", "data"], words)
}

fn reboots(virtctl: &Virtctl<'_>) -> Result<()> {
    let mut terminal = Terminal::open(virtctl.0, "v")?;
    ensure!(virtctl.ok(&["reset", "v"])?.trim() == "VMI v was scheduled to reset");
    terminal.console.expect("login:")?;
    let connected = |vmi: Option<&VirtualMachineInstance>| {
        let conditions = vmi.and_then(|vmi| vmi.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "AgentConnected"))
    };
    virtctl.0.wait::<VirtualMachineInstance>("v", "an agent", connected)?;
    ensure!(virtctl.ok(&["soft-reboot", "v"])?.starts_with("VMI v was scheduled to soft"));
    terminal.console.expect("login:").map(drop)
}

fn stop(virtctl: &Virtctl<'_>) -> Result<()> {
    let before = virtctl.0.phase("v", Phase::Running, None)?;
    virtctl.refused(
        &["restart", "v", "--force", "--grace-period", "5"],
        "For force restart, only gracePeriod=0 is supported for now",
    )?;
    ensure!(virtctl.ok(&["restart", "v"])?.trim() == "VM v was scheduled to restart");
    virtctl.0.phase("v", Phase::Running, before.metadata.uid.as_deref())?;
    virtctl.0.status("v", "Running")?;
    ensure!(virtctl.ok(&["stop", "v", "--force", "--grace-period", "0"])?.trim() == "VM v was scheduled to stop");
    virtctl.0.gone::<VirtualMachineInstance>("v")?;
    virtctl.0.status("v", "Stopped")?;
    ensure!(qemus("v").is_empty());
    Ok(())
}
