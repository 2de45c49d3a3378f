//! Two launchers, and the connection between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use hypervisor::accelerator::Choice;
use hypervisor::guest::Guest;
use hypervisor::process::{GUARD, exec_guarded};
use launcher_api::Outcome;
use launcher_api::client::{self, Client};
use launcher_api::names;
use launcher_api::rpc::{
    Course, Domain, Empty, End, ExecRequest, Incoming, MigrateRequest, Migration, MigrationLimits, State, SyncRequest,
};
use serde_json::{Value, json};
use storage::cache::Cache;
use storage::pull::{Limits, Registries};
use tempfile::TempDir;
use testkit::waiting::eventually;
use tokio::io::{AsyncWriteExt as _, copy, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::{Response, Status};
use virt_launcher::boot::Workbench;
use virt_launcher::server::Service;
use virt_launcher::volumes::VolumePaths;

/// The migration.
pub(crate) const UID: &str = "the-migration";
/// So slow that a guest stays under way.
pub(crate) const SLOW: MigrationLimits = MigrationLimits {
    bandwidth: 5_000,
    downtime_ms: 1,
    progress_timeout_ms: 0,
    timeout_per_gigabyte_ms: 0,
    auto_converge: false,
    may_disrupt: false,
};
/// Where a launcher makes disks, in its directory.
const DISKS: &str = "disks";
/// Starts a launcher that has little room for disks. Nobody else sees the mount.
const WITH_LITTLE_ROOM: &str =
    r#"mkdir "$2/disks" && mount -t tmpfs -o size=8m none "$2/disks" && exec "$0" "$1" "$2""#;
const SERVE: &str = "serve-a-launcher";
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
const EXEC_MS: u64 = 300_000;

/// Runs what this program is asked to be besides a test, if anything.
pub(crate) fn launcher_program() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    let rest: Vec<_> = arguments.collect();
    if first == GUARD {
        let parent = rest.first()?.to_str()?.parse().ok()?;
        let error = exec_guarded(parent, rest.get(1)?, rest.get(2..)?);
        return Some(failed(&error));
    }
    if first != SERVE {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    // On the main thread, with which QEMU ends.
    let served = runtime.block_on(serve(Path::new(rest.first()?), rest.get(1).map(PathBuf::from)));
    Some(served.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS))
}

#[expect(clippy::print_stderr, reason = "whoever runs the test reads why its launcher failed")]
fn failed(error: &dyn std::fmt::Debug) -> ExitCode {
    eprintln!("{error:?}");
    ExitCode::FAILURE
}

async fn serve(folder: &Path, claim: Option<PathBuf>) -> Result<()> {
    let cache = folder.join("cache");
    std::fs::create_dir_all(folder.join(DISKS))?;
    let workbench = Workbench {
        this: std::env::current_exe()?,
        qemu: hypervisor::programs::qemu(Path::new("qemu-system-x86_64")).context("QEMU")?,
        choice: Choice::Tcg,
        findings: cache.clone(),
        folder: folder.to_owned(),
        disks: folder.join(DISKS),
        firmware: None,
        places: VolumePaths {
            claims: claim.map(|path| ("shared".to_owned(), path)).into_iter().collect(),
            ..VolumePaths::default()
        },
        cache: Cache::open(&cache.join("images"), Limits::default())?,
        registries: Registries::default(),
        progress: Box::new(()),
    };
    let service = Service::new(workbench, None, Box::new(|_| Ok(BTreeMap::new())));
    let listener = UnixListener::bind(folder.join("starting"))?;
    // It has its name when it accepts.
    std::fs::rename(folder.join("starting"), folder.join("socket"))?;
    service.serve(listener).await?;
    Ok(())
}

/// The instance, and the disk that both launchers reach.
pub(crate) struct Scene {
    vmi: Value,
    claim: Option<PathBuf>,
}

fn scene(volumes: &Value, disks: &Value, claim: Option<&Path>) -> Scene {
    let devices = json!({ "disks": disks, "rng": {} });
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "moving", "namespace": "default", "uid": "uid-of-moving" },
        "spec": {
            "domain": { "memory": { "guest": "256Mi" }, "devices": devices },
            "volumes": volumes,
        },
    });
    Scene { vmi, claim: claim.map(Path::to_owned) }
}

/// A guest without disks, which stays in its firmware.
pub(crate) fn bare() -> Scene {
    scene(&json!([]), &json!([]), None)
}

/// The demo guest on a disk that both launchers reach.
pub(crate) fn shared(disk: &Path) -> Scene {
    let volumes = json!([{ "name": "root", "persistentVolumeClaim": { "claimName": "shared" } }]);
    scene(&volumes, &json!([{ "name": "root", "disk": { "bus": "virtio" } }]), Some(disk))
}

