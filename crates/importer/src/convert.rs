//! Conversion by `qemu-img`, which reads what strangers made: with limits on all that it may use.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use storage::pull::{Limits, objection};
use storage::qcow2;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::ImportError;
use crate::disk::Draft;

/// Memory that `qemu-img` may have mapped.
const MEMORY: u64 = 1 << 30;
/// Files that it may have open.
const FILES: u32 = 64;
/// The slowest conversion that is waited for, in bytes of the disk per second.
const SLOWEST: u64 = 1 << 20;
/// Time that even the smallest may take.
const LEAST_TIME: Duration = Duration::from_secs(120);
/// What is read of its complaints.
const MOST_WORDS: u64 = 4 << 10;

/// Converts a qcow2 image, unless it refers to anything but itself or does not fit.
pub(crate) async fn qcow2(image: &Path, draft: &Draft) -> Result<(), ImportError> {
    let file = File::open(image).map_err(ImportError::file("open", image))?;
    let info = qcow2::inspect(&file).map_err(ImportError::Inspect)?;
    if info.virtual_size > draft.size() {
        return Err(ImportError::TooLarge { what: "the disk in the image", limit: draft.size() });
    }
    let limits = Limits { max_virtual_size: draft.size(), ..Limits::default() };
    if let Some(reason) = objection(&info, &limits) {
        return Err(ImportError::Refused(reason));
    }
    // Where a table leads nowhere, a conversion would read zeros and call that a disk.
    let time = time(info.virtual_size);
    match qemu_img(&["check", "-q", "-f", "qcow2"], &[image], draft, time).await? {
        // Clusters that nobody refers to do no harm.
        Ended { code: Some(0 | 3), .. } => run("qcow2", image, info.virtual_size, draft).await,
        Ended { words, .. } => Err(ImportError::Refused(format!("it is corrupt: {words}"))),
    }
}

/// Copies a raw image, without its zeros.
pub(crate) async fn raw(image: &Path, length: u64, draft: &Draft) -> Result<(), ImportError> {
    if length > draft.size() {
        return Err(ImportError::TooLarge { what: "the disk in the image", limit: draft.size() });
    }
    run("raw", image, length, draft).await
}

async fn run(format: &str, image: &Path, virtual_size: u64, draft: &Draft) -> Result<(), ImportError> {
    // As large as the disk, and all zeros: only what is in the image is written.
    let file = draft.file()?;
    let sized = file.set_len(0).and_then(|()| file.set_len(virtual_size));
    sized.map_err(ImportError::file("size", draft.path()))?;
    let arguments = ["convert", "-f", format, "-O", "raw", "-n", "--target-is-zero"];
    let ended = qemu_img(&arguments, &[image, draft.path()], draft, time(virtual_size)).await?;
    if ended.code == Some(0) {
        return Ok(());
    }
    if ended.words.contains("No space left on device") {
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        return Err(ImportError::file("write", draft.path())(source));
    }
    Err(ImportError::Convert(ended.words))
}

fn time(virtual_size: u64) -> Duration {
    LEAST_TIME + Duration::from_secs(virtual_size / SLOWEST)
}

/// How a run ended, and what was said.
struct Ended {
    code: Option<i32>,
    words: String,
}

async fn qemu_img(arguments: &[&str], files: &[&Path], draft: &Draft, time: Duration) -> Result<Ended, ImportError> {
    // The files' names are absolute: none can be taken for a protocol or for options.
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--as={MEMORY}"))
        .arg(format!("--cpu={}", time.as_secs()))
        .arg(format!("--fsize={}", draft.size()))
        .arg(format!("--nofile={FILES}"))
        .args(["--core=0", "qemu-img"])
        .args(arguments)
        .args(files)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(ImportError::file("run", "prlimit"))?;
    let mut words = String::new();
    let ended = async {
        if let Some(output) = child.stderr.take() {
            // What it says is of use only if it can be read.
            let _ = output.take(MOST_WORDS).read_to_string(&mut words).await;
        }
        child.wait().await
    };
    let ended = tokio::time::timeout(time, ended).await;
    let status = ended.map_err(|_| ImportError::ConvertTime(time.as_secs()))?;
    let status = status.map_err(ImportError::file("wait for", "qemu-img"))?;
    let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = if words.is_empty() { format!("qemu-img ended with {status}") } else { words };
    Ok(Ended { code: status.code(), words })
}
