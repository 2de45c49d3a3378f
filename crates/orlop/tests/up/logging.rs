//! What is logged about a VM, who can read it, and who can write it.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, ensure};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use e2e::console::Console;
use kube::ResourceExt as _;
use serde_json::Value;

use super::Test;
use super::guests::{Terminal, bare, linux};
use super::machines::status;
use super::test_host::TestHost;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("a_uid_tells_the_whole_story_of_a_vm", a_uid_tells_the_whole_story_of_a_vm),
    ("a_guest_cannot_write_a_line_of_its_launcher", a_guest_cannot_write_a_line_of_its_launcher),
];

const COMPONENTS: [&str; 6] = ["apiserver", "virt-controller", "scheduler", "node", "virt-handler", "virt-launcher"];

fn a_uid_tells_the_whole_story_of_a_vm() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let audit = folder.path().join("audit");
    let mut machine = TestHost::with(&["--audit-log", audit.to_str().context("no path")?])?;
    let vm: VirtualMachine = machine.create(bare("a", "Always"))?;
    let vmi = machine.phase("a", Phase::Running, None)?;
    let (vm, vmi) = (vm.uid().context("no UID")?, vmi.uid().context("no UID")?);
    // It goes with its pod.
    let launcher = e2e::output(&mut machine.orlop(&["logs", "a", "--component", "virt-launcher"]))?;
    ensure!(launcher.contains("QEMU has started"), "{launcher}");
    machine.delete::<VirtualMachine>("a")?;
    machine.gone::<VirtualMachineInstance>("a")?;
    machine.gone::<VirtualMachine>("a")?;
    machine.terminate()?;
    let own = std::fs::read_to_string(machine.data().join("logs/orlop.log"))?;
    ensure!(own == machine.log(), "what is kept is not what was said");
    let all = own + &launcher;
    let about = |uid: &str| -> Vec<&str> { all.lines().filter(|line| line.contains(uid)).collect() };
    for (uid, without) in [(&vmi, None), (&vm, Some("scheduler"))] {
        let told: BTreeSet<&str> = about(uid).into_iter().filter_map(component).collect();
        let missing: Vec<_> = COMPONENTS.iter().filter(|one| !told.contains(**one) && Some(**one) != without).collect();
        ensure!(missing.is_empty(), "{missing:?} say nothing of {uid}:\n{all}");
    }
    let story = about(&vmi).join("\n");
    let acts = [
        ("apiserver: created", "resource=virtualmachineinstances.kubevirt.io"),
        ("virt-controller/vm: created", "kind=VirtualMachineInstance"),
        ("virt-controller/vmi: created", "kind=Pod"),
        ("scheduler: bound the pod", "node=here"),
        ("node: started a container", "container=compute"),
        ("virt-handler: the phase of the instance changed", "phase=Running"),
        ("virt-launcher: QEMU has started", "pid="),
        ("node: stopped the pod", "name=virt-launcher-a-"),
        ("apiserver: deleted", "resource=virtualmachineinstances.kubevirt.io"),
    ];
    for (what, more) in acts {
        let lines = story.lines().filter(|line| line.contains(what) && line.contains(more)).count();
        ensure!(lines == 1, "{lines} lines tell that {what} {more}:\n{story}");
    }
    // Controllers in the same process are users as any other.
    let audited = std::fs::read_to_string(&audit)?;
    let events = audited.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let by = |verb: &str, resource: &str| -> Vec<&str> {
        let those = events.iter().filter(|one| one["verb"] == verb && one["objectRef"]["resource"] == resource);
        those.filter_map(|one| one["user"]["username"].as_str()).collect()
    };
    ensure!(by("create", "virtualmachineinstances") == ["system:serviceaccount:kubevirt:kubevirt-controller"]);
    let handler = "system:serviceaccount:kubevirt:kubevirt-handler";
    ensure!(by("patch", "virtualmachineinstances").contains(&handler), "{audited}");
    // At rest, and for what everybody's retries mend, there is nothing to warn about.
    let warnings: Vec<_> = all.lines().filter(|line| line.split(' ').nth(1) == Some("WARN")).collect();
    ensure!(warnings.iter().all(|line| !line.contains("status=4")), "{warnings:#?}");
    ensure!(!all.contains("Status {"), "{all}");
    Ok(())
}

fn component(line: &str) -> Option<&str> {
    line.split_ascii_whitespace().nth(2)?.split(['/', ':']).next()
}

/// The guest's console and the launcher's log are two streams of one container. Whatever the guest writes, it is told as the
/// guest's.
fn a_guest_cannot_write_a_line_of_its_launcher() -> Result<()> {
    let machine = TestHost::up()?;
    machine.create::<VirtualMachine>(linux("a", "Always")?)?;
    let vmi = machine.phase("a", Phase::Running, None)?;
    let mut following = Following::start(&machine, &["logs", "a", "--follow"])?;
    following.console.expect("login:")?;
    let uid = vmi.uid().context("no UID")?;
    let forged = format!("2026-01-01T00:00:00.000000Z INFO  virt-launcher: QEMU has ended uid={uid} end=forged");
    let mut terminal = Terminal::log_in(&machine, "a")?;
    terminal.run(&format!("echo '{forged}'"))?;
    following.console.expect(&forged)?;
    let logs = |words: &[&str]| e2e::output(&mut machine.orlop(&[&["logs", "a"], words].concat()));
    let (console, launcher) = (logs(&[])?, logs(&["--component", "launcher"])?);
    ensure!(console.contains(&forged) && !console.contains("QEMU has started"), "{console}");
    ensure!(launcher.contains("QEMU has started") && !launcher.contains("forged"), "{launcher}");
    ensure!(!launcher.contains("login:"), "{launcher}");
    let last = logs(&["--component", "launcher", "--tail", "1"])?;
    ensure!(last.lines().count() == 1 && launcher.ends_with(&last), "{last}");
    // And of the machine's own components, each for itself: all that the status names can be asked for.
    let said = status(&machine)?;
    let named = said.lines().skip_while(|line| *line != "components").skip(1).map_while(|line| line.strip_prefix("  "));
    let components: Vec<&str> =
        named.filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty()).collect();
    ensure!(components.contains(&"virt-handler"), "{said}");
    for component in components.into_iter().chain(["apiserver"]) {
        let shown = e2e::output(&mut machine.orlop(&["logs", "--component", component]))?;
        let is_silent = component == "data-volumes";
        ensure!(
            (is_silent || !shown.is_empty()) && shown.lines().all(|line| self::component(line) == Some(component)),
            "{shown}"
        );
    }
    Ok(())
}

/// A command that goes on.
struct Following {
    console: Console<std::io::Sink>,
    process: Child,
}

impl Following {
    fn start(machine: &TestHost, words: &[&str]) -> Result<Self> {
        let mut process = machine.orlop(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().context("no standard output")?;
        Ok(Self { console: Console::new(std::io::sink(), output), process })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