/// The demo guest on disks that each pod makes for itself.
pub(crate) fn local() -> Result<Scene> {
    let image = format!("oci:{}:demo", guest()?.join("oci").display());
    let volumes = json!([
        { "name": "root", "containerDisk": { "image": image } },
        { "name": "empty", "emptyDisk": { "capacity": "64Mi" } },
    ]);
    let disks =
        json!([{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "empty", "disk": { "bus": "virtio" } }]);
    Ok(scene(&volumes, &disks, None))
}

fn guest() -> Result<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/build");
    let built = Command::new(build).output()?;
    ensure!(built.status.success(), "build the guest: {}", String::from_utf8_lossy(&built.stderr));
    Ok(PathBuf::from(String::from_utf8(built.stdout)?.trim()))
}

/// A disk of its own with the demo guest.
pub(crate) fn disk_with_a_guest() -> Result<tempfile::NamedTempFile> {
    let disk = tempfile::NamedTempFile::new()?;
    let from = guest()?.join("disk.qcow2");
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", "qcow2", "-O", "raw"]).arg(from).arg(disk.path());
    ensure!(convert.status()?.success(), "convert the guest's disk");
    Ok(disk)
}

/// Whether disks fit into where a launcher makes them.
#[derive(Clone, Copy)]
pub(crate) enum Room {
    Enough,
    Little,
}

/// A launcher process.
pub(crate) struct Launcher {
    pub(crate) client: Client,
    events: watch::Receiver<Vec<Domain>>,
    process: Child,
    folder: TempDir,
}

impl Launcher {
    async fn start(scene: &Scene, room: Room) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let this = std::env::current_exe()?;
        let mut command = match room {
            Room::Enough => Command::new(this),
            Room::Little => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", WITH_LITTLE_ROOM]).arg(this);
                command
            }
        };
        let process = command.arg(SERVE).arg(folder.path()).args(&scene.claim).spawn()?;
        let socket = folder.path().join("socket");
        eventually("the launcher listens", async || socket.exists().then_some(())).await;
        let mut client = client::connect(&socket).await?;
        let mut stream = client.watch(Empty {}).await?.into_inner();
        let (sender, events) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok(Some(domain)) = stream.message().await {
                sender.send_modify(|events| events.push(domain));
            }
        });
        Ok(Self { client, events, process, folder })
    }

    async fn sync(&mut self, scene: &Scene, incoming: Option<Incoming>) -> Result<()> {
        let outcome = self.try_sync(scene, incoming).await;
        ensure!(outcome == Outcome::Done, "{outcome}");
        Ok(())
    }

    async fn try_sync(&mut self, scene: &Scene, incoming: Option<Incoming>) -> Outcome {
        let instance = scene.vmi.to_string().into_bytes();
        outcome(&self.client.sync(SyncRequest { instance, incoming, ..SyncRequest::default() }).await)
    }

    /// Waits for a state of which this is true.
    pub(crate) async fn reaches(&mut self, what: &str, reached: impl Fn(&Domain) -> bool) -> Result<Domain> {
        let found = |events: &[Domain]| events.iter().rfind(|domain| reached(domain)).cloned();
        let mut events = self.events.clone();
        let waiting = events.wait_for(|events| found(events).is_some());
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(Ok(events)) => found(&events).context("the state is gone"),
            Ok(Err(_)) => bail!("the launcher ended before {what}: {:?}", self.events.borrow().last()),
            Err(_) => bail!("{what} did not come, but {:?}", self.events.borrow().last()),
        }
    }

    pub(crate) async fn ends(&mut self) -> Result<End> {
        Ok(self.reaches("its end", |domain| domain.state() == State::Ended).await?.end())
    }

    pub(crate) async fn check_runs(&mut self) -> Result<()> {
        let now = self.client.get_domain(Empty {}).await?.into_inner();
        ensure!(now.state() == State::Running, "{now:?}");
        Ok(())
    }

    /// What a command in the guest says.
    pub(crate) async fn in_guest(&mut self, command: &str) -> Result<String> {
        self.reaches("the guest agent", |domain| domain.agent_connected).await?;
        let arguments = vec!["-c".to_owned(), command.to_owned()];
        let exec = ExecRequest { command: "/bin/sh".into(), arguments, timeout_ms: Some(EXEC_MS) };
        let said = self.client.exec(exec).await?.into_inner();
        ensure!(said.exit_code == 0, "{command}: {}", String::from_utf8_lossy(&said.stderr));
        Ok(String::from_utf8(said.stdout)?)
    }

    /// The guest's clock is the machine's, or will be: its agent sets it when it is asked to.
    pub(crate) async fn clock_is_right(&mut self) -> Result<()> {
        let machine = || -> Result<u64> {
            Ok(String::from_utf8(Command::new("date").arg("+%s").output()?.stdout)?.trim().parse()?)
        };
        let mut seen = 0;
        for _ in 0..200 {
            let before = machine()?;
            seen = self.in_guest("date +%s").await?.trim().parse()?;
            if (before.saturating_sub(1)..=machine()? + 1).contains(&seen) {
                return Ok(());
            }
        }
        bail!("the guest's clock is {seen}, the machine's {}", machine()?)
    }

    /// A file of its guest's own directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Kills the process, and QEMU with it.
    pub(crate) fn die(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What becomes of the target's answers on the way back.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answers {
    Pass,
    /// They never arrive: the source cannot know that everything did.
    Hold,
}

