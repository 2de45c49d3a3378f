//! The driver: one task that owns a guest from its start to its end.
//!
//! Requests, events and timers only enqueue; the driver takes them one at a time and asks the [`Lifecycle`]. It writes down and tells
//! what comes of it; what QEMU is to do, another task asks of it, in the same order (`driver/hands.rs`). So a QEMU that is slow to
//! answer holds nothing up.

mod errors;
mod handle;
mod hands;
mod io_error;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use hypervisor::accelerator::Accelerator;
use hypervisor::agent::Agent;
use hypervisor::guest::Guest;
use hypervisor::qmp::commands::Status;
use hypervisor::qmp::{Event, Events};
use hypervisor::render::{AGENT_PORT, CommandLine};
use tokio::process::Child;
use tokio::sync::{Mutex, broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::domain::{Domain, End, Exit, State};
use crate::grant;
use crate::lifecycle::{Action, Lifecycle, Told};
use crate::migrate::target::Export;
use crate::model;
use crate::out_of_memory;
pub use crate::start::StartError;
use crate::start::{Bound, Ready};
pub use errors::RequestError;
use handle::Call;
pub use handle::{Handle, SharedAgent};
use hands::{Hands, Order};

/// Requests that wait for the driver. A handful of callers each have one request under way.
const WAITING: usize = 64;

/// How long QEMU may take to end after it has closed its monitor, which is about the last thing it does.
const HANG_UP: Duration = Duration::from_secs(5);

/// What KVM cannot run shows within this time: firmware, boot loader and kernel are over by then.
const TRIAL: Duration = Duration::from_secs(60);
/// The state in which QEMU leaves a guest that it cannot run any further.
const INTERNAL_ERROR: &str = "internal-error";
/// The states in which QEMU has a guest that it stopped to send the last of it.
const PARTING: [&str; 2] = ["finish-migrate", "postmigrate"];
/// Events that wait for those who follow them besides the driver.
const FOLLOWED: usize = 256;

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
    Boot {
        /// Not before somebody unpauses it.
        paused: bool,
    },
    /// Its state comes from another launcher.
    Arrival {
        /// The migration that brings it.
        from: String,
        /// The disks that come with it.
        exports: Vec<Export>,
    },
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
    // Kept before it runs: whatever it sees from now on is written down. What comes from elsewhere was settled there.
    let guest = match origin {
        Origin::Boot { .. } => model::settle(guest.clone(), &up.qmp).await.map_err(StartError::Monitor)?,
        Origin::Arrival { .. } => {
            if !model::has_its_cpu(guest, &up.qmp).await.map_err(StartError::Monitor)? {
                return Err(StartError::Cpu(guest.cpu.model.clone()));
            }
            guest.clone()
        }
    };
    model::store(runtime, &guest)?;
    let has_exports = matches!(origin, Origin::Arrival { exports, .. } if !exports.is_empty());
    let ready = match origin {
        Origin::Boot { paused } => up.boots(*paused),
        Origin::Arrival { from, exports } => up.arrives(from, runtime, exports).await?,
    };
    let Ready { qmp, events, agent, child, words, lifecycle } = ready;
    let (requests, calls) = mpsc::channel(WAITING);
    let (publish, domain) = watch::channel(lifecycle.domain().clone());
    let (departed, departures) = watch::channel(0);
    let (aborted, aborts) = watch::channel(0);
    let (followed, _) = broadcast::channel(FOLLOWED);
    let agent = Arc::new(Mutex::new(Agent::new(agent)));
    let pid = child.id().unwrap_or_default();
    let guest = watch::Sender::new(Arc::new(guest));
    let mut hands = Hands { qmp: qmp.clone(), agent: agent.clone(), domain: domain.clone(), presses: 0, has_exports };
    let seen = guest.subscribe();
    let (orders, ordered) = mpsc::unbounded_channel();
    let (stopped, reasons) = mpsc::channel(WAITING);
    let handle = Handle { requests, domain, pid, qmp, agent, guest, departures, events: followed.clone(), aborts };
    let mut driver = Driver {
        lifecycle,
        guest: seen,
        runtime: runtime.clone(),
        orders,
        publish,
        departed,
        aborted,
        followed,
        oom_kills: out_of_memory::kills(),
        trial: trial(*accelerator, Instant::now()),
    };
    // A start that fails here has left nothing behind.
    let actions = driver.lifecycle.up();
    let rest = driver.keep_and_tell(&actions)?;
    hands.act(&rest).await.map_err(StartError::Monitor)?;
    tracing::info!(pid, ?origin, "QEMU has started");
    tokio::spawn(hands.run(ordered, stopped));
    tokio::spawn(driver.run(Inputs { events, calls, reasons }, child, words));
    Ok(handle)
}

