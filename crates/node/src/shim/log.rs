//! A container's output, in the form that the CRI has for log files: `TIME STREAM F|P TEXT`, `P` for a part of a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// A longer line is written in parts.
const MAX_LINE: usize = 16 << 10;
/// When a log has this many bytes it becomes the older one, and that one goes.
const MAX_LOG: u64 = 10 << 20;
/// How much of a log is looked at for its last lines.
const TAIL: u64 = 64 << 10;

/// Where some output came from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stream {
    Out,
    Error,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Error => "stderr",
        }
    }
}

/// The log of one attempt: `FOLDER/CONTAINER/ATTEMPT.log`, and `ATTEMPT.log.1` for what was before.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Log {
    pub(super) fn open(folder: &Path, container: &str, attempt: u32) -> io::Result<Self> {
        let folder = folder.join(container);
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{attempt}.log"));
        let file = open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes lines. What cannot be written is lost: a full disk must not stop the container.
    pub(super) fn write(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        if self.bytes > 0 && self.bytes + lines.len() as u64 > MAX_LOG {
            self.rotate();
        }
        if self.file.write_all(lines).is_ok() {
            self.bytes += lines.len() as u64;
        }
    }

    fn rotate(&mut self) {
        let renamed = std::fs::rename(&self.path, self.path.with_added_extension("1"));
        if let Ok(file) = renamed.and_then(|()| open(&self.path)) {
            (self.file, self.bytes) = (file, 0);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// One stream, cut into lines.
#[derive(Debug)]
pub(super) struct Lines {
    stream: Stream,
    pending: Vec<u8>,
}

impl Lines {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Adds output; what is complete comes back as lines of a log.
    pub(super) fn add(&mut self, output: &[u8], now: Timestamp) -> Vec<u8> {
        let mut lines = Vec::new();
        for piece in output.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_full) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            self.pending.extend_from_slice(text);
            while self.pending.len() > MAX_LINE {
                let rest = self.pending.split_off(MAX_LINE);
                let part = std::mem::replace(&mut self.pending, rest);
                self.write(&mut lines, "P", &part, now);
            }
            if is_full {
                let line = std::mem::take(&mut self.pending);
                self.write(&mut lines, "F", &line, now);
            }
        }
        lines
    }

    /// What waits for the end of its line, as a part of it: a prompt is to be seen, too.
    pub(super) fn part(&mut self, now: Timestamp) -> Vec<u8> {
        let mut lines = Vec::new();
        if self.is_pending() {
            let part = std::mem::take(&mut self.pending);
            self.write(&mut lines, "P", &part, now);
        }
        lines
    }

    /// Whether something waits for the end of its line.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What is left when the stream has ended.
    pub(super) fn finish(&mut self, now: Timestamp) -> Vec<u8> {
        let mut lines = Vec::new();
        if !self.pending.is_empty() {
            let line = std::mem::take(&mut self.pending);
            self.write(&mut lines, "F", &line, now);
        }
        lines
    }

    fn write(&self, lines: &mut Vec<u8>, tag: &str, text: &[u8], now: Timestamp) {
        // Writing to memory cannot fail.
        let _ = write!(lines, "{now:.9} {} {tag} ", self.stream.name());
        lines.extend_from_slice(text);
        lines.push(b'\n');
    }
}

/// The last lines of a log, without what stands before the text.
pub(super) fn tail(path: &Path, max_lines: usize, max_bytes: usize) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>((bytes, length > TAIL))
    };
    let Ok((bytes, is_cut)) = read() else { return String::new() };
    // The first line may be one of which only the end was read.
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').skip(usize::from(is_cut)).collect();
    let texts: Vec<_> = lines.iter().rev().take(max_lines).map(|line| text_of(line)).collect();
    let text = texts.into_iter().rev().collect::<Vec<_>>().concat();
    let text = &text[text.len().saturating_sub(max_bytes)..];
    String::from_utf8_lossy(text).trim_end_matches('\n').to_owned()
}

fn text_of(line: &[u8]) -> Vec<u8> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let tag = fields.nth(2).unwrap_or_default();
    let text = fields.next().unwrap_or_default();
    // A part goes on with the next one.
    let text = if tag == b"P" { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
    text.to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn a_line_is_written_when_it_is_complete() {
        let mut lines = Lines::new(Stream::Out);
        assert!(lines.add(b"one", NOW).is_empty());
        let written = lines.add(b" line\nnext", NOW);
        assert_eq!(written, b"1970-01-01T00:00:00.000000000Z stdout F one line\n");
        assert!(lines.finish(NOW).ends_with(b" F next\n"));
        assert!(lines.finish(NOW).is_empty());
    }

    #[test]
    fn a_part_is_written_once_and_its_line_goes_on() {
        let mut lines = Lines::new(Stream::Out);
        assert!(lines.part(NOW).is_empty());
        lines.add(b"login: ", NOW);
        assert!(lines.part(NOW).ends_with(b" P login: \n"));
        assert!(lines.part(NOW).is_empty());
        assert!(lines.add(b"root\n", NOW).ends_with(b" F root\n"));
    }

    #[test]
    fn a_full_log_becomes_the_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(folder.path(), "main", 2).unwrap();
        log.write(&vec![b'a'; usize::try_from(MAX_LOG).unwrap()]);
        log.write(b"b\n");
        log.write(b"c\n");
        assert_eq!(std::fs::read(folder.path().join("main/2.log")).unwrap(), b"b\nc\n");
        assert_eq!(std::fs::metadata(folder.path().join("main/2.log.1")).unwrap().len(), MAX_LOG);
    }

    #[test]
    fn the_tail_has_the_last_lines_and_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(folder.path(), "main", 0).unwrap();
        let mut lines = Lines::new(Stream::Error);
        let text: String = (0..9000).map(|line| format!("line {line}\n")).collect();
        log.write(&lines.add(text.as_bytes(), NOW));
        assert_eq!(tail(log.path(), 2, 100), "line 8998\nline 8999");
        assert_eq!(tail(log.path(), 2, 4), "999");
        assert_eq!(tail(&folder.path().join("none"), 2, 4), "");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_output_is_cut(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            long in 0..40_000_usize,
            cuts in proptest::collection::vec(1..5000_usize, 1..20),
        ) {
            let mut output = text.clone();
            output.extend(std::iter::repeat_n(b'x', long));
            output.extend(text);
            let mut lines = Lines::new(Stream::Out);
            let mut written = Vec::new();
            let mut rest = output.as_slice();
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                written.extend(lines.add(piece, NOW));
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            written.extend(lines.finish(NOW));
            let lines: Vec<_> = written.split_inclusive(|byte| *byte == b'\n').collect();
            prop_assert!(lines.iter().all(|line| line.len() <= MAX_LINE + 50));
            let mut read: Vec<u8> = lines.iter().flat_map(|line| text_of(line)).collect();
            if !output.ends_with(b"\n") {
                read.pop();
            }
            prop_assert_eq!(read, output);
        }
    }
}
