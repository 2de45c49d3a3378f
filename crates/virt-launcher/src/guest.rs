//! Questions to the guest, answered by its agent, and to QEMU about it.

mod freezing;
mod info;
mod pointer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hypervisor::agent::{AgentError, commands as ask};
use hypervisor::qmp::{QmpError, commands as monitor};
use hypervisor::render;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::driver::{Handle, RequestError};
use crate::lifecycle::Request;
use freezing::Freezing;
use launcher_api::rpc;

/// How long a program in the guest may run when the caller does not say.
const EXEC: Duration = Duration::from_secs(30);
/// How often is asked whether a program has ended; the protocol has no way to wait for it.
const EXEC_POLL: Duration = Duration::from_millis(100);

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The agent did not answer.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// QEMU did not answer.
    #[error(transparent)]
    Qemu(#[from] QmpError),
    /// The guest is in no state for it, or QEMU did not do it.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A program did not end in time. It runs on.
    #[error("the program did not end within {0:?}")]
    Timeout(Duration),
    /// A picture could not be read.
    #[error("read the screenshot")]
    Screenshot(#[source] std::io::Error),
}

/// Asks about one guest.
#[derive(Clone, Debug)]
pub struct Questions {
    handle: Handle,
    freezing: Freezing,
    /// What the agent said when it was last asked about the system.
    told: Arc<Mutex<Option<rpc::GuestInfo>>>,
}

impl Questions {
    /// Questions about this guest.
    #[must_use]
    pub fn new(handle: Handle) -> Self {
        let freezing = Freezing::new(handle.agent.clone(), handle.domain());
        Self { handle, freezing, told: Arc::default() }
    }

    /// Whether the agent is there.
    ///
    /// # Errors
    /// When it is not.
    pub async fn ping(&self) -> Result<(), GuestError> {
        self.handle.agent.lock().await.execute(ask::Ping {}).await?;
        Ok(())
    }

    /// What the agent knows about the system. What one agent cannot tell is left empty; while it is frozen, it is what it said before.
    ///
    /// # Errors
    /// When there is no agent at all.
    pub async fn info(&self) -> Result<rpc::GuestInfo, GuestError> {
        let mut told = self.told.lock().await;
        let now = info::info(&mut *self.handle.agent.lock().await, told.as_ref()).await?;
        *told = Some(now.clone());
        Ok(now)
    }

    /// Who is logged in.
    ///
    /// # Errors
    /// When the agent does not tell.
    pub async fn users(&self) -> Result<rpc::Users, GuestError> {
        let users = self.handle.agent.lock().await.execute(ask::Users {}).await?;
        let user = |user: ask::User| rpc::User { name: user.user, domain: user.domain, login_time: user.login_time };
        Ok(rpc::Users { users: users.into_iter().map(user).collect() })
    }

    /// What is mounted.
    ///
    /// # Errors
    /// When the agent does not tell.
    pub async fn filesystems(&self) -> Result<rpc::Filesystems, GuestError> {
        let filesystems = self.handle.agent.lock().await.execute(ask::FileSystems {}).await?;
        let filesystem = |mounted: ask::FileSystem| rpc::Filesystem {
            device: mounted.name,
            mount_point: mounted.mountpoint,
            r#type: mounted.kind,
            used_bytes: mounted.used_bytes,
            total_bytes: mounted.total_bytes,
        };
        Ok(rpc::Filesystems { filesystems: filesystems.into_iter().map(filesystem).collect() })
    }

    /// Holds all writes, and lets them through again after `limit` at the latest. A guest that is frozen stays so for that long.
    ///
    /// # Errors
    /// When the agent does not do it, or does not say so.
    pub async fn freeze(&self, limit: Option<Duration>) -> Result<(), GuestError> {
        Ok(self.freezing.freeze(limit).await?)
    }

    /// Lets writes through again.
    ///
    /// # Errors
    /// When the agent does not do it; then the automatic thaw stays due.
    pub async fn unfreeze(&self) -> Result<(), GuestError> {
        Ok(self.freezing.unfreeze().await?)
    }

    /// Asks the guest to reboot: its agent, or by the power button where there is none.
    ///
    /// # Errors
    /// When the agent does not take it, or the guest is in no state for it.
    pub async fn soft_reboot(&self) -> Result<(), GuestError> {
        if self.handle.domain().borrow().agent_connected {
            return Ok(self.handle.agent.lock().await.send(ask::Shutdown { mode: "reboot" }).await?);
        }
        Ok(self.handle.request(Request::Reboot).await?)
    }

    /// Runs a program in the guest and waits for its end.
    ///
    /// # Errors
    /// When the agent does not run it, or it does not end in time.
    pub async fn exec(&self, request: rpc::ExecRequest) -> Result<rpc::ExecResponse, GuestError> {
        let rpc::ExecRequest { command, arguments, timeout_ms } = request;
        let limit = timeout_ms.map_or(EXEC, Duration::from_millis);
        let until = Instant::now() + limit;
        let start = ask::Exec { path: command, arg: arguments, capture_output: true };
        let pid = self.handle.agent.lock().await.execute(start).await?.pid;
        loop {
            // The agent is free between questions: others may have theirs.
            let state = self.handle.agent.lock().await.execute(ask::ExecStatus { pid }).await?;
            if state.exited {
                let decode = |text: &str| STANDARD.decode(text).unwrap_or_default();
                return Ok(rpc::ExecResponse {
                    exit_code: state.exitcode.or(state.signal.map(|signal| 128 + signal)).unwrap_or(-1),
                    stdout: decode(&state.out_data),
                    stderr: decode(&state.err_data),
                });
            }
            if Instant::now() >= until {
                return Err(GuestError::Timeout(limit));
            }
            tokio::time::sleep(EXEC_POLL).await;
        }
    }

    /// A PNG of the screen, after the pointer was moved if that is asked for.
    ///
    /// # Errors
    /// When QEMU does not draw it.
    pub async fn screenshot(&self, folder: &std::path::Path, move_cursor: bool) -> Result<Vec<u8>, GuestError> {
        if move_cursor {
            pointer::wake(&self.handle.qmp).await?;
        }
        let filename = folder.join("screenshot.png");
        let dump = monitor::ScreenDump { filename: filename.clone(), format: "png" };
        self.handle.qmp.execute(dump).await?;
        let png = std::fs::read(&filename).map_err(GuestError::Screenshot)?;
        std::fs::remove_file(&filename).map_err(GuestError::Screenshot)?;
        Ok(png)
    }

    /// Numbers about the guest.
    ///
    /// # Errors
    /// When QEMU does not tell.
    pub async fn stats(&self) -> Result<rpc::Stats, GuestError> {
        let qmp = &self.handle.qmp;
        let cpus = qmp.execute(monitor::QueryCpus {}).await?;
        let disks = qmp.execute(monitor::QueryBlockStats {}).await?;
        // A guest without a balloon has all its memory.
        let balloon = qmp.execute(monitor::QueryBalloon {}).await.map_or(0, |balloon| balloon.actual);
        let guest = self.handle.guest.borrow().clone();
        let of = |node: &str| {
            let id = render::name_of_node(node)?;
            let mut devices = guest.devices.iter();
            devices.find(|(known, _)| known.as_str() == id).and_then(|(_, device)| device.of.clone())
        };
        let disk = |disk: monitor::BlockStats| rpc::BlockStats {
            name: disk.node_name.as_deref().and_then(of).unwrap_or_default(),
            read_bytes: disk.stats.rd_bytes,
            written_bytes: disk.stats.wr_bytes,
            reads: disk.stats.rd_operations,
            writes: disk.stats.wr_operations,
            read_time_ns: disk.stats.rd_total_time_ns,
            write_time_ns: disk.stats.wr_total_time_ns,
        };
        Ok(rpc::Stats {
            vcpus: cpus.into_iter().map(|cpu| vcpu(self.handle.pid, cpu)).collect(),
            // What has no name in the instance is the firmware's.
            disks: disks.into_iter().map(disk).filter(|disk| !disk.name.is_empty()).collect(),
            balloon_bytes: balloon,
            resident_bytes: resident_bytes(self.handle.pid),
        })
    }
}

/// A vCPU's time, from the kernel's account of its thread.
fn vcpu(pid: u32, cpu: monitor::Cpu) -> rpc::VcpuStats {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{}/schedstat", cpu.thread_id)).unwrap_or_default();
    let time_ns = text.split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(0);
    rpc::VcpuStats { index: cpu.cpu_index, time_ns }
}

/// The resident memory of a process, from the kernel's account of it.
fn resident_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    kib * 1024
}
