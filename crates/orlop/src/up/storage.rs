//! The machine's volumes: where they are, and the file system that they are on.
//!
//! ```text
//!  DATA/volumes                       volumes, if the owner asks for nothing else
//!  DIR/orlop-volumes                  volumes, with --storage-dir
//!  DATA/storage/volumes.xfs           the XFS of --storage-size, fully allocated: a full disk cannot break it
//!  DATA/storage/mounted/volumes       volumes on it
//!  DATA/storage/place.json            which of these it is
//! ```
//!
//! See what is there, [`decide`] one step, carry it out, and look again, until volumes can be opened.

mod act;
mod decide;
mod report;
mod see;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use api::quantity::Amount;
use storage::volumes::Volumes;
use storage::volumes::files::Files;

use decide::{Next, Wish};
pub(crate) use report::StorageReport;

/// More steps than any way has.
const MOST_STEPS: usize = 16;
/// Below a directory of the owner's choice, what is Orlop's.
const OWN: &str = "orlop-volumes";

/// Where volumes are to be.
#[derive(Clone, clap::Args)]
#[group(id = "up_storage")]
pub(crate) struct Arguments {
    /// Keep volumes in this directory, on a file system of your choice. On XFS and btrfs, snapshots and clones of disks take no
    /// time. Volumes that exist elsewhere are not moved.
    #[arg(long, value_name = "DIR", env = "ORLOP_STORAGE_DIR", conflicts_with = "storage_size")]
    storage_dir: Option<PathBuf>,
    /// Keep volumes on an XFS of this size, in a fully allocated file of the data directory, so that snapshots and clones of
    /// disks take no time. A larger size grows it. Needs xfsprogs.
    #[arg(long, value_name = "SIZE", value_parser = size, env = "ORLOP_STORAGE_SIZE")]
    storage_size: Option<u64>,
    /// How much claims may ask for together, as a multiple of the room that there is. Disks share blocks with their clones, and
    /// few guests fill theirs; when the room is used up, guests that write stop until there is room again. 1 allows no more than
    /// there is.
    #[arg(long, value_name = "RATIO", default_value = "2", value_parser = ratio, env = "ORLOP_STORAGE_OVERCOMMIT")]
    storage_overcommit: u64,
}

fn size(text: &str) -> Result<u64, String> {
    let amount: Amount = text.parse().map_err(|error| format!("{error}"))?;
    u64::try_from(amount.units())
        .ok()
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "the size must be greater than 0".to_owned())
}

/// A ratio such as 1.5, in percent.
fn ratio(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a valid ratio; use a number from 1 to 1000, such as 1.5");
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(rest) || rest.len() > 2 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let hundredths: u64 = format!("{rest:0<2}").parse().map_err(|_| wrong())?;
    let percent = whole.checked_mul(100).and_then(|percent| percent.checked_add(hundredths));
    percent.filter(|percent| (100..=100_000).contains(percent)).ok_or_else(wrong)
}

/// Volumes that are open.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) volumes: Arc<dyn Volumes>,
    /// How much claims may ask for together, in percent of the room.
    pub(crate) overcommit: u64,
    /// Where they are.
    root: PathBuf,
}

impl Arguments {
    /// Makes what is asked for, and opens volumes there. May block.
    ///
    /// # Errors
    /// When volumes cannot be there.
    pub(super) fn open(&self, data: &Path) -> anyhow::Result<Opened> {
        let wish = self.wish()?;
        for _ in 0..MOST_STEPS {
            let seen = see::see(data, &wish)?;
            match decide::decide(&wish, &seen)? {
                Next::Ready => {
                    see::tell_of_unused(&seen);
                    let volumes = Files::open(&seen.path).context("open the volumes")?;
                    return Ok(Opened {
                        volumes: Arc::new(volumes),
                        overcommit: self.storage_overcommit,
                        root: seen.path,
                    });
                }
                next => {
                    tracing::info!(step = ?next, "preparing the storage of volumes");
                    act::act(data, &next)?;
                }
            }
        }
        anyhow::bail!("the storage of volumes does not become ready; see the log")
    }

    fn wish(&self) -> anyhow::Result<Wish> {
        Ok(match (&self.storage_dir, self.storage_size) {
            (Some(directory), _) => {
                let found = directory.canonicalize();
                Wish::Directory(found.with_context(|| format!("--storage-dir: find {}", directory.display()))?)
            }
            (None, Some(size)) => Wish::Size(size),
            (None, None) => Wish::AsBefore,
        })
    }
}

/// Unmounts the XFS of volumes, which detaches its file. With `purge`, removes what is outside of the data directory.
///
/// # Errors
/// When something still uses it.
pub(crate) fn close(data: &Path, purge: bool) -> anyhow::Result<()> {
    act::unmount(data)?;
    if purge { act::remove_outside(data) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_at_least_one() {
        assert_eq!([ratio("1"), ratio("1.5"), ratio("2.05"), ratio("1000")], [Ok(100), Ok(150), Ok(205), Ok(100_000)]);
        for wrong in ["", "0", "0.99", "-1", "1.", ".5", "1.555", "1e3", "1001", "99999999999999999999", "two"] {
            assert!(ratio(wrong).unwrap_err().contains("not a valid ratio"), "{wrong}");
        }
    }

    #[test]
    fn a_size_is_a_quantity() {
        assert_eq!(size("20Gi"), Ok(20 << 30));
        assert!(size("0").is_err() && size("20GiB").is_err());
    }

    #[test]
    fn a_directory_is_adopted_and_found_again() {
        let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let asked = |directory: Option<&Path>| Arguments {
            storage_dir: directory.map(Path::to_owned),
            storage_size: None,
            storage_overcommit: 200,
        };
        let opened = asked(Some(directory.path())).open(data.path()).unwrap();
        let root = directory.path().canonicalize().unwrap().join(OWN);
        assert_eq!(opened.root, root);
        opened.volumes.create(&"v".try_into().unwrap(), storage::volumes::Filling::Nothing, 1).unwrap();
        // Without the flag it is found again; another machine does not get it, and its volumes do not move.
        assert_eq!(asked(None).open(data.path()).unwrap().root, root);
        let refused = asked(Some(directory.path())).open(other.path()).unwrap_err().to_string();
        assert!(refused.contains("use another directory"), "{refused}");
        let refused = asked(Some(other.path())).open(data.path()).unwrap_err().to_string();
        assert!(refused.starts_with("1 volumes and snapshots are in"), "{refused}");
        // A disk that is not mounted.
        std::fs::rename(&root, directory.path().join("elsewhere")).unwrap();
        let refused = asked(None).open(data.path()).unwrap_err().to_string();
        assert!(refused.contains("mount its file system"), "{refused}");
        std::fs::rename(directory.path().join("elsewhere"), &root).unwrap();
        close(data.path(), true).unwrap();
        assert!(!root.exists() && directory.path().exists());
    }
}
