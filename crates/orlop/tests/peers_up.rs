//! `orlop up` as kubectl's users see it, with real guests.
#![expect(clippy::needless_pass_by_value, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "up/guests.rs"]
mod guests;
#[expect(dead_code, reason = "this test uses a part of it")]
#[path = "up/test_host.rs"]
mod test_host;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use serde_json::json;
use testkit::{Harness, Need, tests};

use guests::{bare, linux, template};
use test_host::{TestHost, qemus};

/// How long kubectl may wait. Guests are emulated.
const WAIT: &str = "--timeout=600s";
const EXAMPLES: [(&str, &str); 2] =
    [("examples/vm.yaml", "quay.io/containerdisks/debian:12"), ("examples/demo-vmi.yaml", "oci:GUEST/oci:demo")];

fn main() -> std::process::ExitCode {
    let harness = Harness::default().needing(&[Need::Peers, Need::Root, Need::Qemu, Need::Guest]);
    let all = tests![kubectl_sees_and_steers_what_runs_here, kubectl_drain_moves_every_guest_of_a_node];
    // Both make the same bridge.
    harness.on_own_machine().one_by_one().run(all)
}

type Step = fn(&Kubectl<'_>) -> Result<()>;

fn kubectl_sees_and_steers_what_runs_here() -> Result<()> {
    let machine = TestHost::up()?;
    let kubectl = Kubectl(&machine);
    kubectl.apply(&linux("first", "Always")?.to_string())?;
    kubectl.ok(&["wait", "--for=condition=Ready", "vm/first", WAIT])?;
    let steps: [(&str, Step); 7] = [
        ("get", tables),
        ("describe", descriptions),
        ("logs", logs),
        ("examples", examples),
        ("delete pod", pod_deleted),
        ("cordon", cordoned),
        ("drain", drained),
    ];
    for (name, step) in steps {
        step(&kubectl).context(name)?;
    }
    rights(&kubectl).context("auth")
}

/// Five guests, each in its firmware: how many there are is the point, not what they do.
const MOVED: [&str; 5] = ["one", "two", "three", "four", "five"];

fn kubectl_drain_moves_every_guest_of_a_node() -> Result<()> {
    let machine = TestHost::with(&["--nodes", "2"])?;
    let kubectl = Kubectl(&machine);
    kubectl.ok(&["wait", "--for=create", WAIT, "node/here-0", "node/here-1"])?;
    // All begin on the same node.
    kubectl.ok(&["cordon", "here-1"])?;
    for name in MOVED {
        let mut vm = bare(name, "Always");
        let spec = template(&mut vm);
        spec["evictionStrategy"] = json!("LiveMigrate");
        spec["domain"]["memory"]["guest"] = json!("64Mi");
        kubectl.apply(&vm.to_string())?;
    }
    let instances = MOVED.map(|name| format!("vmi/{name}"));
    let all: Vec<&str> = instances.iter().map(String::as_str).collect();
    kubectl.ok(&[&["wait", "--for=create", WAIT], all.as_slice()].concat())?;
    kubectl.ok(&[&["wait", "--for=condition=Ready", WAIT], all.as_slice()].concat())?;
    kubectl.ok(&[&["wait", "--for=condition=LiveMigratable", WAIT], all.as_slice()].concat())?;
    kubectl.ok(&["uncordon", "here-1"])?;
    let facts = |path: &str| all.iter().map(|vmi| kubectl.field(vmi, path)).collect::<Result<Vec<_>>>();
    ensure!(facts(".status.nodeName")? == ["here-0"; 5]);
    let (uids, processes) = (facts(".metadata.uid")?, MOVED.map(qemus));
    ensure!(processes.iter().all(|one| one.len() == 1), "{processes:?}");

    kubectl.ok(&["drain", "here-0", "--delete-emptydir-data", "--ignore-daemonsets", WAIT])?;
    // The last of them is noted down a moment after its launcher has gone.
    kubectl.ok(&["wait", "vmim", "--all", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=5m"])?;
    ensure!(facts(".metadata.uid")? == uids, "a guest was started again instead");
    ensure!(facts(".status.phase")? == ["Running"; 5]);
    ensure!(facts(".status.nodeName")? == ["here-1"; 5]);
    for (name, before) in MOVED.into_iter().zip(processes) {
        let now = machine.until_some(&format!("one QEMU of {name}"), || match qemus(name).as_slice() {
            [one] => Some(*one),
            _ => None,
        })?;
        ensure!(!before.contains(&now), "{name} did not move");
    }
    let on_node = "--field-selector=spec.nodeName=here-0";
    let left = kubectl.ok(&["get", "pods", "-l", "kubevirt.io=virt-launcher", on_node, "-o", "name"])?;
    ensure!(left.trim().is_empty(), "launchers are left on the node: {left}");
    let moved = kubectl.ok(&["get", "vmim", "-o", "jsonpath={.items[*].status.phase}"])?;
    ensure!(moved.split_whitespace().eq(["Succeeded"; 5]), "the migrations are {moved}");
    kubectl.ok(&["uncordon", "here-0"]).map(drop)
}

/// kubectl as the admin of a machine.
struct Kubectl<'a>(&'a TestHost);

impl Kubectl<'_> {
    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new("timeout");
        command.arg("700").arg(e2e::peer("kubectl")?).arg("--kubeconfig").arg(self.0.kubeconfig()).args(arguments);
        command.env("HOME", self.0.data()).stdin(Stdio::null());
        Ok(command)
    }

    fn ok(&self, arguments: &[&str]) -> Result<String> {
        e2e::output(&mut self.command(arguments)?)
    }

    /// Applies a manifest.
    fn apply(&self, manifest: &str) -> Result<()> {
        let mut child = self.command(&["apply", "-f", "-"])?.stdin(Stdio::piped()).spawn()?;
        child.stdin.take().context("no standard input")?.write_all(manifest.as_bytes())?;
        let status = child.wait()?;
        ensure!(status.success(), "kubectl apply: {status}");
        Ok(())
    }

    /// A field of an object.
    fn field(&self, what: &str, path: &str) -> Result<String> {
        self.ok(&["get", what, "-o", &format!("jsonpath={{{path}}}")])
    }

    /// The launcher's pod of a VM.
    fn pod(&self, vm: &str) -> Result<String> {
        let names = self.ok(&["get", "pods", "-l", &format!("vm={vm}"), "-o", "name"])?;
        let names: Vec<&str> = names.lines().collect();
        let [name] = names[..] else { bail!("the pods of {vm} are {names:?}") };
        Ok(name.to_owned())
    }
}

