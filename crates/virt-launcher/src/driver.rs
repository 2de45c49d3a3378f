//! The driver: one task that owns a guest from its start to its end.
//!
//! Requests, events and timers only enqueue; the driver takes them one at a time, asks the [`Lifecycle`], and carries its
//! actions out before it looks at the next.

mod errors;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use hypervisor::accelerator::Accelerator;
use hypervisor::agent::{Agent, commands as agent_commands};
use hypervisor::guest::Guest;
use hypervisor::qmp::{Event, Events, Qmp, QmpError, commands};
use hypervisor::render::{AGENT_PORT, CommandLine};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::domain::{Domain, End, Exit, State};
use crate::lifecycle::{Action, Lifecycle, Request, Told};
use crate::model;
use crate::out_of_memory;
pub use crate::start::StartError;
use crate::start::{Bound, Ready};
use errors::ActError;
pub use errors::RequestError;

/// Requests that wait for the driver. A handful of callers each have one request under way.
const WAITING: usize = 64;

/// How long QEMU may take to end after it has closed its monitor, which is about the last thing it does.
const HANG_UP: Duration = Duration::from_secs(5);

/// What KVM cannot run shows within this time: firmware, boot loader and kernel are over by then.
const TRIAL: Duration = Duration::from_secs(60);
/// The state in which QEMU leaves a guest that it cannot run any further.
const INTERNAL_ERROR: &str = "internal-error";

/// Everything that is needed to start a guest.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program that becomes QEMU; see [`hypervisor::process::guarded`].
    pub this: PathBuf,
    /// QEMU itself.
    pub qemu: PathBuf,
    /// What the guest will see.
    pub guest: Guest,
    /// How to run it.
    pub line: CommandLine,
    /// What runs its instructions.
    pub accelerator: Accelerator,
    /// The guest's own directory, where its sockets are.
    pub runtime: PathBuf,
    /// Where the guest comes from.
    pub origin: Origin,
}

/// Where a guest comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// It boots.
    Boot {
        /// Not before somebody unpauses it.
        paused: bool,
    },
    /// Its state comes from another launcher.
    Arrival { from: String },
}

/// The channel to a guest's agent, for one question at a time.
pub type SharedAgent = Arc<Mutex<Agent<UnixStream>>>;

/// What everyone but the driver holds of a guest; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: mpsc::Sender<Call>,
    domain: watch::Receiver<Domain>,
    /// QEMU's process.
    pub pid: u32,
    /// QEMU's monitor, for questions that change nothing.
    pub qmp: Qmp,
    /// The guest agent.
    pub agent: SharedAgent,
    /// What the guest sees, now and after every change.
    pub guest: watch::Sender<Arc<Guest>>,
    /// Counts the devices that the guest has let go of.
    departures: watch::Receiver<u64>,
}

#[derive(Debug)]
struct Call {
    request: Request,
    reply: oneshot::Sender<Result<(), RequestError>>,
}

impl Handle {
    /// Asks for something and waits until it is done or denied.
    ///
    /// # Errors
    /// When the guest is in no state for it, or QEMU does not do it.
    pub async fn request(&self, request: Request) -> Result<(), RequestError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Call { request, reply }).await.map_err(|_| RequestError::Gone)?;
        answer.await.map_err(|_| RequestError::Gone)?
    }

    /// The guest, now and after every change.
    #[must_use]
    pub fn domain(&self) -> watch::Receiver<Domain> {
        self.domain.clone()
    }

    /// Told whenever the guest has let go of a device.
    pub(crate) fn departures(&self) -> watch::Receiver<u64> {
        self.departures.clone()
    }

    /// Waits for the end.
    pub async fn ended(&self) -> End {
        let mut domain = self.domain.clone();
        loop {
            if let State::Ended(end) = &domain.borrow_and_update().state {
                return end.clone();
            }
            if domain.changed().await.is_err() {
                return End::KilledFromOutside;
            }
        }
    }
}

