//! Starting, stopping, looking: what an operator does with `orlop up`.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use serde_json::json;

use super::Test;
use super::guests::{Terminal, add_volume, bare, linux, template};
use super::leftovers::Leftovers;
use super::machines::status;
use super::networking::addresses;
use super::sockets::{Socket, path};
use super::storing::claim;
use super::test_host::{BRIDGE, TestHost, qemus};

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("a_second_start_names_the_first", a_second_start_names_the_first),
    ("only_the_owner_reaches_it", only_the_owner_reaches_it),
    ("a_small_limit_of_open_files_is_raised", a_small_limit_of_open_files_is_raised),
    ("verbs_start_stop_and_restart_a_vm", verbs_start_stop_and_restart_a_vm),
    (
        "a_killed_or_stopped_up_leaves_its_vms_and_the_next_finds_them",
        a_killed_or_stopped_up_leaves_its_vms_and_the_next_finds_them,
    ),
    ("a_machine_that_loses_power_brings_its_vms_back", a_machine_that_loses_power_brings_its_vms_back),
    ("down_powers_guests_off_and_up_brings_them_back", down_powers_guests_off_and_up_brings_them_back),
    (
        "the_demo_shows_a_login_prompt_survives_another_build_and_leaves_nothing",
        the_demo_shows_a_login_prompt_survives_another_build_and_leaves_nothing,
    ),
];

/// `make up` and `make down`, but for what they install and build.
fn the_demo_shows_a_login_prompt_survives_another_build_and_leaves_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let builds = tempfile::tempdir()?;
    let build = builds.path().join("orlop");
    std::fs::copy(env!("CARGO_BIN_EXE_orlop"), &build)?;
    let demo = |word: &str| {
        let mut command = std::process::Command::new(e2e::root().join("examples/demo"));
        command.arg(word).env("ORLOP", &build).env("ORLOP_DATA_DIR", folder.path());
        let network = [("ORLOP_BRIDGE", BRIDGE), ("ORLOP_POD_CIDR", "10.199.0.0/24"), ("ORLOP_POD_CIDR6", "fd99::/64")];
        command.envs(network).env("ORLOP_LISTEN", "127.0.0.1:0");
        e2e::output(&mut command)
    };
    let said = demo("up");
    let guests = qemus("demo");
    // A start needs the build no more than what runs does.
    std::fs::remove_file(&build)?;
    let program = folder.path().join("program/orlop");
    let restarted = e2e::output(
        std::process::Command::new(&program).args(["restart", "demo", "--wait", "--data-dir"]).arg(folder.path()),
    );
    let guests_restarted = qemus("demo");
    // The next build is in the same place, and differs.
    std::fs::copy(env!("CARGO_BIN_EXE_orlop"), &build)?;
    std::fs::OpenOptions::new().append(true).open(&build)?.write_all(b"another")?;
    let again = demo("up");
    let (guests_then, last) = (qemus("demo"), demo("up"));
    let ended = demo("down")?;
    let (said, again, last) = (said?, again?, last?);
    restarted?;
    ensure!(
        !guests_restarted.is_empty() && guests_restarted != guests,
        "{guests:?} did not start again: {guests_restarted:?}"
    );
    ensure!(said.contains("the guest has booted; you can log in") && said.contains("ssh orlop@10.199.0.2"), "{said}");
    ensure!(again.contains("replacing the running Orlop with this build; its VMs keep running"), "{again}");
    ensure!(guests_restarted == guests_then, "{guests_restarted:?} became {guests_then:?}\n{again}");
    ensure!(!last.contains("replacing"), "it was started:\n{last}");
    ensure!(ended.contains("stopped default/virt-launcher-demo") && ended.contains("orlop is down"), "{ended}");
    Ok(())
}

