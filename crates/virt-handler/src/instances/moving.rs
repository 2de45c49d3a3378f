//! What is done about a guest that moves: by its source's handler, and by its target's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use api::migration::{VMIMConfigurationOptions as Options, VirtualMachineInstanceMigrationState as MigrationState};
use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use hypervisor::guest::Guest;
use launcher_api::Outcome;
use launcher_api::rpc::{Incoming, MigrateRequest, MigrationLimits, MigrationName, Paused, State, TakeRequest};
use manager::errors::chain;
use manager::events::Kind;
use tokio::time::timeout;
use tonic::Code;

use super::acting::ANSWER;
use super::answers::{known, relayed, silent, taken};
use super::{InstanceError, Instances};
use crate::decide::{Attempts, Moving, Way};
use crate::host::Doing;
use crate::launchers::LauncherId;
use crate::relay::{Admitted, Channel, Door, Frame, NotAdmitted, Question, Reply, Target};

/// How long a launcher may take to look at its disks: their images are read for their digests.
const LOOK: Duration = Duration::from_secs(600);

/// The longest pause at the switch, unless the migration says otherwise: QEMU's own default.
const DOWNTIME_MS: u64 = 300;

impl Instances {
    /// Lets a launcher wait for a guest.
    pub(super) async fn prepare(&self, id: &LauncherId, vmi: &VirtualMachineInstance) {
        let prepared = self.try_prepare(id, vmi).await;
        self.attempted(id, vmi, prepared);
    }

