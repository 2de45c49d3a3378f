//! The termination message of a container.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use super::log;

/// As in Kubernetes.
const MAX_MESSAGE: u64 = 4096;
const MAX_LOG_LINES: usize = 80;
const MAX_LOG_BYTES: usize = 2048;

/// The file's content or, for a failure and if that is wanted, the end of the log.
pub(super) fn of(file: Option<&Path>, log: Option<&Path>) -> String {
    let written = file.and_then(read).filter(|text| !text.is_empty());
    written.unwrap_or_else(|| log.map(|path| log::tail(path, MAX_LOG_LINES, MAX_LOG_BYTES)).unwrap_or_default())
}

/// The container may have put anything there: a link is not followed, a pipe not waited for.
fn read(path: &Path) -> Option<String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_MESSAGE).read_to_end(&mut bytes).ok()?;
    Some(shortened(String::from_utf8_lossy(&bytes).into_owned()))
}

/// At most so many bytes, whole characters.
pub(super) fn shortened(mut text: String) -> String {
    let mut end = text.len().min(usize::try_from(MAX_MESSAGE).unwrap_or(usize::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_the_file_shows_nothing_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("message");
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(of(Some(&path), None), "");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "é".repeat(4000)).unwrap();
        assert!((4094..=4096).contains(&of(Some(&path), None).len()));
    }
}
