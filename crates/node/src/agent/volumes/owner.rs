//! Whom a volume's files belong to.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::VolumeError;

/// Folders go deep; deeper than this is no volume that anybody made in good faith.
const DEEPEST: usize = 128;

/// Who is to own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    /// Whether a volume whose top is owned rightly is left alone.
    pub(super) only_root: bool,
}

impl Owner {
    fn is_nobody(&self) -> bool {
        self.uid.is_none() && self.gid.is_none()
    }

    /// Gives a folder, not what is in it.
    pub(super) fn give_top(&self, path: &Path) -> Result<(), VolumeError> {
        if self.is_nobody() {
            return Ok(());
        }
        self.give(path, &fs::symlink_metadata(path).map_err(VolumeError::io(path))?)
    }

    /// Gives a volume with all that is in it. A device or a file is given alone.
    pub(super) fn give_all(&self, path: &Path) -> Result<(), VolumeError> {
        if self.is_nobody() {
            return Ok(());
        }
        let metadata = fs::metadata(path).map_err(VolumeError::io(path))?;
        if self.only_root && self.owns(&metadata) {
            return Ok(());
        }
        // The volume's own path may be a link: an administrator made it, not a guest.
        let path = path.canonicalize().map_err(VolumeError::io(path))?;
        self.descend(&path, DEEPEST)
    }

    fn owns(&self, metadata: &Metadata) -> bool {
        self.uid.is_none_or(|uid| metadata.uid() == uid) && self.gid.is_none_or(|gid| metadata.gid() == gid)
    }

    fn descend(&self, path: &Path, depth: usize) -> Result<(), VolumeError> {
        let metadata = fs::symlink_metadata(path).map_err(VolumeError::io(path))?;
        self.give(path, &metadata)?;
        if !metadata.is_dir() || depth == 0 {
            return Ok(());
        }
        for entry in fs::read_dir(path).map_err(VolumeError::io(path))? {
            self.descend(&entry.map_err(VolumeError::io(path))?.path(), depth - 1)?;
        }
        Ok(())
    }

    fn give(&self, path: &Path, metadata: &Metadata) -> Result<(), VolumeError> {
        if !self.owns(metadata) {
            std::os::unix::fs::lchown(path, self.uid, self.gid).map_err(VolumeError::io(path))?;
        }
        if metadata.is_symlink() || self.gid.is_none() {
            return Ok(());
        }
        // The group may do what the owner may, and what is made in a folder is the group's, too.
        let mode = metadata.mode() & 0o7777;
        let wanted = if metadata.is_dir() { mode | 0o2770 } else { mode | 0o660 };
        if wanted != mode {
            fs::set_permissions(path, fs::Permissions::from_mode(wanted)).map_err(VolumeError::io(path))?;
        }
        Ok(())
    }
}
