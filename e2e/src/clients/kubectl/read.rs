//! What users look at.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::{Kubectl, has};

pub(super) fn forms(kubectl: &Kubectl) -> Result<()> {
    let get = |form: &[&str]| kubectl.ok(&[&["get", "-n", "kubectl", "vm"], form].concat());
    let table = get(&[])?;
    let header = table.lines().next().unwrap_or_default();
    for column in ["NAME", "AGE", "STATUS", "READY"] {
        has(header, column)?;
    }
    ensure!(table.lines().any(|line| line.starts_with("first ")), "{table}");
    has(&get(&["-o", "wide"])?, "first")?;
    has(&get(&["--no-headers"])?, "first")?;
    has(&get(&["--show-labels"])?, "set=machines")?;
    has(&get(&["-L", "set"])?, "SET")?;
    has(&get(&["--sort-by=.metadata.name"])?, "second")?;
    has(&get(&["first", "-o", "yaml"])?, "kind: VirtualMachine")?;
    has(&get(&["first", "-o", "json"])?, r#""kind": "VirtualMachine""#)?;
    ensure!(get(&["first", "-o", "name"])? == "virtualmachine.kubevirt.io/first\n");
    ensure!(get(&["first", "-o", "jsonpath={.metadata.name}"])? == "first");
    ensure!(get(&["-o", "jsonpath={.items[*].metadata.name}"])? == "first second");
    has(&get(&["-o", "custom-columns=N:.metadata.name,R:.spec.runStrategy"])?, "Halted")?;
    ensure!(get(&["first", "-o", "go-template={{.metadata.name}}"])? == "first");
    has(&kubectl.ok(&["get", "vm", "-A"])?, "NAMESPACE")?;
    has(&kubectl.ok(&["get", "-n", "kubectl", "vm", "--field-selector=metadata.name=first", "-o", "name"])?, "first")?;
    has(&kubectl.ok(&["get", "-n", "kubectl", "vm,cm"])?, "configmap/first")?;
    has(&kubectl.ok(&["get", "-n", "kubectl", "vm", "--chunk-size=1", "-o", "name"])?, "second")?;
    has(&kubectl.ok(&["get", "ns", "kubectl"])?, "Active")
}

pub(super) fn watch(kubectl: &Kubectl) -> Result<()> {
    let mut command =
        kubectl.command(&["get", "-n", "kubectl", "cm", "first", "-w", "-o", "jsonpath={.data.k}{'\\n'}"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let mut follow = || -> Result<()> {
        ensure!(lines.next().context("no first line")?? == "v", "not the first value");
        for value in ["w", "v"] {
            let patch = format!(r#"{{"data":{{"k":"{value}"}}}}"#);
            kubectl.ok(&["patch", "-n", "kubectl", "cm", "first", "--type=merge", "-p", &patch])?;
            let line = lines.next().context("no further line")??;
            ensure!(line == value, "{line} is not {value}");
        }
        Ok(())
    };
    let followed = follow();
    // `timeout` passes the signal on; a plain kill would leave kubectl behind.
    crate::output(std::process::Command::new("kill").arg(child.id().to_string()))?;
    child.wait()?;
    followed
}

pub(super) fn raw(kubectl: &Kubectl) -> Result<()> {
    has(&kubectl.ok(&["get", "--raw", "/api/v1/namespaces/kubectl"])?, r#""name":"kubectl""#)?;
    has(&kubectl.ok(&["get", "--raw", "/readyz"])?, "ok")?;
    has(&kubectl.ok(&["version"])?, "Server Version")?;
    let resources = kubectl.ok(&["api-resources"])?;
    for line in ["virtualmachines", "configmaps", "customresourcedefinitions", "leases"] {
        has(&resources, line)?;
    }
    has(&kubectl.ok(&["api-resources", "--api-group=kubevirt.io", "-o", "name"])?, "virtualmachines.kubevirt.io")?;
    has(&kubectl.ok(&["api-resources", "--namespaced=false", "--verbs=list"])?, "namespaces")?;
    let versions = kubectl.ok(&["api-versions"])?;
    for line in ["v1", "kubevirt.io/v1", "apiextensions.k8s.io/v1", "coordination.k8s.io/v1"] {
        ensure!(versions.lines().any(|version| version == line), "no {line} in\n{versions}");
    }
    Ok(())
}

pub(super) fn categories(kubectl: &Kubectl) -> Result<()> {
    for name in ["vm", "vms", "virtualmachine", "virtualmachines", "virtualmachines.kubevirt.io"] {
        has(&kubectl.ok(&["get", "-n", "kubectl", name, "-o", "name"])?, "virtualmachine.kubevirt.io/first")?;
    }
    has(&kubectl.ok(&["get", "-n", "kubectl", "all", "-o", "name"])?, "virtualmachine.kubevirt.io/first")?;
    kubectl.ok(&["get", "-n", "kubectl", "vmi,vmim,vmirs"])?;
    has(&kubectl.refused(&["get", "-n", "kubectl", "nothing"], "")?, "doesn't have a resource type")
}

pub(super) fn describe(kubectl: &Kubectl) -> Result<()> {
    let event = "
apiVersion: v1
kind: Event
metadata: {name: told, namespace: kubectl}
involvedObject: {apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: first, namespace: kubectl}
reason: Told
message: something happened
type: Normal
firstTimestamp: 2001-01-01T00:00:00Z
lastTimestamp: 2001-01-01T00:00:00Z
count: 1
source: {component: test}
";
    kubectl.given(&["create", "-f", "-"], event)?;
    let printed = kubectl.ok(&["describe", "-n", "kubectl", "vm", "first"])?;
    for part in ["Name:         first", "Kind:         VirtualMachine", "Run Strategy:  Halted"] {
        has(&printed, part)?;
    }
    has(&kubectl.ok(&["get", "-n", "kubectl", "events"])?, "something happened")?;
    has(&kubectl.ok(&["describe", "-n", "kubectl", "cm", "first"])?, "Data")?;
    has(&kubectl.ok(&["describe", "ns", "kubectl"])?, "Active")
}

pub(super) fn wait(kubectl: &Kubectl) -> Result<()> {
    let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}],"printableStatus":"Running"}}"#;
    let patch = ["patch", "-n", "kubectl", "vm", "first", "--subresource=status", "--type=merge", "-p", status];
    let wait = |condition: &str| kubectl.ok(&["wait", "-n", "kubectl", "vm/first", condition, "--timeout=300s"]);
    let mut waiting =
        kubectl.command(&["wait", "-n", "kubectl", "vm/first", "--for=condition=Ready", "--timeout=300s"]).spawn()?;
    kubectl.ok(&patch)?;
    ensure!(waiting.wait()?.success(), "the condition was not seen");
    has(&wait("--for=condition=Ready")?, "condition met")?;
    has(&wait("--for=jsonpath={.status.printableStatus}=Running")?, "condition met")?;
    let missed = ["wait", "-n", "kubectl", "vm/first", "--for=condition=Other", "--timeout=1s"];
    has(&kubectl.refused(&missed, "")?, "timed out")?;
    let mut gone =
        kubectl.command(&["wait", "-n", "kubectl", "vm/applied", "--for=delete", "--timeout=300s"]).spawn()?;
    kubectl.ok(&["delete", "-n", "kubectl", "vm", "applied", "--ignore-not-found"])?;
    ensure!(gone.wait()?.success(), "the deletion was not seen");
    Ok(())
}
