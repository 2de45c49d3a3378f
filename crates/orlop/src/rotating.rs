//! Log files that are rotated at a maximum size.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A file for its owner alone that is written to at its end. Before it is larger than it may be, it becomes `FILE.1`, that
/// one `FILE.2`, and so on; the oldest goes. A write is never split between two of them.
#[derive(Debug)]
pub(crate) struct Rotating {
    path: PathBuf,
    file: File,
    bytes: u64,
    limits: Limits,
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of one file, in bytes.
    pub(crate) bytes: u64,
    /// Files beside the one that is written to.
    pub(crate) older: u32,
}

impl Rotating {
    /// Opens the file, and makes it and its directory if they are not there.
    ///
    /// # Errors
    /// When that does not work.
    pub(crate) fn open(path: &Path, limits: Limits) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes, limits })
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..=self.limits.older).rev() {
            match std::fs::rename(older(&self.path, number - 1), older(&self.path, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.limits.older == 0 {
            std::fs::remove_file(&self.path)?;
        }
        (self.file, self.bytes) = (append(&self.path)?, 0);
        Ok(())
    }
}

impl Write for Rotating {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let grown = self.bytes + bytes.len() as u64;
        if self.bytes > 0 && grown > self.limits.bytes {
            self.rotate()?;
        }
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file that is so much older than the one that is written to.
pub(crate) fn older(path: &Path, number: u32) -> PathBuf {
    if number == 0 { path.to_owned() } else { path.with_added_extension(number.to_string()) }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_file_and_its_folder_are_made_for_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/log");
        Rotating::open(&path, Limits { bytes: 10, older: 1 }).unwrap().write_all(b"x\n").unwrap();
        Rotating::open(&path, Limits { bytes: 10, older: 1 }).unwrap().write_all(b"y\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x\ny\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    proptest! {
        #[test]
        fn the_newest_lines_are_there_whole_and_in_order_and_files_stay_small(
            lengths in prop::collection::vec(0_usize..12, 1..60),
            bytes in 1_u64..40,
            older_ones in 0_u32..4,
            restart in any::<prop::sample::Index>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let limits = Limits { bytes, older: older_ones };
            let lines: Vec<String> =
                lengths.iter().enumerate().map(|(index, length)| format!("{index}{}\n", "x".repeat(*length))).collect();
            let mut log = Rotating::open(&path, limits).unwrap();
            for (index, line) in lines.iter().enumerate() {
                if index == restart.index(lines.len()) {
                    log = Rotating::open(&path, limits).unwrap();
                }
                log.write_all(line.as_bytes()).unwrap();
            }
            let longest = lines.iter().map(String::len).max().unwrap() as u64;
            let mut kept = String::new();
            for number in (0..=older_ones).rev() {
                let text = std::fs::read_to_string(older(&path, number)).unwrap_or_default();
                prop_assert!(text.len() as u64 <= bytes.max(longest));
                kept.push_str(&text);
            }
            prop_assert!(!older(&path, older_ones + 1).exists());
            prop_assert!(kept.ends_with(lines.last().unwrap().as_str()));
            prop_assert!(lines.concat().ends_with(&kept));
        }
    }
}
