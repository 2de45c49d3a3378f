//! Disks whose contents are in the pod and nowhere else: overlays of container disks, empty disks, disks made from configuration.
//!
//! They are copied before the memory, and kept equal until the guest is stopped. What a disk stands on is not copied: both sides have
//! it from the same image, which is compared by its digest. A disk that nobody can write to is compared as a whole.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use hypervisor::guest::{Guest, Kind, Media};
use hypervisor::qmp::commands::{
    BlockJobCancel, BlockdevAdd, BlockdevDel, BlockdevMirror, QueryBlockJobs, QueryNamedBlockNodes,
};
use hypervisor::qmp::{Event, Qmp, QmpError};
use hypervisor::render;
use launcher_api::names::disk_channel;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Duration, interval};

use super::lanes::{Lanes, Pump};
use super::target::Export;
use crate::volumes::Prepared;

/// A disk of this pod alone, as both sides of a migration compare it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalDisk {
    pub device: String,
    /// How large it is for the guest, in bytes.
    pub size: u64,
    /// A digest of what both sides must have already: the images that it stands on, or all of it.
    pub digest: String,
    /// Its contents are copied.
    pub is_copied: bool,
}

/// Why disks were not copied.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// A file could not be read.
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Both sides do not have the same disks.
    #[error("the disk {device} differs on the target: {how}")]
    Differs { device: String, how: &'static str },
    /// The bytes do not get there.
    #[error("connect the disk {device} to the target")]
    Lane { device: String, source: io::Error },
    /// QEMU did not do it.
    #[error(transparent)]
    Qemu(#[from] QmpError),
    /// A copy came to an end that was not to end.
    #[error("the copy of the disk {device} failed: {why}")]
    Failed { device: String, why: String },
    /// QEMU tells nothing any more.
    #[error("QEMU has ended")]
    Gone,
}

/// What a device's disk consists of, as far as this pod alone has it.
struct Local<'a> {
    device: &'a str,
    /// What is compared.
    files: Vec<&'a Path>,
    is_copied: bool,
    is_layered: bool,
}

fn local<'a>(guest: &'a Guest, prepared: &'a Prepared) -> Vec<Local<'a>> {
    let mut all = Vec::new();
    for (name, source) in prepared.local() {
        for (id, device) in &guest.devices {
            let Kind::Disk(disk) = &device.kind else { continue };
            if device.of.as_deref() != Some(name) {
                continue;
            }
            // As it is rendered: what is read-only for QEMU cannot be filled.
            let is_copied = !(source.read_only || disk.read_only || disk.media == Media::Cdrom);
            let below = source.below.iter().map(|layer| layer.path.as_path());
            let top = (!is_copied).then_some(source.top.path.as_path());
            let is_layered = !source.below.is_empty();
            all.push(Local {
                device: id.as_str(),
                files: top.into_iter().chain(below).collect(),
                is_copied,
                is_layered,
            });
        }
    }
    all
}

/// The disks that QEMU is to serve so that they are filled.
pub(crate) fn exports(guest: &Guest, prepared: &Prepared) -> Vec<Export> {
    let copied = local(guest, prepared).into_iter().filter(|disk| disk.is_copied);
    copied.map(|disk| Export { device: disk.device.to_owned() }).collect()
}

/// Looks at the disks of a guest that only this pod has.
///
/// # Errors
/// When a file cannot be read, or QEMU does not answer.
pub(crate) async fn look(guest: &Guest, prepared: &Prepared, qmp: &Qmp) -> Result<Vec<LocalDisk>, MirrorError> {
    let disks = local(guest, prepared);
    if disks.is_empty() {
        return Ok(vec![]);
    }
    let nodes = qmp.execute(QueryNamedBlockNodes { flat: true }).await?;
    let mut all = Vec::new();
    for Local { device, files, is_copied, .. } in disks {
        let node = render::node_of(device);
        let known = nodes.iter().find(|known| known.node_name.as_ref() == Some(&node));
        let size = known.map_or(0, |known| known.image.virtual_size);
        let files: Vec<PathBuf> = files.into_iter().map(Path::to_owned).collect();
        // A disk takes its time to be read.
        let reading = tokio::task::spawn_blocking(move || digest(&files));
        let digest = reading.await.map_err(|_| MirrorError::Gone)??;
        all.push(LocalDisk { device: device.to_owned(), size, digest, is_copied });
    }
    Ok(all)
}

