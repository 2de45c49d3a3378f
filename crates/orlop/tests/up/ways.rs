//! The ways into a guest: `orlop ssh`, `port-forward`, `vnc` and `console`, and the log of its console.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use api::kubevirt::{KubeVirt, KubeVirtPhase};
use api::vm::VirtualMachine;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use e2e::console::Console;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};

use super::Test;
use super::browsing;
use super::guests::{Terminal, linux};
use super::sockets::{Socket, path};
use super::streams;
use super::test_host::processes::kill;
use super::test_host::{TestHost, qemus};

pub(crate) const TESTS: &[(&str, Test)] = &[("orlop_leads_into_a_guest", orlop_leads_into_a_guest)];

/// What goes through a forwarded port, there and back; `make soak` sends a gibibyte.
const MEBIBYTES: u64 = 32;

/// A program that is ended with its test.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn new(child: Child) -> Self {
        Self(child)
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn terminate(mut self) -> Result<()> {
        e2e::output(Command::new("kill").arg(self.0.id().to_string()))?;
        let status = self.0.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a verb that lasts, and returns its first line with it.
pub(crate) fn lasting(machine: &TestHost, words: &[&str]) -> Result<(Running, String)> {
    let mut running = Running(machine.orlop(words).stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?);
    let output = running.0.stdout.take().context("no standard output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok((running, line))
}

fn orlop_leads_into_a_guest() -> Result<()> {
    let machine = TestHost::up()?;
    machine.create::<VirtualMachine>(linux("v", "Manual")?)?;
    machine.status("v", "Stopped")?;
    waiting(&machine)?;
    let key = machine.data().join("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status()?;
    ensure!(made.success(), "ssh-keygen failed");
    let public = std::fs::read_to_string(key.with_extension("pub"))?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    terminal.run(&format!(
        "mkdir -p ~/.ssh && echo '{}' > ~/.ssh/authorized_keys && chmod -R go= ~ ~/.ssh",
        public.trim()
    ))?;
    let boot = terminal.run("cat /proc/sys/kernel/random/boot_id")?;
    streams::send_back(&mut terminal)?;
    terminal.run("echo seen-$((40 + 2))")?;
    drop(terminal);

    tail(&machine)?;
    console_log(&machine)?;
    datagrams(&machine)?;
    ssh(&machine, &key, boot.trim())?;
    let (_forwarding, line) = lasting(&machine, &["port-forward", "v", ":22"])?;
    let address = line.strip_prefix("forwarding ").and_then(|rest| rest.split(' ').next());
    for _ in 0..2 {
        let mut banner = [0; 8];
        TcpStream::connect(address.with_context(|| line.clone())?)?.read_exact(&mut banner)?;
        ensure!(&banner == b"SSH-2.0-", "{banner:?}");
    }
    streams::transfer(&machine, MEBIBYTES)?;
    port_of_the_machine(&machine)?;
    screen(&machine)?;
    browsing::browser(&machine)?;
    is_deployed(&machine)?;
    verbs(&machine)?;
    mid_stream(&machine)
}

/// What is done to a guest that runs, and how people are told.
fn verbs(machine: &TestHost) -> Result<()> {
    let done = |verb: &str, words: &str| {
        let said = e2e::output(&mut machine.orlop(&[verb, "v"]))?;
        ensure!(said.trim() == words, "{verb}: {said}");
        Ok(())
    };
    done("pause", "VM v was paused")?;
    machine.status("v", "Paused")?;
    let again = machine.orlop(&["pause", "v"]).output()?;
    let told = String::from_utf8_lossy(&again.stderr);
    ensure!(!again.status.success() && told.contains("VMI is already paused"), "{told}");
    done("unpause", "VM v was unpaused")?;
    machine.status("v", "Running")?;
    for (verb, words) in [("reset", "VM v was reset"), ("soft-reboot", "VM v was asked to reboot")] {
        let mut terminal = Terminal::open(machine, "v")?;
        done(verb, words)?;
        terminal.console.expect("login:")?;
    }
    // The story goes on by ssh.
    let mut terminal = Terminal::log_in(machine, "v")?;
    terminal.run("until grep -q :0016 /proc/net/tcp*; do sleep 0.2; done").map(drop)
}

/// A forwarded port is the guest's, and never one that only the machine has.
fn port_of_the_machine(machine: &TestHost) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let way = format!("portforward/{}", listener.local_addr()?.port());
    let opened = machine.runtime.block_on(Socket::open(&machine.client(), &path("v1", "v", &way), &[]))?;
    let Err((code, words)) = opened else { bail!("{way} led to the machine") };
    ensure!(code == 500 && words.contains("Connection refused"), "{code}: {words}");
    Ok(())
}

/// A guest that dies takes its streams with it, and each is told so.
fn mid_stream(machine: &TestHost) -> Result<()> {
    let client = machine.client();
    let open = async |way| {
        let opened = Socket::open(&client, &path("v1", "v", way), &[]).await?;
        opened.map_err(|refusal| anyhow::anyhow!("{way}: {refusal:?}"))
    };
    let mut all = machine.runtime.block_on(async {
        let (console, mut screen, mut port) =
            (open("console").await?, open("vnc").await?, open("portforward/22").await?);
        screen.greeting().await?;
        port.until("SSH-2.0-").await?;
        anyhow::Ok([console, screen, port])
    })?;
    for pid in qemus("v") {
        kill(pid)?;
    }
    let gone = (1011, "the guest has ended or moved".to_owned());
    let over = (1000, String::new());
    for (socket, expected) in all.iter_mut().zip([over.clone(), over, gone]) {
        let closed = machine.runtime.block_on(socket.closed())?;
        ensure!(closed == expected, "{closed:?} instead of {expected:?}");
    }
    Ok(())
}

/// Reads the errors of a program until it says this.
fn says(errors: &mut impl std::io::BufRead, words: &str) -> Result<()> {
    let mut said = String::new();
    while !said.contains(words) {
        ensure!(errors.read_line(&mut said)? > 0, "it never said {words:?}, but {said}");
    }
    Ok(())
}

/// A console of a VM that is stopped says so and what to do, and goes on when somebody does it.
fn waiting(machine: &TestHost) -> Result<()> {
    let mut look = machine.orlop(&["console", "v"]);
    let mut console = Running(look.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?);
    let mut errors = BufReader::new(console.0.stderr.take().context("no standard error")?);
    says(&mut errors, "v is not running: Stopped; start it with `orlop start v`; waiting for it")?;
    e2e::output(&mut machine.orlop(&["start", "v"]))?;
    says(&mut errors, "connected to v")?;
    machine.phase("v", Phase::Running, None)?;
    // Nobody lands on another cluster than the one that was named.
    let refused = machine.orlop(&["console", "v", "--context", "nowhere"]).stdin(Stdio::null()).output()?;
    let told = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && told.contains("the kubeconfig has no context \"nowhere\""), "{told}");
    Ok(())
}

/// As `kubectl logs POD -c guest-console-log` asks for it: the console, and nothing of the launcher's own log.
fn console_log(machine: &TestHost) -> Result<()> {
    let pods = machine.runtime.block_on(machine.api::<Pod>().list(&ListParams::default()))?;
    let pod = pods.items.into_iter().next().context("no launcher")?;
    let parameters = LogParams { container: Some("guest-console-log".to_owned()), ..LogParams::default() };
    let name = pod.metadata.name.clone().unwrap_or_default();
    let log = machine.runtime.block_on(machine.api::<Pod>().logs(&name, &parameters))?;
    ensure!(log.contains("seen-42") && !log.contains("\"level\""), "{log}");
    let statuses = pod.status.and_then(|status| status.init_container_statuses).unwrap_or_default();
    let shown = statuses.iter().find(|one| one.name == "guest-console-log").context("it has no status")?;
    ensure!(shown.ready && shown.container_id.is_none(), "{shown:?}");
    Ok(())
}

/// The guest itself answers that nobody listens on a UDP port.
fn datagrams(machine: &TestHost) -> Result<()> {
    let mut forward = machine.orlop(&["port-forward", "v", "udp/:9"]);
    let mut running = Running(forward.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().context("no standard output")?).read_line(&mut line)?;
    let address = line.strip_prefix("forwarding ").and_then(|rest| rest.split(' ').next());
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.send_to(b"hello", address.with_context(|| line.clone())?)?;
    let mut errors = BufReader::new(running.0.stderr.take().context("no standard error")?);
    says(&mut errors, "dialing VM: port 9: Connection refused")
}

/// What was written while nobody looked is shown to who asks for it, and to nobody else.
fn tail(machine: &TestHost) -> Result<()> {
    let mut look = machine.orlop(&["console", "v", "--tail"]);
    let mut running = Running(look.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
    let input = running.0.stdin.take().context("no standard input")?;
    let output = running.0.stdout.take().context("no standard output")?;
    Console::new(input, output).expect("seen-42").map(drop).context("nothing of what was written before is shown")
}

fn ssh(machine: &TestHost, key: &std::path::Path, boot: &str) -> Result<()> {
    let known = machine.data().join("known");
    let ssh = |vm: &str, command: &str| {
        let mut ssh = Command::new(env!("CARGO_BIN_EXE_orlop"));
        ssh.arg("ssh").arg("--data-dir").arg(machine.data()).arg("--identity-file").arg(key);
        ssh.arg("--known-hosts").arg(&known).args([vm, "-o", "StrictHostKeyChecking=accept-new", command]);
        ssh.stdin(Stdio::null()).output()
    };
    let output = ssh("root@v", "cat /proc/sys/kernel/random/boot_id; exit 7")?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(told.trim() == boot, "{told:?} instead of {boot:?}: {}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.code() == Some(7), "the command's exit code is {:?}", output.status);
    // As virtctl names it.
    e2e::output(Command::new("ssh-keygen").args(["-F", "vmi.v.default", "-f"]).arg(&known))?;
    let output = ssh("root@nobody", "true")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(told.contains("VM \"nobody\" was not found in namespace default"), "{told}");
    Ok(())
}

fn screen(machine: &TestHost) -> Result<()> {
    let (_proxy, line) = lasting(machine, &["vnc", "v", "--proxy-only"])?;
    let port: serde_json::Value = serde_json::from_str(&line).with_context(|| line.clone())?;
    let port = port["port"].as_u64().and_then(|port| u16::try_from(port).ok()).with_context(|| line.clone())?;
    let mut greeting = [0; 8];
    TcpStream::connect(("127.0.0.1", port))?.read_exact(&mut greeting)?;
    ensure!(&greeting == b"RFB 003.", "{greeting:?}");
    let picture = machine.data().join("picture.png");
    let picture_words = picture.display().to_string();
    e2e::output(&mut machine.orlop(&["vnc", "v", "--screenshot", &picture_words]))?;
    ensure!(std::fs::read(&picture)?.starts_with(b"\x89PNG"), "no picture");
    Ok(())
}

/// What clients wait for before they make VMs.
fn is_deployed(machine: &TestHost) -> Result<()> {
    let api: kube::Api<KubeVirt> = kube::Api::namespaced(machine.client(), "kubevirt");
    let object = machine.runtime.block_on(api.get("kubevirt"))?;
    let status = object.status.context("the KubeVirt object has no status")?;
    ensure!(status.phase == Some(KubeVirtPhase::Deployed), "{status:?}");
    ensure!(status.observed_generation == object.metadata.generation, "{status:?}");
    let conditions = status.conditions.unwrap_or_default();
    ensure!(conditions.iter().any(|one| one.type_ == "Available" && one.status.as_str() == "True"), "{conditions:?}");
    Ok(())
}