fn a_second_start_names_the_first() -> Result<()> {
    let machine = TestHost::up()?;
    machine.ready()?;
    let status = status(&machine)?;
    ensure!(status.contains("nodes\n  here              ready\n"), "{status}");
    for part in ["apiserver", "kube-controllers", "node", "scheduler", "virt-controller", "virt-handler"] {
        let line = status
            .lines()
            .skip_while(|line| *line != "components")
            .find(|line| line.split_whitespace().next() == Some(part));
        ensure!(line.is_some_and(|line| line.ends_with(" healthy")), "{part} in {status}");
    }
    let refused = e2e::output(&mut machine.orlop(&["up"])).unwrap_err().to_string();
    ensure!(refused.contains(&format!("with pid {}", machine.pid())), "{refused}");
    Ok(())
}

fn only_the_owner_reaches_it() -> Result<()> {
    let mut machine = TestHost::up()?;
    machine.ready()?;
    let mode = std::fs::metadata(machine.kubeconfig())?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "{mode:o}");
    // Whoever comes as far as the directory gets no further, nor in a directory that an earlier version left open.
    let (data, beside) = (machine.data(), machine.data().with_file_name("log"));
    std::fs::set_permissions(data.parent().context("no folder above")?, PermissionsExt::from_mode(0o755))?;
    std::fs::set_permissions(&beside, PermissionsExt::from_mode(0o644))?;
    for is_open in [false, true] {
        if is_open {
            machine.terminate()?;
            std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755))?;
            ensure!(!seen_by_others(&below(&data)?)?.is_empty(), "this test sees nothing");
            machine.start()?;
        }
        let mut all = below(&data)?;
        ensure!(all.contains(&machine.kubeconfig()) && all.contains(&data.join("objects.sqlite")), "{all:?}");
        all.push(beside.clone());
        let seen = seen_by_others(&all)?;
        ensure!(seen == [beside.display().to_string()], "others see {seen:?}");
    }
    others_are_told_to_use_sudo(&data)?;
    let listening = listeners(machine.pid())?;
    // Itself, and pods with tokens.
    for reached in ["127.0.0.1:", "10.199.0.1:", "[fd99::1]:"] {
        ensure!(listening.iter().filter(|address| address.starts_with(reached)).count() == 1, "{listening:?}");
    }
    ensure!(listening.len() == 3, "{listening:?}");
    machine.down()?;
    let said = e2e::output(&mut machine.orlop(&["status"])).unwrap_err().to_string();
    ensure!(said.contains("is not running"), "{said}");
    Ok(())
}

/// It runs, whoever asks: nobody is told that it does not.
fn others_are_told_to_use_sudo(data: &Path) -> Result<()> {
    let programs = tempfile::tempdir()?;
    std::fs::set_permissions(programs.path(), PermissionsExt::from_mode(0o755))?;
    let program = programs.path().join("orlop");
    std::fs::copy(env!("CARGO_BIN_EXE_orlop"), &program)?;
    for word in ["status", "down"] {
        let output = as_nobody().arg(&program).args([word, "--data-dir"]).arg(data).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains("run this command with sudo"), "{word}: {said}");
    }
    Ok(())
}

/// A command that a user of this machine runs who is nobody.
fn as_nobody() -> std::process::Command {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command
}

/// All files, directories and sockets below a directory.
fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = e2e::output(std::process::Command::new("find").arg(folder).args(["-mindepth", "1"]))?;
    Ok(found.lines().map(PathBuf::from).collect())
}

/// Those of some paths that a user of this machine who is nobody gets at.
fn seen_by_others(paths: &[PathBuf]) -> Result<Vec<String>> {
    let output = as_nobody().args(["stat", "--format", "%n", "--"]).args(paths).output()?;
    let refused = String::from_utf8_lossy(&output.stderr);
    let seen: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    // What went meanwhile is told as well: each path is either seen or told.
    ensure!(seen.len() + refused.lines().count() == paths.len(), "stat did not look at all: {refused}");
    Ok(seen)
}

fn a_small_limit_of_open_files_is_raised() -> Result<()> {
    let machine = TestHost::on("ulimit -Sn 300; ulimit -Hn 5000;", &[])?;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", machine.pid()))?;
    let files = limits.lines().find(|line| line.starts_with("Max open files")).context("no limit")?;
    let words: Vec<&str> = files.split_whitespace().collect();
    ensure!(words.ends_with(&["5000", "5000", "files"]), "{files}");
    Ok(())
}

