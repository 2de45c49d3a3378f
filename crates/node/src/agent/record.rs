//! What the agent writes down about a pod before it acts, so that the next agent can go on from there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::runtime::spec::{ContainerState, PodState};

/// What a container's exit code is when nobody saw its end.
const UNKNOWN: i32 = 255;
const FILE: &str = "orlop.json";

/// One pod on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The pod's namespace.
    pub(super) namespace: String,
    /// The pod's name.
    pub(super) name: String,
    /// The pod's UID.
    pub(super) uid: String,
    /// The boot of the machine that its sandbox belongs to.
    pub(super) boot: String,
    /// The user that it runs as, if it uses the machine's own programs.
    pub(super) user: Option<u32>,
    /// A sandbox was asked for and is not ended.
    pub(super) sandbox: bool,
    /// Its addresses; none before it is connected.
    pub(super) addresses: Option<Vec<IpAddr>>,
    /// Init containers are done with, in this sandbox.
    pub(super) initialized: bool,
    /// Containers that were asked for, by name.
    pub(super) containers: BTreeMap<String, Kept>,
    /// Claims were given to its user or group: that is done once.
    #[serde(default)]
    pub(super) given: bool,
    /// The contents of images that are its volumes, by which they are kept on this machine.
    #[serde(default)]
    pub(super) images: BTreeSet<String>,
    /// Since when all of it is being ended.
    pub(super) stopping: Option<Timestamp>,
    /// Nothing of it is left but its logs.
    pub(super) released: bool,
}

/// One container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The newest attempt that was asked for.
    pub(super) attempt: u32,
    /// What its image was called.
    pub(super) image: String,
    /// Which image that was.
    pub(super) image_id: String,
    /// The content of that image, by which it is kept on this machine.
    pub(super) content: String,
    /// The signal that asks it to end.
    pub(super) stop_signal: i32,
    /// How the newest attempt ended.
    pub(super) end: Option<End>,
    /// How the one before ended.
    pub(super) last: Option<End>,
    /// Restarts in a row, for the back-off.
    pub(super) crashes: u32,
    /// The newest attempt was asked to end.
    pub(super) stopping: Option<Stopping>,
}

/// A container that was asked to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stopping {
    pub(super) since: Timestamp,
    /// It was told, not asked.
    pub(super) killed: bool,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct End {
    /// Its name for the runtime.
    pub(super) id: String,
    /// What it answered.
    pub(super) exit_code: i32,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
    /// Memory was short.
    pub(super) out_of_memory: bool,
    /// None if it never ran, or nobody knows.
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Timestamp,
    /// What it left to say.
    pub(super) message: String,
    /// Nobody saw it.
    pub(super) unknown: bool,
}

impl End {
    fn of(state: &ContainerState) -> Option<Self> {
        let ContainerState::Exited {
            attempt: _,
            id,
            exit_code,
            signal,
            out_of_memory,
            started_at,
            finished_at,
            message,
        } = state
        else {
            return None;
        };
        Some(Self {
            id: id.clone(),
            exit_code: *exit_code,
            signal: *signal,
            out_of_memory: *out_of_memory,
            started_at: *started_at,
            finished_at: *finished_at,
            message: message.clone(),
            unknown: false,
        })
    }

    fn unseen(now: Timestamp) -> Self {
        Self {
            id: String::new(),
            exit_code: UNKNOWN,
            signal: None,
            out_of_memory: false,
            started_at: None,
            finished_at: now,
            message: "The container could not be located when the pod was looked at again".to_owned(),
            unknown: true,
        }
    }
}

impl Record {
    /// Takes over what the shim tells. Without a shim, or with a lost one, what ran has ended, and nobody knows how.
    /// Returns whether anything changed: a container has ended.
    pub(super) fn settle(&mut self, state: Option<&PodState>, now: Timestamp) -> bool {
        let lost = self.sandbox && state.is_none_or(|state| state.lost);
        let mut changed = false;
        for (name, kept) in &mut self.containers {
            if kept.end.is_some() {
                continue;
            }
            let known = state.and_then(|state| state.containers.get(name));
            let known = known.filter(|known| known.attempt() == kept.attempt);
            kept.end = known.and_then(End::of).or_else(|| lost.then(|| End::unseen(now)));
            if let Some(End { exit_code, signal, out_of_memory, unknown, message, .. }) = &kept.end {
                // Why it could not be started, or what it left as its last words: those are its own, and of any length.
                let said = message.char_indices().nth(200).map_or(message.as_str(), |(end, _)| &message[..end]);
                let said = (!said.is_empty()).then_some(said);
                tracing::info!(
                    container = name,
                    exit_code,
                    signal,
                    out_of_memory,
                    unknown,
                    said,
                    "a container has ended"
                );
                changed = true;
            }
        }
        changed
    }