/// Starts QEMU and the driver that owns it, on the calling thread's runtime.
///
/// # Assumptions
/// The calling thread lives as long as the process: QEMU is killed when that thread ends.
///
/// # Errors
/// When QEMU does not come up; then nothing is left of it.
pub async fn launch(launch: &Launch) -> Result<Handle, StartError> {
    let Launch { this, qemu, guest, line, accelerator, runtime, origin } = launch;
    let up = Bound::bind(runtime)?.spawn(this, qemu, line)?.connect().await?;
    // Kept before it runs: whatever it sees from now on is written down.
    let guest = model::settle(guest.clone(), &up.qmp).await.map_err(StartError::Monitor)?;
    model::store(runtime, &guest)?;
    let ready = match origin {
        Origin::Boot { paused } => up.boots(*paused),
        Origin::Arrival { from } => up.arrives(from).await?,
    };
    let Ready { qmp, events, agent, child, words, lifecycle } = ready;
    let (requests, calls) = mpsc::channel(WAITING);
    let (publish, domain) = watch::channel(lifecycle.domain().clone());
    let (departed, departures) = watch::channel(0);
    let agent = Arc::new(Mutex::new(Agent::new(agent)));
    let pid = child.id().unwrap_or_default();
    let guest = watch::Sender::new(Arc::new(guest));
    let handle = Handle { requests, domain, pid, qmp: qmp.clone(), agent: agent.clone(), guest, departures };
    let mut driver = Driver {
        lifecycle,
        runtime: runtime.clone(),
        qmp,
        agent,
        publish,
        departed,
        presses: 0,
        oom_kills: out_of_memory::kills(),
        trial: (*accelerator == Accelerator::Kvm).then(|| Instant::now() + TRIAL),
    };
    let actions = driver.lifecycle.up();
    driver.act(&actions).await?;
    tracing::info!(pid, ?origin, "QEMU has started");
    tokio::spawn(driver.run(events, calls, child, words));
    Ok(handle)
}

struct Driver {
    lifecycle: Lifecycle,
    /// Where the grant is kept.
    runtime: PathBuf,
    qmp: Qmp,
    agent: SharedAgent,
    publish: watch::Sender<Domain>,
    departed: watch::Sender<u64>,
    /// How often the guest was asked to power off.
    presses: u32,
    /// Out-of-memory kills before this guest.
    oom_kills: u64,
    /// Until when a failure speaks against KVM, if the guest has it.
    trial: Option<Instant>,
}

impl Driver {
    async fn run(
        mut self,
        mut events: Events,
        mut calls: mpsc::Receiver<Call>,
        mut child: Child,
        words: JoinHandle<String>,
    ) {
        // Set when the monitor has hung up: until when QEMU may take to end.
        let mut lost = None;
        let status = loop {
            let due = self.lifecycle.due();
            tokio::select! {
                biased;
                // Events first: a request is judged by what QEMU has told already. The end comes last, so that the
                // event that explains it has been seen.
                event = events.next(), if lost.is_none() => match event {
                    Some(event) => {
                        if event.name == "DEVICE_DELETED" {
                            self.departed.send_modify(|count| *count += 1);
                        }
                        let told = self.told(&event).await;
                        let actions = told.map(|told| self.lifecycle.told(told)).unwrap_or_default();
                        if let Err(error) = self.act_with(&actions, &mut child).await {
                            tracing::error!(%error, "QEMU did not follow");
                        }
                    }
                    None => lost = Some(Instant::now() + HANG_UP),
                },
                () = sleep_until(lost), if lost.is_some() => {
                    // A guest that nobody can steer any more must not run on.
                    tracing::error!("QEMU has closed its monitor but keeps running; killing it");
                    lost = Some(Instant::now() + HANG_UP);
                    if let Err(error) = child.start_kill() {
                        tracing::debug!(%error, "kill QEMU");
                    }
                }
                Some(Call { request, reply }) = calls.recv() => {
                    let result = match self.lifecycle.request(&request, Instant::now()) {
                        Ok(actions) => self.act_with(&actions, &mut child).await.map_err(RequestError::from),
                        Err(denied) => Err(denied.into()),
                    };
                    // The caller may have gone away; the request is carried out all the same.
                    let _ = reply.send(result);
                }
                () = sleep_until(due) => {
                    let actions = self.lifecycle.tick(Instant::now());
                    if let Err(error) = self.act_with(&actions, &mut child).await {
                        tracing::warn!(%error, "cannot ask QEMU to shut the guest down; it will be killed");
                    }
                }
                status = child.wait() => break status,
            }
        };
        // What QEMU told before it ended may still be on its way.
        while let Some(event) = events.next().await {
            let actions = told(&event).map(|told| self.lifecycle.told(told)).unwrap_or_default();
            self.act_or_log(&actions).await;
        }
        let exit = exit(status.ok(), words.await.unwrap_or_default(), out_of_memory::kills() > self.oom_kills);
        let actions = self.lifecycle.exited(&exit);
        self.act_or_log(&actions).await;
        match &self.lifecycle.domain().state {
            State::Ended(end) if end.is_success() || *end == End::Killed => tracing::info!(%end, "QEMU has ended"),
            State::Ended(end) => tracing::warn!(%end, "QEMU has ended"),
            other => tracing::error!(state = ?other, "QEMU has ended with an unknown exit status"),
        }
    }