/// Everything that wakes the driver besides time and the end.
struct Inputs {
    events: Events,
    calls: mpsc::Receiver<Call>,
    /// Why the guest is stopped.
    reasons: mpsc::Receiver<Status>,
}

struct Driver {
    lifecycle: Lifecycle,
    guest: watch::Receiver<Arc<Guest>>,
    /// Where the grant is kept.
    runtime: PathBuf,
    orders: mpsc::UnboundedSender<Order>,
    publish: watch::Sender<Domain>,
    departed: watch::Sender<u64>,
    aborted: watch::Sender<u64>,
    followed: broadcast::Sender<Event>,
    /// Out-of-memory kills before this guest.
    oom_kills: u64,
    /// Until when a failure speaks against KVM, if the guest has it.
    trial: Option<Instant>,
}

impl Driver {
    async fn run(mut self, mut inputs: Inputs, mut child: Child, words: JoinHandle<String>) {
        // Set when the monitor has hung up: until when QEMU may take to end.
        let mut lost = None;
        let status = loop {
            let due = self.lifecycle.due();
            tokio::select! {
                biased;
                // Events first: a request is judged by what QEMU has told already. The end comes last, so that the
                // event that explains it has been seen.
                event = inputs.events.next(), if lost.is_none() => match event {
                    Some(event) => self.hear(event, &mut child),
                    None => lost = Some(Instant::now() + HANG_UP),
                },
                Some(status) = inputs.reasons.recv() => {
                    if let Some(told) = self.why(&status) {
                        self.tell(told, &mut child);
                    }
                }
                () = sleep_until(lost), if lost.is_some() => {
                    // A guest that nobody can steer any more must not run on.
                    tracing::error!("QEMU has closed its monitor but keeps running; killing it");
                    lost = Some(Instant::now() + HANG_UP);
                    if let Err(error) = child.start_kill() {
                        tracing::debug!(%error, "kill QEMU");
                    }
                }
                Some(Call { request, reply }) = inputs.calls.recv() => {
                    let before = self.lifecycle.clone();
                    match self.lifecycle.request(&request, Instant::now()) {
                        Ok(actions) => self.act((before, None), &actions, &mut child, Some(reply)),
                        // The caller may have gone away.
                        Err(denied) => drop(reply.send(Err(denied.into()))),
                    }
                }
                () = sleep_until(due) => {
                    let before = self.lifecycle.clone();
                    let actions = self.lifecycle.tick(Instant::now());
                    self.act((before, None), &actions, &mut child, None);
                }
                status = child.wait() => break status,
            }
        };
        // What QEMU told before it ended may still be on its way.
        while let Some(event) = inputs.events.next().await {
            self.hear(event, &mut child);
        }
        let exit = exit(status.ok(), words.await.unwrap_or_default(), out_of_memory::kills() > self.oom_kills);
        let before = self.lifecycle.clone();
        let actions = self.lifecycle.exited(&exit);
        self.act((before, None), &actions, &mut child, None);
        match &self.lifecycle.domain().state {
            State::Ended(end) if end.is_success() || *end == End::Killed => tracing::info!(%end, "QEMU has ended"),
            State::Ended(end) => tracing::warn!(%end, "QEMU has ended"),
            other => tracing::error!(state = ?other, "QEMU has ended with an unknown exit status"),
        }
    }

    /// Does what follows from an event. Whoever follows events besides the driver hears of it afterwards.
    fn hear(&mut self, event: Event, child: &mut Child) {
        if event.name == "DEVICE_DELETED" {
            self.departed.send_modify(|count| *count += 1);
        }
        let heard = told(&event, &self.guest.borrow());
        match heard {
            // It has powered off, and starts again.
            Some(Told::Stopped) if self.lifecycle.is_held() => {}
            // Without the reason, which QEMU is asked for. Hands that are gone have a QEMU that is gone.
            Some(Told::Stopped) => drop(self.orders.send(Order::AskWhy)),
            Some(told) => self.tell(told, child),
            None => {}
        }
        // Nobody may follow.
        let _ = self.followed.send(event);
    }

