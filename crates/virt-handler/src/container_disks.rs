//! Disks in container images, where nodes cannot mount images: each image runs as a container, and its disk is mounted into
//! the launcher's folder.
//!
//! ```text
//! socket of the container ──> its process ──> its root ──> the disk's file, opened
//!                                                                │ cloned as a mount, read-only
//! the launcher's folder, opened part by part ──> a new file ─────┴──> mounted onto it
//! ```
//! # Guarantees
//! - No link that a container has made leads out of it, and none in the launcher's folder is followed.
//! - What was opened and checked is what is mounted, whatever happens to its name meanwhile.

mod mounting;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use api::vmi::VirtualMachineInstance;
use launcher_api::Outcome;
use launcher_api::names::{CONTAINER_DISKS, KERNEL_BOOT, container_disk};
use manager::errors::chain;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use tokio::net::UnixStream;

use crate::folders;
use crate::isolation::{IsolationError, Peer};

/// Where an image has its disk, unless the instance says.
const DISKS: &str = "disk";

/// Why a disk is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// The container does not offer it yet.
    #[error("the container of {0} is not ready")]
    NotReady(String),
    #[error("find out whose disk {name} is")]
    Isolation { name: String, source: IsolationError },
    /// The image has no such file, or several.
    #[error("the image of {name}: {problem}")]
    Image { name: String, problem: String },
    #[error("mount {name}")]
    Mount { name: String, source: io::Error },
}

impl DiskError {
    /// What its caller does about it.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Image { .. } => Outcome::never("", chain(self)),
            Self::NotReady(_) | Self::Isolation { .. } | Self::Mount { .. } => Outcome::retry(chain(self)),
        }
    }
}

/// One file that is to be brought from an image to a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    /// The name of the socket, without its ending.
    socket: String,
    /// The file in the image; none for the only one in its usual folder.
    file: Option<String>,
    /// Where the launcher looks for it, in its folder.
    target: PathBuf,
}

/// Brings the disks of an instance to its launcher, each whatever becomes of the others. May be repeated: what is there stays. Nothing is
/// done for a pod whose images are mounted by its node.
///
/// # Errors
/// The first disk that will never be there, or else the first that is not there yet.
pub(crate) async fn mount_all(pods: &Path, pod: &str, vmi: &VirtualMachineInstance) -> Result<(), DiskError> {
    let mut failures = Vec::new();
    for wanted in wanted(vmi) {
        failures.extend(mount(pods, pod, wanted).await.err());
    }
    let hopeless = failures.iter().position(|error| matches!(error, DiskError::Image { .. }));
    let told = hopeless.or((!failures.is_empty()).then_some(0));
    told.map_or(Ok(()), |index| Err(failures.swap_remove(index)))
}

async fn mount(pods: &Path, pod: &str, wanted: Wanted) -> Result<(), DiskError> {
    let name = wanted.socket.clone();
    let failed = |source: io::Error| DiskError::Mount { name: name.clone(), source };
    let Some(folder) = folder(pods, pod).map_err(failed)? else { return Ok(()) };
    if mounting::is_mounted(&folder, &wanted.target).map_err(failed)? {
        return Ok(());
    }
    let peer = offered_by(&folder, &wanted.socket, pod).await?;
    // The thread that enters the container's namespace must be no other's.
    let task = tokio::task::spawn_blocking(move || bring(&folder, &peer, &wanted));
    task.await.map_err(|error| failed(io::Error::other(error)))?
}

/// Takes the disks of an instance away again; what is not there is no error.
pub(crate) fn unmount_all(pods: &Path, pod: &str) -> io::Result<()> {
    let Some(folder) = folder(pods, pod)? else { return Ok(()) };
    mounting::unmount_below(&folder)
}

