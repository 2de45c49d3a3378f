//! Where the lines of the log are written.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::Context as _;

use super::line::Fields;
use crate::rotating::{Limits, Rotating};

/// Some hundred thousand lines: days of a busy machine.
const KEPT: Limits = Limits { bytes: 16 << 20, older: 3 };

/// Standard error and, once it is known, a file. What cannot be written is lost: a full disk must stop nobody.
#[derive(Default)]
pub(crate) struct Sink {
    file: OnceLock<Mutex<Rotating>>,
    always: OnceLock<Fields>,
}

impl Sink {
    /// From now on every line says this: the process works for one object and no other.
    pub(crate) fn always<'a>(&self, known: impl IntoIterator<Item = (&'static str, &'a str)>) {
        let mut fields = Fields::default();
        known.into_iter().for_each(|(key, value)| fields.set(key, value.into()));
        let _ = self.always.set(fields);
    }

    /// What every line says.
    pub(super) fn known(&self) -> Fields {
        self.always.get().cloned().unwrap_or_default()
    }

    /// Keeps lines in a file, too, from now on.
    pub(crate) fn keep(&self, path: &Path) -> anyhow::Result<()> {
        let file = Rotating::open(path, KEPT).with_context(|| format!("open the log {}", path.display()))?;
        // The first file stays: a process has one.
        let _ = self.file.set(Mutex::new(file));
        Ok(())
    }

    pub(super) fn write(&self, line: &[u8]) {
        let _ = std::io::stderr().lock().write_all(line);
        if let Some(file) = self.file.get() {
            let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_what_is_written_after_it_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/orlop.log");
        let sink = Sink::default();
        sink.write(b"before\n");
        sink.keep(&path).unwrap();
        sink.write(b"after\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after\n");
    }
}
