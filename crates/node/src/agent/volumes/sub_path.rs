//! A part of a volume. What is in a volume may be written by those whom it is shown to: no link leads out of it, and what
//! was checked is what is shown.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{VolumeError, mounting};

/// Shows a part of a volume at a path of its own, and returns that. A part that is not there is made, as a directory.
pub(in crate::agent) fn show(
    volume: &Path,
    part: &str,
    target: &Path,
    read_only: bool,
) -> Result<PathBuf, VolumeError> {
    let found = open(volume, part, read_only)?;
    let shown = format!("/proc/self/fd/{}", found.as_raw_fd());
    let metadata = std::fs::metadata(&shown).map_err(VolumeError::io(target))?;
    mounting::unmount_below(target)?;
    if metadata.is_dir() {
        mounting::folder(target, 0o755)?;
    } else {
        if let Some(parent) = target.parent() {
            mounting::folder(parent, 0o755)?;
        }
        std::fs::File::create(target).map_err(VolumeError::io(target))?;
    }
    mounting::bind(Path::new(&shown), target)?;
    Ok(target.to_owned())
}

fn open(volume: &Path, part: &str, read_only: bool) -> Result<OwnedFd, VolumeError> {
    let escapes = || VolumeError::Escapes(part.to_owned());
    let parts: Vec<&std::ffi::OsStr> = Path::new(part)
        .components()
        .filter(|one| *one != Component::CurDir)
        .map(|one| match one {
            Component::Normal(name) => Ok(name),
            _ => Err(escapes()),
        })
        .collect::<Result<_, _>>()?;
    let io = |error: Errno| match error {
        Errno::LOOP | Errno::XDEV => escapes(),
        error => VolumeError::io(&volume.join(part))(error.into()),
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut at = rustix::fs::open(volume, flags | OFlags::DIRECTORY, Mode::empty()).map_err(io)?;
    let whole: PathBuf = parts.iter().collect();
    let whole = if parts.is_empty() { Path::new(".") } else { &whole };
    match rustix::fs::openat2(&at, whole, flags, Mode::empty(), resolve) {
        Err(Errno::NOENT) if !read_only => {}
        found => return found.map_err(io),
    }
    // What is made is made without following any link at all.
    let resolve = resolve | ResolveFlags::NO_SYMLINKS;
    for name in parts {
        let look = |at: &OwnedFd| rustix::fs::openat2(at, name, flags, Mode::empty(), resolve);
        at = match look(&at) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o750)).map_err(io)?;
                look(&at).map_err(io)?
            }
            found => found.map_err(io)?,
        };
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("v")).unwrap();
        std::fs::write(folder.path().join("v/file"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("v/link")).unwrap();
        let volume = folder.path().join("v");
        for part in ["link", "link/passwd", "../v", "/etc"] {
            assert!(open(&volume, part, false).is_err(), "{part}");
        }
        std::os::unix::fs::symlink("file", volume.join("inside")).unwrap();
        assert!(open(&volume, "file", true).is_ok());
        assert!(open(&volume, "inside", true).is_ok());
        assert!(open(&volume, "new/./deep", false).is_ok());
        assert!(volume.join("new/deep").is_dir());
        assert!(open(&volume, "absent", true).is_err());
    }
}
