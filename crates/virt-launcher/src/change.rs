//! Changes a running guest to match its instance, as far as that is possible while it runs.
//!
//! # Guarantees
//! - It can be done again after any failure: what was done half is undone or finished first, what was done is not done twice.
//! - What the guest sees is written down after each step, so that the model never lags behind by more than the step under way.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use hypervisor::guest::build::{Next, next};
use hypervisor::guest::{Device, DeviceId, Guest, Kind};
use hypervisor::qmp::QmpError;
use hypervisor::qmp::commands::QomList;
use hypervisor::render::{self, Part};
use hypervisor::step::{Difference, Step, difference};
use hypervisor::wiring::Attachment;
use launcher_api::{Outcome, Refusal};
use tokio::time::timeout;

use crate::boot::{Started, Workbench, refusal};
use crate::driver::Handle;
use crate::errors::chain;
use crate::model::{self, ModelError};
use crate::volumes::VolumeError;

/// How long a guest has to let go of a device before its caller is told to come again.
const DEPARTURE: Duration = Duration::from_secs(5);

/// Why a guest is not yet what was asked for.
#[derive(Debug, thiserror::Error)]
enum ChangeError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("plug in {0}")]
    Plug(String, #[source] QmpError),
    #[error("unplug {0}")]
    Unplug(String, #[source] QmpError),
    #[error("{0} can only be plugged in when the guest starts")]
    NotLive(String),
    #[error("the guest has not released {0} yet")]
    InUse(String),
    #[error("{0}: its place is that of a device that is only now leaving")]
    NoPlace(String),
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl ChangeError {
    /// Why no other attempt helps, if none does.
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Volume(error) => error.refusal(),
            Self::Plug(..)
            | Self::Unplug(..)
            | Self::NotLive(_)
            | Self::InUse(_)
            | Self::NoPlace(_)
            | Self::Model(_) => None,
        }
    }
}

/// What the caller of a change hears: to come again as long as that helps with anything, and what is wrong with each.
fn outcome(failures: &[ChangeError]) -> Option<Outcome> {
    let refusals: Vec<Refusal> = failures.iter().filter_map(ChangeError::refusal).collect();
    match (failures.is_empty(), refusals.len() == failures.len()) {
        (true, _) => None,
        (false, true) => Some(Outcome::Never(refusals)),
        (false, false) => {
            let all: Vec<String> = failures.iter().map(|error| chain(error)).collect();
            Some(Outcome::retry(all.join("; ")))
        }
    }
}

/// Compares and applies. A refusal leaves the guest as it is.
pub(crate) async fn apply(
    started: &mut Started,
    vmi: &VirtualMachineInstance,
    interfaces: BTreeMap<String, Attachment>,
    workbench: &Workbench,
) -> Outcome {
    let old = started.handle.guest.borrow().clone();
    let Next { guest: new, waiting } = match next(vmi, started.wiring.accelerator, &old) {
        Ok(next) => next,
        Err(refusals) => return Outcome::Never(refusals.iter().map(refusal).collect()),
    };
    let Difference { steps, mut restart } = difference(&old, &new);
    let mut failures = Vec::new();
    if !steps.is_empty() {
        started.wiring.interfaces.extend(interfaces);
        failures = take(started, vmi, &new, steps, workbench).await;
    }
    failures.extend(waiting.into_iter().map(ChangeError::NoPlace));
    for error in &failures {
        tracing::warn!(error = chain(error), "cannot change the guest yet");
    }
    restart.extend(started.prepared.changed(vmi));
    match outcome(&failures) {
        Some(outcome) => outcome,
        None if restart.is_empty() => Outcome::Done,
        None => Outcome::NeedsRestart(restart),
    }
}

/// Takes every step that can be taken now, whatever becomes of the others. Returns what went wrong.
///
/// What goes leaves first: then another volume can be prepared under the name of the one that has gone.
async fn take(
    started: &mut Started,
    vmi: &VirtualMachineInstance,
    new: &Guest,
    steps: Vec<Step>,
    workbench: &Workbench,
) -> Vec<ChangeError> {
    let (leaving, coming): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| matches!(step, Step::Unplug(..)));
    let (mut failures, mut held) = (Vec::new(), Vec::new());
    for step in &leaving {
        if let Err(error) = take_one(started, vmi, new, step).await {
            held.push(step.device());
            failures.push(error);
        }
        if is_lagging(&failures) {
            return failures;
        }
    }
    let missing = started.prepared.add_missing(vmi, &workbench.workshop()).await;
    let without: Vec<String> = missing.keys().cloned().collect();
    failures.extend(missing.into_values().map(ChangeError::from));
    started.wiring.volumes.clone_from(&started.prepared.volumes);
    for step in &coming {
        let device = step.device();
        // What has one device does not come back as another before the first has gone. What lacks its volume has been told already.
        let lacks_volume =
            matches!(device.kind, Kind::Disk(_)) && device.of.as_ref().is_some_and(|name| without.contains(name));
        if lacks_volume || held.iter().any(|held| is_namesake(held, device)) {
            continue;
        }
        failures.extend(take_one(started, vmi, new, step).await.err());
        if is_lagging(&failures) {
            return failures;
        }
    }
    failures
}

