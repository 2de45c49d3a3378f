//! The room for claims: how much they may ask for together. See `docs/adr/0025-room-for-claims.md`.
//!
//! What all claims ask for is held against what their volumes have and what is free. A claim that does not fit is refused, with
//! an event and a condition that say how much there is; it is looked at again when a volume goes, and every now and then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::names::HAS_ROOM;
use api::quantity::Amount;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use manager::cache::Key;
use manager::events::Kind;
use manager::worker::Next;
use manager::writing::{unless_gone, whole_second};
use serde_json::{Value, json};
use storage::volumes::{Capacity, Name, Stored, VolumeError};

use super::decide::{bytes, requested};
use super::{ProvisionError, Provisioner, Work, blocking, is_ours, volume_name};

const REASON: &str = "InsufficientStorage";
/// Between two looks at a claim that does not fit: nobody tells when others free room of the disk.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// How much there is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// What the volumes have, and what is free.
    pub(super) there: u64,
    /// What other claims ask for.
    pub(super) claimed: u64,
    /// How much claims may ask for together, in percent of what is there.
    pub(super) overcommit: u64,
}

impl Room {
    /// How much a claim may still ask for.
    fn left(self) -> u64 {
        let all = u128::from(self.there) * u128::from(self.overcommit) / 100;
        u64::try_from(all.saturating_sub(u128::from(self.claimed))).unwrap_or(u64::MAX)
    }
}

/// Why a claim cannot have so many bytes; none if it can.
pub(super) fn refusal(asked: u64, room: Room) -> Option<String> {
    let left = room.left();
    (asked > left).then(|| {
        format!(
            "the claim asks for {}, and {} are left: there is room for {}, of which other claims ask for {}, and claims may ask \
             for {} % of it together; delete unneeded claims, or start `orlop up` with larger storage (--storage-size, \
             --storage-dir) or with a larger --storage-overcommit",
            Amount::bytes(asked),
            whole(left),
            whole(room.there),
            whole(room.claimed),
            room.overcommit,
        )
    })
}

/// In whole MiB, or GiB where there are many: what is free differs from moment to moment.
fn whole(bytes: u64) -> Amount {
    let unit: u64 = if bytes >= 10 << 30 { 1 << 30 } else { 1 << 20 };
    Amount::bytes(bytes / unit * unit)
}

/// Volumes that are being made or were, and how many bytes they may have: caches show them later.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises(Arc<Mutex<BTreeMap<String, u64>>>);

impl Promises {
    /// Promises room, unless it is not there. Nobody else is promised the same.
    fn promise(&self, name: &str, size: u64, cached: BTreeMap<String, u64>, room: Room) -> Result<(), String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut claimed = cached;
        all.iter().for_each(|(name, size)| {
            let known = claimed.entry(name.clone()).or_default();
            *known = (*known).max(*size);
        });
        claimed.remove(name);
        let claimed = claimed.into_values().fold(0, u64::saturating_add);
        if let Some(why) = refusal(size, Room { claimed, ..room }) {
            return Err(why);
        }
        all.insert(name.to_owned(), size);
        Ok(())
    }

    /// A volume is gone, or was never made.
    pub(super) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// What a claim was told about room, if it does not fit.
fn told(claim: &PersistentVolumeClaim) -> Option<&str> {
    let conditions = claim.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == HAS_ROOM && one.status == "False")?.message.as_deref()
}

/// The conditions of a claim that fits, to be merged into its status: none, if it was told that it does not.
pub(super) fn cleared(claim: &PersistentVolumeClaim, mut status: Value) -> Value {
    if told(claim).is_some() {
        status["conditions"] = Value::Null;
    }
    status
}

impl Provisioner {
    /// Lets claims ask for this much together, in percent of the room that there is.
    #[must_use]
    pub fn overcommitting(mut self, percent: u64) -> Self {
        self.overcommit = Some(percent);
        self
    }

