//! The guest's serial console in the launcher's own output, and so in the pod's log.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hypervisor::render::SERIAL_LOG;
use rustix::fs::Mode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

/// QEMU is gone when the copy is ended; what it wrote last is in the pipe already.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// A pipe in the place of QEMU's log file: nothing grows on disk, and whoever keeps the output bounds it.
pub(super) struct Copy {
    task: JoinHandle<()>,
    abort: tokio::sync::oneshot::Sender<()>,
}

impl Copy {
    /// Makes the pipe, which QEMU will open, and copies from it.
    pub(super) fn prepare(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(SERIAL_LOG);
        let _ = std::fs::remove_file(&path);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR)
            .with_context(|| format!("create the pipe {}", path.display()))?;
        // For reading and writing: QEMU does not wait for a reader, and the pipe does not end with QEMU.
        let pipe = pipe::OpenOptions::new()
            .read_write(true)
            .open_receiver(&path)
            .with_context(|| format!("open the pipe {}", path.display()))?;
        let (abort, aborted) = tokio::sync::oneshot::channel();
        Ok(Self { task: tokio::spawn(copy(pipe, aborted)), abort })
    }

    /// Copies what is left, and ends.
    pub(super) async fn finish(self) {
        let Self { task, abort } = self;
        // It may have ended by itself, with its output.
        let _ = abort.send(());
        let _ = task.await;
    }
}

async fn copy(mut pipe: pipe::Receiver, mut aborted: tokio::sync::oneshot::Receiver<()>) {
    let mut out = tokio::io::stdout();
    let mut buffer = vec![0; 4096];
    let mut ending = false;
    loop {
        let read = tokio::select! {
            biased;
            read = pipe.read(&mut buffer) => read,
            _ = &mut aborted, if !ending => {
                ending = true;
                continue;
            }
            () = tokio::time::sleep(LAST_WORDS), if ending => return,
        };
        let Ok(length) = read else { return };
        // Nobody reads the log any more; the guest must not be held up by that, so the pipe is still emptied.
        let _ = out.write_all(&buffer[..length]).await;
        let _ = out.flush().await;
    }
}
