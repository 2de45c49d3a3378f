//! Machines that are not like the one this was written on: each works, or says within seconds what to do.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use tempfile::TempDir;

use crate::Test;
use crate::guests::{bare, linux};
use crate::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("what_is_missing_is_told_at_once", what_is_missing_is_told_at_once),
    ("a_machine_without_ipv6_works", a_machine_without_ipv6_works),
    ("a_machine_that_cannot_keep_pods_out_says_so", a_machine_that_cannot_keep_pods_out_says_so),
    ("a_machine_that_cannot_tell_forged_frames_says_so", a_machine_that_cannot_tell_forged_frames_says_so),
    ("nothing_is_written_to_sys", nothing_is_written_to_sys),
    ("a_machine_that_runs_out_of_disk_says_so", a_machine_that_runs_out_of_disk_says_so),
    ("a_user_of_the_machine_runs_vms_and_does_not_own_it", a_user_of_the_machine_runs_vms_and_does_not_own_it),
    ("a_run_whose_terminal_goes_away_leaves_nothing", a_run_whose_terminal_goes_away_leaves_nothing),
    ("every_page_says_how_it_is", every_page_says_how_it_is),
    ("waiting_ends_with_the_reason", waiting_ends_with_the_reason),
    ("all_addresses_at_once_can_be_listened_on", all_addresses_at_once_can_be_listened_on),
];

/// A program that stands in for another one: a script in a directory of its own.
pub(crate) struct StandIn {
    folder: TempDir,
    name: &'static str,
}

impl StandIn {
    pub(crate) fn new(name: &'static str, script: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Whoever runs the guest is not root.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let stand_in = Self { folder, name };
        testkit::scripts::program(&stand_in.path(), &format!("#!/bin/bash\n{script}\n"));
        Ok(stand_in)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }
}

/// Devices that a machine may lack.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lacks {
    Nothing,
    Kvm,
    KvmAndTun,
}

/// Devices of a machine's own, which others do not see. Its KVM is a device that opens, and that is all.
pub(crate) fn devices(lacks: Lacks) -> String {
    let kvm = if lacks == Lacks::Nothing { "mknod -m 666 $d/kvm c 1 3" } else { ":" };
    let tun = if lacks == Lacks::KvmAndTun { "" } else { "net/tun" };
    format!(
        "set -e; d=$(mktemp -d); mount -t tmpfs -o mode=755 tmpfs $d; \
         for one in null zero full random urandom tty ptmx fuse loop-control {tun}; do \
             [ -e /dev/$one ] || continue; mkdir -p $d/$(dirname $one); touch $d/$one; mount --bind /dev/$one $d/$one; done; \
         for one in /dev/loop[0-9]*; do [ -b $one ] || continue; touch $d/${{one#/dev/}}; mount --bind $one $d/${{one#/dev/}}; done; \
         mkdir $d/pts $d/shm; mount --bind /dev/pts $d/pts; mount --bind /dev/shm $d/shm; {kvm}; \
         ln -s /proc/self/fd $d/fd; for n in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${{n%:*}} $d/${{n#*:}}; done; \
         mount --rbind $d /dev; umount --lazy $d; rmdir $d; "
    )
}

/// What `orlop status` says once all parts have started.
pub(crate) fn status(machine: &TestHost) -> Result<String> {
    let mut said = None;
    // The last word is told if it never becomes well.
    let is_well = || said.insert(e2e::output(&mut machine.orlop(&["status"]))).is_ok();
    testkit::waiting::until("all components are healthy", is_well);
    said.context("nothing was said")?
}

/// A manifest of an instance that needs nothing.
pub(crate) fn instance() -> Result<tempfile::NamedTempFile> {
    let manifest = serde_json::json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "broken" },
        "spec": { "terminationGracePeriodSeconds": 1, "domain": { "memory": { "guest": "64Mi" }, "devices": { "autoattachPodInterface": false } } },
    });
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), manifest.to_string())?;
    Ok(file)
}

/// What `orlop up` says when it does not start, which it must know within seconds.
pub(crate) fn refusal(enter: &str, flags: &[&str]) -> Result<String> {
    match TestHost::on(enter, flags) {
        Ok(machine) => {
            anyhow::bail!("it started: {}", e2e::output(&mut machine.orlop(&["status"])).unwrap_or_default())
        }
        Err(error) => Ok(format!("{error:#}")),
    }
}