/// The model must not lag behind by more than one step.
fn is_lagging(failures: &[ChangeError]) -> bool {
    matches!(failures.last(), Some(ChangeError::Model(_)))
}

/// Whether two devices are the same one to the instance. A disk and an interface may have the same name.
fn is_namesake(one: &Device, other: &Device) -> bool {
    one.of.is_some() && one.of == other.of && discriminant(&one.kind) == discriminant(&other.kind)
}

impl Started {
    /// Forgets what a device stood on that has gone. What is still asked for stays: another device of the same name stands on it.
    fn release(&mut self, vmi: &VirtualMachineInstance, new: &Guest, device: &Device) {
        let Some(name) = &device.of else { return };
        match device.kind {
            Kind::Disk(_) => self.prepared.release(name, vmi),
            Kind::Interface(_) if !new.devices.values().any(|other| is_namesake(device, other)) => {
                self.wiring.interfaces.remove(name);
            }
            _ => {}
        }
    }
}

async fn take_one(
    started: &mut Started,
    vmi: &VirtualMachineInstance,
    new: &Guest,
    step: &Step,
) -> Result<(), ChangeError> {
    let (what, id, device) = match step {
        Step::Plug(id, device) => ("plugged in", id, device),
        Step::Unplug(id, device) => ("unplugged", id, device),
    };
    let name = device.of.clone().unwrap_or_else(|| id.to_string());
    match step {
        Step::Plug(..) => plug(&started.handle, id, &name, &parts(started, new, id)?).await?,
        Step::Unplug(..) => {
            let old = started.handle.guest.borrow().clone();
            unplug(&started.handle, id, &name, &parts(started, &old, id)?).await?;
        }
    }
    tracing::info!(%id, name = device.of.as_deref().unwrap_or_default(), what, "the guest was changed");
    let mut now = Guest::clone(&started.handle.guest.borrow());
    step.apply(&mut now);
    // Ids that were given out are never given out again, whatever becomes of the other steps.
    now.minted.clone_from(&new.minted);
    model::store(&started.wiring.runtime, &now)?;
    // What a step is done again with must stay until then.
    if matches!(step, Step::Unplug(..)) {
        started.release(vmi, new, device);
    }
    started.handle.guest.send_replace(Arc::new(now));
    Ok(())
}

fn parts(started: &Started, guest: &Guest, id: &DeviceId) -> Result<Vec<Part>, ChangeError> {
    render::parts(guest, &started.wiring, id).map_err(|refusals| {
        let first = refusals.into_iter().next().map(|refusal| refusal.to_string());
        ChangeError::NotLive(first.unwrap_or_else(|| id.to_string()))
    })
}

/// Puts a device together, the guest's side last.
async fn plug(handle: &Handle, id: &DeviceId, name: &str, parts: &[Part]) -> Result<(), ChangeError> {
    if is_there(handle, id).await.map_err(|error| ChangeError::Plug(name.to_owned(), error))? {
        return Ok(());
    }
    // What an earlier attempt has left is in the way of this one.
    take_apart(handle, parts).await;
    for part in parts {
        let call = part.add().ok_or_else(|| ChangeError::NotLive(name.to_owned()))?;
        if let Err(error) = handle.qmp.execute(call).await {
            take_apart(handle, parts).await;
            return Err(ChangeError::Plug(name.to_owned(), error));
        }
    }
    Ok(())
}

/// Asks the guest to let go of a device, and takes apart what was behind it.
async fn unplug(handle: &Handle, id: &DeviceId, name: &str, parts: &[Part]) -> Result<(), ChangeError> {
    let failed = |error| ChangeError::Unplug(name.to_owned(), error);
    let mut departures = handle.departures();
    if is_there(handle, id).await.map_err(failed)? {
        if let Some(call) = parts.last().and_then(Part::remove) {
            // It may have been asked before, and not have answered yet.
            if let Err(error) = handle.qmp.execute(call).await {
                tracing::debug!(%error, "ask the guest to release a device");
            }
        }
        let gone = async {
            while is_there(handle, id).await? {
                if departures.changed().await.is_err() {
                    return Err(QmpError::Closed);
                }
            }
            Ok(())
        };
        match timeout(DEPARTURE, gone).await {
            Ok(gone) => gone.map_err(failed)?,
            Err(_) => return Err(ChangeError::InUse(name.to_owned())),
        }
    }
    take_apart(handle, parts).await;
    Ok(())
}

/// Removes what is behind a device that is not there. What is not there either is no problem.
async fn take_apart(handle: &Handle, parts: &[Part]) {
    let behind = parts.iter().rev().filter(|part| !matches!(part, Part::Device(_)));
    for call in behind.filter_map(Part::remove) {
        if let Err(error) = handle.qmp.execute(call).await {
            tracing::debug!(%error, "remove the backend of a device");
        }
    }
}

async fn is_there(handle: &Handle, id: &DeviceId) -> Result<bool, QmpError> {
    let devices = handle.qmp.execute(QomList { path: "/machine/peripheral" }).await?;
    Ok(devices.iter().any(|device| device.name == id.as_str()))
}

#[cfg(test)]
mod tests;
