//! Machines whose KVM is broken, goes away, or fails a guest.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::ListParams;

use crate::Test;
use crate::guests::{bare, linux};
use crate::machines::{Lacks, StandIn, devices, instance, refusal, status};
use crate::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("a_broken_kvm_is_told_and_guests_are_emulated", a_broken_kvm_is_told_and_guests_are_emulated),
    ("a_kvm_that_goes_away_is_noticed", a_kvm_that_goes_away_is_noticed),
    ("a_kvm_that_goes_away_while_qemu_is_asked_is_noticed", a_kvm_that_goes_away_while_qemu_is_asked_is_noticed),
    ("a_machine_that_has_vhost_net_as_a_module_loads_it", a_machine_that_has_vhost_net_as_a_module_loads_it),
    ("a_guest_that_kvm_cannot_run_tells_so", a_guest_that_kvm_cannot_run_tells_so),
    ("a_guest_that_kvm_fails_has_the_machine_ask_again", a_guest_that_kvm_fails_has_the_machine_ask_again),
    ("an_operators_choice_of_accelerator_is_followed", an_operators_choice_of_accelerator_is_followed),
];

const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// Emulation that passes for KVM.
const GOOD: &str = r#"a=("${@/#kvm/tcg}"); a=("${a[@]/#host/max}"); a=("${a[@]/accel=kvm/accel=tcg}"); exec /usr/bin/qemu-system-x86_64 "${a[@]}""#;

/// A QEMU that is broken under KVM in one way, and well without it.
fn broken(how: &str) -> Result<StandIn> {
    StandIn::new("qemu", &format!("[[ \"$*\" != *kvm* ]] || {{ {how}; }}\nexec {QEMU} \"$@\""))
}

/// Waits until the answer has this in it; the last answer and the log are told if it never has.
fn until(machine: &TestHost, words: &str) -> Result<String> {
    let mut said = String::new();
    let asked = testkit::waiting::comes_true(|| {
        said = status(machine).unwrap_or_else(|error| format!("{error:#}"));
        said.contains(words)
    });
    ensure!(asked, "no status says {words:?}: {said}\n{}", machine.log());
    Ok(said)
}

fn a_broken_kvm_is_told_and_guests_are_emulated() -> Result<()> {
    let greet = r#"echo '{"QMP":{"version":{},"capabilities":[]}}'; read x; echo '{"return":{},"id":1}'; read x; echo '{"return":{},"id":2}'"#;
    let stop = r#"echo '{"event":"STOP","timestamp":{"seconds":1,"microseconds":0}}'; read x; echo '{"return":{"status":"internal-error","running":false},"id":3}'; exec sleep 600"#;
    let kinds = [
        (
            "echo 'qemu: error: failed to set MSR 0x10a' >&2; kill -ABRT $$",
            "QEMU exited under KVM: error: failed to set MSR",
        ),
        (
            "echo \"qemu: unable to find CPU model 'host'\" >&2; exit 1",
            "QEMU exited under KVM: unable to find CPU model 'host'",
        ),
        (&format!("{greet}; {stop}"), "a test kernel stopped under KVM (internal-error)"),
        ("exec sleep 600", "a test kernel did not finish under KVM"),
    ];
    for (how, told) in kinds {
        let qemu = broken(how)?;
        let path = qemu.path();
        let machine = TestHost::on(&devices(Lacks::Nothing), &["--qemu", path.to_str().context("a path")?])?;
        // It works, with less: no reason for another exit code than zero.
        let said = status(&machine)?;
        ensure!(said.contains(&format!("accelerator       emulation: {told}")), "{how}: {said}");
        ensure!(said.contains("degraded\n  no KVM") && said.contains("-> the machine's KVM is broken"), "{said}");
        if how.contains("MSR") {
            machine.ready()?;
            machine.create::<api::vm::VirtualMachine>(linux("emulated", "Always")?)?;
            machine.phase("emulated", Phase::Running, None)?;
        }
    }
    Ok(())
}

