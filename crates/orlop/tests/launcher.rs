//! `orlop virt-launcher` with real guests, steered over its socket as a node's agent does.

#[path = "launcher/changes.rs"]
mod changes;
#[path = "launcher/limited.rs"]
mod limited;
#[path = "launcher/still.rs"]
mod still;
#[expect(dead_code, reason = "other tests drive `orlop run`")]
mod support;
#[path = "launcher/trouble.rs"]
mod trouble;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::console::PATIENCE;
use e2e::guest;
use hyper_util::rt::TokioIo;
use hypervisor::render::{AGENT_SOCKET, MONITOR_SOCKET, SERIAL_SOCKET, VNC_SOCKET};
use launcher_api::Outcome;
use launcher_api::rpc::launcher_client::LauncherClient;
use launcher_api::rpc::{self, Empty, End, ExecRequest, ShutdownRequest, State, SyncRequest};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::waiting::until;
use testkit::{Harness, Need, tests};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use changes::{
    a_guest_moves_from_one_launcher_to_another, a_guest_that_runs_becomes_what_it_is_told_to_be,
    a_guest_that_starts_again_finds_everything_where_it_was, a_step_that_fails_is_repeated_and_is_in_no_others_way,
};
use limited::Limited;
use still::{a_frozen_guest_writes_nothing, a_paused_guest_takes_no_time};
use support::{instance, orlop, qemus};
use trouble::{a_qemu_that_does_not_start_is_told_in_its_own_words, an_attempt_that_failed_is_in_nobodys_way};

fn request(vmi: &Value) -> SyncRequest {
    SyncRequest { instance: vmi.to_string().into_bytes(), ..SyncRequest::default() }
}

fn main() -> std::process::ExitCode {
    const GUEST: [Need; 2] = [Need::Qemu, Need::Guest];
    let guests = tests![
        async a_start_goes_on_without_its_caller,
        async a_guest_is_asked_paused_frozen_pictured_and_shut_down,
        async a_panic_of_the_guest_is_told_as_such,
        async a_reboot_is_counted_or_ends_the_guest_as_its_policy_says,
        async a_watchdog_that_is_not_fed_bites,
        async a_killed_qemu_is_told_and_a_killed_launcher_takes_it_along,
        async a_sigterm_shuts_the_guest_down_before_the_launcher_ends,
        async a_qemu_that_does_not_start_is_told_in_its_own_words,
        async an_attempt_that_failed_is_in_nobodys_way,
        async a_guest_that_runs_becomes_what_it_is_told_to_be,
        async a_step_that_fails_is_repeated_and_is_in_no_others_way,
        async a_guest_that_starts_again_finds_everything_where_it_was,
        async a_guest_moves_from_one_launcher_to_another,
    ];
    let limited = tests![async an_out_of_memory_kill_is_told_as_such];
    let limited = limited.into_iter().map(|test| test.needing(&[Need::Root]));
    let all = guests.into_iter().chain(limited).map(|test| test.needing(&GUEST)).collect();
    // Guests are known by their names, and other tests on this machine may have the same.
    Harness::default().on_own_machine().run(all)
}

/// The agent is up before the guest is; a login prompt is the last thing to come.
const READY: &str = "until ps | grep -q '[g]etty'; do sleep 0.2; done";
/// How long a guest may take for anything that ends, in milliseconds.
const LONG_MS: u64 = 300_000;

/// A launcher under test, and the agent it reports to.
struct Launcher {
    client: LauncherClient<Channel>,
    events: watch::Receiver<Vec<rpc::Domain>>,
    process: Child,
    folder: TempDir,
}

impl Launcher {
    async fn start(name: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let process = orlop()
            .arg("virt-launcher")
            .arg("--socket")
            .arg(folder.path().join("socket"))
            .args(["--uid", &format!("uid-of-{name}")])
            .arg("--runtime-dir")
            .arg(folder.path().join("run"))
            .stdin(Stdio::null())
            .spawn()
            .context("start the launcher")?;
        let mut client = LauncherClient::new(connect(folder.path().join("socket")).await?);
        let events = follow(client.watch(Empty {}).await?.into_inner());
        Ok(Self { client, events, process, folder })
    }

    /// Starts a guest and waits until it runs.
    async fn boot(&mut self, vmi: &Value) -> Result<()> {
        self.client.sync(request(vmi)).await?;
        self.reaches(|domain| domain.state() == State::Running).await.map(drop)
    }

