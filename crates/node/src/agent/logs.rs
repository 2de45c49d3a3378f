//! Logs of containers, as `pods/NAME/log` gives them: from lines of `TIME STREAM F|P TEXT` to what the container wrote.

mod follow;
mod line;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use jiff::Timestamp;

use follow::Changes;
use line::Renderer;

/// What is sent at once.
const PIECE: usize = 32 << 10;

/// Which part of a log, and in which form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Go on until the container ends.
    pub follow: bool,
    /// Only so many of the last lines.
    pub tail_lines: Option<u64>,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
    /// Only what is this new.
    pub since: Option<Duration>,
    /// Only what was written from then on.
    pub since_time: Option<Timestamp>,
    /// With its time before each line.
    pub timestamps: bool,
    /// Of the attempt before.
    pub previous: bool,
    /// Only what was written to one of the two.
    pub stream: Option<StandardStream>,
}

/// Where a container writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardStream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It has not written any.
    #[error("container {0:?} has no log")]
    None(String),
    /// It was not restarted.
    #[error("there is no log of a previous container {0:?}")]
    NoPrevious(String),
    /// It cannot be read.
    #[error("the log cannot be read")]
    Io(#[from] io::Error),
}

/// A log that is being read.
pub struct Lines {
    path: PathBuf,
    current: File,
    renderer: Renderer,
    ready: VecDeque<Vec<u8>>,
    left: Option<u64>,
    following: Option<Following>,
}

struct Following {
    changes: Changes,
    ended: BoxFuture<'static, ()>,
    over: bool,
}

/// Begins to read the log in a container's directory. Following ends when `ended` does.
///
/// # Errors
/// When there is none.
pub fn read(
    folder: &Path,
    options: &Options,
    ended: BoxFuture<'static, ()>,
    now: Timestamp,
) -> Result<Lines, LogError> {
    let name = || folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let newest = newest_attempt(folder).ok_or_else(|| LogError::None(name()))?;
    let attempt = if options.previous { newest.checked_sub(1) } else { Some(newest) };
    let path = attempt.map(|attempt| folder.join(format!("{attempt}.log"))).filter(|path| path.exists());
    let path = path.ok_or_else(|| LogError::NoPrevious(name()))?;
    let follows = options.follow && !options.previous;
    // Before the first look, so that nothing is missed in between.
    let changes = follows.then(|| Changes::of(folder)).transpose()?;
    let mut current = File::open(&path)?;
    // What was written before the last rotation; a rotation in this moment shows some lines twice, and loses none.
    let mut bytes = std::fs::read(path.with_added_extension("1")).unwrap_or_default();
    current.read_to_end(&mut bytes)?;
    let since = options.since_time.or_else(|| options.since.map(|since| now - since));
    let mut renderer = Renderer::new(since, options.timestamps, options.stream);
    let tail = match options.tail_lines {
        Some(lines) => line::tail(&bytes, lines, options.stream),
        None => &bytes,
    };
    let text = renderer.render(tail);
    let mut lines = Lines {
        path,
        current,
        renderer,
        ready: VecDeque::new(),
        left: options.limit_bytes,
        following: changes.map(|changes| Following { changes, ended, over: false }),
    };
    lines.push(&text);
    Ok(lines)
}

impl Lines {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.left == Some(0) {
                return None;
            }
            let following = self.following.as_mut().filter(|following| !following.over)?;
            tokio::select! {
                biased;
                changed = following.changes.next() => {
                    if let Err(error) = changed {
                        following.over = true;
                        return Some(Err(error));
                    }
                }
                // What it wrote last is read once more, below.
                () = &mut following.ended => following.over = true,
            }
            if let Err(error) = self.catch_up() {
                return Some(Err(error));
            }
        }
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Vec<u8>>> {
        stream::unfold(self, async |mut lines| lines.next().await.map(|piece| (piece, lines)))
    }

    /// Reads what is new, also across a rotation.
    fn catch_up(&mut self) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt as _;
        let mut bytes = Vec::new();
        self.current.read_to_end(&mut bytes)?;
        let same = |file: &File| Ok::<_, io::Error>(file.metadata()?.ino());
        if let Ok(mut newer) = File::open(&self.path)
            && same(&newer)? != same(&self.current)?
        {
            self.current.read_to_end(&mut bytes)?;
            newer.read_to_end(&mut bytes)?;
            self.current = newer;
        }
        let text = self.renderer.render(&bytes);
        self.push(&text);
        Ok(())
    }

    fn push(&mut self, text: &[u8]) {
        let allowed = self.left.map_or(text.len(), |left| text.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        let text = &text[..allowed];
        self.left = self.left.map(|left| left.saturating_sub(text.len() as u64));
        self.ready.extend(text.chunks(PIECE).map(<[u8]>::to_vec));
    }
}

fn newest_attempt(folder: &Path) -> Option<u32> {
    let entries = std::fs::read_dir(folder).ok()?;
    let attempt = |name: &str| name.strip_suffix(".log").and_then(|number| number.parse().ok());
    entries.flatten().filter_map(|entry| attempt(&entry.file_name().to_string_lossy())).max()
}

#[cfg(test)]
mod tests;