fn digest(files: &[PathBuf]) -> Result<String, MirrorError> {
    let mut digest = Sha256::new();
    for path in files {
        let failed = |source| MirrorError::Read { path: path.clone(), source };
        let mut file = std::fs::File::open(path).map_err(failed)?;
        let mut buffer = vec![0; 1 << 20];
        let mut length = 0u64;
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            let (part, _) = buffer.split_at(count);
            if part.is_empty() {
                break;
            }
            length += count as u64;
            digest.update(part);
        }
        // Where one file ends is part of it.
        digest.update(length.to_le_bytes());
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Why a disk cannot be copied onto the target's.
const IMAGE: &str = "the image that it stands on is another";
/// Why a disk that is compared as a whole is not the target's. It is made anew for each launcher, from objects that may have changed.
const CONTENT: &str = "its content is another; a config map, a secret, cloud-init data or an image that it is made from has changed since \
                       the guest started. Change that back, or restart the guest";

/// Whether both sides have the same disks.
///
/// # Errors
/// The first that differs.
pub(crate) fn compare(here: &[LocalDisk], there: &[LocalDisk]) -> Result<(), MirrorError> {
    for disk in here.iter().chain(there) {
        let differs = |how| Err(MirrorError::Differs { device: disk.device.clone(), how });
        let of = |side: &[LocalDisk]| side.iter().find(|other| other.device == disk.device).cloned();
        match (of(here), of(there)) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (Some(ours), Some(theirs)) if ours.is_copied != theirs.is_copied => {
                return differs("only one side can write to it");
            }
            (Some(ours), Some(_)) if !ours.is_copied => return differs(CONTENT),
            (Some(ours), Some(theirs)) if ours.size != theirs.size => return differs("its size is another"),
            (Some(_), Some(_)) => return differs(IMAGE),
            (Some(_), None) => return differs("the target does not have it"),
            (None, _) => return differs("the source does not have it"),
        }
    }
    Ok(())
}

/// How often copies are looked at whose events may have been missed.
const LOOK: Duration = Duration::from_secs(1);

/// Copies under way.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    jobs: Vec<Job>,
}

#[derive(Debug)]
struct Job {
    device: String,
    is_ready: bool,
    has_ended: bool,
    /// QEMU did not know it when it was last asked.
    is_missing: bool,
    /// Its lane, which ends with it.
    pump: Option<Pump>,
}

impl Job {
    fn new(device: &str, pump: Option<Pump>) -> Self {
        Self { device: device.to_owned(), is_ready: false, has_ended: false, is_missing: false, pump }
    }

    fn failed(&self, why: &str) -> MirrorError {
        MirrorError::Failed { device: self.device.clone(), why: why.to_owned() }
    }
}

fn name(device: &str) -> String {
    format!("mirror-{device}")
}

/// What one of so many copies may use of a bandwidth.
fn share(bandwidth: u64, disks: usize) -> u64 {
    match (bandwidth, u64::try_from(disks)) {
        (0, _) | (_, Err(_)) => 0,
        // Zero would be without a limit.
        (limit, Ok(disks)) => (limit / disks.max(1)).max(1),
    }
}

impl Mirrors {
    /// Begins to copy these disks, all together with this many bytes per second; zero is without a limit.
    pub(super) async fn start(
        &mut self,
        qmp: &Qmp,
        lanes: &mut Lanes,
        disks: &[(String, bool)],
        bandwidth: u64,
    ) -> Result<(), MirrorError> {
        let speed = share(bandwidth, disks.len());
        for (device, is_layered) in disks {
            let lost = |source| MirrorError::Lane { device: device.clone(), source };
            let lane = lanes.lane(&disk_channel(device)).await.map_err(lost)?;
            let name = name(device);
            let server = json!({ "type": "unix", "path": lane.path() });
            let node = json!({ "driver": "nbd", "node-name": name, "server": server, "export": device });
            let (added, pump) = tokio::join!(qmp.execute(BlockdevAdd(node)), lane.connect());
            let pump = pump.map_err(lost)?;
            added?;
            let job = BlockdevMirror {
                job_id: name.clone(),
                device: render::node_of(device),
                target: name,
                sync: if *is_layered { "top" } else { "full" },
                speed,
                on_target_error: "report",
                on_source_error: "report",
            };
            self.jobs.push(Job::new(device, Some(pump)));
            qmp.execute(job).await?;
        }
        Ok(())
    }

