//! The guest's own directory, and those that killed runs left behind.

use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "orlop-run-";

/// A new directory that is removed when it is dropped. Directories of runs that were killed before they could do so are removed.
pub(super) fn create() -> std::io::Result<TempDir> {
    let place = std::env::temp_dir();
    for entry in std::fs::read_dir(&place)?.flatten() {
        if entry.file_name().to_str().and_then(owner).is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // It may be another user's; then it is theirs to remove.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir_in(place)
}

/// The process that made a directory of this name.
fn owner(name: &str) -> Option<&str> {
    let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    pid.bytes().all(|digit| digit.is_ascii_digit()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_its_process() {
        assert_eq!(owner("orlop-run-123-abc"), Some("123"));
        for name in ["orlop-run-abc", "orlop-run-12x-abc", "other-123-abc"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
