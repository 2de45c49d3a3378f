//! Folders that are there after a power cut: a folder's name is kept by the folder above it, which has to be written, too.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Makes a folder for its owner alone, and all above it that are missing. When this returns, they are on disk; also a folder
/// that somebody made before and was cut off.
///
/// # Errors
/// When it cannot be made, or the disk does not take it.
pub fn make_folder(folder: &Path) -> io::Result<()> {
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

/// Writes the folder that keeps the name of a file or a folder.
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
        make_folder(&path).unwrap();
        make_folder(&path).unwrap();
        for made in ["a", "a/b", "a/b/c"] {
            let mode = std::fs::metadata(folder.path().join(made)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{made}");
        }
        std::fs::write(path.join("file"), "").unwrap();
        assert!(make_folder(&path.join("file")).is_err() && make_folder(&path.join("file/deeper")).is_err());
    }
}