fn what_is_missing_is_told_at_once() -> Result<()> {
    let said = refusal(&devices(Lacks::KvmAndTun), &[])?;
    ensure!(said.contains("tun devices") && said.contains("sudo modprobe tun"), "{said}");

    let said = refusal("", &["--qemu", "/nowhere/qemu"])?;
    ensure!(said.contains("QEMU") && said.contains("sudo apt-get install qemu-system-x86"), "{said}");

    // A kernel that has no tables for nft.
    let nft = StandIn::new("nft", "echo 'Error: Could not process rule: Operation not supported' >&2; exit 1")?;
    let path = format!("export PATH={}:$PATH; ", nft.folder.path().display());
    let said = refusal(&path, &[])?;
    ensure!(said.contains("Operation not supported") && said.contains("nf_tables"), "{said}");

    // Control groups that nobody can make.
    let said = refusal(
        "mount -o remount,ro,bind /sys/fs/cgroup; for one in /sys/fs/cgroup/*; do mountpoint -q $one && mount -o remount,ro,bind $one; done; ",
        &[],
    )?;
    ensure!(said.contains("control groups") && said.contains("sudo mount -o remount,rw"), "{said}");
    Ok(())
}

fn a_machine_without_ipv6_works() -> Result<()> {
    let off = "for one in all default; do echo 1 > /proc/sys/net/ipv6/conf/$one/disable_ipv6; done; ip link set lo up";
    let output = alone(off)?;
    ensure!(output.contains("orlop is up"), "{output}");
    ensure!(output.contains("no IPv6"), "{output}");
    // A kernel that was built without it has none of its settings.
    let machine = TestHost::on("mount -t tmpfs none /proc/sys/net/ipv6; ", &[])?;
    machine.ready()?;
    machine.create::<api::vm::VirtualMachine>(linux("old-fashioned", "Always")?)?;
    let vmi = machine.phase("old-fashioned", Phase::Running, None)?;
    let interfaces = vmi.status.and_then(|status| status.interfaces).unwrap_or_default();
    let addresses: Vec<String> = interfaces.into_iter().filter_map(|one| one.ip_addresses).flatten().collect();
    ensure!(!addresses.is_empty() && addresses.iter().all(|address| !address.contains(':')), "{addresses:?}");
    Ok(())
}

/// What `orlop up` says on a machine whose kernel knows no rules with these words in them.
fn without_rules(words: &str) -> Result<String> {
    let refuse = format!(
        "[[ $words != *'{words}'* ]] || {{ echo 'Error: Could not process rule: No such file or directory' >&2; exit 1; }}"
    );
    let nft = format!("words=$(cat); {refuse}\nPATH=${{PATH#*:}} exec nft \"$@\" <<< \"$words\"");
    let nft = StandIn::new("nft", &nft)?;
    let output = alone(&format!("export PATH={}:$PATH; ip link set lo up", nft.folder.path().display()))?;
    ensure!(output.contains("orlop is up"), "{output}");
    Ok(output)
}

fn a_machine_that_cannot_tell_forged_frames_says_so() -> Result<()> {
    let output = without_rules("table bridge")?;
    ensure!(output.contains("no guard: containers can spoof the addresses of other pods"), "{output}");
    Ok(())
}

fn a_machine_that_cannot_keep_pods_out_says_so() -> Result<()> {
    let output = without_rules("\"reject\"")?;
    ensure!(output.contains("no firewall: pods and guests can reach every service of this machine"), "{output}");
    Ok(())
}

/// Control groups are mounts of their own, and stay as they are.
fn nothing_is_written_to_sys() -> Result<()> {
    let output = alone("mount -o remount,bind,ro /sys; ip link set lo up")?;
    ensure!(output.contains("orlop is up"), "{output}");
    ensure!(!output.contains("ead-only"), "{output}");
    Ok(())
}

/// What `orlop up` says in a network of its own, until it is up or has ended.
fn alone(prepare: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let script = format!(
        "{prepare}; \"$0\" up --data-dir \"$1\" --listen 127.0.0.1:0 --bridge orlopalone0 --node-name here > \"$1.log\" 2>&1 & \
         until grep -q '^orlop is up' \"$1.log\" 2> /dev/null; do kill -0 $! || break; sleep 0.1; done; \
         \"$0\" status --data-dir \"$1\" || true; cat \"$1.log\"; \"$0\" down --data-dir \"$1\" > /dev/null; wait"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "bash", "-c", &script, env!("CARGO_BIN_EXE_orlop")]).arg(&data);
    e2e::output(&mut command)
}

