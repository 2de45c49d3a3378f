//! Where volumes are to be, and the one next step on the way there. Pure.
//!
//! # Guarantees
//! - Volumes that exist stay where they are: where they are to be elsewhere, nothing is done, and the refusal says why.
//! - Whatever was cut off between two steps is gone on with: each step follows from what is there.
//! - What was recorded and is missing is never replaced by something empty.

use std::path::PathBuf;

use api::quantity::Amount;
use serde::{Deserialize, Serialize};
use storage::volumes::Capacity;

/// What mkfs.xfs takes at least.
pub(super) const SMALLEST: u64 = 300 << 20;
/// This share of a disk, in percent, stays free beside the file: nodes take no more VMs when less than a tenth is.
const RESERVE: u64 = 15;
/// However large the disk is, this is enough.
const MOST_RESERVE: u64 = 8 << 30;

/// What the owner of the machine asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    /// Nothing: all stays as it is.
    AsBefore,
    /// Volumes in this directory, which exists.
    Directory(PathBuf),
    /// An XFS of this many bytes.
    Size(u64),
}

/// Where volumes are, as it was written down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(super) enum Place {
    /// In the data directory.
    #[default]
    Data,
    /// In a directory of the owner's choice.
    Directory { path: PathBuf },
    /// On the XFS in a file of the data directory.
    File {
        /// The file is about to be larger than the file system, or is.
        #[serde(default)]
        growing: bool,
    },
}

/// What is needed of the machine, and may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Means {
    /// The kernel knows XFS.
    pub(super) kernel: bool,
    /// mkfs.xfs is there.
    pub(super) make: bool,
    /// xfs_growfs is there.
    pub(super) grow: bool,
}

/// What there is.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) place: Place,
    /// Where that is.
    pub(super) path: PathBuf,
    /// Volumes and snapshots there; none where that cannot be told before it is mounted.
    pub(super) volumes: Option<usize>,
    /// The file, and its bytes.
    pub(super) file: (PathBuf, Option<u64>),
    /// The file's XFS is mounted.
    pub(super) mounted: bool,
    /// Of the disk on which the file is.
    pub(super) disk: Capacity,
    /// Whose volumes are in the directory that is asked for, or was recorded: a data directory, if there is one.
    pub(super) owner: Option<PathBuf>,
    /// The data directory.
    pub(super) data: PathBuf,
    pub(super) means: Means,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// Nothing: volumes are there.
    Ready,
    /// Marks a directory as this machine's.
    Adopt(PathBuf),
    /// Writes down where volumes are.
    Record(Place),
    /// Makes the file, with an XFS in it.
    Make(u64),
    Mount,
    /// Makes the file larger.
    Extend(u64),
    /// Makes the file system as large as the file, and writes down that it is.
    Widen,
}

/// Why volumes cannot be there.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "{volumes} volumes and snapshots are in {}, and Orlop does not move them; start without --storage-dir and --storage-size to go on using them there, or delete their claims first",
        path.display()
    )]
    Elsewhere { volumes: usize, path: PathBuf },
    #[error("--storage-dir: {} has the volumes of {}; use another directory", path.display(), owner.display())]
    Taken { path: PathBuf, owner: PathBuf },
    #[error(
        "the volumes of this machine are in {}, which does not have them now; mount its file system, then start again",
        .0.display()
    )]
    NotThere(PathBuf),
    #[error(
        "{}, which has the volumes of this machine, is missing; put it back, then start again",
        .0.display()
    )]
    Lost(PathBuf),
    #[error("--storage-size: {} is less than the minimum of {}", Amount::bytes(*.0), Amount::bytes(SMALLEST))]
    Small(u64),
    #[error(
        "--storage-size: {} is less than the {} that {} has, and XFS cannot shrink; use {} or more",
        Amount::bytes(*.wanted), Amount::bytes(*.has), file.display(), Amount::bytes(*.has)
    )]
    Smaller { wanted: u64, has: u64, file: PathBuf },
    #[error(
        "--storage-size: {} more are needed, and the disk of {} has {} free, of which {} stay in reserve; use a smaller size, or free some space",
        Amount::bytes(*.needed), file.display(), Amount::bytes(*.free), Amount::bytes(*.reserve)
    )]
    Room { needed: u64, free: u64, reserve: u64, file: PathBuf },
    #[error("--storage-size needs {0}; on Debian or Ubuntu: sudo apt-get install xfsprogs")]
    Program(&'static str),
    #[error(
        "this kernel has no XFS; load its module (sudo modprobe xfs), or use --storage-dir with another file system"
    )]
    Kernel,
}

