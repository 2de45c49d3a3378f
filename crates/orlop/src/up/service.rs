//! The systemd service that a running `orlop up` belongs to. systemd starts it again unless it is asked to stop it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The service whose main process this is, if it is one. Whoever runs inside of a service, such as a shell on a machine whose
/// SSH server has no sessions, is not the service.
pub(crate) fn of(pid: u32) -> Option<String> {
    let unit = unit_of(&pid.to_string())?;
    let shown = Command::new("systemctl").args(["show", "--property", "MainPID", "--value", &unit]).output().ok()?;
    (String::from_utf8_lossy(&shown.stdout).trim() == pid.to_string()).then_some(unit)
}

/// Whether this process runs in that service, as `orlop down` does when the machine is shut down: systemd stops it already.
pub(crate) fn is_ours(unit: &str) -> bool {
    unit_of("self").as_deref() == Some(unit)
}

/// Returns when its main process has ended.
pub(crate) fn stop(unit: &str) -> anyhow::Result<()> {
    let status = Command::new("systemctl").args(["stop", unit]).status().context("run systemctl")?;
    ensure!(status.success(), "systemctl cannot stop {unit}: {status}");
    Ok(())
}

fn unit_of(process: &str) -> Option<String> {
    let groups = std::fs::read_to_string(Path::new("/proc").join(process).join("cgroup")).ok()?;
    service(&groups).map(str::to_owned)
}

/// The service that a process's control groups name: in systemd's own hierarchy, or the only one.
fn service(groups: &str) -> Option<&str> {
    let group = groups.lines().find_map(|line| {
        let (hierarchy, path) = line.split_once(':')?.1.split_once(':')?;
        ["", "name=systemd"].contains(&hierarchy).then_some(path).filter(|path| *path != "/")
    })?;
    group.rsplit('/').find(|name| name.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_in_every_layout_of_control_groups() {
        let unified = "0::/system.slice/orlop.service\n";
        let hybrid = "4:memory:/other.service\n1:name=systemd:/system.slice/orlop.service/pods\n0::/\n";
        assert_eq!(service(unified), Some("orlop.service"));
        assert_eq!(service(hybrid), Some("orlop.service"));
        assert_eq!(service("0::/user.slice/user-0.slice/session-1.scope\n"), None);
        assert_eq!(service(""), None);
    }
}
