//! Disks and data: claims, secrets, probes and pauses of real guests.

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use base64::Engine as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::ResourceExt as _;
use launcher_api::rpc::Empty;
use launcher_api::rpc::launcher_client::LauncherClient;
use serde_json::{Value, json};

use super::Test;
use super::guests::{Terminal, add_volume, bare, linux, template};
use super::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("a_container_disk_boots_and_forgets", a_container_disk_boots_and_forgets),
    ("a_claims_data_outlives_its_guest", a_claims_data_outlives_its_guest),
    (
        "cloud_init_comes_from_a_secret_and_a_probe_drives_ready",
        cloud_init_comes_from_a_secret_and_a_probe_drives_ready,
    ),
    ("a_pause_is_told", a_pause_is_told),
];

/// A claim of the default class.
pub(crate) fn claim(name: &str, size: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } },
    })
}

/// How many volumes a folder has; more than any if it cannot be read. What begins with a dot is the storage's own.
pub(crate) fn volumes_in(folder: &std::path::Path) -> usize {
    let is_volume = |entry: &std::fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
    std::fs::read_dir(folder).map_or(usize::MAX, |all| all.flatten().filter(is_volume).count())
}

fn a_container_disk_boots_and_forgets() -> Result<()> {
    let machine = TestHost::up()?;
    let mut vm = bare("v", "Always");
    add_volume(&mut vm, "root", "containerDisk", json!({ "image": e2e::guest::image("demo")? }))?;
    machine.create::<VirtualMachine>(vm)?;
    let first = machine.phase("v", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    terminal.run("echo lost > /data/mark && sync")?;
    drop(terminal);
    e2e::output(&mut machine.orlop(&["restart", "v"]))?;
    machine.phase("v", Phase::Running, first.metadata.uid.as_deref())?;
    // What the guest wrote was in an overlay of its own; the image is as it was.
    ensure!(Terminal::log_in(&machine, "v")?.run("ls /data")?.lines().all(|name| name != "mark"));
    Ok(())
}

fn a_claims_data_outlives_its_guest() -> Result<()> {
    let machine = TestHost::up()?;
    machine.create::<PersistentVolumeClaim>(claim("data", "64Mi"))?;
    let with_claim = |name: &str| -> Result<Value> {
        let mut vm = linux(name, "Always")?;
        add_volume(&mut vm, "data", "persistentVolumeClaim", json!({ "claimName": "data" }))?;
        Ok(vm)
    };
    machine.create::<VirtualMachine>(with_claim("v")?)?;
    let first = machine.phase("v", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    ensure!(terminal.run("cat /sys/block/vda/size")? == (64 * 2048).to_string());
    terminal.run("echo kept-by-the-claim | dd of=/dev/vda conv=fsync 2> /dev/null")?;
    drop(terminal);
    e2e::output(&mut machine.orlop(&["restart", "v"]))?;
    machine.phase("v", Phase::Running, first.metadata.uid.as_deref())?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    ensure!(terminal.run("head -c 17 /dev/vda")? == "kept-by-the-claim");
    drop(terminal);
    // Nothing of it is lost when the VM goes; with the claim it goes.
    machine.delete::<VirtualMachine>("v")?;
    machine.gone::<VirtualMachine>("v")?;
    let folder = machine.data().join("volumes");
    let volumes = || volumes_in(&folder);
    ensure!(volumes() == 1);
    // Another VM, whose launcher is another user of the machine, has it next.
    machine.create::<VirtualMachine>(with_claim("w")?)?;
    machine.phase("w", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "w")?;
    ensure!(terminal.run("head -c 17 /dev/vda")? == "kept-by-the-claim");
    terminal.run("echo and-by-the-second | dd of=/dev/vda conv=fsync 2> /dev/null")?;
    drop(terminal);
    machine.delete::<VirtualMachine>("w")?;
    machine.gone::<VirtualMachine>("w")?;
    machine.delete::<PersistentVolumeClaim>("data")?;
    machine.gone::<PersistentVolumeClaim>("data")?;
    testkit::waiting::until("the claim's data is gone", || volumes() == 0);
    Ok(())
}

fn is_ready(vm: Option<&VirtualMachine>, ready: bool) -> bool {
    vm.is_some_and(|vm| vm.status.as_ref().is_some_and(|status| status.ready.unwrap_or(false) == ready))
}

fn cloud_init_comes_from_a_secret_and_a_probe_drives_ready() -> Result<()> {
    let machine = TestHost::up()?;
    let user_data = "#cloud-config\nhostname: from-the-secret\nwrite_files:\n- path: /etc/mark\n  content: secret\n";
    let encoded = base64::engine::general_purpose::STANDARD.encode(user_data);
    machine.create::<Secret>(json!({ "metadata": { "name": "init" }, "data": { "userdata": encoded } }))?;
    let mut vm = linux("v", "Always")?;
    add_volume(&mut vm, "init", "cloudInitNoCloud", json!({ "secretRef": { "name": "init" } }))?;
    let probe = json!({ "exec": { "command": ["test", "-e", "/tmp/ready"] }, "periodSeconds": 1, "timeoutSeconds": 5 });
    template(&mut vm)["readinessProbe"] = probe;
    machine.create::<VirtualMachine>(vm)?;
    machine.phase("v", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    ensure!(terminal.run("hostname")? == "from-the-secret");
    ensure!(terminal.run("cat /etc/mark")? == "secret");
    let vm = machine.get::<VirtualMachine>("v")?;
    ensure!(is_ready(vm.as_ref(), false), "{vm:?}");
    terminal.run("touch /tmp/ready")?;
    machine.wait::<VirtualMachine>("v", "ready", |vm: Option<&VirtualMachine>| is_ready(vm, true))?;
    terminal.run("rm /tmp/ready")?;
    machine.wait::<VirtualMachine>("v", "not ready", |vm: Option<&VirtualMachine>| is_ready(vm, false))?;
    Ok(())
}

fn a_pause_is_told() -> Result<()> {
    let machine = TestHost::up()?;
    machine.create::<VirtualMachine>(linux("v", "Always")?)?;
    let vmi = machine.phase("v", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    let mut launcher = machine.runtime.block_on(launcher(&machine, &vmi))?;
    machine.runtime.block_on(launcher.pause(Empty {}))?;
    machine.status("v", "Paused")?;
    terminal.console.send("echo moved-on")?;
    machine.runtime.block_on(launcher.unpause(Empty {}))?;
    machine.status("v", "Running")?;
    terminal.console.expect("moved-on").map(drop)
}

/// The launcher's own socket, through its directory: the path is too long for a socket.
async fn launcher(
    machine: &TestHost,
    vmi: &VirtualMachineInstance,
) -> Result<LauncherClient<tonic::transport::Channel>> {
    let pods = vmi.status.as_ref().and_then(|status| status.active_pods.as_ref()).context("no pod")?;
    let pod = pods.keys().next().with_context(|| format!("{} has no pod", vmi.name_any()))?;
    let folder = machine.data().join(format!("kubelet/pods/{pod}/volumes/kubernetes.io~empty-dir/sockets"));
    let opened = std::fs::File::open(folder)?;
    let channel = tonic::transport::Endpoint::from_static("http://launcher");
    let connector = tower::service_fn(move |_| {
        let socket = format!("/proc/self/fd/{}/launcher-sock", std::os::fd::AsRawFd::as_raw_fd(&opened));
        async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    });
    Ok(LauncherClient::new(channel.connect_with_connector(connector).await?))
}
