//! A serial console, driven like a person would: wait for words, type a line.

use std::io::{Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Result, bail};

/// How long a guest may take for anything. Guests are emulated, several at a time, on machines that have other work.
pub const PATIENCE: Duration = testkit::NEVER;
/// How long a shell may take to appear before the password is typed again.
const PROMPT: Duration = Duration::from_secs(5);
/// How often the password is typed.
const TRIES: usize = 60;
/// A word that no guest prints by itself.
const DONE: &str = "orlop-done";
/// What a shell says instead, when it runs nothing of a line.
const SYNTAX: &str = "syntax error";

/// One end of a console.
pub struct Console<W> {
    input: W,
    pieces: Receiver<Vec<u8>>,
    seen: String,
}

impl<W: Write> Console<W> {
    /// Reads from `output` on a thread of its own until it ends.
    pub fn new(input: W, mut output: impl Read + Send + 'static) -> Self {
        let (send, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { input, pieces, seen: String::new() }
    }

    /// Waits for `words`, and returns what came before them. What comes after is left for the next call.
    ///
    /// # Errors
    /// When the words do not come in time, or the console ends; then with what was seen.
    pub fn expect(&mut self, words: &str) -> Result<String> {
        self.expect_within(words, PATIENCE)
    }

    fn expect_within(&mut self, words: &str, patience: Duration) -> Result<String> {
        self.expect_one(&[words], patience).map(|(before, _)| before)
    }

    /// Waits for the first of several words, and says which it is.
    fn expect_one<'w>(&mut self, any: &[&'w str], patience: Duration) -> Result<(String, &'w str)> {
        loop {
            let found = any.iter().filter_map(|words| Some((self.seen.find(words)?, *words))).min();
            if let Some((at, words)) = found {
                let before = self.seen[..at].to_owned();
                self.seen.drain(..at + words.len());
                return Ok((before, words));
            }
            let first = any.first().copied().unwrap_or_default();
            match self.pieces.recv_timeout(patience) {
                Ok(piece) => self.seen.push_str(&String::from_utf8_lossy(&piece)),
                Err(RecvTimeoutError::Timeout) => bail!("{first:?} did not come; last seen:\n{}", self.tail()),
                Err(RecvTimeoutError::Disconnected) => bail!("the console ended before {first:?}:\n{}", self.tail()),
            }
        }
    }

    /// Everything until the console ends.
    pub fn rest(&mut self) -> String {
        while let Ok(piece) = self.pieces.recv_timeout(PATIENCE) {
            self.seen.push_str(&String::from_utf8_lossy(&piece));
        }
        std::mem::take(&mut self.seen)
    }

    /// Types a line.
    ///
    /// # Errors
    /// When nobody reads it.
    pub fn send(&mut self, line: &str) -> Result<()> {
        // What the Return key sends.
        self.input.write_all(format!("{line}\r").as_bytes())?;
        Ok(self.input.flush()?)
    }

    /// Logs in at the prompt.
    ///
    /// # Errors
    /// When the guest does not let us in.
    pub fn log_in(&mut self, user: &str, password: &str) -> Result<()> {
        self.expect("login:")?;
        self.send(user)?;
        self.expect("assword:")?;
        // A login throws away what was typed before it has turned the echo off, a moment after it has asked; a password
        // that was lost is typed again. One too many is a command that does not exist.
        let prompt = if user == "root" { "# " } else { "$ " };
        for _ in 0..TRIES {
            self.send(password)?;
            if self.expect_within(prompt, PROMPT).is_ok() {
                // Without echo and prompt, what comes back is what a command prints.
                let (first, second) = DONE.split_at(6);
                // A kernel that has to wait for its host says so, in between.
                let quiet = if user == "root" { "dmesg -n 1; " } else { "" };
                self.send(&format!("{quiet}stty -echo; PS1=; echo \"{first}\"\"{second}\""))?;
                return self.expect(DONE).and_then(|_| self.expect("\n")).map(drop);
            }
        }
        bail!("{user} is not let in; last seen:\n{}", self.tail())
    }

    /// Runs a command in the guest's shell and returns what it printed.
    ///
    /// # Errors
    /// When it fails, or does not end.
    pub fn run(&mut self, command: &str) -> Result<String> {
        // What ends with `&` is a command of its own already.
        let end = if command.trim_end().ends_with('&') { "" } else { ";" };
        self.send(&format!("{command}{end} echo {DONE} $?."))?;
        let (printed, found) = self.expect_one(&[DONE, SYNTAX], PATIENCE)?;
        if found == SYNTAX {
            bail!("{command}: the guest's shell does not understand it");
        }
        let code = self.expect(".")?;
        if code.trim() != "0" {
            bail!("{command}: exit code {}\n{printed}", code.trim());
        }
        Ok(printed.replace('\r', "").trim().to_owned())
    }

    fn tail(&self) -> &str {
        let start = self.seen.len().saturating_sub(2000);
        self.seen.get(self.seen.ceil_char_boundary(start)..).unwrap_or_default()
    }
}