/// Whether a table has a row with these words.
fn row(table: &str, words: &[&str]) -> Result<()> {
    let has = |line: &str| words.iter().all(|word| line.split_whitespace().any(|one| one.starts_with(word)));
    ensure!(table.lines().skip(1).any(has), "no row with {words:?} in\n{table}");
    Ok(())
}

fn tables(kubectl: &Kubectl<'_>) -> Result<()> {
    row(&kubectl.ok(&["get", "nodes", "-o", "wide"])?, &["here", "Ready", "10.199.0.1"])?;
    row(&kubectl.ok(&["get", "pods", "-o", "wide"])?, &["virt-launcher-first", "Running", "10.199.0.", "here"])?;
    row(&kubectl.ok(&["get", "vm"])?, &["first", "Running", "True"])?;
    row(&kubectl.ok(&["get", "vmi"])?, &["first", "Running", "10.199.0.", "here", "True"])?;
    row(&kubectl.ok(&["get", "storageclass"])?, &["local"])
}

fn descriptions(kubectl: &Kubectl<'_>) -> Result<()> {
    let pod = kubectl.pod("first")?;
    let wanted: [(&str, &[&str]); 4] = [
        ("vm/first", &["Printable Status:", "Running", "SuccessfulCreate"]),
        ("vmi/first", &["Phase:", "Running", "Started"]),
        (&pod, &["Node:", "here/", "Started", "compute", "QoS Class:"]),
        ("node/here", &["Ready", "KubeletReady", "devices.kubevirt.io/tun", "virt-launcher-first"]),
    ];
    for (what, parts) in wanted {
        // Events are written by and by.
        kubectl.0.until_some(&format!("a description of {what} with {parts:?}"), || {
            let text = kubectl.ok(&["describe", what]).ok()?;
            parts.iter().all(|part| text.contains(part)).then_some(())
        })?;
    }
    Ok(())
}

/// The guest's console is in the launcher's log, now and while it goes on.
fn logs(kubectl: &Kubectl<'_>) -> Result<()> {
    let pod = kubectl.pod("first")?;
    let mut follow = kubectl.command(&["logs", "-f", &pod])?;
    let mut follow = follow.stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(follow.stdout.take().context("no standard output")?).lines();
    let seen = lines.map_while(Result::ok).find(|line| line.contains("guest: ready"));
    follow.kill()?;
    follow.wait()?;
    ensure!(seen.is_some(), "the guest's console is not in the log");
    let whole = kubectl.ok(&["logs", &pod])?;
    ensure!(whole.contains("guest: userland") && whole.contains("guest: ready"), "{whole}");
    let last = kubectl.ok(&["logs", &pod, "--tail=1"])?;
    ensure!(last.lines().count() == 1, "{last}");
    // As KubeVirt's users look at it: the console alone.
    let console = kubectl.ok(&["logs", &pod, "-c", "guest-console-log"])?;
    ensure!(console.contains("guest: ready") && !console.contains("\"level\""), "{console}");
    Ok(())
}

