//! The launcher that a guest leaves: sends its disks and memory, and follows QEMU until it has decided.
//!
//! ```text
//! disks equal ──> memory, while the guest runs ──> QEMU stops it ──> copies end ──> part ──> the last of it ──> QEMU decides
//!                          └── too slow: stop it, or give up
//! ```

use std::time::Duration;

use hypervisor::qmp::commands::{
    Migrate, MigrateCancel, MigrateContinue, MigrationInfo, QueryMigrate, SetMigrationCapabilities,
    SetMigrationParameters,
};
use hypervisor::qmp::{Event, QmpError};
use launcher_api::names::MEMORY_CHANNEL;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::lanes::{Lanes, Pump};
use super::mirror::{MirrorError, Mirrors};
use super::pace::{Judgement, Limits, Pace};
use super::target::CAPABILITIES;
use crate::domain::Progress;
use crate::driver::{Handle, RequestError};
use crate::errors::chain;
use crate::lifecycle::Request;

/// How often a migration is looked at.
const LOOK: Duration = Duration::from_millis(400);
/// How long the copies of a guest that is stopped may take to end: they are equal but for what is on its way.
const FINISH: Duration = Duration::from_secs(30);
/// How long it may take to clear up after copies that are of no use any more.
const GIVE_UP: Duration = Duration::from_secs(30);
const LATE_COPIES: &str = "the copies of the guest's disks did not end in time";
/// What slows a guest down that writes faster than its memory is sent.
const AUTO_CONVERGE: &str = "auto-converge";
/// The state in which QEMU waits before the switch.
const BEFORE_SWITCH: &str = "pre-switchover";

/// A guest on its way out.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The UID of the migration.
    pub(crate) migration: String,
    pub(crate) limits: Limits,
    /// The disks that are copied, and whether each stands on images that the other side has.
    pub(crate) disks: Vec<(String, bool)>,
    /// How much there is to copy, in bytes.
    pub(crate) bytes: u64,
    pub(crate) lanes: Lanes,
}

/// Why a guest is not sent.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Qemu(#[from] QmpError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("connect the guest's memory to the target")]
    Lane(#[source] std::io::Error),
    #[error("{0}")]
    GivenUp(String),
    #[error("the migration was cancelled")]
    Cancelled,
    #[error("QEMU has ended")]
    Gone,
}

/// Sends a guest that was told to leave. When this ends, the guest's domain says what came of it.
pub(crate) async fn send(handle: Handle, outgoing: Outgoing) {
    let to = outgoing.migration.clone();
    let (events, mut aborts) = (handle.events(), handle.aborts());
    aborts.mark_unchanged();
    let mirrors = Mirrors::default();
    let mut sending = Sending { handle: handle.clone(), events, aborts, mirrors, to: to.clone(), has_parted: false };
    let why = match sending.run(outgoing).await {
        Ok(()) => return,
        // Where it goes on is not for this task to say any more.
        Err(error) if sending.has_parted => return tracing::debug!(error = chain(&error), "the guest has left"),
        Err(error) => chain(&error),
    };
    tracing::warn!(why, "the guest was not sent");
    // It may have begun.
    if let Err(error) = handle.qmp.execute(MigrateCancel {}).await {
        tracing::debug!(%error, "cancel the migration");
    }
    let giving_up = sending.mirrors.give_up(&handle.qmp, &mut sending.events);
    if timeout(GIVE_UP, giving_up).await.is_err() {
        tracing::warn!("the far ends of copied disks could not be removed");
    }
    // QEMU may have told already that it stays; then this says why.
    if let Err(error) = handle.request(Request::Stay { to, why }).await {
        tracing::debug!(%error, "tell why the guest stays");
    }
}

struct Sending {
    handle: Handle,
    events: Receiver<Event>,
    aborts: watch::Receiver<u64>,
    mirrors: Mirrors,
    to: String,
    /// The last of the guest is being sent: from now on only the lifecycle gives it up.
    has_parted: bool,
}

