//! What `orlop up` needs of the machine: looked for before anything is started, and told in one screen.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hypervisor::programs::{self, QEMU, find};

/// One thing that is needed.
struct Need {
    what: &'static str,
    /// What is missing without it.
    why: &'static str,
    /// Any of these will do: a program of $PATH or a file.
    any: &'static [&'static str],
    /// Debian's package.
    package: Option<&'static str>,
}

const NEEDS: &[Need] = &[
    Need { what: "QEMU", why: "runs the guests", any: &[QEMU], package: Some("qemu-system-x86") },
    Need { what: "OCI runtime", why: "runs the pods", any: &["runc", "crun"], package: Some("runc") },
    Need { what: "nft", why: "connects the guests", any: &["nft"], package: Some("nftables") },
    Need {
        what: "CNI plugins",
        why: "connect the pods",
        any: &["/usr/lib/cni/bridge", "/usr/libexec/cni/bridge", "/opt/cni/bin/bridge"],
        package: Some("containernetworking-plugins"),
    },
    Need { what: "tun devices", why: "connect the guests", any: &["/dev/net/tun"], package: None },
];

/// Where CNI plugins are.
const PLUGINS: [&str; 3] = ["/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"];

/// The directories of CNI plugins that are there.
pub(crate) fn plugins() -> Vec<PathBuf> {
    PLUGINS.iter().map(PathBuf::from).filter(|folder| folder.is_dir()).collect()
}

/// What is missing, on one screen; none if nothing is.
pub(crate) fn missing(qemu: &Path) -> Option<String> {
    let root = rustix::process::geteuid().is_root();
    let there = |name: &str| match name {
        QEMU => programs::qemu(qemu).is_some(),
        name => find(Path::new(name)).is_some(),
    };
    let groups = || groups_trouble(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    tell(root, there).or_else(|| nft().map(|words| nft_trouble(&words))).or_else(groups)
}

/// What is wrong with the control groups of a machine with these mounts; none if some can be made.
fn groups_trouble(mounts: &str) -> Option<String> {
    let is_groups = |line: &&str| line.contains(" - cgroup ") || line.contains(" - cgroup2 ");
    let mut groups = mounts.lines().filter(is_groups).map(|line| line.split(' ').skip(4)).peekable();
    let remedy = match groups.peek().cloned().and_then(|mut first| first.next()) {
        None => "they are not mounted. To mount them:\n  sudo mount -t cgroup2 none /sys/fs/cgroup".to_owned(),
        Some(first) => {
            let mut options = groups.filter_map(|mut group| group.nth(1));
            if options.any(|options| options.split(',').any(|option| option == "rw")) {
                return None;
            }
            format!(
                "{first} is read-only. In a container, start the container with --privileged; elsewhere:\n  sudo mount -o remount,rw {first}"
            )
        }
    };
    Some(format!("this machine is not ready:\n\x20 control groups are needed for pods and cannot be used: {remedy}"))
}

/// What nft answers when it is asked for something that it always has; none if that works.
fn nft() -> Option<String> {
    let output = Command::new(find(Path::new("nft"))?).args(["list", "tables"]).stdin(Stdio::null()).output().ok()?;
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn nft_trouble(words: &str) -> String {
    format!(
        "this machine is not ready:\n\
         \x20 nft            connects the guests, but does not work here: {words}\n\
         the kernel module may not be loaded:\n\
         \x20 sudo modprobe nf_tables"
    )
}

fn tell(root: bool, there: impl Fn(&str) -> bool) -> Option<String> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !need.any.iter().any(|name| there(name))).collect();
    if root && missing.is_empty() {
        return None;
    }
    let mut text = String::from("this machine is not ready:\n");
    if !root {
        text.push_str("  root           required for namespaces, mounts and devices: run `sudo orlop up`\n");
    }
    for Need { what, why, any, .. } in &missing {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {what:14} {why}; looked for {}", any.join(", "));
    }
    let packages: Vec<&str> = missing.iter().filter_map(|need| need.package).collect();
    if !packages.is_empty() {
        let _ = writeln!(text, "on Debian or Ubuntu:\n  sudo apt-get install {}", packages.join(" "));
    }
    if missing.iter().any(|need| need.what == "tun devices") {
        text.push_str("to get tun devices:\n  sudo modprobe tun\n");
    }
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_must_be_there_and_writable() {
        let mount =
            |place: &str, options: &str, kind: &str| format!("30 24 0:26 / {place} {options} - {kind} none rw\n");
        let two = |options: &str| {
            mount("/sys/fs/cgroup/cpu", "ro,nosuid", "cgroup") + &mount("/sys/fs/cgroup/unified", options, "cgroup2")
        };
        assert_eq!(groups_trouble(&two("rw,nosuid")), None);
        let told = groups_trouble(&two("ro,nosuid")).unwrap();
        assert!(told.contains("/sys/fs/cgroup/cpu is read-only") && told.contains("remount,rw"), "{told}");
        assert!(groups_trouble("24 1 8:1 / / rw - ext4 /dev/a rw\n").unwrap().contains("sudo mount -t cgroup2"));
    }

    #[test]
    fn a_machine_that_has_all_passes() {
        assert_eq!(tell(true, |_| true), None);
        // Either runtime will do.
        assert_eq!(tell(true, |name| name != "runc"), None);
    }

    #[test]
    fn what_is_missing_is_told_with_the_command_that_installs_it() {
        let text = tell(false, |name| name != "nft" && !name.contains("cni")).unwrap();
        assert_eq!(
            text,
            "this machine is not ready:\n\
             \x20 root           required for namespaces, mounts and devices: run `sudo orlop up`\n\
             \x20 nft            connects the guests; looked for nft\n\
             \x20 CNI plugins    connect the pods; looked for /usr/lib/cni/bridge, /usr/libexec/cni/bridge, /opt/cni/bin/bridge\n\
             on Debian or Ubuntu:\n\
             \x20 sudo apt-get install nftables containernetworking-plugins"
        );
        assert!(tell(true, |name| !name.contains("tun")).unwrap().ends_with("sudo modprobe tun"));
    }
}
