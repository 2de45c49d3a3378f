//! The user's terminal as the guest's serial console.

use std::io::{IsTerminal, Stdout, Write};

use anyhow::Context;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A terminal that passes every key on at once, and is set back when dropped.
///
/// Signals stay with the terminal: Ctrl-C stops the guest, it does not reach it.
pub(super) struct Terminal {
    before: Option<Termios>,
}

impl Terminal {
    /// Takes the terminal over, if standard input is one.
    pub(super) fn take() -> anyhow::Result<Self> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { before: None });
        }
        let before = tcgetattr(&stdin).context("read the terminal's settings")?;
        let mut now = before.clone();
        now.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        now.input_modes &= !rustix::termios::InputModes::ICRNL;
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

/// Carries bytes between the terminal and the guest until the guest hangs up.
pub(super) async fn attach(mut serial: UnixStream, out: &mut Stdout) -> anyhow::Result<()> {
    let mut stdin = tokio::io::stdin();
    let mut from_guest = vec![0; 4096];
    let mut from_user = [0; 256];
    let mut listening = true;
    loop {
        tokio::select! {
            biased;
            // What the guest says comes first: it may be its last words.
            read = serial.read(&mut from_guest) => match read {
                Ok(0) | Err(_) => return Ok(()),
                Ok(length) => {
                    out.write_all(&from_guest[..length]).and_then(|()| out.flush()).context("write to the terminal")?;
                }
            },
            read = stdin.read(&mut from_user), if listening => match read {
                // No more input is no reason to leave: the guest goes on.
                Ok(0) | Err(_) => listening = false,
                Ok(length) => {
                    if serial.write_all(&from_user[..length]).await.is_err() {
                        return Ok(());
                    }
                }
            },
        }
    }
}