    /// Promises room to a claim; or refuses it, and says when to look again.
    pub(super) async fn make_room(&self, claim: &PersistentVolumeClaim) -> Result<Option<Next>, ProvisionError> {
        let Some(overcommit) = self.overcommit else { return Ok(None) };
        let (name, size) = (volume_name(claim), requested(claim));
        let all = self.volumes.all();
        let cached: BTreeMap<String, u64> = all
            .iter()
            .filter(|volume| is_ours(volume))
            .map(|volume| {
                let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
                (volume.name_any(), capacity.map_or(0, bytes))
            })
            .collect();
        let names: Vec<Name> = cached.keys().filter_map(|name| Name::try_from(name.as_str()).ok()).collect();
        let there = blocking(&self.storage, move |storage| {
            let Capacity { total, free } = storage.capacity()?;
            let mut there = free;
            for name in names {
                match storage.usage(&Stored::Volume(name)) {
                    // One that goes meanwhile has none.
                    Err(VolumeError::Missing(_) | VolumeError::Io { .. }) => {}
                    usage => there = there.saturating_add(usage?),
                }
            }
            // Blocks that several share were counted for each.
            Ok(there.min(total))
        })
        .await?;
        match self.promises.promise(&name, size, cached, Room { there, claimed: 0, overcommit }) {
            Ok(()) => Ok(None),
            Err(why) => self.refuse(claim, why).await.map(|()| Some(Next::After(LOOK_AGAIN))),
        }
    }

    async fn refuse(&self, claim: &PersistentVolumeClaim, why: String) -> Result<(), ProvisionError> {
        if told(claim) == Some(why.as_str()) {
            return Ok(());
        }
        let condition = json!({
            "type": HAS_ROOM, "status": "False", "reason": REASON, "message": why,
            "lastTransitionTime": whole_second((self.now)()),
        });
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        unless_gone(claims.patch_status(&claim.name_any(), &PatchParams::default(), &status).await)?;
        self.recorder.record(claim, Kind::Warning, "ProvisioningFailed", why);
        Ok(())
    }

    /// Looks again at the claims that did not fit.
    pub(super) fn wake_refused(&self) {
        let refused = self.claims.all().into_iter().filter(|claim| told(claim).is_some());
        refused.for_each(|claim| self.queue.add(Work::Claim(Key::of(&*claim))));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_claim_that_does_not_fit_is_told_how_much_there_is() {
        let room = Room { there: 60 * GIB, claimed: 110 * GIB, overcommit: 200 };
        assert_eq!(refusal(10 * GIB, room), None);
        let told = refusal(10 * GIB + 1, room).unwrap();
        assert!(
            told.contains("10Gi are left: there is room for 60Gi, of which other claims ask for 110Gi, and claims may ask for 200 %"),
            "{told}"
        );
        // What is claimed already may be more than there is: the owner has asked for less, or the disk was filled by others.
        assert!(refusal(1, Room { claimed: 200 * GIB, ..room }).unwrap().contains(" and 0 are left"));
        assert_eq!(refusal(0, Room { claimed: 200 * GIB, ..room }), None);
    }

    proptest! {
        #[test]
        fn no_more_is_promised_than_there_is(
            asked in prop::collection::vec((0..6usize, 0..40u64, any::<bool>()), 0..40), overcommit in 100..300u64,
        ) {
            let (promises, mut cached) = (Promises::default(), BTreeMap::<String, u64>::new());
            let room = Room { there: 60, claimed: 0, overcommit };
            for (volume, size, is_seen) in asked {
                let name = format!("v{volume}");
                if size == 0 {
                    promises.forget(&name);
                    cached.remove(&name);
                } else if promises.promise(&name, size, cached.clone(), room).is_ok() && is_seen {
                    cached.insert(name, size);
                }
                let all: u64 = promises.0.lock().unwrap().values().sum();
                prop_assert!(all * 100 <= 60 * overcommit, "{all} of 60 with {overcommit} %");
            }
        }
    }
}