/// The next step towards what is wished for.
pub(super) fn decide(wish: &Wish, seen: &Seen) -> Result<Next, Refusal> {
    let is_file = matches!(seen.place, Place::File { .. });
    if is_file && seen.file.1.is_none() {
        return Err(Refusal::Lost(seen.file.0.clone()));
    }
    match wish {
        Wish::Size(size) => on_file(Some(*size), seen),
        Wish::AsBefore if is_file => on_file(None, seen),
        Wish::Directory(path) => in_directory(path, seen),
        Wish::AsBefore => match &seen.place {
            Place::Directory { path } => in_directory(path, seen),
            Place::Data | Place::File { .. } => Ok(Next::Ready),
        },
    }
}

fn in_directory(path: &PathBuf, seen: &Seen) -> Result<Next, Refusal> {
    let is_recorded = matches!(&seen.place, Place::Directory { path: recorded } if recorded == path);
    if !is_recorded && let Some(first) = leave(seen)? {
        return Ok(first);
    }
    match &seen.owner {
        Some(owner) if *owner != seen.data => Err(Refusal::Taken { path: path.clone(), owner: owner.clone() }),
        None if is_recorded => Err(Refusal::NotThere(path.clone())),
        None => Ok(Next::Adopt(path.clone())),
        Some(_) if is_recorded => Ok(Next::Ready),
        Some(_) => Ok(Next::Record(Place::Directory { path: path.clone() })),
    }
}

fn on_file(size: Option<u64>, seen: &Seen) -> Result<Next, Refusal> {
    let growing = match seen.place {
        Place::File { growing } => Some(growing),
        Place::Data | Place::Directory { .. } => match leave(seen)? {
            Some(first) => return Ok(first),
            None => None,
        },
    };
    let Some(has) = seen.file.1 else {
        let size = size.unwrap_or_default();
        if size < SMALLEST {
            return Err(Refusal::Small(size));
        }
        if !seen.means.make {
            return Err(Refusal::Program("mkfs.xfs"));
        }
        return has_kernel(seen).and_then(|()| has_room(size, seen)).map(|()| Next::Make(size));
    };
    let Some(growing) = growing else { return Ok(Next::Record(Place::File { growing: false })) };
    match size {
        Some(wanted) if wanted < has => {
            return Err(Refusal::Smaller { wanted, has, file: seen.file.0.clone() });
        }
        Some(wanted) if wanted > has => {
            has_room(wanted - has, seen)?;
            return match growing {
                _ if !seen.means.grow => Err(Refusal::Program("xfs_growfs")),
                false => Ok(Next::Record(Place::File { growing: true })),
                true => Ok(Next::Extend(wanted)),
            };
        }
        _ => {}
    }
    match (seen.mounted, growing) {
        (false, _) => has_kernel(seen).map(|()| Next::Mount),
        (true, true) if !seen.means.grow => Err(Refusal::Program("xfs_growfs")),
        (true, true) => Ok(Next::Widen),
        (true, false) => Ok(Next::Ready),
    }
}

/// Whether volumes can be elsewhere from now on, or what has to be done before that is known.
fn leave(seen: &Seen) -> Result<Option<Next>, Refusal> {
    match seen.volumes {
        Some(0) => Ok(None),
        Some(volumes) => Err(Refusal::Elsewhere { volumes, path: seen.path.clone() }),
        None if matches!(seen.place, Place::File { .. }) => has_kernel(seen).map(|()| Some(Next::Mount)),
        None => Err(Refusal::NotThere(seen.path.clone())),
    }
}

fn has_kernel(seen: &Seen) -> Result<(), Refusal> {
    if seen.means.kernel { Ok(()) } else { Err(Refusal::Kernel) }
}