/// What QEMU has decided.
enum Decided {
    Sent,
    Stays,
}

impl Sending {
    async fn run(&mut self, outgoing: Outgoing) -> Result<(), SendError> {
        let Outgoing { limits, disks, bytes, lanes, .. } = outgoing;
        let mut cancelled = self.aborts.clone();
        let mut pace = Pace::new(limits, bytes, Instant::now());
        let pump = tokio::select! {
            biased;
            pump = self.begin(limits, &disks, lanes, &mut pace) => pump?,
            _ = cancelled.changed() => return Err(SendError::Cancelled),
        };
        pace.turn(Instant::now());
        match self.follow(pump, pace).await? {
            Decided::Sent => Ok(()),
            Decided::Stays => {
                self.has_parted = false;
                let info = self.handle.qmp.execute(QueryMigrate {}).await.unwrap_or_default();
                Err(match info.error_desc.filter(|said| !said.is_empty()) {
                    _ if info.status == "cancelled" => SendError::Cancelled,
                    Some(said) => SendError::GivenUp(format!("QEMU could not send the guest: {said}")),
                    None => SendError::GivenUp("QEMU could not send the guest".to_owned()),
                })
            }
        }
    }

    /// Copies disks, and begins to send memory when they are equal.
    async fn begin(
        &mut self,
        limits: Limits,
        disks: &[(String, bool)],
        mut lanes: Lanes,
        pace: &mut Pace,
    ) -> Result<Pump, SendError> {
        let qmp = self.handle.qmp.clone();
        self.mirrors.start(&qmp, &mut lanes, disks, limits.bandwidth).await?;
        self.copy(pace).await?;
        let mut capabilities = CAPABILITIES.to_vec();
        capabilities.extend(limits.auto_converge.then_some(AUTO_CONVERGE));
        qmp.execute(SetMigrationCapabilities::on(&capabilities)).await?;
        let downtime_limit = u64::try_from(limits.downtime.as_millis()).ok();
        qmp.execute(SetMigrationParameters { max_bandwidth: Some(limits.bandwidth), downtime_limit }).await?;
        let lane = lanes.lane(MEMORY_CHANNEL).await.map_err(SendError::Lane)?;
        let uri = format!("unix:{}", lane.path());
        let (begun, pump) = tokio::join!(qmp.execute(Migrate { uri }), lane.connect());
        begun?;
        pump.map_err(SendError::Lane)
    }