    /// Tells it what the guest is to be, and what came of it.
    async fn outcome(&mut self, vmi: &Value) -> Result<Outcome> {
        let answer = self.client.sync(request(vmi)).await?.into_inner();
        Ok(Outcome::from_answer(Ok(&answer)))
    }

    /// Waits for an event of which this is true.
    async fn reaches(&mut self, reached: impl Fn(&rpc::Domain) -> bool) -> Result<rpc::Domain> {
        let found = |events: &[rpc::Domain]| events.iter().rfind(|domain| reached(domain)).cloned();
        let mut events = self.events.clone();
        let waiting = events.wait_for(|events| found(events).is_some());
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(events) => found(&events?).context("the event is gone"),
            Err(_) => bail!("the event did not come, but {:?}", self.events.borrow()),
        }
    }

    fn signal(&self, name: &str) -> Result<()> {
        let pid = self.process.id().to_string();
        e2e::output(std::process::Command::new("kill").args([&format!("-{name}"), &pid])).map(drop)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Keeps every state in order.
fn follow(mut stream: Streaming<rpc::Domain>) -> watch::Receiver<Vec<rpc::Domain>> {
    let (sender, events) = watch::channel(Vec::new());
    tokio::spawn(async move {
        while let Some(Ok(domain)) = stream.next().await {
            sender.send_modify(|events| events.push(domain));
        }
    });
    events
}

/// The socket has its name when it accepts.
async fn connect(socket: PathBuf) -> Result<Channel> {
    let attempt = async {
        while UnixStream::connect(&socket).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, attempt).await.context("the launcher does not listen")?;
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Ok(Endpoint::from_static("http://launcher").connect_with_connector(connector).await?)
}

/// The demo guest, with the disk and the interface that admission would have added.
fn demo(name: &str, domain: &Value) -> Result<Value> {
    let volumes = json!([{ "name": "root", "containerDisk": { "image": guest::image("demo")? } }]);
    let mut vmi = instance(name, domain, &volumes);
    vmi["spec"]["networks"] = json!([{ "name": "default", "pod": {} }]);
    let devices = &mut vmi["spec"]["domain"]["devices"];
    devices["disks"] = json!([{ "name": "root", "disk": { "bus": "virtio" } }]);
    devices["interfaces"] = json!([{ "name": "default", "masquerade": {} }]);
    Ok(vmi)
}

async fn a_start_goes_on_without_its_caller() -> Result<()> {
    let mut launcher = Launcher::start("left").await?;
    let vmi = instance("left", &json!({}), &json!([]));
    let mut client = launcher.client.clone();
    let request = request(&vmi);
    let calling = tokio::spawn(async move { client.sync(request).await });
    launcher.reaches(|domain| domain.state() == State::Starting).await?;
    // As when virt-handler is killed at this moment.
    calling.abort();
    launcher.reaches(|domain| domain.state() == State::Running).await?;
    launcher.boot(&vmi).await?;
    ensure!(qemus("left").len() == 1);
    launcher.client.kill(Empty {}).await?;
    launcher.reaches(|domain| domain.state() == State::Ended).await.map(drop)
}

async fn a_guest_is_asked_paused_frozen_pictured_and_shut_down() -> Result<()> {
    let mut launcher = Launcher::start("asked").await?;
    let vmi = demo("asked", &json!({}))?;
    launcher.boot(&vmi).await?;
    in_guest(&mut launcher, READY).await?;
    let client = &mut launcher.client;

    client.guest_ping(Empty {}).await?;
    let info = client.get_guest_info(Empty {}).await?.into_inner();
    ensure!(info.os.as_ref().is_some_and(|os| os.id == "orlop"), "{info:?}");
    ensure!(info.interfaces.iter().any(|interface| !interface.addresses.is_empty()), "{info:?}");
    client.get_users(Empty {}).await?;
    ensure!(!client.get_filesystems(Empty {}).await?.into_inner().filesystems.is_empty());
    let exec = ExecRequest {
        command: "/bin/sh".into(),
        arguments: vec!["-c".into(), "echo hi; exit 3".into()],
        timeout_ms: None,
    };
    let exec = client.exec(exec).await?.into_inner();
    ensure!((exec.exit_code, exec.stdout.as_slice()) == (3, b"hi\n".as_slice()), "{exec:?}");

    a_frozen_guest_writes_nothing(&mut launcher).await?;
    let client = &mut launcher.client;
    ensure!(is_png_with_contents(&client.screenshot(rpc::ScreenshotRequest::default()).await?.into_inner().png));

    a_paused_guest_takes_no_time(&mut launcher).await?;
    sockets_are_private(&launcher.folder.path().join("run"))?;
    // What it sees is written down, by the board's own name.
    let model = std::fs::read(launcher.folder.path().join("run").join(virt_launcher::model::FILE))?;
    let model: hypervisor::guest::Guest = serde_json::from_slice(&model)?;
    ensure!(model.board.type_.starts_with("pc-q35-"), "{}", model.board.type_);
    ensure!(model.devices.values().all(|device| device.rom_bytes.is_some() == device.kind.has_rom()), "{model:?}");

    // The same instance again changes nothing; another one is refused.
    launcher.client.sync(request(&vmi)).await?;
    let mut other = vmi.clone();
    other["metadata"]["uid"] = "another".into();
    let refused = launcher.outcome(&other).await?;
    ensure!(matches!(&refused, Outcome::Never(why) if why[0].path == "metadata.uid"), "{refused}");
    ensure!(launcher.client.delete(Empty {}).await.is_err(), "a running guest is not deleted");

    launcher.client.shutdown(ShutdownRequest { grace_ms: Some(60_000) }).await?;
    let end = launcher.reaches(|domain| domain.state() == State::Ended).await?;
    ensure!(end.end() == End::PoweredOff, "{end:?}");
    ensure!(qemus("asked").is_empty());
    sequences_grow(&launcher.events.borrow())?;

    launcher.client.delete(Empty {}).await?;
    let status = tokio::task::block_in_place(|| launcher.process.wait());
    ensure!(status?.success());
    ensure!(!launcher.folder.path().join("socket").exists());
    Ok(())
}

/// Nobody but the owner gets at a guest.
fn sockets_are_private(run: &std::path::Path) -> Result<()> {
    ensure!(std::fs::metadata(run)?.permissions().mode() & 0o777 == 0o700);
    for socket in [SERIAL_SOCKET, VNC_SOCKET, MONITOR_SOCKET, AGENT_SOCKET] {
        // The monitor's and the agent's have done their work when QEMU has connected.
        if let Ok(metadata) = std::fs::metadata(run.join(socket)) {
            ensure!(metadata.permissions().mode() & 0o777 == 0o600, "{socket}: {:o}", metadata.permissions().mode());
        }
    }
    ensure!(run.join(SERIAL_SOCKET).exists() && run.join(VNC_SOCKET).exists());
    Ok(())
}

/// Every state is newer than the one before, whatever was skipped.
fn sequences_grow(events: &[rpc::Domain]) -> Result<()> {
    let sequences: Vec<u64> = events.iter().map(|domain| domain.sequence).collect();
    ensure!(sequences.is_sorted(), "{sequences:?}");
    ensure!(events.first().is_some_and(|domain| domain.state() == State::Absent), "{events:?}");
    Ok(())
}

/// A picture of one colour compresses to nearly nothing; text on a screen does not.
fn is_png_with_contents(png: &[u8]) -> bool {
    png.starts_with(b"\x89PNG") && png.len() > 4000
}

/// Runs a command in the guest, as soon as its agent is there.
async fn in_guest(launcher: &mut Launcher, command: &str) -> Result<()> {
    launcher.reaches(|domain| domain.agent_connected).await?;
    let arguments = vec!["-c".to_owned(), command.to_owned()];
    launcher.client.exec(ExecRequest { command: "/bin/sh".into(), arguments, timeout_ms: Some(LONG_MS) }).await?;
    Ok(())
}

async fn ends(launcher: &mut Launcher) -> Result<End> {
    Ok(launcher.reaches(|domain| domain.state() == State::Ended).await?.end())
}

async fn a_panic_of_the_guest_is_told_as_such() -> Result<()> {
    let mut launcher = Launcher::start("panic").await?;
    launcher.boot(&demo("panic", &json!({ "devices": { "panicDevices": [{ "model": "isa" }] } }))?).await?;
    in_guest(&mut launcher, "(sleep 1; echo c > /proc/sysrq-trigger) </dev/null >/dev/null 2>&1 &").await?;
    ensure!(ends(&mut launcher).await? == End::Panicked);
    Ok(())
}

async fn a_reboot_is_counted_or_ends_the_guest_as_its_policy_says() -> Result<()> {
    let mut launcher = Launcher::start("reboot").await?;
    launcher.boot(&demo("reboot", &json!({}))?).await?;
    in_guest(&mut launcher, READY).await?;
    launcher.client.soft_reboot(Empty {}).await?;
    // A kernel may try several ways to reset its machine, and QEMU tells each.
    let rebooted = launcher.reaches(|domain| domain.resets > 0 && domain.agent_connected).await?;
    // Without its agent it is asked by the power button, and is not taken for one that has ended.
    in_guest(&mut launcher, READY).await?;
    in_guest(&mut launcher, "(sleep 1; kill $(cat /run/qemu-ga.pid)) </dev/null >/dev/null 2>&1 &").await?;
    launcher.reaches(|domain| !domain.agent_connected).await?;
    launcher.client.soft_reboot(Empty {}).await?;
    let rebooted = launcher.reaches(|domain| domain.resets > rebooted.resets && domain.agent_connected).await?;
    launcher.client.reset(Empty {}).await?;
    launcher.reaches(|domain| domain.resets > rebooted.resets).await?;
    launcher.client.kill(Empty {}).await?;
    ensure!(ends(&mut launcher).await? == End::Killed);

    let mut launcher = Launcher::start("terminate").await?;
    launcher.boot(&demo("terminate", &json!({ "rebootPolicy": "Terminate" }))?).await?;
    in_guest(&mut launcher, READY).await?;
    launcher.client.soft_reboot(Empty {}).await?;
    ensure!(ends(&mut launcher).await? == End::Rebooted);
    Ok(())
}

async fn a_watchdog_that_is_not_fed_bites() -> Result<()> {
    let mut launcher = Launcher::start("watchdog").await?;
    let watchdog = json!({ "devices": { "watchdog": { "name": "dog", "i6300esb": { "action": "poweroff" } } } });
    launcher.boot(&demo("watchdog", &watchdog)?).await?;
    // Opened, given two seconds, and never written to again.
    in_guest(&mut launcher, "watchdog -T 2 -t 600 /dev/watchdog").await?;
    ensure!(ends(&mut launcher).await? == End::PoweredOff);
    ensure!(qemus("watchdog").is_empty());
    Ok(())
}

async fn a_killed_qemu_is_told_and_a_killed_launcher_takes_it_along() -> Result<()> {
    let mut launcher = Launcher::start("killed").await?;
    launcher.boot(&demo("killed", &json!({}))?).await?;
    let pids = qemus("killed");
    ensure!(pids.len() == 1, "{pids:?}");
    e2e::output(std::process::Command::new("kill").args(["-KILL", &pids[0].to_string()]))?;
    ensure!(ends(&mut launcher).await? == End::KilledFromOutside);

    let mut launcher = Launcher::start("orphaned").await?;
    launcher.boot(&demo("orphaned", &json!({}))?).await?;
    ensure!(qemus("orphaned").len() == 1);
    launcher.signal("KILL")?;
    launcher.process.wait()?;
    // The kernel kills it with its parent; it is seen until it is gone.
    until("QEMU does not outlive its launcher", || qemus("orphaned").is_empty());
    Ok(())
}

async fn a_sigterm_shuts_the_guest_down_before_the_launcher_ends() -> Result<()> {
    let mut launcher = Launcher::start("term").await?;
    launcher.boot(&demo("term", &json!({}))?).await?;
    in_guest(&mut launcher, READY).await?;
    launcher.signal("TERM")?;
    ensure!(ends(&mut launcher).await? == End::PoweredOff);
    let status = launcher.process.wait()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

async fn an_out_of_memory_kill_is_told_as_such() -> Result<()> {
    let group = Limited::new(&format!("orlop-test-{}", std::process::id()), 300 << 20)?;
    let mut launcher = Launcher::start("memory").await?;
    group.take(launcher.process.id())?;
    let mut vmi = demo("memory", &json!({}))?;
    vmi["spec"]["domain"]["memory"]["guest"] = "768Mi".into();
    launcher.boot(&vmi).await?;
    in_guest(&mut launcher, READY).await?;
    // The guest has the memory, its group does not. The agent may be gone before it can answer.
    let arguments = vec!["-c".to_owned(), "dd if=/dev/urandom of=/run/fill bs=1M count=500".to_owned()];
    let _ = launcher.client.exec(ExecRequest { command: "/bin/sh".into(), arguments, timeout_ms: Some(60_000) }).await;
    ensure!(ends(&mut launcher).await? == End::OutOfMemory);
    ensure!(launcher.process.try_wait()?.is_none(), "the launcher lives on to tell it");
    drop(launcher);
    Ok(())
}