fn has_room(needed: u64, seen: &Seen) -> Result<(), Refusal> {
    let Capacity { total, free } = seen.disk;
    let reserve = (total / 100 * RESERVE).min(MOST_RESERVE);
    match needed.checked_add(reserve) {
        Some(all) if all <= free => Ok(()),
        _ => Err(Refusal::Room { needed, free, reserve, file: seen.file.0.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn seen() -> Seen {
        Seen {
            place: Place::Data,
            path: "/data/volumes".into(),
            volumes: Some(0),
            file: ("/data/storage/volumes.xfs".into(), None),
            mounted: false,
            disk: Capacity { total: 100 * GIB, free: 60 * GIB },
            owner: None,
            data: "/data".into(),
            means: Means { kernel: true, make: true, grow: true },
        }
    }

    fn on_file() -> Seen {
        let file = ("/data/storage/volumes.xfs".into(), Some(10 * GIB));
        Seen { place: Place::File { growing: false }, file, mounted: true, ..seen() }
    }

    fn said(refused: Result<Next, Refusal>) -> String {
        refused.unwrap_err().to_string()
    }

    #[test]
    fn a_machine_whose_owner_asks_for_nothing_stays_as_it_is() {
        let full = Seen { volumes: Some(3), ..seen() };
        assert_eq!(decide(&Wish::AsBefore, &full), Ok(Next::Ready));
        // A file that was made and never used is not gone on with.
        let file = ("/f".into(), Some(10 * GIB));
        assert_eq!(decide(&Wish::AsBefore, &Seen { file, ..seen() }), Ok(Next::Ready));
        let rebooted = Seen { mounted: false, volumes: None, ..on_file() };
        assert_eq!(decide(&Wish::AsBefore, &rebooted), Ok(Next::Mount));
        assert_eq!(decide(&Wish::AsBefore, &on_file()), Ok(Next::Ready));
    }

    #[test]
    fn volumes_are_not_moved() {
        let full = Seen { volumes: Some(3), ..seen() };
        for wish in [Wish::Size(10 * GIB), Wish::Directory("/srv".into())] {
            assert!(said(decide(&wish, &full)).starts_with("3 volumes and snapshots are in /data/volumes, and"));
        }
        let full = Seen { volumes: Some(1), ..on_file() };
        assert!(matches!(decide(&Wish::Directory("/srv".into()), &full), Err(Refusal::Elsewhere { .. })));
        // What is in it is known only when it is mounted.
        let rebooted = Seen { mounted: false, volumes: None, ..on_file() };
        assert_eq!(decide(&Wish::Directory("/srv".into()), &rebooted), Ok(Next::Mount));
        assert_eq!(decide(&Wish::Directory("/srv".into()), &on_file()), Ok(Next::Adopt("/srv".into())));
    }

    #[test]
    fn a_directory_belongs_to_one_machine() {
        let wish = Wish::Directory("/srv".into());
        assert_eq!(decide(&wish, &seen()), Ok(Next::Adopt("/srv".into())));
        let adopted = Seen { owner: Some("/data".into()), ..seen() };
        let place = Place::Directory { path: "/srv".into() };
        assert_eq!(decide(&wish, &adopted), Ok(Next::Record(place.clone())));
        let recorded = Seen { place, ..adopted };
        assert_eq!(decide(&wish, &recorded), Ok(Next::Ready));
        assert_eq!(decide(&Wish::AsBefore, &recorded), Ok(Next::Ready));
        let other = Seen { owner: Some("/other".into()), ..seen() };
        assert_eq!(said(decide(&wish, &other)), "--storage-dir: /srv has the volumes of /other; use another directory");
        // Its disk is not mounted: nothing empty takes its place.
        let gone = Seen { owner: None, volumes: None, ..recorded };
        for wish in [wish, Wish::AsBefore] {
            assert!(said(decide(&wish, &gone)).contains("mount its file system"));
        }
    }

    #[test]
    fn a_size_that_cannot_be_is_refused_with_what_there_is() {
        assert_eq!(said(decide(&Wish::Size(1), &seen())), "--storage-size: 1 is less than the minimum of 300Mi");
        assert_eq!(
            said(decide(&Wish::Size(53 * GIB), &seen())),
            "--storage-size: 53Gi more are needed, and the disk of /data/storage/volumes.xfs has 60Gi free, of which 8Gi stay in reserve; use a smaller size, or free some space"
        );
        assert_eq!(decide(&Wish::Size(52 * GIB), &seen()), Ok(Next::Make(52 * GIB)));
        assert!(said(decide(&Wish::Size(9 * GIB), &on_file())).ends_with("XFS cannot shrink; use 10Gi or more"));
        assert!(
            matches!(decide(&Wish::Size(63 * GIB), &on_file()), Err(Refusal::Room { needed, .. }) if needed == 53 * GIB)
        );
        let lost = Seen { file: ("/f".into(), None), mounted: false, ..on_file() };
        assert!(matches!(decide(&Wish::Size(10 * GIB), &lost), Err(Refusal::Lost(_))));
    }

    #[test]
    fn what_is_missing_on_the_machine_is_said_with_its_remedy() {
        let without = |means| Seen { means, ..seen() };
        let all = Means { kernel: true, make: true, grow: true };
        let refused = said(decide(&Wish::Size(GIB), &without(Means { make: false, ..all })));
        assert_eq!(refused, "--storage-size needs mkfs.xfs; on Debian or Ubuntu: sudo apt-get install xfsprogs");
        assert!(said(decide(&Wish::Size(GIB), &without(Means { kernel: false, ..all }))).contains("modprobe xfs"));
        let means = Means { grow: false, ..all };
        let refused = decide(&Wish::Size(11 * GIB), &Seen { means, ..on_file() });
        assert_eq!(refused, Err(Refusal::Program("xfs_growfs")));
        // One that is there needs no program.
        assert_eq!(decide(&Wish::AsBefore, &Seen { means: Means::default(), ..on_file() }), Ok(Next::Ready));
    }

    /// A machine that does what is decided, with a file system that is as large as it was last made.
    struct Machine {
        seen: Seen,
        file_system: u64,
    }

    impl Machine {
        fn act(&mut self, next: &Next) {
            let seen = &mut self.seen;
            match next {
                Next::Ready => {}
                Next::Adopt(_) => seen.owner = Some(seen.data.clone()),
                Next::Record(place) => seen.place = place.clone(),
                Next::Make(size) => {
                    seen.file.1 = Some(*size);
                    self.file_system = *size;
                }
                Next::Mount => seen.mounted = true,
                Next::Extend(size) => seen.file.1 = Some(*size),
                Next::Widen => {
                    self.file_system = seen.file.1.unwrap_or_default();
                    seen.place = Place::File { growing: false };
                }
            }
            let is_mounted = self.seen.mounted || !matches!(self.seen.place, Place::File { .. });
            self.seen.volumes = is_mounted.then_some(0);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_cut_off_is_gone_on_with(
            starts in prop::collection::vec((1..40u64, 0..8usize, any::<bool>()), 1..8),
        ) {
            let mut machine = Machine { seen: seen(), file_system: 0 };
            let mut largest = 0;
            for (gib, steps, reboots) in starts {
                let wish = Wish::Size(gib * GIB);
                for _ in 0..steps {
                    match decide(&wish, &machine.seen) {
                        Ok(Next::Ready) | Err(_) => break,
                        Ok(next) => machine.act(&next),
                    }
                }
                prop_assert!(machine.seen.file.1.unwrap_or_default() >= largest, "it shrank");
                largest = machine.seen.file.1.unwrap_or_default();
                if reboots {
                    machine.seen.mounted = false;
                    machine.act(&Next::Ready);
                }
            }
            // Without a wish it becomes whole.
            for _ in 0..4 {
                let next = decide(&Wish::AsBefore, &machine.seen).unwrap();
                machine.act(&next);
            }
            prop_assert_eq!(decide(&Wish::AsBefore, &machine.seen), Ok(Next::Ready));
            if matches!(machine.seen.place, Place::File { .. }) {
                prop_assert!(machine.seen.mounted);
                prop_assert_eq!(Some(machine.file_system), machine.seen.file.1);
            }
        }
    }
}
