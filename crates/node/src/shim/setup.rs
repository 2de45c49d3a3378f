//! From a freshly started process to a pod's frame: session, lock, namespaces, cgroup.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::event::Timespec;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use rustix::thread::UnshareFlags;

use super::ShimError;
use super::bundle::facts::Facts;
use super::pod::{Frame, Pod};
use crate::runtime::cgroup::{self, Cgroups};
use crate::runtime::process::Process;
use crate::runtime::record::Folder;

/// How often the pod's lock is tried, and what lies between.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Everything up to the first await: one thread, so that all later ones share its namespaces.
pub(super) fn start(folder: &Folder) -> Result<Pod, ShimError> {
    let setup = |what| move |source| ShimError::Setup(what, source);
    close_inherited().map_err(setup("close inherited files"))?;
    // Its own session already, if whoever started it made one.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(setup("change the working directory"))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| ShimError::Setup("adopt orphans", error.into()))?;
    let record = folder.record().map_err(setup("read the record"))?;
    let record = record.ok_or_else(|| ShimError::Record(folder.path().to_owned()))?;
    let lock = lock(folder).map_err(setup("lock the pod"))?.ok_or(ShimError::Already)?;
    let own = Process::own().map_err(setup("inspect this process"))?;
    folder.set_process(&own).map_err(setup("record this process"))?;
    let cgroups = Cgroups::find()?;
    cgroups.create(&cgroup::of_pod(&record.sandbox.uid), &record.sandbox.resources)?;
    let runtime_group = cgroups.create_for_runtime(&record.sandbox.uid)?;
    let shared_memory = folder.path().join("shm");
    enter_namespaces(&record.sandbox.hostname, record.sandbox.host_network, &shared_memory)
        .map_err(setup("create the pod's namespaces"))?;
    let facts = Facts::find(&cgroups).map_err(setup("read the kernel's limits"))?;
    Ok(Pod::new(Frame { folder: folder.clone(), record, cgroups, facts, shared_memory, runtime_group, _lock: lock }))
}

/// The pod's lock, unless a shim is here already, or was: what it has left must be ended first.
fn lock(folder: &Folder) -> io::Result<Option<File>> {
    // Whoever only looks whether there is a shim holds the lock for a moment; there is no event for its end.
    for _ in 0..LOCK_ATTEMPTS {
        let lock = folder.lock()?;
        if folder.process()?.is_some() {
            return Ok(None);
        }
        if lock.is_some() {
            return Ok(lock);
        }
        let _ = rustix::thread::nanosleep(&LOCK_PAUSE);
    }
    Ok(None)
}

/// Says to whoever started this process how that went. Who has gone meanwhile needs no answer.
pub(super) fn tell(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
    let _ = io::stdout().flush();
}

/// From now on nobody waits for an answer.
pub(super) fn leave_the_starter() -> io::Result<()> {
    let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(())
}

/// Where a shim's own troubles are written down.
pub(crate) fn log(folder: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join("shim.log"))
}

/// What the agent had open is none of the pod's business, and would stay open as long as the pod runs.
#[expect(unsafe_code, reason = "a file that is only known by its number can be closed in no other way")]
fn close_inherited() -> io::Result<()> {
    let listed = std::fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<i32> = listed.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The list itself was one of them, and is closed by now.
        if std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok() {
            // SAFETY: nothing in this process owns it: this is the first thing that the process does.
            unsafe { rustix::io::close(number) };
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "unsharing is unsafe for the table of open files only, which is not touched")]
fn enter_namespaces(hostname: &str, host_network: bool, shared_memory: &Path) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if !host_network {
        flags |= UnshareFlags::NEWNET | UnshareFlags::NEWUTS;
    }
    // SAFETY: CLONE_FILES is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags)? };
    // The machine's later mounts are seen here, and those made here nowhere else.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    std::fs::create_dir_all(shared_memory)?;
    mount("tmpfs", shared_memory, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, Some(c"mode=1777,size=64m"))?;
    if !host_network {
        rustix::system::sethostname(hostname.as_bytes())?;
        raise_loopback()?;
        // As with other runtimes: ports below 1024 and ping need no privileges in a pod. Older kernels lack this.
        let _ = std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
        let _ = std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    }
    Ok(())
}

/// Sets the first interface of a network namespace, `lo`, up.
fn raise_loopback() -> io::Result<()> {
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    const UP: u32 = 1;
    const ERROR: u16 = 2;
    let mut message = Vec::with_capacity(32);
    message.extend(32_u32.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    // Sequence and sender; then family and kind, which do not matter; then index, flags, and which flags to change.
    message.extend([0; 12]);
    message.extend(1_i32.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    let kernel = SocketAddrNetlink::new(0, 0);
    // The first of netlink's protocols, which needs no name, is the one about interfaces.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &message, SendFlags::empty(), &kernel)?;
    let mut answer = [0_u8; 256];
    let (_, length) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    match (length >= 20 && kind == ERROR, code) {
        (true, 0) => Ok(()),
        (true, code) => Err(io::Error::from_raw_os_error(-code)),
        (false, _) => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is invalid")),
    }
}