/// What is in the directory of examples runs, with a disk that is here.
fn examples(kubectl: &Kubectl<'_>) -> Result<()> {
    let image = e2e::guest::image("demo")?;
    let manifests = EXAMPLES.map(|(path, replaced)| -> Result<String> {
        let text = std::fs::read_to_string(e2e::root().join(path))?;
        ensure!(text.contains(replaced), "{path} names another image");
        Ok(text.replace(replaced, &image))
    });
    for manifest in &manifests {
        kubectl.apply(manifest.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?)?;
    }
    kubectl.ok(&["wait", "--for=condition=Ready", "vm/small", "vmi/demo", WAIT])?;
    ensure!(qemus("small").len() == 1 && qemus("demo").len() == 1);
    kubectl.ok(&["delete", "vm/small", "vmi/demo", "--wait", WAIT])?;
    ensure!(qemus("small").is_empty() && qemus("demo").is_empty());
    let left = kubectl.ok(&["get", "vm,vmi,pods", "-o", "name"])?;
    ensure!(left.lines().count() == 3, "{left}");
    Ok(())
}

fn pod_deleted(kubectl: &Kubectl<'_>) -> Result<()> {
    let (uid, pod) = (kubectl.field("vmi/first", ".metadata.uid")?, kubectl.pod("first")?);
    kubectl.ok(&["delete", &pod, "--wait", WAIT])?;
    kubectl.0.phase("first", Phase::Running, Some(&uid))?;
    kubectl.ok(&["wait", "--for=condition=Ready", "vm/first", WAIT])?;
    ensure!(kubectl.pod("first")? != pod && qemus("first").len() == 1);
    Ok(())
}

fn cordoned(kubectl: &Kubectl<'_>) -> Result<()> {
    kubectl.ok(&["cordon", "here"])?;
    row(&kubectl.ok(&["get", "nodes"])?, &["here", "Ready,SchedulingDisabled"])?;
    kubectl.apply(&bare("second", "Always").to_string())?;
    kubectl.0.status("second", "ErrorUnschedulable")?;
    row(&kubectl.ok(&["get", "pods"])?, &["virt-launcher-second", "Pending"])?;
    ensure!(qemus("second").is_empty() && qemus("first").len() == 1);
    kubectl.ok(&["uncordon", "here"])?;
    kubectl.ok(&["wait", "--for=condition=Ready", "vm/second", WAIT]).map(drop)
}

fn drained(kubectl: &Kubectl<'_>) -> Result<()> {
    let uid = kubectl.field("vmi/first", ".metadata.uid")?;
    kubectl.ok(&["drain", "here", "--force", "--ignore-daemonsets", "--delete-emptydir-data", WAIT])?;
    for name in ["first", "second"] {
        kubectl.0.status(name, "ErrorUnschedulable")?;
        ensure!(qemus(name).is_empty(), "{name} still runs");
    }
    kubectl.ok(&["uncordon", "here"])?;
    kubectl.0.phase("first", Phase::Running, Some(&uid))?;
    kubectl.ok(&["wait", "--for=condition=Ready", "vm/first", "vm/second", WAIT]).map(drop)
}

fn rights(kubectl: &Kubectl<'_>) -> Result<()> {
    ensure!(kubectl.ok(&["auth", "can-i", "create", "vm"])?.trim() == "yes");
    ensure!(kubectl.ok(&["auth", "can-i", "*", "*", "--all-namespaces"])?.trim() == "yes");
    // A colleague who edits one namespace, by the role that Kubernetes has for that.
    kubectl.ok(&["create", "rolebinding", "jane", "--clusterrole=edit", "--user=jane"])?;
    let may = |arguments: &[&str]| {
        let answer = kubectl.command(&[&["auth", "can-i", "--as=jane"], arguments].concat())?.output()?;
        anyhow::Ok(String::from_utf8(answer.stdout)?.trim() == "yes")
    };
    ensure!(may(&["create", "vm"])?);
    ensure!(!may(&["create", "vm", "-n", "kube-system"])? && !may(&["delete", "nodes"])?);
    kubectl.ok(&["get", "vm", "--as=jane"])?;
    let refused = kubectl.ok(&["get", "nodes", "--as=jane"]).unwrap_err().to_string();
    ensure!(refused.contains("User \"jane\" cannot list resource \"nodes\""), "{refused}");
    // A program outside of the machine's pods, with a token of its own.
    kubectl.ok(&["create", "serviceaccount", "robot"])?;
    let token = kubectl.ok(&["create", "token", "robot"])?;
    let server = kubectl.ok(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"])?;
    let robot = |arguments: &[&str]| {
        let mut command = Command::new(e2e::peer("kubectl")?);
        command.args(["--server", &server, "--insecure-skip-tls-verify", "--token", token.trim()]).args(arguments);
        e2e::output(command.env("HOME", kubectl.0.data()).env_remove("KUBECONFIG"))
    };
    ensure!(robot(&["auth", "whoami"])?.contains("system:serviceaccount:default:robot"));
    let refused = robot(&["get", "vm"]).unwrap_err().to_string();
    ensure!(refused.contains("User \"system:serviceaccount:default:robot\" cannot list resource"), "{refused}");
    kubectl.ok(&["create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot"])?;
    robot(&["get", "vm"]).map(drop)
}