/// The connections of one migration, which break when this is dropped.
pub(crate) struct Carrying(Vec<AbortHandle>);

impl Drop for Carrying {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// What a launcher says to a guest that is to come to it, of an instance without disks.
pub(crate) async fn offer(guest: &Guest) -> Result<Outcome> {
    let scene = bare();
    let mut launcher = Launcher::start(&scene, Room::Enough).await?;
    let incoming = Incoming { migration: UID.to_owned(), guest: guest.to_stored()?.into_bytes() };
    Ok(launcher.try_sync(&scene, Some(incoming)).await)
}

/// A guest that runs, and a launcher that awaits it.
pub(crate) struct Pair {
    pub(crate) source: Launcher,
    pub(crate) target: Launcher,
    pub(crate) request: MigrateRequest,
}

impl Pair {
    pub(crate) async fn start(scene: &Scene) -> Result<Self> {
        Self::start_with(scene, Room::Enough).await
    }

    /// With a target that has so much room for disks.
    pub(crate) async fn start_with(scene: &Scene, room: Room) -> Result<Self> {
        let mut source = Launcher::start(scene, Room::Enough).await?;
        source.sync(scene, None).await?;
        source.reaches("it runs", |domain| domain.state() == State::Running).await?;
        let guest = source.client.get_guest(Empty {}).await?.into_inner().guest;
        let mut target = Launcher::start(scene, room).await?;
        let incoming = Incoming { migration: UID.to_owned(), guest: guest.clone() };
        target.sync(scene, Some(incoming)).await?;
        target.reaches("it waits", |domain| domain.state() == State::Awaiting).await?;
        let disks = target.client.get_local_disks(Empty {}).await?.into_inner().disks;
        let model_digest = Guest::from_stored(&guest)?.digest()?;
        let request = MigrateRequest { uid: UID.to_owned(), model_digest, disks, limits: None };
        Ok(Self { source, target, request })
    }

    /// Sends the guest on its way, and carries its bytes.
    pub(crate) async fn leave(&mut self, limits: MigrationLimits, answers: Answers) -> Result<Carrying> {
        self.request.limits = Some(limits);
        done(self.source.client.migrate(self.request.clone()).await)?;
        let (from, to) = (self.source.folder.path(), self.target.folder.path());
        let copied = self.request.disks.iter().filter(|disk| disk.is_copied);
        let mut channels: Vec<(String, PathBuf, Answers)> = copied
            .map(|disk| (names::disk_channel(&disk.device), to.join(names::DISKS_SOCKET), Answers::Pass))
            .collect();
        channels.push((names::MEMORY_CHANNEL.to_owned(), to.join(names::MEMORY_SOCKET), answers));
        let mut carrying = Carrying(Vec::new());
        for (channel, socket, answers) in channels {
            let mut near = UnixStream::connect(from.join(names::LEAVING_SOCKET)).await?;
            near.write_all(format!("{channel}\n").as_bytes()).await?;
            let far = UnixStream::connect(&socket).await?;
            carrying.0.push(tokio::spawn(carry(near, far, answers)).abort_handle());
        }
        Ok(carrying)
    }
}

async fn carry(mut near: UnixStream, mut far: UnixStream, answers: Answers) {
    match answers {
        // Whichever end breaks first, the other is closed with it.
        Answers::Pass => drop(copy_bidirectional(&mut near, &mut far).await),
        Answers::Hold => {
            let (mut from_near, _to_near) = near.split();
            let (_from_far, mut to_far) = far.split();
            let _ = copy(&mut from_near, &mut to_far).await;
            // Both stay open until somebody breaks the connection.
            std::future::pending::<()>().await;
        }
    }
}

/// What a step of a migration came to.
pub(crate) fn outcome(answer: &Result<Response<Domain>, Status>) -> Outcome {
    Outcome::from_answer(answer.as_ref().map(Response::get_ref))
}

/// The domain after a step that was taken.
pub(crate) fn done(answer: Result<Response<Domain>, Status>) -> Result<Domain> {
    let domain = answer?.into_inner();
    let outcome = Outcome::from_answer(Ok(&domain));
    ensure!(outcome == Outcome::Done, "{outcome}");
    Ok(domain)
}

pub(crate) fn course(domain: &Domain) -> Course {
    domain.migration.as_ref().map_or(Course::Unspecified, Migration::course)
}

pub(crate) fn sent(domain: &Domain) -> u64 {
    domain.migration.as_ref().map_or(0, |migration| migration.sent)
}

pub(crate) fn why(domain: &Domain) -> &str {
    domain.migration.as_ref().map_or("", |migration| migration.why.as_str())
}
