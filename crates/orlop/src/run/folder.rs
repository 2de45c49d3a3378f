//! The guest's own folder, and those that killed runs left behind.

use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "orlop-run-";

/// A new folder that goes when it is dropped. Folders of runs that were killed before they could do so are removed.
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

/// The process that made a folder of this name.
fn owner(name: &str) -> Option<&str> {
    let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    pid.bytes().all(|digit| digit.is_ascii_digit()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_tells_whose_it_is() {
        assert_eq!(owner("orlop-run-123-abc"), Some("123"));
        for name in ["orlop-run-abc", "orlop-run-12x-abc", "other-123-abc"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
