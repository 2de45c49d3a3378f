//! The start of a guest: its network, then the launcher is told the instance.

use std::future::pending;
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use launcher_api::rpc::{Accelerator, Domain, Incoming, State};
use launcher_api::{Feature, Outcome};
use manager::cache::Cache;
use manager::errors::chain;
use manager::events::Kind;
use tokio::time::timeout;

use super::acting::ANSWER;
use super::{Instances, Notes};
use crate::decide::start_again;
use crate::host::Wanted;
use crate::launchers::LauncherId;

/// How long a start may take: the launcher may still have disks to prepare.
const START: Duration = Duration::from_secs(600);
/// The largest model that is kept, in bytes; a guest with all the devices that it can have takes a tenth of it.
const LARGEST_MODEL: usize = 64 * 1024;

impl Instances {
    /// Starts a guest, and remembers how that went.
    pub(super) async fn start(&self, id: &LauncherId, vmi: &VirtualMachineInstance) {
        let started = tokio::select! {
            biased;
            // First: a start that takes no time needs nobody to wait for its end.
            started = self.bring_about(id, vmi, None) => started,
            // What is to be deleted need not start.
            () = self.unwanted(id) => return,
        };
        match started {
            Outcome::Done | Outcome::NeedsMigration(_) | Outcome::NeedsRestart(_) => {
                tracing::info!("the launcher has started the guest");
                self.record_event(vmi, Kind::Normal, "Created", "VirtualMachineInstance defined.");
            }
            ref failed @ (Outcome::Retry { .. } | Outcome::Never(_)) => {
                tracing::warn!(error = %failed, "cannot start the guest");
                self.record_event(vmi, Kind::Warning, "SyncFailed", failed.to_string());
            }
        }
        self.remember(id, vmi, started);
    }

    /// Tells the launcher what the guest is to be now, and remembers how that went.
    pub(super) async fn sync(&self, id: &LauncherId, vmi: &VirtualMachineInstance) {
        let outcome = self.bring_about(id, vmi, None).await;
        let is_news = self.note(id, |notes| notes.efforts.outcome.as_ref() != Some(&outcome));
        match &outcome {
            // Not for each attempt: the condition says that it goes on.
            failed @ (Outcome::Retry { .. } | Outcome::Never(_)) if is_news => {
                self.record_event(vmi, Kind::Warning, "SyncFailed", failed.to_string());
            }
            // What has to wait is no failure, and has a condition of its own.
            Outcome::Retry { .. }
            | Outcome::Never(_)
            | Outcome::Done
            | Outcome::NeedsMigration(_)
            | Outcome::NeedsRestart(_) => {}
        }
        tracing::info!(%outcome, "sent the guest's specification to the launcher");
        self.remember(id, vmi, outcome);
    }

    /// Remembers what came of telling the launcher about an instance.
    fn remember(&self, id: &LauncherId, vmi: &VirtualMachineInstance, outcome: Outcome) {
        let now = (self.now)();
        let told = digest(vmi);
        self.note(id, |notes| {
            let efforts = &mut notes.efforts;
            if matches!(outcome, Outcome::Retry { .. }) {
                efforts.failures += 1;
                efforts.retry_at = Some(start_again(efforts.failures, now));
            } else {
                (efforts.failures, efforts.retry_at) = (0, None);
                notes.synced = Some(told);
            }
            efforts.outcome = Some(outcome);
        });
    }

