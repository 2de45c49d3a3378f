//! The user's terminal as the guest's serial console.

use std::io::{IsTerminal, Stdout, Write};

use anyhow::Context;
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A terminal that passes every key on at once, and is set back when dropped.
pub(crate) struct Terminal {
    before: Option<Termios>,
}

/// Who gets Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signals {
    /// This program: it does not reach the guest.
    Ours,
    /// The guest, as any other key. [`LEAVE`] leaves.
    Guests,
}

/// The key that leaves a console: Ctrl-].
const LEAVE: u8 = 0x1d;

impl Terminal {
    /// Takes the terminal over, if standard input is one.
    pub(crate) fn take(signals: Signals) -> anyhow::Result<Self> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { before: None });
        }
        let before = tcgetattr(&stdin).context("read the terminal's settings")?;
        let mut now = before.clone();
        now.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        now.input_modes &= !InputModes::ICRNL;
        if signals == Signals::Guests {
            now.local_modes &= !(LocalModes::ISIG | LocalModes::IEXTEN);
            now.input_modes &= !InputModes::IXON;
        }
        tcsetattr(&stdin, OptionalActions::Now, &now).context("set the terminal up")?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // There is nobody left to tell, and nothing else to try.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Tells the user, on a line of its own even while the guest writes.
pub(crate) fn say(text: &str) {
    // Nothing can be done about a terminal that is gone.
    let _ = writeln!(std::io::stderr(), "\r\norlop: {text}\r");
}

/// Tells the user something besides what was asked for.
pub(crate) fn note(text: &str) {
    // Nothing can be done about a terminal that is gone.
    let _ = writeln!(std::io::stderr(), "orlop: {text}");
}

/// Why a console was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The guest hung up.
    Guest,
    /// The user pressed Ctrl-].
    User,
}

/// Carries bytes between the terminal and the guest until the guest hangs up, or the user leaves where keys are the guest's.
///
/// `stdin` is one and the same for whoever attaches again: a read of it cannot be cancelled, and what it brings is kept there.
pub(crate) async fn attach<S>(
    mut serial: S,
    stdin: &mut tokio::io::Stdin,
    out: &mut Stdout,
    signals: Signals,
) -> anyhow::Result<Left>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut from_guest = vec![0; 4096];
    let mut from_user = [0; 256];
    let mut listening = true;
    loop {
        tokio::select! {
            biased;
            // What the guest says comes first: it may be its last words.
            read = serial.read(&mut from_guest) => match read {
                Ok(0) | Err(_) => return Ok(Left::Guest),
                Ok(length) => {
                    out.write_all(&from_guest[..length]).and_then(|()| out.flush()).context("write to the terminal")?;
                }
            },
            read = stdin.read(&mut from_user), if listening => match read {
                // No more input is no reason to leave: the guest goes on.
                Ok(0) | Err(_) => listening = false,
                Ok(length) => {
                    let typed = &from_user[..length];
                    let leaves = typed.iter().position(|key| *key == LEAVE).filter(|_| signals == Signals::Guests);
                    if serial.write_all(&typed[..leaves.unwrap_or(length)]).await.is_err() {
                        return Ok(Left::Guest);
                    }
                    if leaves.is_some() {
                        return Ok(Left::User);
                    }
                }
            },
        }
    }
}
