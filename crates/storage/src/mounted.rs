//! Disks in images that somebody else has mounted, such as a pod's image volumes.
//!
//! # Guarantees
//! - Links in the image lead only to other files of the image.
//! - The format is looked at here, once, before any guest can write: images are mounted read-only.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::pull::{Limits, objection};
use crate::qcow2::{self, Format, Qcow2Error};

/// Where an image has its disk, if nobody says.
const DISK_FOLDER: &str = "disk";

/// A disk that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// The file, without links on its way.
    pub path: PathBuf,
    /// How its bytes are to be read.
    pub format: Format,
    /// The size of the disk that the guest sees.
    pub virtual_size: u64,
}

/// Why there is no disk.
#[derive(Debug, thiserror::Error)]
pub enum MountedError {
    /// The directory or the file could not be read.
    #[error("open {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// There is not exactly one file to choose.
    #[error("{} has {found} files; expected one, or a path to the disk", folder.display())]
    Several { folder: PathBuf, found: usize },
    /// It is something else than a file.
    #[error("{} is not a regular file", .0.display())]
    Kind(PathBuf),
    /// The disk's header could not be read.
    #[error("inspect {}", path.display())]
    Inspect {
        /// The disk.
        path: PathBuf,
        /// What is wrong with it.
        source: Qcow2Error,
    },
    /// The disk must not be opened.
    #[error("cannot use {}: {reason}", path.display())]
    Refused {
        /// The disk.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The disk of an image at `place`: the file itself, or in a directory the one at `path`, or else the only one in `disk`.
///
/// # Errors
/// When there is none, or it must not be opened.
pub fn disk(place: &Path, path: Option<&str>, limits: &Limits) -> Result<Found, MountedError> {
    let (file, path) = if place.is_dir() {
        let inside = match path {
            Some(path) => path.to_owned(),
            None => only_file(place)?,
        };
        open_inside(place, &inside)?
    } else {
        let file = File::open(place).map_err(|source| MountedError::Open { path: place.to_owned(), source })?;
        (file, place.to_owned())
    };
    let length = regular(&file, &path)?;
    match qcow2::inspect(&file) {
        Err(Qcow2Error::Magic) => Ok(Found { path, format: Format::Raw, virtual_size: length }),
        Err(source) => Err(MountedError::Inspect { path, source }),
        Ok(info) => match objection(&info, limits) {
            Some(reason) => Err(MountedError::Refused { path, reason }),
            None => Ok(Found { path, format: Format::Qcow2, virtual_size: info.virtual_size }),
        },
    }
}

/// A file of the image in the directory `place`, such as a kernel.
///
/// # Errors
/// When there is no such file.
pub fn file(place: &Path, path: &str) -> Result<PathBuf, MountedError> {
    let (file, path) = open_inside(place, path)?;
    regular(&file, &path).map(|_| path)
}

fn regular(file: &File, path: &Path) -> Result<u64, MountedError> {
    let metadata = file.metadata().map_err(|source| MountedError::Open { path: path.to_owned(), source })?;
    if metadata.is_file() { Ok(metadata.len()) } else { Err(MountedError::Kind(path.to_owned())) }
}

/// The name of the only file in the image's directory of disks.
fn only_file(place: &Path) -> Result<String, MountedError> {
    let folder = place.join(DISK_FOLDER);
    let (opened, folder) = open_folder(place, &folder)?;
    let failed = |source| MountedError::Open { path: folder.clone(), source };
    let entries = rustix::fs::Dir::read_from(&opened).map_err(|error| failed(error.into()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| failed(error.into()))?.file_name().to_string_lossy().into_owned();
        // Hidden files are what tools leave behind.
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    match names.as_slice() {
        [name] => Ok(format!("{DISK_FOLDER}/{name}")),
        names => Err(MountedError::Several { folder, found: names.len() }),
    }
}

fn open_folder(place: &Path, folder: &Path) -> Result<(OwnedFd, PathBuf), MountedError> {
    let opened = resolve(place, DISK_FOLDER, OFlags::DIRECTORY);
    opened
        .map(|opened| (opened, folder.to_owned()))
        .map_err(|source| MountedError::Open { path: folder.to_owned(), source })
}

/// Opens a file as the image's own programs would see it, and tells where it really is.
fn open_inside(place: &Path, path: &str) -> Result<(File, PathBuf), MountedError> {
    let failed = |source| MountedError::Open { path: place.join(path.trim_start_matches('/')), source };
    // Not to be held up by a named pipe.
    let file = File::from(resolve(place, path, OFlags::NONBLOCK).map_err(failed)?);
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let real = std::fs::read_link(link).map_err(failed)?;
    Ok((file, real))
}

fn resolve(place: &Path, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let root = rustix::fs::open(place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(&root, path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty(), inside)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn limits() -> Limits {
        Limits::default()
    }

    #[test]
    fn the_only_file_of_the_disk_folder_is_the_disk() {
        let image = tempfile::tempdir().unwrap();
        std::fs::create_dir(image.path().join("disk")).unwrap();
        assert!(matches!(disk(image.path(), None, &limits()), Err(MountedError::Several { found: 0, .. })));
        let file = image.path().join("disk/a.img");
        std::fs::write(&file, [0; 512]).unwrap();
        let found = disk(image.path(), None, &limits()).unwrap();
        assert_eq!(found, Found { path: file.clone(), format: Format::Raw, virtual_size: 512 });
        assert_eq!(disk(&file, None, &limits()).unwrap(), found);
        std::fs::write(image.path().join("disk/b.img"), [0; 512]).unwrap();
        assert!(matches!(disk(image.path(), None, &limits()), Err(MountedError::Several { found: 2, .. })));
        assert_eq!(disk(image.path(), Some("/disk/b.img"), &limits()).unwrap().virtual_size, 512);
    }

    #[test]
    fn a_link_stays_inside_the_image() {
        let image = tempfile::tempdir().unwrap();
        std::fs::write(image.path().join("secret"), b"inside").unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        symlink("/secret", image.path().join("good")).unwrap();
        symlink(outside.path(), image.path().join("bad")).unwrap();
        symlink("../../../../../../../../etc/passwd", image.path().join("up")).unwrap();
        assert_eq!(file(image.path(), "good").unwrap(), image.path().join("secret"));
        for path in ["bad", "up", "/proc/self/environ"] {
            assert!(matches!(file(image.path(), path), Err(MountedError::Open { .. })), "{path}");
        }
    }

    #[test]
    fn a_disk_that_refers_to_other_files_is_refused() {
        let image = tempfile::tempdir().unwrap();
        let (base, file) = (image.path().join("base"), image.path().join("disk.qcow2"));
        std::fs::write(&base, [0; 512]).unwrap();
        qcow2::create_overlay(&file, &base, Format::Raw, 512).unwrap();
        assert!(matches!(disk(image.path(), Some("disk.qcow2"), &limits()), Err(MountedError::Refused { .. })));
        assert!(matches!(disk(image.path(), Some("."), &limits()), Err(MountedError::Kind(_))));
    }
}
