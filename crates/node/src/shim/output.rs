//! The way of a container's output into its log.

use std::io::{self, PipeReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::console::{Console, Terminal};
use super::log::{Lines, Log, Stream};
use super::now;

/// What is read at once.
const PIECE: usize = 16 << 10;

/// Where output will come out.
pub(super) enum Output {
    Pipes { out: PipeReader, error: PipeReader },
    Terminal(Console),
}

/// Where output comes out.
enum Source {
    Pipe(pipe::Receiver),
    Terminal(Terminal),
}

impl Source {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(buffer).await,
            Self::Terminal(terminal) => terminal.read(buffer).await,
        }
    }
}

impl Output {
    /// Tells the runtime where a container's output goes: into two pipes, or a terminal.
    pub(super) fn prepare(is_terminal: bool, folder: &Path, command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null());
        if is_terminal {
            let console = Console::new(folder)?;
            command.arg("--console-socket").arg(console.path()).stdout(Stdio::null()).stderr(Stdio::null());
            return Ok(Self::Terminal(console));
        }
        let ((out, out_end), (error, error_end)) = (io::pipe()?, io::pipe()?);
        command.stdout(out_end).stderr(error_end);
        Ok(Self::Pipes { out, error })
    }

    /// Begins to copy, once the container runs.
    pub(super) fn copy(self, log: Log) -> io::Result<Vec<JoinHandle<()>>> {
        let log = Arc::new(Mutex::new(log));
        let pipe = |end: PipeReader| pipe::Receiver::from_owned_fd(end.into()).map(Source::Pipe);
        let sources = match self {
            Self::Pipes { out, error } => vec![(pipe(out)?, Stream::Out), (pipe(error)?, Stream::Error)],
            Self::Terminal(console) => vec![(Source::Terminal(console.receive()?), Stream::Out)],
        };
        Ok(sources.into_iter().map(|(source, stream)| tokio::spawn(copy(source, stream, Arc::clone(&log)))).collect())
    }
}

/// Copies one stream into the log until all who write to it have ended.
async fn copy(mut source: Source, stream: Stream, log: Arc<Mutex<Log>>) {
    let mut lines = Lines::new(stream);
    let mut piece = vec![0; PIECE];
    let write = |lines: &[u8]| {
        if let Ok(mut log) = log.lock() {
            log.write(lines);
        }
    };
    while let Ok(length @ 1..) = source.read(&mut piece).await {
        write(&lines.add(&piece[..length], now()));
    }
    write(&lines.finish(now()));
}