/// Where a process listens, by `ss`.
fn listeners(pid: u32) -> Result<Vec<String>> {
    let table = e2e::output(std::process::Command::new("ss").args(["-H", "-l", "-t", "-u", "-n", "-p"]))?;
    let lines = table.lines().filter(|line| line.contains(&format!("pid={pid},")));
    Ok(lines.filter_map(|line| line.split_whitespace().nth(4)).map(str::to_owned).collect())
}

fn verbs_start_stop_and_restart_a_vm() -> Result<()> {
    let machine = TestHost::up()?;
    machine.create::<VirtualMachine>(bare("v", "Halted"))?;
    machine.status("v", "Stopped")?;
    let refused = e2e::output(&mut machine.orlop(&["stop", "v"])).unwrap_err().to_string();
    ensure!(refused.contains("VM is not running"), "{refused}");
    e2e::output(&mut machine.orlop(&["start", "v"]))?;
    let first = machine.phase("v", Phase::Running, None)?;
    e2e::output(&mut machine.orlop(&["restart", "v"]))?;
    let second = machine.phase("v", Phase::Running, first.metadata.uid.as_deref())?;
    // The VM, not the instance, has the network's addresses.
    let network = |vmi: &VirtualMachineInstance| {
        let interface = vmi.status.as_ref()?.interfaces.as_ref()?.first()?;
        Some((interface.mac.clone()?, interface.ip_address.clone()?))
    };
    ensure!(
        network(&first).is_some() && network(&first) == network(&second),
        "{:?} {:?}",
        network(&first),
        network(&second)
    );
    machine.status("v", "Running")?;
    let listed = e2e::output(&mut machine.orlop(&["get"]))?;
    let (_, address) = network(&second).context("an address")?;
    ensure!(
        listed.lines().any(|line| line.starts_with("v ") && line.contains("Running") && line.contains(&address)),
        "{listed}"
    );
    e2e::output(&mut machine.orlop(&["stop", "v"]))?;
    machine.gone::<VirtualMachineInstance>("v")?;
    machine.status("v", "Stopped")?;
    ensure!(qemus("v").is_empty());
    machine.delete::<VirtualMachine>("v")?;
    machine.gone::<VirtualMachine>("v")
}

/// The screen of `v`.
async fn screen(client: &kube::Client) -> Result<Socket> {
    let opened = Socket::open(client, &path("v1", "v", "vnc"), &[]).await?;
    let mut socket = opened.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
    socket.greeting().await?;
    Ok(socket)
}

fn a_killed_or_stopped_up_leaves_its_vms_and_the_next_finds_them() -> Result<()> {
    let mut machine = TestHost::up()?;
    machine.create::<VirtualMachine>(linux("v", "Always")?)?;
    let before = machine.phase("v", Phase::Running, None)?;
    let mut terminal = Terminal::log_in(&machine, "v")?;
    terminal.run("echo before > /tmp/mark")?;
    let qemu = qemus("v");
    machine.kill()?;
    ensure!(qemus("v") == qemu, "the guest ended with orlop up");
    machine.start()?;
    let after = machine.phase("v", Phase::Running, None)?;
    ensure!(before.uid() == after.uid() && qemus("v") == qemu, "another guest runs");
    // A console that was open opens itself again.
    ensure!(terminal.run("cat /tmp/mark")? == "before");
    machine.status("v", "Running")?;
    // So does one that is asked to end, as systemd does it. It takes leave of whoever looks at a guest.
    let mut looking = machine.runtime.block_on(screen(&machine.client()))?;
    let closed = machine.runtime.spawn(async move { looking.closed().await });
    machine.terminate()?;
    let closed = machine.runtime.block_on(closed)??;
    ensure!(closed == (1001, "the server stops".to_owned()), "{closed:?}");
    ensure!(qemus("v") == qemu, "the guest ended with orlop up");
    machine.start()?;
    ensure!(terminal.run("cat /tmp/mark")? == "before");
    drop(machine.runtime.block_on(screen(&machine.client()))?);
    ensure!(machine.phase("v", Phase::Running, None)?.uid() == before.uid() && qemus("v") == qemu);
    drop(terminal);
    machine.status("v", "Running")?;
    e2e::output(&mut machine.orlop(&["stop", "v"]))?;
    machine.gone::<VirtualMachineInstance>("v")?;
    ensure!(qemus("v").is_empty());
    Ok(())
}