    /// Waits until the copies of disks are equal, as long as they keep to the migration's limits.
    async fn copy(&mut self, pace: &mut Pace) -> Result<(), SendError> {
        let qmp = self.handle.qmp.clone();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.mirrors.ready()? {
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Ok(event) => self.mirrors.hear(&event)?,
                    // What was missed is found by looking.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(SendError::Gone),
                },
                _ = looks.tick() => {
                    let remaining = self.mirrors.look(&qmp).await?;
                    self.keep_pace(pace, remaining.unwrap_or(u64::MAX)).await?;
                }
            }
        }
        Ok(())
    }

    /// Helps a migration that does not come to an end, or gives it up.
    async fn keep_pace(&self, pace: &mut Pace, remaining: u64) -> Result<(), SendError> {
        match pace.judge(remaining, Instant::now()) {
            Judgement::GoOn => Ok(()),
            Judgement::Halt => Ok(self.handle.request(Request::Halt { to: self.to.clone() }).await?),
            Judgement::GiveUp(why) => Err(SendError::GivenUp(why)),
        }
    }

    /// Follows QEMU until it has decided. Whatever goes wrong before the guest has parted is asked of QEMU: give up. It says whether
    /// it has.
    async fn follow(&mut self, mut pump: Pump, mut pace: Pace) -> Result<Decided, SendError> {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Why it was given up, if it was.
        let mut failure = None;
        let mut is_cut = false;
        loop {
            let heard = tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Ok(event) => self.hear(&event, &pump).await,
                    // What was missed is found by looking.
                    Err(RecvError::Lagged(_)) => Ok(None),
                    Err(RecvError::Closed) => return Err(SendError::Gone),
                },
                changed = self.aborts.changed() => {
                    changed.map_err(|_| SendError::Gone)?;
                    // One that has parted is given up only by the lifecycle, which knows that the other side does not have it.
                    pump.release();
                    self.cancel().await;
                    Err(SendError::Cancelled)
                }
                () = pump.cut(), if !is_cut => {
                    is_cut = true;
                    tracing::warn!("the connection to the target broke after the guest had parted");
                    if let Err(error) = self.handle.request(Request::Cut { to: self.to.clone() }).await {
                        tracing::debug!(%error, "tell that the connection broke");
                    }
                    Ok(None)
                }
                _ = looks.tick() => self.look(&mut pace, &pump).await,
            };
            match heard {
                Ok(None) => {}
                Ok(Some(Decided::Stays)) => return failure.map_or(Ok(Decided::Stays), Err),
                Ok(Some(Decided::Sent)) => return Ok(Decided::Sent),
                Err(trouble) => {
                    tracing::info!(why = %trouble, "giving the migration up");
                    if !self.has_parted {
                        self.cancel().await;
                    }
                    failure.get_or_insert(trouble);
                }
            }
        }
    }

    /// Asks QEMU to give up. It may have decided meanwhile, which it tells.
    async fn cancel(&self) {
        if let Err(error) = self.handle.qmp.execute(MigrateCancel {}).await {
            tracing::debug!(%error, "cancel the migration");
        }
    }

    async fn hear(&mut self, event: &Event, pump: &Pump) -> Result<Option<Decided>, SendError> {
        self.mirrors.hear(event)?;
        match event.name.as_str() {
            "MIGRATION" => self.judge(event.data["status"].as_str().unwrap_or_default(), pump).await,
            _ => Ok(None),
        }
    }

    /// What follows from how far QEMU is.
    async fn judge(&mut self, status: &str, pump: &Pump) -> Result<Option<Decided>, SendError> {
        match status {
            "completed" => Ok(Some(Decided::Sent)),
            "failed" | "cancelled" => Ok(Some(Decided::Stays)),
            BEFORE_SWITCH if !self.has_parted => {
                self.part(pump).await?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// The guest is stopped. Its disks are equal on both sides when its copies have ended; then the last of it is sent.
    async fn part(&mut self, pump: &Pump) -> Result<(), SendError> {
        let qmp = self.handle.qmp.clone();
        tokio::select! {
            biased;
            finished = timeout(FINISH, self.mirrors.finish(&qmp, &mut self.events)) => {
                finished.map_err(|_| SendError::GivenUp(LATE_COPIES.to_owned()))??;
            }
            changed = self.aborts.changed() => return Err(changed.map_or(SendError::Gone, |()| SendError::Cancelled)),
        }
        self.handle.request(Request::Part { to: self.to.clone() }).await?;
        self.has_parted = true;
        pump.hold();
        match qmp.execute(MigrateContinue { state: BEFORE_SWITCH }).await {
            Err(error @ QmpError::Refused { .. }) => {
                // Nothing more was sent.
                self.has_parted = false;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }

    /// Tells how far it is, and helps a migration that does not come to an end.
    async fn look(&mut self, pace: &mut Pace, pump: &Pump) -> Result<Option<Decided>, SendError> {
        let MigrationInfo { ram, status, .. } = self.handle.qmp.execute(QueryMigrate {}).await?;
        let Some(ram) = ram.filter(|_| status == "active") else { return self.judge(&status, pump).await };
        let progress = Progress { sent: ram.transferred, remaining: ram.remaining, total: ram.total };
        self.handle.request(Request::Progress(progress)).await?;
        self.keep_pace(pace, ram.remaining).await?;
        Ok(None)
    }
}
