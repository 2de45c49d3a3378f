//! Sends the guest to another launcher, as a `Migrate` asks for.

use std::time::Duration;

use launcher_api::{Outcome, rpc};
use tonic::{Response, Status};

use super::wire::to_wire;
use super::{Service, Slot, absent};
use crate::errors::chain;
use crate::lifecycle::Request as Wish;
use crate::migrate::lanes::Lanes;
use crate::migrate::mirror::{self, LocalDisk};
use crate::migrate::pace::Limits;
use crate::migrate::source::{self, Outgoing};

impl Service {
    /// The disks that only this pod has.
    pub(super) async fn local_disks(&self) -> Result<rpc::LocalDisks, Status> {
        match &*self.inner.slot.lock().await {
            Slot::Taken { guest, .. } => {
                let model = guest.handle.guest.borrow().clone();
                let disks = mirror::look(&model, &guest.prepared, &guest.handle.qmp).await;
                let disks = disks.map_err(|error| Status::internal(chain(&error)))?;
                Ok(rpc::LocalDisks { disks: disks.into_iter().map(disk_to_wire).collect() })
            }
            Slot::Empty | Slot::Failed { .. } => Err(Status::failed_precondition("the guest does not exist")),
        }
    }

    /// Takes a step of a migration. What came of it is an outcome; a status is left for trouble with the connection.
    pub(super) async fn step(&self, wish: Wish) -> Response<rpc::Domain> {
        let handle = match &*self.inner.slot.lock().await {
            Slot::Taken { guest, .. } => guest.handle.clone(),
            Slot::Failed { domain, .. } => return answer(domain.clone(), Outcome::Done),
            Slot::Empty => return answer(absent(), no_guest()),
        };
        let taken = handle.request(wish).await;
        let outcome = taken.map_or_else(|error| error.outcome(), |()| Outcome::Done);
        answer(to_wire(&handle.domain().borrow()), outcome)
    }

    /// Lets the guest leave.
    pub(super) async fn leave(&self, request: rpc::MigrateRequest) -> Response<rpc::Domain> {
        match self.try_leave(request).await {
            Ok(domain) => answer(domain, Outcome::Done),
            Err(outcome) => answer(self.now(), outcome),
        }
    }

    /// Everything that can be compared is compared before anything is sent.
    async fn try_leave(&self, request: rpc::MigrateRequest) -> Result<rpc::Domain, Outcome> {
        let rpc::MigrateRequest { uid, model_digest, disks, limits } = request;
        let there: Vec<LocalDisk> = disks.into_iter().map(disk_from_wire).collect();
        // No `Sync` may change the guest between the comparison and its leave.
        let slot = self.inner.slot.lock().await;
        let Slot::Taken { guest, .. } = &*slot else {
            return Err(no_guest());
        };
        let handle = guest.handle.clone();
        // Asked again: it is on its way already.
        let known = handle.domain().borrow().migration.as_ref().is_some_and(|migration| migration.to == uid);
        if known {
            return Ok(to_wire(&handle.domain().borrow()));
        }
        let model = handle.guest.borrow().clone();
        let digest = model.digest().map_err(|error| Outcome::never("", error.to_string()))?;
        if digest != model_digest {
            let problem = "the target was prepared for another guest: the digests of the models differ";
            return Err(Outcome::never("", problem));
        }
        let here = mirror::look(&model, &guest.prepared, &handle.qmp).await;
        let here = here.map_err(|error| Outcome::retry(chain(&error)))?;
        mirror::compare(&here, &there).map_err(|error| Outcome::never("", error.to_string()))?;
        handle.request(Wish::Leave { to: uid.clone() }).await.map_err(|error| error.outcome())?;
        let lanes = match Lanes::open(&guest.wiring.runtime) {
            Ok(lanes) => lanes,
            Err(error) => {
                let why = format!("listen for the target: {error}");
                handle.request(Wish::Stay { to: uid, why: why.clone() }).await.map_err(|error| error.outcome())?;
                return Err(Outcome::retry(why));
            }
        };
        let copied: u64 = here.iter().filter(|disk| disk.is_copied).map(|disk| disk.size).sum();
        let outgoing = Outgoing {
            migration: uid,
            limits: limits_from_wire(&limits.unwrap_or_default()),
            disks: mirror::copied(&model, &guest.prepared),
            bytes: model.memory.bytes.saturating_add(copied),
            lanes,
        };
        tracing::info!(disks = outgoing.disks.len(), "sending the guest to another launcher");
        tokio::spawn(source::send(handle.clone(), outgoing));
        Ok(to_wire(&handle.domain().borrow()))
    }
}

fn answer(domain: rpc::Domain, outcome: Outcome) -> Response<rpc::Domain> {
    Response::new(rpc::Domain { outcome: Some(outcome.into()), ..domain })
}

fn no_guest() -> Outcome {
    Outcome::retry("the guest does not exist")
}

fn limits_from_wire(limits: &rpc::MigrationLimits) -> Limits {
    Limits {
        bandwidth: limits.bandwidth,
        downtime: Duration::from_millis(limits.downtime_ms),
        progress_timeout: Duration::from_millis(limits.progress_timeout_ms),
        timeout_per_gigabyte: Duration::from_millis(limits.timeout_per_gigabyte_ms),
        auto_converge: limits.auto_converge,
        may_disrupt: limits.may_disrupt,
    }
}

fn disk_to_wire(disk: LocalDisk) -> rpc::LocalDisk {
    let LocalDisk { device, size, digest, is_copied } = disk;
    rpc::LocalDisk { device, size, digest, is_copied }
}

fn disk_from_wire(disk: rpc::LocalDisk) -> LocalDisk {
    let rpc::LocalDisk { device, size, digest, is_copied } = disk;
    LocalDisk { device, size, digest, is_copied }
}
