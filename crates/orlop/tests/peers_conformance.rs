//! Kubernetes' own conformance tests on `orlop up`: those of the API and of its controllers, on nodes that pretend to run pods.
//!
//! `conformance/passes.txt` names those that pass, one in each line; what it does not name is not run.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use testkit::{Harness, Need, tests};

const PASSES: &str = include_str!("conformance/passes.txt");
/// Kubernetes' tests look for the server's own service, which a machine without services has no use for.
const SERVICE: &str = r#"{ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "kubernetes", "namespace": "default" },
    "spec": { "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443 }] } }"#;

fn main() -> std::process::ExitCode {
    let harness = Harness::default().needing(&[Need::Root, Need::Peers, Need::Conformance]);
    harness.on_own_machine().run(tests![what_kubernetes_tests_of_itself_holds_here])
}

/// `orlop up` with nodes that pretend.
struct Hollow {
    process: Child,
    folder: tempfile::TempDir,
}

impl Hollow {
    fn up() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command
            .args(["up", "--hollow-nodes", "2", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path().join("data"));
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let mut lines = BufReader::new(process.stdout.take().context("no standard output")?).lines();
        let hollow = Self { process, folder };
        match lines.next() {
            Some(Ok(line)) if line.starts_with("orlop is up") => {}
            other => bail!("orlop up said {other:?}"),
        }
        std::thread::spawn(move || lines.for_each(drop));
        Ok(hollow)
    }

    fn kubeconfig(&self) -> std::path::PathBuf {
        self.folder.path().join("data/kubeconfig")
    }
}

impl Drop for Hollow {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn what_kubernetes_tests_of_itself_holds_here() -> Result<()> {
    let hollow = Hollow::up()?;
    let mut apply = Command::new(e2e::peer("kubectl")?);
    apply.arg("--kubeconfig").arg(hollow.kubeconfig()).args(["apply", "-f", "-"]);
    let mut apply = apply.stdin(Stdio::piped()).spawn()?;
    apply.stdin.take().context("no standard input")?.write_all(SERVICE.as_bytes())?;
    ensure!(apply.wait()?.success(), "the service is refused");

    let names: Vec<&str> = PASSES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let focus: Vec<String> = names.iter().map(|name| escaped(name)).collect();
    let said = run(&hollow.kubeconfig(), &focus.join("|"), hollow.folder.path())?;
    let failed: Vec<&str> = said.lines().filter(|line| line.trim_start().starts_with("[FAIL]")).collect();
    let last: Vec<&str> = said.lines().filter(|line| line.starts_with("Ran ") || line.contains(" Passed | ")).collect();
    ensure!(failed.is_empty() && said.contains("SUCCESS!"), "{last:?}\n{}", failed.join("\n"));
    ensure!(said.contains(&format!("\nRan {} of ", names.len())), "{} are named, and {last:?}", names.len());
    Ok(())
}

fn run(kubeconfig: &Path, focus: &str, folder: &Path) -> Result<String> {
    let mut command = Command::new(e2e::peer("e2e.test")?);
    command
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--provider=skeleton", "--kube-api-content-type=application/json"]);
    command.args(["--ginkgo.v", "--ginkgo.no-color", "--ginkgo.seed=1"]).arg(format!("--ginkgo.focus={focus}"));
    let output = command.current_dir(folder).stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A name, for a regular expression: the tests have tags, and so brackets, in theirs.
fn escaped(name: &str) -> String {
    let is_special = |letter: char| r"\.+*?()|[]{}^$/".contains(letter);
    name.chars().fold(String::new(), |mut text, letter| {
        if is_special(letter) {
            text.push('\\');
        }
        text.push(letter);
        text
    })
}