    /// A container is about to be started from an image, of which only what the image says is taken over.
    pub(super) fn starts(&mut self, name: &str, attempt: u32, of: Kept) {
        let kept = self.containers.entry(name.to_owned()).or_default();
        if let Some(end) = kept.end.take() {
            let ran = end.started_at.map(|at| end.finished_at.duration_since(at));
            let long = ran.is_some_and(|ran| ran.as_secs() >= super::backoff::FORGIVEN.as_secs().cast_signed());
            kept.crashes = if long { 1 } else { kept.crashes.saturating_add(1) };
            kept.last = Some(end);
        }
        let Kept { last, crashes, .. } = std::mem::take(kept);
        *kept = Kept { attempt, last, crashes, end: None, stopping: None, ..of };
    }

    /// The images that it needs, by their content.
    pub(super) fn contents(&self) -> impl Iterator<Item = &String> {
        let containers = self.containers.values().map(|kept| &kept.content).filter(|content| !content.is_empty());
        containers.chain(&self.images)
    }

    /// A new sandbox takes the place of one that is lost: init containers run again.
    pub(super) fn renew(&mut self, init: &[&str]) {
        self.initialized = false;
        for name in init {
            if let Some(kept) = self.containers.get_mut(*name)
                && let Some(end) = kept.end.take()
            {
                kept.last = Some(end);
                kept.attempt = kept.attempt.saturating_add(1);
                kept.stopping = None;
            }
        }
    }
}

/// Where a pod's directory is below the kubelet's root.
#[must_use]
pub(super) fn folder(root: &Path, uid: &str) -> PathBuf {
    root.join("pods").join(uid)
}

/// Writes a record so that either the old or the new one is there, whatever happens.
///
/// # Errors
/// When the disk does not take it.
pub(super) fn write(root: &Path, record: &Record) -> std::io::Result<()> {
    let folder = folder(root, &record.uid);
    std::fs::create_dir_all(&folder)?;
    let new = folder.join(format!(".{FILE}.new"));
    let file = std::fs::File::create(&new)?;
    serde_json::to_writer(&file, record)?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join(FILE))
}

/// All records. One that cannot be read is of a pod that never got as far as having one.
///
/// # Errors
/// When the directory cannot be read.
pub(super) fn all(root: &Path) -> std::io::Result<Vec<Record>> {
    let entries = match std::fs::read_dir(root.join("pods")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut records = Vec::new();
    for entry in entries {
        let Ok(bytes) = std::fs::read(entry?.path().join(FILE)) else { continue };
        match serde_json::from_slice::<Record>(&bytes) {
            Ok(record) => records.push(record),
            Err(error) => tracing::warn!(%error, "cannot read a pod's record"),
        }
    }
    records.sort_by(|one, other| one.uid.cmp(&other.uid));
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn record() -> Record {
        let mut record = Record { uid: "u".to_owned(), sandbox: true, ..Record::default() };
        record.starts("c", 0, Kept::default());
        record
    }

    #[test]
    fn what_a_lost_shim_ran_has_ended_unseen() {
        let mut record = record();
        let running = ContainerState::Running { attempt: 0, id: "x".to_owned(), pid: 1, started_at: at(1) };
        let mut state = PodState { lost: false, containers: BTreeMap::from([("c".to_owned(), running)]) };
        assert!(!record.settle(Some(&state), at(5)));
        state.lost = true;
        assert!(record.settle(Some(&state), at(6)));
        let end = record.containers["c"].end.clone().unwrap();
        assert_eq!((end.exit_code, end.unknown, end.finished_at), (255, true, at(6)));
        assert!(!record.settle(None, at(7)), "an end is not seen twice");
    }

    #[test]
    fn a_start_that_the_shim_never_heard_of_is_no_end() {
        let mut record = record();
        assert!(!record.settle(Some(&PodState::default()), at(5)));
        assert_eq!(record.containers["c"].end, None);
    }

    #[test]
    fn records_survive_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(all(folder.path()).unwrap(), []);
        let record = record();
        write(folder.path(), &record).unwrap();
        std::fs::create_dir_all(folder.path().join("pods/other")).unwrap();
        assert_eq!(all(folder.path()).unwrap(), [record]);
    }

    #[test]
    fn whoever_ran_long_is_forgiven() {
        let mut record = record();
        for (attempt, ran, crashes) in [(1, 1, 1), (2, 1, 2), (3, 700, 1)] {
            let mut end = End::unseen(at(1000));
            end.started_at = Some(at(1000 - ran));
            record.containers.get_mut("c").unwrap().end = Some(end);
            record.starts("c", attempt, Kept::default());
            assert_eq!(record.containers["c"].crashes, crashes);
        }
    }
}