    async fn try_prepare(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<(), Outcome> {
        let Some(moving) = Moving::of(vmi) else { return Ok(()) };
        if self.setup.host.reached_at().is_none() {
            return Err(Outcome::never("", "the target node takes no part in migrations"));
        }
        let model = vmi.metadata.annotations.as_ref().and_then(|all| all.get(annotation::GUEST));
        let none = || Outcome::never("", "the guest has no model: it was started by an earlier release");
        let model = model.ok_or_else(none)?;
        let incoming = Incoming { migration: moving.uid.to_owned(), guest: model.clone().into_bytes() };
        let outcome = self.bring_about(id, vmi, Some(incoming)).await;
        match outcome {
            Outcome::Done | Outcome::NeedsMigration(_) | Outcome::NeedsRestart(_) => {
                tracing::info!(migration = moving.uid, "the launcher waits for the guest");
                self.record_event(
                    vmi,
                    Kind::Normal,
                    "PreparingTarget",
                    "VirtualMachineInstance Migration Target Prepared.",
                );
                Ok(())
            }
            failed @ (Outcome::Retry { .. } | Outcome::Never(_)) => Err(failed),
        }
    }

    /// Lets the guest leave, and carries it.
    pub(super) async fn send(&self, id: &LauncherId, vmi: &VirtualMachineInstance) {
        let sent = self.try_send(id, vmi).await;
        self.attempted(id, vmi, sent);
    }

    async fn try_send(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<(), Outcome> {
        let Some(moving) = Moving::of(vmi) else { return Ok(()) };
        let speaker = self.launchers.speaker(id).ok_or_else(silent)?;
        let target = self.target(id, &moving).await?;
        let Reply::Disks(disks) = relayed(self.setup.host.ask(&target, Question::Disks).await)? else {
            return Err(Outcome::never("", "the target's handler does not know which disks it has"));
        };
        let copied = disks.iter().filter(|disk| disk.is_copied).map(|disk| Channel::Disk(disk.device.clone()));
        let channels: Vec<Channel> = copied.chain([Channel::Memory]).collect();
        let request = MigrateRequest {
            uid: moving.uid.to_owned(),
            model_digest: target.digest.clone(),
            disks: disks.into_iter().map(Into::into).collect(),
            limits: Some(limits(moving.state.migration_configuration.as_ref())),
        };
        self.launchers.heard(id, taken(timeout(LOOK, speaker.migrate(request)).await)?);
        tracing::info!(migration = moving.uid, to = target.node, "sending the guest");
        self.record_event(vmi, Kind::Normal, "Migrating", "VirtualMachineInstance is migrating.");
        for channel in channels {
            // A channel that does not come makes the launcher give up, which it tells.
            if let Err(error) = self.setup.host.carry(id, &target, channel).await {
                tracing::warn!(error = chain(&error), "cannot carry a channel of the migration");
                return Ok(());
            }
        }
        Ok(())
    }

    /// Asks the launcher to give the migration up. Whether that came in time, it tells.
    pub(super) async fn cancel(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<(), InstanceError> {
        let (Some(moving), Some(speaker)) = (Moving::of(vmi), self.launchers.speaker(id)) else { return Ok(()) };
        let name = MigrationName { uid: moving.uid.to_owned() };
        self.attempts(id, moving.uid, |attempts| attempts.is_cancelled = true);
        match timeout(ANSWER, speaker.cancel_migration(name)).await {
            // It is too late, or over.
            Ok(Err(status)) if status.code() == Code::FailedPrecondition => Ok(()),
            answer => self.answered(id, answer),
        }
    }

    /// The connection broke after the guest had parted: if the target has all of it, it is given; if not, it comes back.
    pub(super) async fn settle(&self, id: &LauncherId, vmi: &VirtualMachineInstance) {
        let settled = self.try_settle(id, vmi).await;
        self.attempted(id, vmi, settled);
    }

    async fn try_settle(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<(), Outcome> {
        let Some(moving) = Moving::of(vmi) else { return Ok(()) };
        let speaker = self.launchers.speaker(id).ok_or_else(silent)?;
        let target = self.target(id, &moving).await?;
        let name = MigrationName { uid: moving.uid.to_owned() };
        let told = match relayed(self.setup.host.ask(&target, Question::Settle).await)? {
            Reply::Loaded | Reply::Taken => speaker.give(name),
            Reply::Renounced => {
                self.claim_addresses(id).await;
                speaker.returned(name)
            }
            Reply::Disks(_) | Reply::Refused { .. } => return Err(Outcome::retry("the target gave no answer")),
        };
        self.launchers.heard(id, taken(timeout(ANSWER, told).await)?);
        Ok(())
    }

    /// Tells the target that the guest is its own.
    pub(super) async fn hand_over(&self, id: &LauncherId, vmi: &VirtualMachineInstance) {
        let told = self.try_hand_over(id, vmi).await;
        self.attempted(id, vmi, told);
    }

    async fn try_hand_over(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<(), Outcome> {
        let Some(moving) = Moving::of(vmi) else { return Ok(()) };
        let domain = self.launchers.view(id).and_then(|view| view.domain);
        let Way::Given { paused } = Way::of(domain.as_ref(), Some(vmi)) else { return Ok(()) };
        let target = self.target(id, &moving).await?;
        match relayed(self.setup.host.ask(&target, Question::Take { paused: paused.into() }).await)? {
            // It says so in the instance, and everything else follows from that.
            Reply::Taken => {
                tracing::info!(migration = moving.uid, to = target.node, "the target has the guest");
                Ok(())
            }
            _ => Err(Outcome::retry("the target does not have the guest yet")),
        }
    }

    /// Lets the guest go on here. That its migration failed is on record.
    pub(super) async fn go_on_here(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<(), InstanceError> {
        let uid = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref()?.migration_uid.clone());
        let (Some(uid), Some(speaker)) = (uid, self.launchers.speaker(id)) else { return Ok(()) };
        tracing::info!(migration = uid, "the guest goes on here: its migration failed");
        self.claim_addresses(id).await;
        let answer = taken(timeout(ANSWER, speaker.returned(MigrationName { uid })).await);
        self.launchers.heard(id, answer.map_err(InstanceError::NotTaken)?);
        Ok(())
    }

    /// Goes on with a guest that is here as a whole: its source has ended.
    pub(super) async fn take(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<(), InstanceError> {
        let (Some(moving), Some(speaker)) = (Moving::of(vmi), self.launchers.speaker(id)) else { return Ok(()) };
        tracing::info!(migration = moving.uid, "taking the guest: its source has ended");
        self.claim_addresses(id).await;
        let request = TakeRequest { uid: moving.uid.to_owned(), paused: paused(vmi).into() };
        let answer = taken(timeout(ANSWER, speaker.take(request)).await);
        self.launchers.heard(id, answer.map_err(InstanceError::NotTaken)?);
        Ok(())
    }

    /// Has the guest's addresses come here, before it goes on. A guest that is reached elsewhere is better than one that does not go on,
    /// so it does not wait for them.
    async fn claim_addresses(&self, id: &LauncherId) {
        let claimed = timeout(ANSWER, self.setup.host.claim_addresses(id)).await;
        match claimed.unwrap_or_else(|_| Err("there was no answer in time".to_owned())) {
            Ok(None) => {}
            Ok(Some(addresses)) => self.note(id, |notes| {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                // All interfaces are behind the pod's own link.
                notes.links.iter_mut().flatten().for_each(|link| link.addresses.clone_from(&addresses));
            }),
            Err(why) => tracing::error!(why, "the guest's addresses did not come along; it is reached at its pod's"),
        }
    }

    /// The target of a migration, as its handler is told of it.
    async fn target(&self, id: &LauncherId, moving: &Moving<'_>) -> Result<Target, Outcome> {
        let address = address(moving.state).ok_or_else(|| Outcome::retry("the target has no address yet"))?;
        let pod = moving.target.ok_or_else(|| Outcome::retry("the target's pod has ended"))?;
        let digest = self.model_digest(id).await?;
        Ok(Target {
            address,
            node: moving.state.target_node.clone().unwrap_or_default(),
            migration: moving.uid.to_owned(),
            pod: pod.to_owned(),
            digest,
        })
    }

    /// The digest of what the guest of a launcher sees.
    async fn model_digest(&self, id: &LauncherId) -> Result<String, Outcome> {
        let speaker = self.launchers.speaker(id).ok_or_else(silent)?;
        let model = known(timeout(ANSWER, speaker.get_guest()).await)?;
        let guest = Guest::from_stored(&model.guest).map_err(|error| Outcome::never("", chain(&error)))?;
        guest.digest().map_err(|error| Outcome::never("", error.to_string()))
    }

    /// Remembers what came of an attempt, and says what people should know.
    fn attempted(&self, id: &LauncherId, vmi: &VirtualMachineInstance, attempt: Result<(), Outcome>) {
        let Some(moving) = Moving::of(vmi) else { return };
        let now = (self.now)();
        match attempt {
            Ok(()) => self.attempts(id, moving.uid, Attempts::succeed),
            Err(failed) => {
                let is_final = matches!(failed, Outcome::Never(_));
                tracing::warn!(migration = moving.uid, why = %failed, is_final, "a step of the migration did not succeed");
                self.attempts(id, moving.uid, |attempts| attempts.fail(failed, now));
            }
        }
    }

    fn attempts(&self, id: &LauncherId, uid: &str, change: impl FnOnce(&mut Attempts)) {
        self.note(id, |notes| {
            let mut attempts = notes.efforts.moving.with(uid);
            change(&mut attempts);
            notes.efforts.moving = attempts;
        });
    }

    /// The launcher here that awaits what a frame names, if `node` may send it.
    fn awaiting(&self, node: &str, frame: &Frame) -> Result<LauncherId, NotAdmitted> {
        let id = self.with_pod(&frame.pod).ok_or_else(|| NotAdmitted::Pod(frame.pod.clone()))?;
        let vmi = self.cached(&id).ok_or(NotAdmitted::Instance)?;
        let moving = Moving::of(&vmi).filter(|moving| moving.uid == frame.migration);
        let moving = moving.ok_or_else(|| NotAdmitted::Migration(frame.migration.clone()))?;
        let names = (moving.state.source_node.as_deref(), moving.state.target_node.as_deref(), moving.target);
        if names != (Some(node), Some(id.node.as_str()), Some(frame.pod.as_str())) {
            return Err(NotAdmitted::Node(node.to_owned()));
        }
        Ok(id)
    }

    async fn try_admit(&self, node: &str, frame: &Frame) -> Result<Admitted, NotAdmitted> {
        let id = self.awaiting(node, frame)?;
        if self.model_digest(&id).await.map_err(NotAdmitted::Model)? != frame.digest {
            return Err(NotAdmitted::Guest);
        }
        match &frame.channel {
            Channel::Words => Ok(Admitted::Words),
            channel => {
                let stream = self.setup.host.arriving(&id, channel).await;
                stream.map(Admitted::Stream).map_err(NotAdmitted::Closed)
            }
        }
    }

    async fn try_reply(&self, frame: &Frame, question: Question) -> Result<Reply, Outcome> {
        let id = self.with_pod(&frame.pod).ok_or_else(silent)?;
        let speaker = self.launchers.speaker(&id).ok_or_else(silent)?;
        if question == Question::Disks {
            let disks = known(timeout(LOOK, speaker.get_local_disks()).await)?;
            return Ok(Reply::Disks(disks.disks.into_iter().map(Into::into).collect()));
        }
        let now = known(timeout(ANSWER, speaker.get_domain()).await)?;
        let reply = match (now.state(), question) {
            (State::Loaded, Question::Take { paused }) => {
                self.claim_addresses(&id).await;
                let request = TakeRequest { uid: frame.migration.clone(), paused: Paused::from(paused).into() };
                self.launchers.heard(&id, taken(timeout(ANSWER, speaker.take(request)).await)?);
                Reply::Taken
            }
            (State::Loaded, _) => Reply::Loaded,
            (State::Awaiting, Question::Settle) => {
                self.launchers.heard(&id, taken(timeout(ANSWER, speaker.renounce()).await)?);
                Reply::Renounced
            }
            (State::Ended, Question::Settle) => Reply::Renounced,
            (
                State::Running | State::PausedByUser | State::PausedByIoError | State::PausedByQemu | State::Stopping,
                _,
            ) => Reply::Taken,
            (state, _) => return Err(Outcome::retry(format!("the target is {}", state.as_str_name()))),
        };
        self.queue.add(id);
        Ok(reply)
    }
}

impl Door for Instances {
    fn admit<'a>(&'a self, node: &'a str, frame: &'a Frame) -> Doing<'a, Result<Admitted, NotAdmitted>> {
        Box::pin(self.try_admit(node, frame))
    }

    fn is_under_way(&self, frame: &Frame) -> bool {
        let vmi = self.with_pod(&frame.pod).and_then(|id| self.cached(&id));
        vmi.is_some_and(|vmi| Moving::of(&vmi).is_some_and(|moving| moving.uid == frame.migration))
    }

    fn reply<'a>(&'a self, frame: &'a Frame, question: Question) -> Doing<'a, Reply> {
        Box::pin(async move {
            let reply = self.try_reply(frame, question).await;
            reply.unwrap_or_else(|failed| Reply::Refused { why: failed.to_string() })
        })
    }
}

/// Where the target's handler listens.
fn address(state: &MigrationState) -> Option<SocketAddr> {
    let ports: &BTreeMap<String, u32> = state.target_direct_migration_node_ports.as_ref()?;
    let port = ports.keys().next()?.parse().ok()?;
    Some(SocketAddr::new(state.target_node_address.as_deref()?.parse().ok()?, port))
}

/// How a guest is to arrive whose source cannot say it any more.
fn paused(vmi: &VirtualMachineInstance) -> Paused {
    let conditions = vmi.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let paused =
        conditions.iter().find(|one| one.type_ == "Paused" && one.status == api::conditions::ConditionStatus::True);
    match paused.map(|one| one.reason.as_deref().unwrap_or_default()) {
        None => Paused::Not,
        Some("PausedIOError") => Paused::ByIoError,
        Some("PausedByQEMU") => Paused::ByQemu,
        Some(_) => Paused::ByUser,
    }
}

/// What a launcher keeps to, from what was settled for this migration.
fn limits(options: Option<&Options>) -> MigrationLimits {
    let seconds = |value: Option<i64>, default: u64| {
        value.map_or(default, |value| u64::try_from(value).unwrap_or(0)).saturating_mul(1000)
    };
    let none = Options::default();
    let options = options.unwrap_or(&none);
    let bandwidth = options.bandwidth_per_migration.as_ref();
    let bandwidth = bandwidth.map_or(0, |limit| u64::try_from(limit.amount().units()).unwrap_or(0));
    MigrationLimits {
        bandwidth,
        downtime_ms: options.max_downtime_ms.map_or(DOWNTIME_MS, |value| u64::try_from(value).unwrap_or(DOWNTIME_MS)),
        progress_timeout_ms: seconds(options.progress_timeout, 150),
        timeout_per_gigabyte_ms: seconds(options.completion_timeout_per_gib, 150),
        auto_converge: options.allow_auto_converge == Some(true),
        may_disrupt: options.allow_workload_disruption == Some(true),
    }
}
