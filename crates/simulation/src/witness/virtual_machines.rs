//! A disk has one writer, nothing starts that nobody asked for, a set makes no more instances than it was ever asked for, no
//! finalizer is lost, and phases only move forward.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::names::{annotation, finalizer, label};
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::Value;
use tokio::time::Instant;

use super::{Heard, SET, controller};
use crate::progress::Lives;
use crate::world::World;

/// Between the last look at a VM and the instance that comes of it, besides the time that requests are on their way:
/// whoever starts a VM has just looked at it.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What is known so far, by UID.
pub(super) struct Seen {
    /// Whether nobody takes pods away whose guests may still run.
    one_writer: bool,
    pub(super) lives: Lives,
    vms: BTreeMap<String, Vm>,
    /// The most replicas that each set was ever asked for.
    sets: BTreeMap<String, u64>,
    /// Those that are there.
    vmis: BTreeMap<String, Vmi>,
    /// Those that are there.
    pods: BTreeMap<String, Pod>,
    /// Instances that have had a launcher.
    launched: BTreeSet<String>,
    /// Instances that the user has deleted.
    released: BTreeSet<String>,
    /// Namespaces that go, by name.
    ending: BTreeSet<String>,
}

struct Vm {
    /// Whether its controller holds it.
    held: bool,
    /// Whether its instance shall outlive it.
    orphans: bool,
    /// Since when it asks for no instance.
    off_since: Option<Instant>,
}

struct Vmi {
    owner: Option<String>,
    /// The set that made it.
    made_by: Option<String>,
    /// Whether its set must count it: it has neither ended nor lost its pod.
    counts: bool,
    phase: String,
    /// Whether it stays until its pods are gone.
    held: bool,
    /// Whether somebody asked for its end.
    marked: bool,
}

struct Pod {
    /// Namespace and name of its instance.
    of: (String, String),
    vmi: String,
    /// Whether a guest may run in it.
    launches: bool,
    ended: bool,
}

impl Seen {
    pub(super) fn new(by_force: bool) -> Self {
        Self {
            one_writer: !by_force,
            lives: Lives::default(),
            vms: BTreeMap::new(),
            sets: BTreeMap::new(),
            vmis: BTreeMap::new(),
            pods: BTreeMap::new(),
            launched: BTreeSet::new(),
            released: BTreeSet::new(),
            ending: BTreeSet::new(),
        }
    }

    /// The user deletes an instance.
    pub(super) fn release(&mut self, uid: String) {
        self.released.insert(uid);
    }

    pub(super) fn look(&mut self, heard: &Heard, world: &World) -> Option<String> {
        let Heard { at, deleted, kind, object, holder } = heard;
        match *kind {
            "Pod" => self.pod(object, *deleted),
            "Namespace" => {
                self.namespace(object, *deleted);
                None
            }
            "VirtualMachine" => self.vm(object, *deleted, *at),
            SET => {
                self.set(object);
                None
            }
            _ => {
                let goes_on = self.ends_beside_its_guest(object, holder.as_deref());
                self.vmi(object, *deleted, *at, world).or(goes_on)
            }
        }
    }

    fn namespace(&mut self, object: &DynamicObject, deleted: bool) {
        if object.metadata.deletion_timestamp.is_some() && !deleted {
            self.ending.insert(object.name_any());
        } else {
            self.ending.remove(&object.name_any());
        }
    }

    fn set(&mut self, object: &DynamicObject) {
        let asked = object.data["spec"]["replicas"].as_u64().unwrap_or(1);
        let most = self.sets.entry(object.uid().unwrap_or_default()).or_default();
        *most = asked.max(*most);
    }