fn a_kvm_that_goes_away_is_noticed() -> Result<()> {
    // It is slow at first, which is no fault.
    let qemu = StandIn::new("qemu", &format!("[[ \"$*\" != *isa-debug-exit* ]] || sleep 3; {GOOD}"))?;
    let path = qemu.path();
    let machine = TestHost::on(&devices(Lacks::Nothing), &["--qemu", path.to_str().context("a path")?])?;
    let said = until(&machine, "KVM: a test kernel ran under it")?;
    // This one has no vhost-net: guests run on plain taps.
    ensure!(said.contains("no vhost-net"), "{said}");
    machine.ready()?;
    // No node takes a pod that asks for more than there is, until it asks for less.
    let mut vm = bare("waits", "Always");
    vm["spec"]["template"]["spec"]["nodeSelector"] = serde_json::json!({ "waits": "here" });
    machine.create::<api::vm::VirtualMachine>(vm)?;
    machine.phase("waits", Phase::Scheduling, None)?;
    let first = launcher(&machine, "waits")?;
    ensure!(first.1.contains("devices.kubevirt.io/kvm"), "{first:?}");

    let inside = |words: &[&str]| {
        e2e::output(Command::new("nsenter").arg("--mount").arg(format!("--target={}", machine.pid())).args(words))
    };
    inside(&["rm", "/dev/kvm"])?;
    until(&machine, "emulation: there is no /dev/kvm")?;
    machine.until_some("another launcher", || {
        let now = launcher(&machine, "waits").ok()?;
        (now.0 != first.0 && !now.1.contains("devices.kubevirt.io/kvm")).then_some(())
    })?;
    let label = serde_json::json!({ "metadata": { "labels": { "waits": "here" } } });
    machine.patch_node(&label)?;
    machine.phase("waits", Phase::Running, None)?;

    // A module is loaded: the node offers its device, and launchers ask for it.
    inside(&["mknod", "-m", "666", "/dev/vhost-net", "c", "1", "3"])?;
    machine.until_some("vhost-net that is offered", || {
        let node = machine.runtime.block_on(Api::<Node>::all(machine.client()).get("here")).ok()?;
        let offered = node.status?.allocatable?;
        offered.contains_key("devices.kubevirt.io/vhost-net").then_some(())
    })?;
    inside(&["mknod", "-m", "666", "/dev/kvm", "c", "1", "3"])?;
    let said = until(&machine, "KVM: a test kernel ran under it")?;
    ensure!(!said.contains("no vhost-net"), "{said}");
    let mut vm = bare("fast", "Always");
    vm["spec"]["template"]["spec"]["nodeSelector"] = serde_json::json!({ "waits": "there" });
    machine.create::<api::vm::VirtualMachine>(vm)?;
    machine.until_some("launcher that asks for it", || {
        launcher(&machine, "fast").ok()?.1.contains("devices.kubevirt.io/vhost-net").then_some(())
    })
}

fn a_kvm_that_goes_away_while_qemu_is_asked_is_noticed() -> Result<()> {
    // Between virt-handler's look at the device and what QEMU answers it.
    let qemu = StandIn::new("qemu", &format!("[[ \"$*\" != *none,accel=kvm* ]] || rm -f /dev/kvm; {GOOD}"))?;
    let path = qemu.path();
    let machine = TestHost::on(&devices(Lacks::Nothing), &["--qemu", path.to_str().context("a path")?])?;
    until(&machine, "emulation: there is no /dev/kvm")?;
    Ok(())
}

fn a_machine_that_has_vhost_net_as_a_module_loads_it() -> Result<()> {
    let qemu = StandIn::new("qemu", GOOD)?;
    let load = "[ \"$*\" = '--quiet vhost_net' ] && mknod -m 666 /dev/vhost-net c 1 3";
    let modprobe = StandIn::new("modprobe", load)?;
    let (path, place) = (qemu.path(), modprobe.path());
    let place = place.parent().context("a directory")?.display();
    let enter = format!("{}export PATH={place}:$PATH; ", devices(Lacks::Nothing));
    let machine = TestHost::on(&enter, &["--qemu", path.to_str().context("a path")?])?;
    let said = until(&machine, "KVM: a test kernel ran under it")?;
    ensure!(!said.contains("no vhost-net"), "{said}");
    Ok(())
}

/// The UID of a VM's launcher, and what it asks for.
fn launcher(machine: &TestHost, name: &str) -> Result<(String, String)> {
    let parameters = ListParams::default().labels(&format!("vmi.kubevirt.io/id={name}"));
    let pods = machine.runtime.block_on(machine.api::<Pod>().list(&parameters))?.items;
    let pod = pods.into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none()).context("no launcher")?;
    Ok((pod.metadata.uid.clone().unwrap_or_default(), serde_json::to_string(&pod.spec)?))
}

/// A monitor that tells what a real one tells when KVM gives up a guest.
const MONITOR: &str = r#"
import json, socket, sys
def connect(name):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(next(word for word in sys.argv if "id=" + name + "," in word).split("path=")[1].split(",")[0])
    return peer