fn a_machine_that_runs_out_of_disk_says_so() -> Result<()> {
    // Forty gigabytes that take no room, of which two are free.
    let folder = tempfile::tempdir()?;
    let (image, place) = (folder.path().join("image"), folder.path().join("small"));
    std::fs::File::create(&image)?.set_len(40 << 30)?;
    std::fs::create_dir(&place)?;
    e2e::output(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-E", "lazy_itable_init=1,nodiscard"]).arg(&image))?;
    e2e::output(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&place))?;
    let _unmount = Unmount(place.clone());
    e2e::output(Command::new("fallocate").args(["-l", "37G"]).arg(place.join("other")))?;
    let machine = TestHost::within(&place)?;
    let said = machine.until_some("a node that says so", || {
        let output = machine.orlop(&["status"]).output().ok().filter(|output| !output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned()).filter(|said| said.contains("DiskPressure"))
    })?;
    ensure!(said.contains("-> free some disk space"), "{said}");
    Ok(())
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        drop(e2e::output(Command::new("umount").args(["--lazy"]).arg(&self.0)));
    }
}

fn all_addresses_at_once_can_be_listened_on() -> Result<()> {
    let machine = TestHost::with(&["--listen", "0.0.0.0:0"])?;
    machine.ready()?;
    // The certificate fits where the machine is reached from outside: the kubeconfig with another address works.
    let text = std::fs::read_to_string(machine.kubeconfig())?;
    let elsewhere = text.replace("https://127.0.0.1:", "https://10.199.0.1:");
    ensure!(elsewhere != text, "{text}");
    let file = machine.data().join("elsewhere");
    std::fs::write(&file, elsewhere)?;
    e2e::output(&mut machine.orlop(&["get", "--kubeconfig", path_text(&file)?])).map(drop)
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a path")
}

fn a_user_of_the_machine_runs_vms_and_does_not_own_it() -> Result<()> {
    let machine = TestHost::up()?;
    machine.ready()?;
    let kubeconfig = machine.data().join("somebody");
    std::fs::write(&kubeconfig, e2e::output(&mut machine.orlop(&["kubeconfig", "--for", "somebody"]))?)?;
    let somebody = |words: &[&str], input: &serde_json::Value| -> Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), input.to_string())?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(words).arg("--kubeconfig").arg(&kubeconfig);
        if words[0] == "apply" {
            command.arg("-f").arg(file.path());
        }
        e2e::output(&mut command)
    };
    let nothing = serde_json::Value::Null;
    let mut vm = bare("mine", "Halted");
    let said = somebody(&["apply"], &vm)?;
    ensure!(said.contains("virtualmachines/mine created"), "{said}");
    // What the file no longer has is removed, and the same again changes nothing.
    vm["metadata"]["labels"] = serde_json::json!({ "a": "b" });
    ensure!(somebody(&["apply"], &vm)?.contains("configured"));
    ensure!(somebody(&["apply"], &vm)?.contains("unchanged"));
    vm["metadata"].as_object_mut().context("metadata")?.remove("labels");
    ensure!(somebody(&["apply"], &vm)?.contains("configured"));
    let now = machine.get::<api::vm::VirtualMachine>("mine")?.context("the VM is gone")?;
    ensure!(now.metadata.labels.unwrap_or_default().is_empty());

    let said = somebody(&["start", "--wait", "mine"], &nothing)?;
    ensure!(said.contains("mine: Running"), "{said}");
    ensure!(somebody(&["get"], &nothing)?.contains("Running"));
    somebody(&["stop", "--wait", "mine"], &nothing)?;
    // In another namespace as well, and it is said whose it is: no machine's usual place has that kubeconfig.
    let namespace = serde_json::json!({ "metadata": { "name": "elsewhere" } });
    let namespaces: Api<Namespace> = Api::all(machine.client());
    machine.runtime.block_on(namespaces.create(&PostParams::default(), &serde_json::from_value(namespace)?))?;
    let running = bare("mine", "Always");
    let said = somebody(&["apply", "--wait", "-n", "elsewhere"], &running)?;
    ensure!(said.contains("mine: Running"), "{said}");
    let said = somebody(&["restart", "--wait", "mine", "-n", "elsewhere"], &nothing)?;
    ensure!(said.contains("mine: Running"), "{said}");
    let mut other = Command::new(env!("CARGO_BIN_EXE_orlop"));
    let other = other.args(["get", "-n", "elsewhere", "--kubeconfig"]).arg(&kubeconfig).output()?;
    let noted = String::from_utf8_lossy(&other.stderr).into_owned();
    ensure!(noted.contains("using the server https://"), "{noted}");
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i", "securityContext": { "privileged": true } }] },
    });
    let refused = somebody(&["apply"], &pod).unwrap_err().to_string();
    ensure!(refused.contains("forbidden"), "{refused}");
    Ok(())
}

