//! Directories that survive a power cut: a directory's name is kept by its parent directory, which has to be synced, too.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Creates a directory that only its owner can access, and its missing parents. When this returns, they are on disk, even
/// if an earlier call was cut off after it had created them.
///
/// # Errors
/// When it cannot be made, or the disk does not take it.
pub fn make_directory(folder: &Path) -> io::Result<()> {
    let folder = std::path::absolute(folder)?;
    make(&folder)?;
    sync_above(&folder)
}

fn make(folder: &Path) -> io::Result<()> {
    let create = || DirBuilder::new().mode(0o700).create(folder);
    match create() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above = folder.parent().ok_or(error)?;
            make(above)?;
            sync_above(above)?;
            match create() {
                // Somebody was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
                made => made,
            }
        }
        made => made,
    }
}

/// Writes the directory that keeps the name of a file or a directory.
pub(crate) fn sync_above(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn all_that_are_missing_are_made_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        make_directory(&path).unwrap();
        make_directory(&path).unwrap();
        for made in ["a", "a/b", "a/b/c"] {
            let mode = std::fs::metadata(folder.path().join(made)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{made}");
        }
        std::fs::write(path.join("file"), "").unwrap();
        assert!(make_directory(&path.join("file")).is_err() && make_directory(&path.join("file/deeper")).is_err());
    }
}