    /// What an event means. That the guest was stopped is told without the reason, which QEMU is asked for.
    async fn told(&self, event: &Event) -> Option<Told> {
        let told = told(event)?;
        if told == Told::Stopped
            && let Ok(status) = self.qmp.execute(commands::QueryStatus {}).await
            && status.status == INTERNAL_ERROR
        {
            return Some(Told::InternalError { kvm_is_suspect: self.trial.is_some_and(|end| Instant::now() < end) });
        }
        Some(told)
    }

    async fn act_or_log(&mut self, actions: &[Action]) {
        if let Err(error) = self.act(actions).await {
            tracing::error!(%error, "QEMU did not follow");
        }
    }

    /// Carries out actions, with the process at hand for a kill.
    async fn act_with(&mut self, actions: &[Action], child: &mut Child) -> Result<(), ActError> {
        if actions.contains(&Action::Kill)
            && let Err(error) = child.start_kill()
        {
            // It has ended by itself; its end is on the way.
            tracing::debug!(%error, "kill QEMU");
        }
        self.act(actions).await
    }

    async fn act(&mut self, actions: &[Action]) -> Result<(), ActError> {
        for action in actions {
            match action {
                Action::Keep(grant) => grant.store(&self.runtime)?,
                Action::Continue => drop(self.qmp.execute(commands::Continue {}).await?),
                Action::Stop => drop(self.qmp.execute(commands::Stop {}).await?),
                Action::Reset => drop(self.qmp.execute(commands::Reset {}).await?),
                Action::PressPower => self.press_power().await?,
                Action::Kill => tracing::info!("killed QEMU"),
                Action::Publish => self.publish(),
            }
        }
        Ok(())
    }

    /// Tells everyone how the guest is, and the log where it went.
    fn publish(&self) {
        let now = self.lifecycle.domain().clone();
        let state = now.state.clone();
        let before = self.publish.send_replace(now);
        if before.state != state && !matches!(state, State::Ended(_)) {
            tracing::info!(state = ?state, "the guest's state changed");
        }
    }

    /// Asks the agent if there is one, which works in guests that ignore the button; else, and from the second time
    /// on, presses the button.
    async fn press_power(&mut self) -> Result<(), QmpError> {
        self.presses += 1;
        if self.lifecycle.domain().agent_connected && self.presses == 1 {
            let agent = self.agent.clone();
            let qmp = self.qmp.clone();
            // An agent may take its time to fail; the driver does not wait for it.
            tokio::spawn(async move {
                let shutdown = agent_commands::Shutdown { mode: "powerdown" };
                let sent = agent.lock().await.send(shutdown).await;
                if let Err(error) = sent {
                    tracing::warn!(%error, "the guest agent did not shut the guest down; pressing the power button");
                    let _ = qmp.execute(commands::PowerDown {}).await;
                }
            });
            return Ok(());
        }
        self.qmp.execute(commands::PowerDown {}).await.map(drop)
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// What an event means for the guest's life; most mean nothing.
fn told(event: &Event) -> Option<Told> {
    tracing::debug!(event = event.name, data = %event.data, "QEMU wrote");
    let text = |key: &str| event.data[key].as_str().unwrap_or_default().to_owned();
    match event.name.as_str() {
        "RESUME" => Some(Told::Resumed),
        "STOP" => Some(Told::Stopped),
        "RESET" => Some(Told::Reset),
        "GUEST_PANICKED" => Some(Told::Panicked),
        "SHUTDOWN" => Some(Told::Shutdown(text("reason"))),
        "BLOCK_IO_ERROR" if text("action") == "stop" => Some(Told::IoError),
        "MIGRATION" if text("status") == "completed" => Some(Told::Migrated),
        "VSERPORT_CHANGE" if text("id") == AGENT_PORT => Some(Told::Agent(event.data["open"] == true)),
        _ => None,
    }
}

fn exit(status: Option<ExitStatus>, words: String, out_of_memory: bool) -> Exit {
    Exit {
        code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        words,
        out_of_memory,
    }
}