/// The launcher's folder; none if it has none, or is gone.
fn folder(pods: &Path, pod: &str) -> io::Result<Option<OwnedFd>> {
    if !folders::is_plain(pod) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (folder, whole) = folders::open_deepest(pods, &folders::volume_path(pod, CONTAINER_DISKS))?;
    Ok(Some(folder).filter(|_| whole))
}

fn wanted(vmi: &VirtualMachineInstance) -> Vec<Wanted> {
    let volumes = vmi.spec.volumes.iter().flatten().enumerate();
    let disks = volumes.filter_map(|(index, volume)| {
        let disk = volume.container_disk.as_ref()?;
        let socket = container_disk(index);
        let target = PathBuf::from(format!("{socket}.img"));
        Some(Wanted { socket, file: disk.path.clone(), target })
    });
    let boot = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    let container = boot.and_then(|boot| boot.container.as_ref());
    let files = container.into_iter().flat_map(|container| [&container.kernel_path, &container.initrd_path]).flatten();
    let kernel = files.filter_map(|file| {
        let name = Path::new(file).file_name()?;
        Some(Wanted {
            socket: KERNEL_BOOT.to_owned(),
            file: Some(file.clone()),
            target: Path::new(KERNEL_BOOT).join(name),
        })
    });
    disks.chain(kernel).collect()
}

/// The process that offers an image.
async fn offered_by(folder: &OwnedFd, name: &str, pod: &str) -> Result<Peer, DiskError> {
    let not_ready = |_: io::Error| DiskError::NotReady(name.to_owned());
    let socket = folders::open_socket(folder, &format!("{name}.sock")).map_err(not_ready)?;
    let stream = UnixStream::connect(folders::by_descriptor(socket.as_fd())).await.map_err(not_ready)?;
    Peer::of(&stream, pod).map_err(|source| DiskError::Isolation { name: name.to_owned(), source })
}

fn bring(folder: &OwnedFd, peer: &Peer, wanted: &Wanted) -> Result<(), DiskError> {
    let name = &wanted.socket;
    let mount = |source: io::Error| DiskError::Mount { name: name.clone(), source };
    let root = open_path(Path::new(&format!("/proc/{}/root", peer.pid))).map_err(mount)?;
    let namespace = peer.mounts().map_err(mount)?;
    let file = find(&root, wanted)?;
    // Root and namespace are of the process that was asked, not of one that got its number.
    if !peer.is_alive() {
        return Err(DiskError::NotReady(name.clone()));
    }
    let tree = mounting::clone_from(&namespace, file).map_err(mount)?;
    mounting::attach(&tree, folder, &wanted.target).map_err(mount)
}

/// Opens the file of an image, as seen from its root: no link leads out of it.
fn find(root: &OwnedFd, wanted: &Wanted) -> Result<OwnedFd, DiskError> {
    let problem = |problem: String| DiskError::Image { name: wanted.socket.clone(), problem };
    let path = match &wanted.file {
        Some(path) => PathBuf::from(path),
        None => only_file(root, Path::new(DISKS)).map_err(problem)?,
    };
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(root, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within)
        .map_err(|error| problem(format!("{}: {error}", path.display())))?;
    let mode = rustix::fs::fstat(&file).map_err(|error| problem(error.to_string()))?.st_mode;
    if rustix::fs::FileType::from_raw_mode(mode).is_file() {
        Ok(file)
    } else {
        Err(problem(format!("{} is not a file", path.display())))
    }
}

fn only_file(root: &OwnedFd, folder: &Path) -> Result<PathBuf, String> {
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(root, folder, flags, Mode::empty(), within)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let entries = rustix::fs::Dir::read_from(&opened).map_err(|error| error.to_string())?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    match (names.pop(), names.pop()) {
        (Some(name), None) => Ok(folder.join(name)),
        (None, _) => Err(format!("there is no file in /{}", folder.display())),
        (Some(_), Some(_)) => Err(format!("there are several files in /{}; set `path`", folder.display())),
    }
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(rustix::fs::CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests;