    /// Makes the guest what the instance says, in this launcher: it boots, or comes from another, or is changed.
    pub(super) async fn bring_about(
        &self,
        id: &LauncherId,
        vmi: &VirtualMachineInstance,
        incoming: Option<Incoming>,
    ) -> Outcome {
        let (domain, outcome) = match self.tell_launcher(id, vmi, incoming).await {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        if let Some(domain) = domain {
            self.launchers.heard(id, domain);
        }
        if matches!(outcome, Outcome::Done | Outcome::NeedsMigration(_) | Outcome::NeedsRestart(_)) {
            self.fetch_guest(id).await;
        }
        outcome
    }

    async fn tell_launcher(
        &self,
        id: &LauncherId,
        vmi: &VirtualMachineInstance,
        incoming: Option<Incoming>,
    ) -> Result<(Option<Domain>, Outcome), Outcome> {
        // A guest that runs has its disks. Those that its instance names by now may be counted differently.
        if !self.has_guest(id) {
            self.setup.host.bring_disks(id, vmi).await?;
        }
        self.connect_network(id, vmi).await?;
        self.setup.host.give_devices(id).map_err(|error| Outcome::retry(chain(&error)))?;
        let speaker = self.launchers.speaker(id).ok_or_else(|| Outcome::retry("the launcher no longer exists"))?;
        let wanted = Wanted { vmi, accelerator: self.accelerator(), incoming, mark: digest(vmi) };
        let answer = timeout(START, speaker.sync(wanted)).await;
        answer.map_err(|_| Outcome::retry("the launcher did not answer in time"))
    }

    /// Whether the launcher has started a guest, as far as it has said.
    fn has_guest(&self, id: &LauncherId) -> bool {
        let domain = self.launchers.view(id).and_then(|view| view.domain);
        !matches!(
            domain.map(|domain| domain.state()),
            None | Some(State::Unspecified | State::Absent | State::Starting)
        )
    }

    /// Asks the launcher what its guest sees, for whoever starts it the next time.
    pub(super) async fn fetch_guest(&self, id: &LauncherId) {
        let has_model = self.launchers.greeting(id).is_some_and(|greeting| greeting.has(Feature::Model));
        let Some(speaker) = self.launchers.speaker(id).filter(|_| has_model) else { return };
        match timeout(ANSWER, speaker.get_guest()).await {
            Ok(Ok(model)) => {
                let text = String::from_utf8(model.guest).ok().filter(|text| text.len() <= LARGEST_MODEL);
                self.note(id, |notes| notes.guest = text);
            }
            // A guest that did not start has none.
            Ok(Err(status)) => tracing::debug!(%status, "cannot read the guest model"),
            Err(_) => tracing::warn!("cannot get the guest model from the launcher"),
        }
    }

    /// What runs guests here, for the launcher to know; it finds out itself what is not known yet.
    fn accelerator(&self) -> Accelerator {
        match self.setup.found.borrow().offer() {
            Some(offer) if offer.is_emulated => Accelerator::Tcg,
            Some(_) => Accelerator::Kvm,
            None => Accelerator::Unspecified,
        }
    }

    /// Makes the guest's network and hands it to the launcher, unless this process has done so for every interface.
    pub(super) async fn connect_network(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<(), Outcome> {
        let wanted = vmi.spec.domain.devices.interfaces.as_deref().unwrap_or_default();
        let is_made = |notes: &mut Notes| {
            let links = notes.links.as_deref().unwrap_or_default();
            wanted.iter().all(|interface| links.iter().any(|link| link.name == interface.name))
        };
        if self.note(id, is_made) {
            return Ok(());
        }
        let links = self.setup.host.connect_network(id, vmi).await?;
        self.note(id, |notes| notes.links = Some(links));
        Ok(())
    }

    /// Waits until an instance is to be deleted, or gone.
    async fn unwanted(&self, id: &LauncherId) {
        // An instance that is started is here: it is in the first.
        let Some(mut changes) = self.setup.vmis.first().map(Cache::subscribe) else { return pending().await };
        loop {
            let change = changes.next().await;
            if change.key != id.key {
                continue;
            }
            let same = change.new.filter(|vmi| vmi.metadata.uid.as_ref() == Some(&id.uid));
            if same.is_none_or(|vmi| vmi.is_marked_for_deletion() || vmi.is_final()) {
                return;
            }
        }
    }
}

/// What of an instance a launcher is told, in short.
pub(crate) fn digest(vmi: &VirtualMachineInstance) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    // Every part of a spec has a text; where one had none, it would only be told once more.
    serde_json::to_vec(&vmi.spec).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
