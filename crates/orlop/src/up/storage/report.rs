//! What `orlop status` and `/readyz?verbose` say of the storage of volumes.

use std::path::Path;

use api::quantity::Amount;
use serde::{Deserialize, Serialize};
use storage::volumes::{Capacity, Copies};

use super::Opened;
use crate::up::report::Less;

/// With less free room than this, in bytes, storage is nearly full; or with less than a twentieth of it.
const LITTLE: u64 = 5 << 30;

/// The storage of volumes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StorageReport {
    /// Where volumes are, and how much room there is.
    pub(crate) volumes: String,
    /// How snapshots and clones of disks are made.
    pub(crate) clones: String,
    /// What would make them faster.
    pub(crate) remedy: Option<String>,
}

impl StorageReport {
    /// In one line.
    pub(crate) fn line(&self) -> String {
        let remedy = self.remedy.iter().map(|remedy| format!("; {remedy}")).collect::<String>();
        format!("{}; clones: {}{remedy}", self.volumes, self.clones)
    }
}

impl Opened {
    /// How it is now, and what is short.
    pub(crate) fn report(&self) -> (StorageReport, Option<Less>) {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let kind = file_system(&mounts, &self.root).unwrap_or("an unknown file system").to_owned();
        let capacity = self.volumes.capacity();
        let report = report(&self.root, &kind, capacity.as_ref().ok().copied(), self.volumes.copies());
        (report, capacity.ok().and_then(nearly_full))
    }
}

fn report(root: &Path, kind: &str, capacity: Option<Capacity>, copies: &Copies) -> StorageReport {
    let room = match capacity {
        Some(Capacity { total, free }) => {
            format!("{} of {} free", whole(free), whole(total))
        }
        None => "of unknown size".to_owned(),
    };
    let (clones, remedy) = match copies {
        Copies::Shared => ("they share blocks with their origin, and take no time".to_owned(), None),
        Copies::Plain { why } => (
            format!("plain copies, which take time and room: {kind} does not share blocks between files ({why})"),
            Some(
                "to change that, start with --storage-size SIZE, or --storage-dir DIR on XFS or btrfs; volumes that exist are not moved"
                    .to_owned(),
            ),
        ),
    };
    StorageReport { volumes: format!("{} on {kind}, {room}", root.display()), clones, remedy }
}

/// In whole MiB, or GiB where there are many.
fn whole(bytes: u64) -> Amount {
    let unit: u64 = if bytes >= 10 << 30 { 1 << 30 } else { 1 << 20 };
    Amount::bytes(bytes / unit * unit)
}

fn nearly_full(Capacity { total, free }: Capacity) -> Option<Less> {
    (free < LITTLE.min(total / 20)).then(|| Less {
        what: "volumes nearly full".to_owned(),
        why: format!(
            "{} of {} are free; when none are, guests that write to their disks stop until there is room",
            whole(free),
            whole(total)
        ),
        remedy: "delete unneeded claims and snapshots, or start `orlop up` with a larger --storage-size".to_owned(),
    })
}

/// The kind of the file system that a path is on.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounted = mounts.lines().filter_map(|line| {
        let (own, source) = line.split_once(" - ")?;
        let place = own.split(' ').nth(4)?.replace("\\040", " ");
        path.starts_with(&place).then(|| (place.len(), source.split(' ').next()))
    });
    // Of two at the same place, the later one hides the earlier.
    mounted.max_by_key(|(length, _)| *length).and_then(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_is_the_file_system() {
        let mounts = "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      30 24 8:2 / /srv rw shared:1 - btrfs /dev/sdb rw\n\
                      31 24 8:3 / /srv rw shared:1 - xfs /dev/sdc rw\n";
        assert_eq!(file_system(mounts, Path::new("/var/lib")), Some("ext4"));
        assert_eq!(file_system(mounts, Path::new("/srv/a")), Some("xfs"));
        assert_eq!(file_system(mounts, Path::new("/srvs")), Some("ext4"));
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn plain_copies_are_told_with_what_would_change_them() {
        let capacity = Some(Capacity { total: 40 << 30, free: (12 << 30) + 5 });
        let plain = Copies::Plain { why: "Operation not supported".to_owned() };
        let told = report(Path::new("/v"), "ext4", capacity, &plain);
        assert_eq!(told.volumes, "/v on ext4, 12Gi of 40Gi free");
        assert!(told.clones.contains("ext4 does not share blocks") && told.line().contains("--storage-size SIZE"));
        let told = report(Path::new("/v"), "xfs", capacity, &Copies::Shared);
        assert_eq!(told.remedy, None);
        assert_eq!(
            told.line(),
            "/v on xfs, 12Gi of 40Gi free; clones: they share blocks with their origin, and take no time"
        );
    }

    #[test]
    fn storage_that_is_nearly_full_is_told_in_time() {
        assert_eq!(nearly_full(Capacity { total: 200 << 30, free: 5 << 30 }), None);
        let told = nearly_full(Capacity { total: 20 << 30, free: 1000 << 20 }).unwrap();
        assert!(told.why.starts_with("1000Mi of 20Gi are free;"), "{told:?}");
    }
}
