//! What an agent asks of the runtime, and what it hears: plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A pod's frame: its shim and its namespaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The pod's UID; one sandbox per UID.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// What `hostname` says in the pod. Unused with the machine's network.
    pub hostname: String,
    /// Uses the machine's network namespace instead of one of its own.
    pub host_network: bool,
    /// Where container logs go: `FOLDER/CONTAINER/ATTEMPT.log`, lines of `time stream F|P text`.
    pub logs: PathBuf,
    /// Limits of the whole pod: its own cgroup, containers below it.
    pub resources: Resources,
}

/// One container, complete: nothing is looked up any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Container {
    /// Its name in the pod.
    pub name: String,
    /// 0 for the first start, one more for each restart.
    pub attempt: u32,
    /// What it sees as `/`.
    pub root: Root,
    /// The program and its arguments.
    pub args: Vec<String>,
    /// Its environment, later entries over earlier ones.
    pub env: Vec<(String, String)>,
    /// Where it starts; `/` if empty.
    pub cwd: String,
    pub user: User,
    /// What it sees beside its root.
    pub mounts: Vec<Mount>,
    /// Which devices it may use.
    pub devices: Vec<Device>,
    /// Effective and permitted; for users other than root also ambient. Names as in `CAP_NET_RAW`.
    pub capabilities: Vec<String>,
    /// Never more privileges than at the start, not even by setuid programs.
    pub no_new_privileges: bool,
    /// Whether `/` cannot be written to.
    pub read_only_root: bool,
    /// All capabilities, all devices, nothing masked.
    pub privileged: bool,
    /// Refuses it the system calls that ordinary programs do not need, as the runtime's own profile has them.
    #[serde(default)]
    pub filtered: bool,
    /// Its limits.
    pub resources: Resources,
    /// How readily it is ended when memory is short, -1000 to 1000; raised to what this machine allows.
    pub oom_score: Option<i32>,
    /// Whether its output goes through a terminal.
    pub tty: bool,
    /// A file on the machine, also among `mounts`, whose content becomes the exit's message.
    pub termination_message: Option<PathBuf>,
    /// Whether the end of the log becomes the message of a failure when there is no other.
    pub message_from_log: bool,
}

/// What a container sees as `/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Root {
    /// An unpacked image, shared and never written to: an overlay of the container's own is put on it.
    Image(PathBuf),
    /// This machine's programs: an empty root with `/usr`, and the links that lead into it, read-only.
    Machine {
        /// Further files: where each is on the machine, and where the container sees it, read-only.
        files: Vec<(PathBuf, PathBuf)>,
    },
}

/// Who a container's process is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// A directory or a file of the machine that a container sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mount {
    /// On the machine.
    pub source: PathBuf,
    /// In the container, absolute.
    pub target: String,
    /// Whether it cannot be written to.
    pub read_only: bool,
    /// What becomes of later mounts below it.
    pub propagation: Propagation,
}

/// Who sees mounts that are made below a mount later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Propagation {
    /// Nobody else.
    #[default]
    Private,
    /// The container sees the machine's.
    HostToContainer,
    /// Each sees the other's.
    Bidirectional,
}

/// A device of the machine that a container may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// On the machine.
    pub path: PathBuf,
    /// In the container, absolute.
    pub target: String,
    /// Some of `r`, `w`, `m`: read, write, make.
    pub access: String,
}

/// Limits. Zero and none are unlimited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Share of the CPUs when they are short; 1024 for one CPU.
    pub cpu_shares: Option<u64>,
    /// CPU time per period, in microseconds.
    pub cpu_quota_us: Option<i64>,
    /// The period of the quota; 100 ms if none.
    pub cpu_period_us: Option<u64>,
    /// Bytes.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// Everything that a shim knows, after every change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodState {
    /// The shim is gone although it was not told to end: its containers were ended, and nobody knows how.
    pub lost: bool,
    /// By name; only the newest attempt.
    pub containers: BTreeMap<String, ContainerState>,
}

/// What is known about one container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ContainerState {
    /// It was asked for and is about to run.
    Created { attempt: u32 },
    Running {
        attempt: u32,
        /// Its name for the runtime, unique on this machine.
        id: String,
        /// Its first process, as the machine sees it.
        pid: u32,
        started_at: Timestamp,
    },
    /// It ended, or could not be started.
    Exited {
        attempt: u32,
        /// Its name for the runtime, unique on this machine.
        id: String,
        /// What it answered; 128 and the signal's number if a signal ended it, 128 if it was never started.
        exit_code: i32,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Whether the kernel ended one of its processes for want of memory.
        out_of_memory: bool,
        /// None if it never ran.
        started_at: Option<Timestamp>,
        /// When its end was seen.
        finished_at: Timestamp,
        /// What it left to say, or why it was not started; at most 4096 bytes.
        message: String,
    },
}

impl ContainerState {
    /// Which attempt this is about.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        match self {
            Self::Created { attempt } | Self::Running { attempt, .. } | Self::Exited { attempt, .. } => *attempt,
        }
    }

    /// Whether nothing of it runs any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Exited { .. })
    }
}

/// What a command in a container brought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Executed {
    /// What it answered; 128 and the signal's number if a signal ended it.
    pub exit_code: i32,
    /// The beginning of what it wrote, both streams as they came.
    pub output: Vec<u8>,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
}