    /// Does what follows from what QEMU told.
    fn tell(&mut self, told: Told, child: &mut Child) {
        let before = self.lifecycle.clone();
        let actions = self.lifecycle.told(told.clone());
        self.act((before, Some(told)), &actions, child, None);
    }

    /// Why the guest is stopped. If it runs again by now, that was told or will be.
    fn why(&self, status: &Status) -> Option<Told> {
        match status.status.as_str() {
            _ if status.running => None,
            INTERNAL_ERROR => Some(Told::InternalError { kvm_is_suspect: is_on_trial(self.trial, Instant::now()) }),
            parting if PARTING.contains(&parting) => Some(Told::StoppedToPart),
            _ => Some(Told::Stopped),
        }
    }

    /// Carries actions out, in order. Whoever waits is told when all are done. If who may write cannot be written down, it is all
    /// as it was before what led to them.
    fn act(
        &mut self,
        (before, told): (Lifecycle, Option<Told>),
        actions: &[Action],
        child: &mut Child,
        reply: Option<oneshot::Sender<Result<(), RequestError>>>,
    ) {
        let rest = match self.keep_and_tell(actions) {
            Ok(rest) => rest,
            Err(error) => {
                tracing::error!(%error, "cannot write down who may write to the guest's disks");
                self.lifecycle.unkept(before, told, Instant::now());
                if let Some(reply) = reply {
                    // The caller may have gone away.
                    let _ = reply.send(Err(error.into()));
                }
                return;
            }
        };
        if actions.contains(&Action::Kill) {
            tracing::info!("killed QEMU");
            if let Err(error) = child.start_kill() {
                // It has ended by itself; its end is on the way.
                tracing::debug!(%error, "kill QEMU");
            }
        }
        if rest.is_empty() {
            if let Some(reply) = reply {
                let _ = reply.send(Ok(()));
            }
            return;
        }
        // A reply that is dropped says that QEMU is gone.
        let _ = self.orders.send(Order::Act { actions: rest, reply });
    }

    /// Does what needs no QEMU, and tells the rest. If who may write cannot be written down, nothing that follows is done.
    fn keep_and_tell(&mut self, actions: &[Action]) -> Result<Vec<Action>, grant::StoreError> {
        let mut rest = Vec::new();
        for action in actions {
            match action {
                Action::Keep(grant) => grant.store(&self.runtime)?,
                Action::Publish => self.publish(),
                Action::Abort => self.aborted.send_modify(|count| *count += 1),
                Action::Kill => {}
                Action::Continue
                | Action::Stop
                | Action::Reset
                | Action::PressPower
                | Action::PowerCycle
                | Action::LetPowerOff
                | Action::StopExports
                | Action::SetClock => rest.push(action.clone()),
            }
        }
        Ok(rest)
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
}

/// Until when KVM is what a guest stops by, if it does.
fn trial(accelerator: Accelerator, start: Instant) -> Option<Instant> {
    (accelerator == Accelerator::Kvm).then(|| start + TRIAL)
}

fn is_on_trial(end: Option<Instant>, now: Instant) -> bool {
    end.is_some_and(|end| now < end)
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// What an event means for the guest's life; most mean nothing.
fn told(event: &Event, guest: &Guest) -> Option<Told> {
    tracing::debug!(event = event.name, data = %event.data, "QEMU wrote");
    let text = |key: &str| event.data[key].as_str().unwrap_or_default().to_owned();
    match event.name.as_str() {
        "RESUME" => Some(Told::Resumed),
        "STOP" => Some(Told::Stopped),
        "RESET" => Some(Told::Reset),
        "GUEST_PANICKED" => Some(Told::Panicked),
        "SHUTDOWN" => Some(Told::Shutdown(text("reason"))),
        "BLOCK_IO_ERROR" if text("action") == "stop" => Some(Told::IoError(io_error::words(&event.data, guest))),
        "MIGRATION" => match text("status").as_str() {
            "completed" => Some(Told::Migrated),
            "failed" | "cancelled" => Some(Told::NotMigrated),
            _ => None,
        },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_stops_within_its_first_minute_makes_kvm_suspect_and_later_it_does_not() {
        let start = Instant::now();
        let suspects = |accelerator, after| is_on_trial(trial(accelerator, start), start + Duration::from_secs(after));
        assert!(suspects(Accelerator::Kvm, 0) && suspects(Accelerator::Kvm, 59));
        assert!(!suspects(Accelerator::Kvm, 60));
        assert!(!suspects(Accelerator::Tcg, 0));
    }
}