    /// No lost finalizer: a VM stays until its instance is gone, unless the instance shall outlive it.
    fn vm(&mut self, object: &DynamicObject, deleted: bool, at: Instant) -> Option<String> {
        let uid = object.uid()?;
        let (held, orphans) = (has(object, finalizer::VM_CONTROLLER), has(object, finalizer::ORPHAN));
        let before = self.vms.get(&uid);
        let is_off = deleted || object.metadata.deletion_timestamp.is_some() || !may_run(&object.data);
        let since = before.and_then(|before| before.off_since).unwrap_or(at);
        let dropped = before.is_some_and(|before| before.held && (!held || deleted) && !before.orphans && !orphans);
        self.vms.insert(uid.clone(), Vm { held, orphans, off_since: is_off.then_some(since) });
        let left = || self.vmis.values().any(|vmi| vmi.owner.as_ref() == Some(&uid));
        (dropped && left()).then(|| format!("VM {} lost its finalizer while its instance is there", object.name_any()))
    }

    fn vmi(&mut self, object: &DynamicObject, deleted: bool, at: Instant, world: &World) -> Option<String> {
        let (uid, name) = (object.uid()?, object.name_any());
        let owner = controller(object).filter(|owner| owner.kind == "VirtualMachine" || owner.kind == SET);
        let set = owner.as_ref().filter(|owner| owner.kind == SET).map(|owner| owner.uid.clone());
        let owner = owner.map(|owner| owner.uid);
        let phase = object.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let held = has(object, finalizer::VMI);
        self.lives.see(&uid, phase == "Running", deleted || is_final(&phase));
        let made_by = self.vmis.get(&uid).map_or(set, |known| known.made_by.clone());
        let marked = object.metadata.deletion_timestamp.is_some();
        let counts = !marked && !is_final(&phase) && !has_lost_its_pod(&object.data);
        let vmi = Vmi { owner, made_by, counts, phase, held, marked };
        let is_users = self.released.contains(&uid) || self.ending.contains(&object.namespace().unwrap_or_default());
        let broken = match self.vmis.get(&uid) {
            None => {
                let place = (object.namespace().unwrap_or_default(), name.clone());
                let why = self.unasked(&vmi, &place, at, world).or_else(|| self.too_many(&vmi));
                why.map(|why| format!("VMI {name} was made {why}"))
            }
            Some(before) if vmi.marked && !before.marked && before.owner.is_none() && !is_users => {
                Some(format!("VMI {name} was deleted, and belongs to nobody"))
            }
            Some(before) => self.step(&uid, before, &vmi, deleted).map(|why| format!("VMI {name} {why}")),
        };
        if deleted {
            self.vmis.remove(&uid);
        } else {
            self.vmis.insert(uid, vmi);
        }
        broken
    }

    /// An instance does not end while its guest goes on.
    fn ends_beside_its_guest(&self, object: &DynamicObject, holder: Option<&str>) -> Option<String> {
        let (phase, name) = (object.data["status"]["phase"].as_str()?, object.name_any());
        let before = self.vmis.get(&object.uid()?)?;
        let ends = is_final(phase) && !is_final(&before.phase);
        holder.filter(|_| ends).map(|pod| format!("VMI {name} is {phase} while its guest goes on in pod {pod}"))
    }

    /// Nothing is started for a VM that asked for nothing, but for what was on its way when it last did.
    fn unasked(&self, vmi: &Vmi, place: &(String, String), at: Instant, world: &World) -> Option<String> {
        let since = self.vms.get(vmi.owner.as_ref()?)?.off_since?;
        let ago = at.saturating_duration_since(since);
        let on_the_way = world.maker(place).map_or(Duration::ZERO, |maker| world.on_the_way(&maker, since, at));
        (ago > on_the_way + AT_ONCE).then(|| {
            let (ago, on_the_way) = (ago.as_secs(), on_the_way.as_secs());
            format!(
                "for a VM that has asked for none for {ago} s, of which requests were on their way for {on_the_way} s"
            )
        })
    }

