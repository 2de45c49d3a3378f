//! The way of a container's output into its log.

use std::io::{self, PipeReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::console::{Console, Terminal};
use super::log::{Lines, Log, Stream};
use super::now;

/// What is read at once.
const PIECE: usize = 16 << 10;

/// Who has begun a line and says no more for so long waits for somebody.
const PROMPT: Duration = Duration::from_millis(500);

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
    loop {
        let read = tokio::select! {
            biased;
            read = source.read(&mut piece) => read,
            () = sleep(PROMPT), if lines.is_pending() => {
                write(&lines.part(now()));
                continue;
            }
        };
        let Ok(length @ 1..) = read else { break };
        write(&lines.add(&piece[..length], now()));
    }
    write(&lines.finish(now()));
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use testkit::waiting::eventually;

    use super::*;

    #[tokio::test]
    async fn a_prompt_is_seen_before_its_line_ends() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path(), "c", 0).unwrap();
        let path = log.path().to_owned();
        let ((out, mut out_end), (error, _)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let copies = Output::Pipes { out, error }.copy(log).unwrap();
        out_end.write_all(b"hello\nlogin: ").unwrap();
        let read = async || std::fs::read_to_string(&path).ok().filter(|text| text.ends_with(" stdout P login: \n"));
        eventually("the prompt in the log", read).await;
        out_end.write_all(b"root\n").unwrap();
        drop(out_end);
        for copy in copies {
            copy.await.unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.ends_with(" stdout F root\n") && written.lines().count() == 3, "{written}");
    }
}