peer, agent = connect("monitor"), connect("agent")
reader = peer.makefile("r")
def say(**message): peer.sendall((json.dumps(message) + "\n").encode())
say(QMP={"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""}, "capabilities": []})
for command in reader:
    command = json.loads(command)
    answer = {}
    if command["execute"] == "query-status": answer = {"status": "internal-error", "running": False}
    say(**{"return": answer, "id": command["id"]})
    if command["execute"] == "cont":
        sys.stderr.write("KVM internal error. Suberror: 1\n"); sys.stderr.flush()
        say(event="RESUME", timestamp={"seconds": 1, "microseconds": 0})
        say(event="STOP", timestamp={"seconds": 1, "microseconds": 0})
"#;

/// A QEMU whose KVM passes the probe, until that is ended, and runs no guest. It has a prefix of its own, as in `/opt`.
struct Fickle(tempfile::TempDir);

impl Fickle {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Whoever runs the guest is not root.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let fickle = Self(folder);
        let place = fickle.0.path().display();
        let is_asked = "\"$*\" == *isa-debug-exit* || \"$*\" == *'none,accel'*";
        let script = format!(
            "#!/bin/bash\nif [[ \"$*\" != *kvm* ]]; then exec {QEMU} \"$@\"; fi\n\
             if [[ {is_asked} ]]; then if [ ! -e {place}/ended ]; then {GOOD}; fi; kill -ABRT $$; fi\n\
             exec python3 {place}/monitor.py \"$@\"\n"
        );
        std::fs::write(fickle.0.path().join("monitor.py"), MONITOR)?;
        std::fs::create_dir(fickle.0.path().join("bin"))?;
        testkit::scripts::program(&fickle.path(), &script);
        Ok(fickle)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("bin/qemu")
    }

    /// From now on the probe fails, too.
    fn end(&self) -> Result<()> {
        Ok(std::fs::write(self.0.path().join("ended"), "")?)
    }
}

fn a_guest_that_kvm_fails_has_the_machine_ask_again() -> Result<()> {
    let qemu = Fickle::new()?;
    let path = qemu.path();
    let machine = TestHost::on(&devices(Lacks::Nothing), &["--qemu", path.to_str().context("a path")?])?;
    until(&machine, "KVM: a test kernel ran under it")?;
    machine.ready()?;
    qemu.end()?;
    ensure!(status(&machine)?.contains("KVM: a test kernel ran under it"), "nobody had a reason to doubt it");
    machine.create::<api::vm::VirtualMachine>(linux("unlucky", "Always")?)?;
    // The guest's end is told, and is reason enough to try KVM again: the next start is emulated.
    until(&machine, "emulation: QEMU exited under KVM")?;
    machine.phase("unlucky", Phase::Running, None)?;
    let events = machine.runtime.block_on(machine.api::<Event>().list(&ListParams::default()))?.items;
    let told: Vec<String> = events.into_iter().filter_map(|event| event.message).collect();
    ensure!(told.iter().any(|words| words.contains("KVM stopped the guest soon after its start")), "{told:?}");
    Ok(())
}

fn a_guest_that_kvm_cannot_run_tells_so() -> Result<()> {
    let qemu = Fickle::new()?;
    let (cache, manifest) = (tempfile::tempdir()?, instance()?);
    let run = || -> Result<String> {
        let mut command = Command::new("unshare");
        let enter = devices(Lacks::Nothing) + "exec \"$@\"";
        command.args(["--mount", "bash", "-c", &enter, "bash", env!("CARGO_BIN_EXE_orlop"), "run"]);
        command.arg(manifest.path()).arg("--qemu").arg(qemu.path()).arg("--cache-dir").arg(cache.path());
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(!output.status.success(), "{output:?}");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let said = run()?;
    ensure!(said.contains("KVM stopped the guest soon after its start (KVM internal error. Suberror: 1)"), "{said}");
    ensure!(said.contains("--accelerator tcg") && !said.contains("emulated"), "{said}");
    // What was found is not believed any more: the next run tries KVM again.
    ensure!(!cache.path().join("accelerator.json").exists(), "it is still remembered");
    Ok(())
}

fn an_operators_choice_of_accelerator_is_followed() -> Result<()> {
    let machine = TestHost::with(&["--accelerator", "tcg"])?;
    let said = status(&machine)?;
    ensure!(said.contains("emulation: set by --accelerator") && !said.contains("degraded"), "{said}");
    drop(machine);
    let refused = refusal(&devices(Lacks::Kvm), &["--accelerator", "kvm"])?;
    ensure!(refused.contains("--accelerator kvm: open /dev/kvm"), "{refused}");
    Ok(())
}
