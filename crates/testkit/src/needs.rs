//! What a test may need of the machine, and whether it is there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set to `fast` it leaves out whatever needs root or guests; set to `all` nothing is left out that the project can bring
/// along, and what is missing fails.
pub const CHOICE: &str = "ORLOP_TESTS";

/// Something that not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The rights of root: namespaces, mounts, links, control groups.
    Root,
    Qemu,
    /// The Linux that tests boot. It is built when it is first needed, from packages that come over the network.
    Guest,
    /// The real programs that Orlop is compared with, which `make test-peers` builds.
    Peers,
    /// Kubernetes' own tests, which take longer to build than the other peers: `make proof` does.
    Conformance,
    /// A kernel that knows XFS, and the programs that make and grow it.
    Xfs,
    /// Time: minutes of it, and so only where tests go on for longer than usual.
    Soak,
    /// Another program.
    Program(&'static str),
    /// The directory of this name in `../shared`, which is no part of the project.
    Shared(&'static str),
}

impl Need {
    /// Why it is not here, if it is not.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match std::env::var(CHOICE).as_deref() {
            Ok("all") if self.comes_along() => return None,
            Ok("fast") if matches!(self, Self::Root | Self::Qemu | Self::Guest) => return Some(self.to_string()),
            _ => {}
        }
        let is_here = match self {
            Self::Root => rustix::process::geteuid().is_root(),
            Self::Qemu => program("qemu-system-x86_64").is_some(),
            Self::Guest => guest().is_some(),
            Self::Peers => ["ORLOP_PEERS", "KUBEBUILDER_ASSETS"].iter().any(|name| std::env::var_os(name).is_some()),
            Self::Conformance => {
                std::env::var_os("ORLOP_PEERS").is_some_and(|peers| Path::new(&peers).join("e2e.test").exists())
            }
            Self::Xfs => {
                let all = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
                let is_known = all.lines().any(|line| line.trim() == "xfs");
                is_known && ["mkfs.xfs", "xfs_growfs"].iter().all(|name| program(name).is_some())
            }
            Self::Soak => std::env::var_os(crate::soak::FACTOR).is_some(),
            Self::Program(name) => program(name).is_some(),
            Self::Shared(name) => shared(name).is_dir(),
        };
        (!is_here).then(|| self.to_string())
    }

    /// Whether the project can bring it along.
    fn comes_along(self) -> bool {
        !matches!(self, Self::Peers | Self::Conformance | Self::Xfs | Self::Soak | Self::Shared(_))
    }
}

impl fmt::Display for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => formatter.write_str("needs root"),
            Self::Qemu => formatter.write_str("needs QEMU"),
            Self::Guest => formatter.write_str("needs the test guest"),
            Self::Peers => formatter.write_str("needs the real peers: make test-peers"),
            Self::Conformance => formatter.write_str("needs Kubernetes' own tests: make proof"),
            Self::Xfs => formatter.write_str("needs XFS: a kernel that knows it, and xfsprogs"),
            Self::Soak => formatter.write_str("needs minutes: make soak"),
            Self::Program(name) => write!(formatter, "needs {name}"),
            Self::Shared(name) => write!(formatter, "needs ../shared/{name}"),
        }
    }
}

/// The directory of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A directory beside the workspace, which may be missing.
#[must_use]
pub fn shared(name: &str) -> PathBuf {
    workspace().join("../shared").join(name)
}

/// Where a program is. Users' paths often lack the directories of the system's own.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.exists())
}

/// The directory of the test guest, built if it can be.
fn guest() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let built = Command::new(workspace().join("guest/build")).output().ok()?;
        let folder = String::from_utf8(built.stdout).ok()?;
        built.status.success().then(|| PathBuf::from(folder.trim()))
    };
    FOLDER.get_or_init(build).as_deref()
}
