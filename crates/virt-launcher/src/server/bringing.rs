//! Starts a guest, or changes it, as a `Sync` asks for.

use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator::Accelerator;
use hypervisor::guest::Guest;
use hypervisor::render::SERIAL_SOCKET;
use launcher_api::{Outcome, rpc};

use super::wire::{accelerator, failed, to_wire};
use super::{Service, Slot, absent, follow};
use crate::boot::{self, BootError, Incoming};
use crate::change;
use crate::console::Console;
use crate::domain::{Course, Domain, State};
use crate::errors::chain;
use crate::guest::Questions;

impl Service {
    /// Starts the guest, or makes the one that runs what is asked for.
    pub(super) async fn bring_about(&self, mut wanted: Wanted) -> (rpc::Domain, Outcome) {
        let mut slot = self.inner.slot.lock().await;
        match &mut *slot {
            Slot::Empty => self.start(wanted, &mut slot).await,
            Slot::Taken { uid, .. } | Slot::Failed { uid, .. } if *uid != wanted.uid => {
                let problem = format!("this launcher belongs to instance {uid}");
                (self.now(), Outcome::never("metadata.uid", problem))
            }
            Slot::Taken { guest, .. } => {
                let outcome = match (self.inner.attach)(&mut wanted.vmi) {
                    _ if !is_changeable(&guest.handle.domain().borrow()) => Outcome::Done,
                    Ok(interfaces) => change::apply(guest, &wanted.vmi, interfaces, &self.inner.workbench).await,
                    Err(outcome) => outcome,
                };
                (to_wire(&guest.handle.domain().borrow()), outcome)
            }
            Slot::Failed { domain, .. } => (domain.clone(), Outcome::Done),
        }
    }

    /// Starts the guest and follows it to its end.
    async fn start(&self, wanted: Wanted, slot: &mut Slot) -> (rpc::Domain, Outcome) {
        let Wanted { uid, mut vmi, told, incoming } = wanted;
        let owner = api::owner::controller_of(&vmi.metadata).map_or("", |owner| owner.uid.as_str());
        tracing::info!(owner, arrives = incoming.is_some(), "starting the guest");
        let interfaces = match (self.inner.attach)(&mut vmi) {
            Ok(interfaces) => interfaces,
            Err(outcome) => return (absent(), outcome),
        };
        self.inner.domain.send_replace(Some(rpc::Domain { state: rpc::State::Starting.into(), ..Default::default() }));
        match boot::boot(&vmi, interfaces, told, incoming, &self.inner.workbench).await {
            Ok(guest) => {
                let watched = guest.handle.domain();
                let now = to_wire(&watched.borrow());
                tokio::spawn(follow(watched, self.inner.clone()));
                let questions = Questions::new(guest.handle.clone());
                let console = self.console().await;
                *slot = Slot::Taken { uid, guest: Box::new(guest), questions, console };
                (now, Outcome::Done)
            }
            // QEMU had everything and did not start: this is the end of this VM.
            Err(BootError::Start(error)) if error.is_qemus() => {
                tracing::warn!(error = chain(&error), "QEMU did not start");
                let domain = failed(&error);
                self.inner.domain.send_replace(Some(domain.clone()));
                *slot = Slot::Failed { uid, domain: domain.clone() };
                (domain, Outcome::Done)
            }
            Err(error) => {
                self.inner.domain.send_replace(None);
                (absent(), error.outcome())
            }
        }
    }
}

impl Service {
    /// The serial port of the guest that has just been started, if it has one.
    async fn console(&self) -> Option<Console> {
        match Console::connect(&self.inner.workbench.folder.join(SERIAL_SOCKET)).await {
            Ok(console) => Some(console),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(%error, "the guest's serial port cannot be opened");
                None
            }
        }
    }
}

/// What a guest is to be.
pub(super) struct Wanted {
    pub(super) uid: String,
    vmi: VirtualMachineInstance,
    told: Option<Accelerator>,
    incoming: Option<Incoming>,
}

impl Wanted {
    /// From a request, or why it makes no sense.
    pub(super) fn read(request: rpc::SyncRequest) -> Result<Self, Outcome> {
        let told = accelerator(request.accelerator());
        let unreadable = |error: &dyn std::fmt::Display| Outcome::never("", format!("not a valid instance: {error}"));
        let json = serde_json::from_slice(&request.instance).map_err(|error| unreadable(&error))?;
        let vmi = api::decode::object::<VirtualMachineInstance>(json).map_err(|error| unreadable(&error))?.object;
        let uid = vmi.metadata.uid.clone().unwrap_or_default();
        let incoming = match request.incoming {
            Some(rpc::Incoming { migration, guest }) => {
                let guest = Guest::from_stored(&guest).map_err(|error| Outcome::never("", chain(&error)))?;
                Some(Incoming { guest, from: migration })
            }
            None => None,
        };
        Ok(Self { uid, vmi, told, incoming })
    }
}

/// Whether a guest can be changed now: one that has ended or is on its way stays as it is.
fn is_changeable(domain: &Domain) -> bool {
    let is_leaving = domain.migration.as_ref().is_some_and(|migration| migration.course == Course::UnderWay);
    match domain.state {
        State::Running | State::Paused(_) => !is_leaving,
        State::Starting | State::Awaiting | State::Loaded | State::Left | State::Stopping | State::Ended(_) => false,
    }
}