fn a_run_whose_terminal_goes_away_leaves_nothing() -> Result<()> {
    let (folder, manifest) = (tempfile::tempdir()?, instance()?);
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["run", "--accelerator", "tcg"]).arg(manifest.path()).env("TMPDIR", folder.path());
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let count = || std::fs::read_dir(folder.path()).map_or(0, Iterator::count);
    // Its guest is up when QEMU listens for the serial console.
    let is_up = || glob(folder.path(), "virt-serial0").is_some();
    testkit::waiting::until("the guest runs", is_up);
    ensure!(count() == 1);
    e2e::output(Command::new("kill").args(["-HUP", &process.id().to_string()]))?;
    process.wait()?;
    ensure!(count() == 0, "something is left");
    Ok(())
}

/// A file one directory below.
fn glob(folder: &Path, name: &str) -> Option<PathBuf> {
    let inner = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path().join(name));
    inner.into_iter().find(|path| path.exists())
}

fn every_page_says_how_it_is() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("notify");
    let systemd = std::os::unix::net::UnixDatagram::bind(&path)?;
    let enter = format!("{}export NOTIFY_SOCKET={}; ", devices(Lacks::Kvm), path.display());
    let machine = TestHost::on(&enter, &[])?;
    systemd.set_read_timeout(Some(testkit::NEVER))?;
    // Until it is up, it tells what it still waits for. It is called up after a while in any case, as a slow machine sees.
    let mut is_up = false;
    loop {
        let mut buffer = [0; 4096];
        let length = systemd.recv(&mut buffer)?;
        let told = String::from_utf8_lossy(&buffer[..length]).into_owned();
        is_up |= told.starts_with("READY=1\n");
        let status = told.strip_prefix("READY=1\n").unwrap_or(&told);
        if !status.starts_with("STATUS=unhealthy: ") {
            ensure!(
                is_up && status.starts_with("STATUS=https://127.0.0.1:") && status.contains("degraded: no KVM"),
                "{told}"
            );
            break;
        }
    }
    machine.ready()?;
    let page = http::Request::get("/readyz?verbose").body(Vec::new())?;
    let said = machine.runtime.block_on(machine.client().request_text(page))?;
    ensure!(said.contains("[+]virt-handler ok\n") && said.contains("[+]node-here ok\n"), "{said}");
    ensure!(said.contains("[+]no-KVM ok: guests are emulated, which is slow: there is no /dev/kvm"), "{said}");
    Ok(())
}

fn waiting_ends_with_the_reason() -> Result<()> {
    let machine = TestHost::up()?;
    machine.ready()?;
    let apply = |vm: serde_json::Value| -> Result<std::process::Output> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), vm.to_string())?;
        Ok(machine.orlop(&["apply", "--wait"]).arg("-f").arg(file.path()).output()?)
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut large = bare("large", "Always");
    large["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "900Gi".into();
    let output = apply(large)?;
    let (said, why) = (text(&output.stdout), text(&output.stderr));
    ensure!(
        !output.status.success() && why.contains("Insufficient memory") && why.contains("-> lower the VM's requests"),
        "{why}"
    );
    ensure!(said.contains("large: ErrorUnschedulable: 0/1 nodes are available"), "{said}");
    let listed = e2e::output(&mut machine.orlop(&["get"]))?;
    ensure!(listed.contains("REASON") && listed.contains("Insufficient memory"), "{listed}");

    let mut missing = linux("missing", "Always")?;
    let firmware = &mut missing["spec"]["template"]["spec"]["domain"]["firmware"];
    firmware["kernelBoot"]["container"]["image"] = "oci:/nowhere:demo".into();
    let output = apply(missing)?;
    let why = text(&output.stderr);
    ensure!(!output.status.success() && why.contains("-> check the name of the image"), "{why}");
    ensure!(why.contains("oci:/nowhere:demo is not in a directory that images may come from"), "{why}");
    Ok(())
}