fn down_powers_guests_off_and_up_brings_them_back() -> Result<()> {
    let mut machine = TestHost::up()?;
    for (name, strategy) in [("always", "Always"), ("once", "Once"), ("halted", "Halted")] {
        machine.create::<VirtualMachine>(bare(name, strategy))?;
    }
    let mut polite = linux("linux", "Always")?;
    template(&mut polite)["terminationGracePeriodSeconds"] = json!(300);
    machine.create::<VirtualMachine>(polite)?;
    let linux = machine.phase("linux", Phase::Running, None)?;
    let first = machine.phase("always", Phase::Running, None)?;
    machine.phase("once", Phase::Running, None)?;
    drop(Terminal::log_in(&machine, "linux")?);
    let said = machine.down()?;
    ensure!(said.contains("orlop is down") && !said.contains("killed"), "{said}");
    // A guest that is asked to power off says so; one that is killed says nothing.
    let words = logged(&machine.data().join("logs"), "virt-launcher-linux")?;
    ensure!(
        words.contains("reboot: Power down") || words.contains("going down") || words.contains("poweroff"),
        "{words}"
    );
    ensure!(qemus("linux").is_empty() && qemus("always").is_empty());
    machine.start()?;
    for (name, before) in [("always", first), ("linux", linux)] {
        let now = machine.phase(name, Phase::Running, before.metadata.uid.as_deref())?;
        ensure!(addresses(&now)? == addresses(&before)?, "{name} has another address");
    }
    ensure!(qemus("once").is_empty() && qemus("halted").is_empty());
    ensure!(qemus("always").len() == 1 && qemus("linux").len() == 1);
    Ok(())
}

/// All that pods of this name have written, by the files that are kept of it.
fn logged(folder: &Path, pod: &str) -> Result<String> {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            text += &logged(&path, pod)?;
        } else if path.to_string_lossy().contains(pod) {
            text += &String::from_utf8_lossy(&std::fs::read(&path)?);
        }
    }
    Ok(text)
}

fn a_machine_that_loses_power_brings_its_vms_back() -> Result<()> {
    let idle = Leftovers::look()?;
    let mut machine = TestHost::up()?;
    machine.create::<PersistentVolumeClaim>(claim("data", "64Mi"))?;
    let mut vm = linux("always", "Always")?;
    add_volume(&mut vm, "data", "persistentVolumeClaim", json!({ "claimName": "data" }))?;
    machine.create::<VirtualMachine>(vm)?;
    for (name, strategy) in [("rerun", "RerunOnFailure"), ("once", "Once"), ("manual", "Manual"), ("halted", "Halted")]
    {
        machine.create::<VirtualMachine>(bare(name, strategy))?;
    }
    machine.status("manual", "Stopped")?;
    e2e::output(&mut machine.orlop(&["start", "manual"]))?;
    let running = ["always", "rerun", "once", "manual"];
    let before: Vec<_> = running.iter().map(|name| machine.phase(name, Phase::Running, None)).collect::<Result<_>>()?;
    let mut terminal = Terminal::log_in(&machine, "always")?;
    terminal.run("echo on-the-disk | dd of=/dev/vda conv=fsync 2> /dev/null")?;
    machine.reboot(|| idle.cut_power())?;
    drop(terminal);
    ensure!(running.iter().all(|name| qemus(name).is_empty()));
    machine.start()?;
    for (name, old) in running.iter().zip(&before).take(2) {
        machine.phase(name, Phase::Running, old.metadata.uid.as_deref())?;
        ensure!(qemus(name).len() == 1, "{name}");
    }
    machine.phase("once", Phase::Failed, None)?;
    machine.status("manual", "Stopped")?;
    ensure!(["once", "manual", "halted"].iter().all(|name| qemus(name).is_empty()));
    let mut terminal = Terminal::log_in(&machine, "always")?;
    ensure!(terminal.run("head -c 11 /dev/vda")? == "on-the-disk");
    Ok(())
}