    /// A set makes no more instances than it was asked for at any time: those that it made and that count, and this one.
    fn too_many(&self, vmi: &Vmi) -> Option<String> {
        let most = self.sets.get(vmi.made_by.as_ref()?)?;
        let others = self.vmis.values().filter(|one| one.counts && one.made_by == vmi.made_by).count();
        let is_more = u64::try_from(others).is_ok_and(|others| others >= *most);
        is_more.then(|| format!("beside {others} others, for a set that was never asked for more than {most}"))
    }

    fn step(&self, uid: &str, before: &Vmi, now: &Vmi, deleted: bool) -> Option<String> {
        let (old, new) = (rank(&before.phase), rank(&now.phase));
        if new < old || (is_final(&before.phase) && now.phase != before.phase) {
            return Some(format!("went from {} to {}", before.phase, now.phase));
        }
        let dropped = before.held && (!now.held || deleted);
        let left = || self.pods.values().filter(|pod| pod.vmi == uid).count();
        (dropped && left() > 0).then(|| format!("lost its finalizer while it has {} pods", left()))
    }

    /// A disk has one writer: one launcher for each instance, and none beside that of an earlier one. A launcher that went
    /// before its instance left Pending may have another after it: no guest has run in it. One that awaits a guest may stand beside
    /// another: which of the two may write, the ledger knows.
    fn pod(&mut self, object: &DynamicObject, deleted: bool) -> Option<String> {
        let (uid, name) = (object.uid()?, object.name_any());
        let owner = controller(object).filter(|owner| owner.kind == "VirtualMachineInstance")?;
        if deleted {
            self.pods.remove(&uid);
            return None;
        }
        let ended = matches!(object.data["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let launches = !object.annotations().contains_key(annotation::EPHEMERAL_PROVISIONING)
            && !object.labels().contains_key(label::MIGRATION_JOB_UID);
        let of = (object.namespace().unwrap_or_default(), owner.name);
        let pod = Pod { of: of.clone(), vmi: owner.uid.clone(), launches, ended };
        let is_new = self.pods.insert(uid.clone(), pod).is_none();
        if !is_new || !launches || !self.one_writer {
            return None;
        }
        let others = || self.pods.iter().filter(|(one, pod)| **one != uid && pod.launches && pod.of == of);
        let has_started = self.vmis.get(&owner.uid).is_none_or(|vmi| rank(&vmi.phase) > rank("Pending"));
        let is_second = !self.launched.insert(owner.uid.clone());
        if others().any(|(_, pod)| pod.vmi == owner.uid) || (is_second && has_started) {
            return Some(format!("pod {name} is a second launcher of one instance"));
        }
        let earlier = others().any(|(_, pod)| !pod.ended);
        earlier.then(|| format!("pod {name} was made while that of an earlier instance has not ended"))
    }
}

fn has(object: &DynamicObject, finalizer: &str) -> bool {
    object.finalizers().iter().any(|one| one == finalizer)
}

/// Whether a VM asks for an instance, or may do so.
fn may_run(vm: &Value) -> bool {
    let by_the_old_field = if vm["spec"]["running"] == true { "Always" } else { "Halted" };
    let requests = vm["status"]["stateChangeRequests"].as_array().map(Vec::as_slice).unwrap_or_default();
    match vm["spec"]["runStrategy"].as_str().unwrap_or(by_the_old_field) {
        "Halted" => false,
        "Manual" => requests.iter().any(|request| request["action"] == "Start"),
        _ => true,
    }
}

/// Whether its set replaces it although nobody asked for its end.
fn has_lost_its_pod(vmi: &Value) -> bool {
    let conditions = vmi["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|one| one["type"] == "Ready" && one["reason"] == "PodTerminating")
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

fn rank(phase: &str) -> u8 {
    match phase {
        "" => 0,
        "Pending" => 1,
        "Scheduling" => 2,
        "Scheduled" => 3,
        "Running" => 4,
        _ => 5,
    }
}
