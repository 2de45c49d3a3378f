//! Directories and mounts of volumes.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};

use super::VolumeError;

/// Makes a directory of this mode, whatever the process's mask; one that is there is left as it is.
pub(in crate::agent) fn folder(path: &Path, mode: u32) -> Result<(), VolumeError> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(VolumeError::io(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(VolumeError::io(path))
}

/// Puts a file system in memory on a directory, unless there is one.
pub(super) fn tmpfs(path: &Path, limit: Option<u64>, mode: u32) -> Result<(), VolumeError> {
    if is_mounted(path).map_err(VolumeError::io(path))? {
        return Ok(());
    }
    let size = limit.map(|limit| format!(",size={limit}")).unwrap_or_default();
    let options = std::ffi::CString::new(format!("mode={mode:o}{size}")).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", path, "tmpfs", flags, options.as_c_str())
        .map_err(|error| VolumeError::io(path)(io::Error::from(error)))
}

/// Shows what a file descriptor stands for at a path, unless something is shown there.
pub(super) fn bind(descriptor: &Path, target: &Path) -> Result<(), VolumeError> {
    mount_bind(descriptor, target).map_err(|error| VolumeError::io(target)(io::Error::from(error)))
}

/// Makes mounts below a directory seen by pods that run already. Their mounts follow the machine's, but only where the
/// machine's are shared, which those of its root may not be.
pub(in crate::agent) fn share(folder: &Path) -> Result<(), VolumeError> {
    let failed = |error: rustix::io::Errno| VolumeError::io(folder)(error.into());
    let folder = folder.canonicalize().map_err(VolumeError::io(folder))?;
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(VolumeError::io(&folder))?;
    match mount_at(&table, &folder) {
        Some(shared) if shared => return Ok(()),
        Some(_) => {}
        None => mount_bind(&folder, &folder).map_err(failed)?,
    }
    mount_change(&folder, MountPropagationFlags::SHARED).map_err(failed)
}

/// Whether something is mounted at a directory, and then whether it is shared; the last one counts.
fn mount_at(table: &str, folder: &Path) -> Option<bool> {
    let mut lines = table.lines().rev().filter(|line| {
        let point = line.split(' ').nth(4).map(unescape);
        point.is_some_and(|point| Path::new(&point) == folder)
    });
    lines.next().map(|line| line.split(" - ").next().is_some_and(|fields| fields.contains(" shared:")))
}

fn is_mounted(path: &Path) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(path);
    Ok(fs::metadata(path)?.dev() != fs::metadata(parent)?.dev())
}

/// Unmounts all that is mounted below a directory, the innermost first. What is mounted at the directory itself stays.
pub(in crate::agent) fn unmount_below(folder: &Path) -> Result<(), VolumeError> {
    let Ok(table) = fs::read_to_string("/proc/self/mountinfo") else { return Ok(()) };
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    for path in mounted_below(&table, &folder) {
        match unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(VolumeError::io(&path)(error.into())),
        }
    }
    Ok(())
}

/// Mount points below a directory, the newest first.
fn mounted_below(table: &str, folder: &Path) -> Vec<PathBuf> {
    let paths = table.lines().filter_map(|line| line.split(' ').nth(4)).map(|text| PathBuf::from(unescape(text)));
    let mut below: Vec<PathBuf> = paths.filter(|path| path.starts_with(folder) && path != folder).collect();
    below.reverse();
    below
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Removes a directory and all in it; one that is not there is no matter. Links are removed, not followed.
pub(in crate::agent) fn remove_folder(path: &Path) -> Result<(), VolumeError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(VolumeError::io(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_mount_is_told_from_others() {
        let table = "1 0 0:1 / /a rw,relatime - ext4 /dev/shared: rw\n\
                     2 1 0:1 /b /a/b rw shared:7 - ext4 d rw\n\
                     3 1 0:1 /c /a/c rw master:1 - ext4 d rw\n";
        assert_eq!(mount_at(table, Path::new("/a/b")), Some(true));
        assert_eq!((mount_at(table, Path::new("/a")), mount_at(table, Path::new("/a/c"))), (Some(false), Some(false)));
        assert_eq!(mount_at(table, Path::new("/a/d")), None);
    }

    #[test]
    fn mounts_below_a_folder_are_found_the_newest_first() {
        let table =
            "1 0 0:1 / /a/b rw - tmpfs t rw\n2 1 0:2 / /a/b/c\\040d rw - tmpfs t rw\n3 1 0:3 / /ab rw - x y z\n";
        let below = mounted_below(table, Path::new("/a"));
        assert_eq!(below, [PathBuf::from("/a/b/c d"), PathBuf::from("/a/b")]);
    }
}