    /// Takes in what QEMU tells.
    ///
    /// # Errors
    /// When a copy has failed.
    pub(super) fn hear(&mut self, event: &Event) -> Result<(), MirrorError> {
        let text = |key: &str| event.data[key].as_str().unwrap_or_default().to_owned();
        let Some(job) = self.jobs.iter_mut().find(|job| name(&job.device) == text("device")) else { return Ok(()) };
        match event.name.as_str() {
            "BLOCK_JOB_READY" => job.is_ready = true,
            "BLOCK_JOB_COMPLETED" | "BLOCK_JOB_CANCELLED" => {
                job.has_ended = true;
                let why = text("error");
                if !why.is_empty() || event.name == "BLOCK_JOB_CANCELLED" {
                    return Err(MirrorError::Failed { device: job.device.clone(), why });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn are(&self, what: impl Fn(&Job) -> bool) -> bool {
        self.jobs.iter().all(what)
    }

    /// Asks QEMU how much is still to be copied; nothing is known before all copies have begun. Finds what no event has told.
    ///
    /// # Errors
    /// When a copy is gone, and nobody heard how it ended.
    pub(super) async fn look(&mut self, qmp: &Qmp) -> Result<Option<u64>, MirrorError> {
        let known = qmp.execute(QueryBlockJobs {}).await?;
        let mut remaining = Some(0u64);
        for job in self.jobs.iter_mut().filter(|job| !job.has_ended) {
            match known.iter().find(|known| known.device == name(&job.device)) {
                Some(found) => {
                    job.is_ready |= found.ready;
                    job.is_missing = false;
                    let left = (found.ready || found.len > 0).then(|| found.len.saturating_sub(found.offset));
                    remaining = remaining.zip(left).map(|(all, left)| all.saturating_add(left));
                }
                // The event that says how it ended may be on its way.
                None if !job.is_missing => job.is_missing = true,
                None => return Err(job.failed("how it ended was missed")),
            }
        }
        Ok(remaining)
    }

    /// Whether all copies are equal to their disks, and stay so.
    ///
    /// # Errors
    /// When one has ended before that was wanted.
    pub(super) fn ready(&self) -> Result<bool, MirrorError> {
        match self.jobs.iter().find(|job| job.has_ended) {
            Some(job) => Err(job.failed("it ended early")),
            None => Ok(self.are(|job| job.is_ready)),
        }
    }

    /// Ends the copies of a guest that is stopped: both sides are equal then.
    ///
    /// # Assumptions
    /// Whoever drops this half done gives up.
    pub(super) async fn finish(&mut self, qmp: &Qmp, events: &mut Receiver<Event>) -> Result<(), MirrorError> {
        self.ready()?;
        for job in &self.jobs {
            qmp.execute(BlockJobCancel { device: name(&job.device), force: false }).await?;
        }
        let mut looks = interval(LOOK);
        while !self.are(|job| job.has_ended) {
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Ok(event) => self.hear(&event)?,
                    // What was missed is found by looking.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(MirrorError::Gone),
                },
                _ = looks.tick() => {
                    self.look(qmp).await?;
                }
            }
        }
        while let Some(job) = self.jobs.last() {
            qmp.execute(BlockdevDel { node_name: name(&job.device) }).await?;
            self.jobs.pop();
        }
        Ok(())
    }

    /// Gives up whatever is under way. The guest's disks are as they were.
    pub(super) async fn give_up(&mut self, qmp: &Qmp, events: &mut Receiver<Event>) {
        for job in self.jobs.iter().filter(|job| !job.has_ended) {
            // It may have ended meanwhile, or never begun.
            if let Err(error) = qmp.execute(BlockJobCancel { device: name(&job.device), force: true }).await {
                tracing::debug!(%error, "cancel a copy");
            }
        }
        for mut job in std::mem::take(&mut self.jobs) {
            // A far end that takes nothing any more would be waited for.
            drop(job.pump.take());
            let delete = BlockdevDel { node_name: name(&job.device) };
            // The node is free when its job has ended.
            while let Err(QmpError::Refused { failure, .. }) = qmp.execute(delete.clone()).await {
                let named = |event: &Event| event.data["device"].as_str() == Some(&name(&job.device));
                tracing::debug!(%failure, "remove the far end of a copy");
                loop {
                    match events.recv().await {
                        Ok(event) if named(&event) && event.name.starts_with("BLOCK_JOB_C") => break,
                        Ok(_) => {}
                        // It may have been among what was missed.
                        Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => return,
                    }
                }
            }
        }
    }
}

/// The disks of a guest that are copied, and whether each stands on images that the other side has.
pub(crate) fn copied(guest: &Guest, prepared: &Prepared) -> Vec<(String, bool)> {
    let copied = local(guest, prepared).into_iter().filter(|disk| disk.is_copied);
    copied.map(|disk| (disk.device.to_owned(), disk.is_layered)).collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    fn disk(device: &str) -> LocalDisk {
        LocalDisk { device: device.into(), size: 1 << 20, digest: "d".into(), is_copied: true }
    }

    #[test]
    fn disks_that_differ_are_not_copied() {
        let both = [disk("a"), disk("b")];
        assert!(compare(&both, &both).is_ok());
        assert!(compare(&[], &[]).is_ok());
        for (theirs, how) in [
            (LocalDisk { size: 2, ..disk("b") }, "size"),
            (LocalDisk { digest: "e".into(), ..disk("b") }, "image"),
            (LocalDisk { is_copied: false, ..disk("b") }, "write"),
            (disk("c"), "does not have"),
        ] {
            let refused = compare(&both, &[disk("a"), theirs]).unwrap_err().to_string();
            assert!(refused.contains(how), "{refused}");
        }
        assert!(compare(&[], &[disk("a")]).is_err());
    }

    #[test]
    fn a_disk_that_is_made_from_what_has_changed_says_so() {
        let made = |digest: &str| LocalDisk { is_copied: false, digest: digest.into(), ..disk("a") };
        for changed in [made("e"), LocalDisk { size: 2, ..made("d") }] {
            let refused = compare(&[made("d")], &[changed]).unwrap_err().to_string();
            assert!(refused.contains("config map") && refused.contains("restart the guest"), "{refused}");
        }
    }

    /// A QEMU that answers by its script.
    async fn qemu(answers: Vec<serde_json::Value>) -> Qmp {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(async move {
            let version = json!({ "qemu": { "micro": 0, "minor": 2, "major": 7 }, "package": "" });
            let greeting = json!({ "QMP": { "version": version, "capabilities": [] } });
            let mut stream = BufReader::new(theirs);
            stream.get_mut().write_all(format!("{greeting}\r\n").as_bytes()).await.unwrap();
            for answer in [json!({})].into_iter().chain(answers) {
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                let question: serde_json::Value = serde_json::from_str(&line).unwrap();
                let answer = json!({ "return": answer, "id": question["id"] });
                stream.get_mut().write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
            }
        });
        hypervisor::qmp::connect(ours).await.unwrap().0
    }

    fn one_copy() -> Mirrors {
        Mirrors { jobs: vec![Job::new("vd0", None)] }
    }

    #[tokio::test]
    async fn how_far_copies_are_is_found_by_looking_even_if_no_event_told_it() {
        let job = |offset: u64, len: u64, ready: bool| json!([{ "device": "mirror-vd0", "offset": offset, "len": len, "ready": ready, "type": "mirror" }]);
        let answers = vec![job(0, 0, false), job(40, 100, false), job(100, 100, true), json!([]), json!([])];
        let (qmp, mut mirrors) = (qemu(answers).await, one_copy());
        assert_eq!(mirrors.look(&qmp).await.unwrap(), None, "it has not begun");
        assert_eq!(mirrors.look(&qmp).await.unwrap(), Some(60));
        assert!(!mirrors.ready().unwrap());
        assert_eq!(mirrors.look(&qmp).await.unwrap(), Some(0));
        assert!(mirrors.ready().unwrap());
        mirrors.look(&qmp).await.unwrap();
        let missed = mirrors.look(&qmp).await.unwrap_err().to_string();
        assert_eq!(missed, "the copy of the disk vd0 failed: how it ended was missed");
    }

    #[tokio::test]
    async fn events_that_were_missed_are_not_taken_for_qemus_end() {
        let (sender, mut events) = tokio::sync::broadcast::channel(2);
        let event = |name: &str| {
            let (data, timestamp) = (json!({ "device": "mirror-vd0" }), json!({ "seconds": 0, "microseconds": 0 }));
            serde_json::from_value::<Event>(json!({ "event": name, "data": data, "timestamp": timestamp })).unwrap()
        };
        for name in ["NOISE", "NOISE", "NOISE", "BLOCK_JOB_COMPLETED"] {
            sender.send(event(name)).unwrap();
        }
        let (qmp, mut mirrors) = (qemu(vec![json!({}), json!({})]).await, one_copy());
        mirrors.finish(&qmp, &mut events).await.unwrap();
    }

    #[test]
    fn copies_share_the_bandwidth_of_their_migration() {
        assert_eq!([share(0, 3), share(9, 3), share(1, 3), share(7, 0)], [0, 3, 1, 7]);
    }

    #[test]
    fn a_digest_tells_where_files_end() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (ab, c, a, bc) = (write("1", "ab"), write("2", "c"), write("3", "a"), write("4", "bc"));
        let same = [ab.clone()];
        assert_ne!(digest(&[ab, c]).unwrap(), digest(&[a, bc]).unwrap());
        assert_eq!(digest(&same).unwrap(), digest(&same).unwrap());
    }
}
