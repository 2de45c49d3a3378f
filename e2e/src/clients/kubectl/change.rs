//! What users change.

use anyhow::{Result, ensure};

use super::{Kubectl, has};
use crate::root;

/// A machine that every check may use: it never runs here.
const MACHINE: &str = "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: NAME, namespace: kubectl, labels: {set: machines}}
spec:
  runStrategy: Halted
  template:
    spec:
      domain: {devices: {}, memory: {guest: 128Mi}}
";

fn machine(name: &str) -> String {
    MACHINE.replace("NAME", name)
}

pub(super) fn crds(kubectl: &Kubectl) -> Result<()> {
    let folder = root().join("deploy/crds");
    let folder = folder.to_string_lossy();
    has(&kubectl.ok(&["apply", "-f", &folder])?, "virtualmachineinstances.kubevirt.io created")?;
    kubectl.ok(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"])?;
    let again = kubectl.ok(&["apply", "-f", &folder])?;
    ensure!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    Ok(())
}

pub(super) fn create(kubectl: &Kubectl) -> Result<()> {
    let manifest = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: kubectl}}\n---\n{}---\n{}---\n{}",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first, namespace: kubectl}\ndata: {k: v}\n",
        machine("first"),
        machine("second")
    );
    let printed = kubectl.given(&["create", "-f", "-"], &manifest)?;
    for line in ["namespace/kubectl created", "configmap/first created", "virtualmachine.kubevirt.io/first created"] {
        has(&printed, line)?;
    }
    has(&kubectl.refused(&["create", "-f", "-"], &machine("first"))?, "AlreadyExists")?;
    has(&kubectl.given(&["create", "-f", "-", "--dry-run=server"], &machine("third"))?, "created (server dry run)")?;
    has(&kubectl.refused(&["get", "-n", "kubectl", "vm", "third"], "")?, "NotFound")
}

pub(super) fn apply_custom(kubectl: &Kubectl) -> Result<()> {
    let apply = ["apply", "-f", "-"];
    has(&kubectl.given(&apply, &machine("applied"))?, "virtualmachine.kubevirt.io/applied created")?;
    has(&kubectl.given(&apply, &machine("applied"))?, "applied unchanged")?;
    let changed =
        machine("applied").replace("128Mi", "256Mi").replace("labels: {set: machines}", "labels: {set: other}");
    has(&kubectl.given(&apply, &changed)?, "applied configured")?;
    let path = "jsonpath={.spec.template.spec.domain.memory.guest} {.metadata.labels.set} {.metadata.generation}";
    has(&kubectl.ok(&["get", "-n", "kubectl", "vm", "applied", "-o", path])?, "256Mi other 2")?;
    // A field that was applied and is not any more goes.
    let without = changed.replace(", labels: {set: other}", "");
    has(&kubectl.given(&apply, &without)?, "applied configured")?;
    let labels = kubectl.ok(&["get", "-n", "kubectl", "vm", "applied", "-o", "jsonpath={.metadata.labels}"])?;
    ensure!(labels.is_empty(), "labels are left: {labels}");
    Ok(())
}

pub(super) fn apply_config_map(kubectl: &Kubectl) -> Result<()> {
    let manifest = |data: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: applied, namespace: kubectl}}\ndata: {data}\n")
    };
    let apply = ["apply", "-f", "-"];
    has(&kubectl.given(&apply, &manifest("{a: one, b: two}"))?, "configmap/applied created")?;
    has(&kubectl.given(&apply, &manifest("{a: one, b: two}"))?, "configmap/applied unchanged")?;
    has(&kubectl.given(&apply, &manifest("{a: three}"))?, "configmap/applied configured")?;
    let data = kubectl.ok(&["get", "-n", "kubectl", "cm", "applied", "-o", "jsonpath={.data}"])?;
    ensure!(data == r#"{"a":"three"}"#, "{data}");
    Ok(())
}

pub(super) fn replace(kubectl: &Kubectl) -> Result<()> {
    kubectl.given(&["create", "-f", "-"], &machine("replaced"))?;
    let manifest = machine("replaced").replace("128Mi", "512Mi");
    has(&kubectl.given(&["replace", "-f", "-"], &manifest)?, "virtualmachine.kubevirt.io/replaced replaced")?;
    has(&kubectl.refused(&["replace", "-f", "-"], &machine("none"))?, "NotFound")?;
    has(&kubectl.given(&["replace", "--force", "-f", "-"], &manifest)?, "replaced replaced")
}

pub(super) fn patch(kubectl: &Kubectl) -> Result<()> {
    let patch =
        |kind: &str, body: &str| kubectl.ok(&["patch", "-n", "kubectl", "vm", "first", "--type", kind, "-p", body]);
    has(&patch("merge", r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#)?, "first patched")?;
    has(&patch("merge", r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#)?, "first patched (no change)")?;
    has(&patch("json", r#"[{"op":"test","path":"/kind","value":"VirtualMachine"}]"#)?, "first patched (no change)")?;
    has(
        &patch("json", r#"[{"op":"replace","path":"/spec/template/metadata/labels/a","value":"c"}]"#)?,
        "first patched",
    )?;
    let bad = r#"[{"op":"remove","path":"/spec/none"}]"#;
    kubectl.refused(&["patch", "-n", "kubectl", "vm", "first", "--type", "json", "-p", bad], "")?;
    let status = r#"{"status":{"ready":true}}"#;
    let patched = kubectl.ok(&[
        "patch",
        "-n",
        "kubectl",
        "vm",
        "first",
        "--subresource=status",
        "--type",
        "merge",
        "-p",
        status,
    ])?;
    has(&patched, "first patched")
}

pub(super) fn label(kubectl: &Kubectl) -> Result<()> {
    has(&kubectl.ok(&["label", "-n", "kubectl", "vm", "first", "color=red"])?, "first labeled")?;
    has(&kubectl.refused(&["label", "-n", "kubectl", "vm", "first", "color=blue"], "")?, "overwrite")?;
    has(&kubectl.ok(&["label", "-n", "kubectl", "vm", "first", "color=blue", "--overwrite"])?, "first labeled")?;
    has(
        &kubectl.ok(&["get", "-n", "kubectl", "vm", "-l", "color=blue", "-o", "name"])?,
        "virtualmachine.kubevirt.io/first",
    )?;
    has(&kubectl.ok(&["label", "-n", "kubectl", "vm", "first", "color-"])?, "first unlabeled")?;
    has(&kubectl.ok(&["annotate", "-n", "kubectl", "cm", "first", "note=any text"])?, "first annotated")?;
    let note = kubectl.ok(&["get", "-n", "kubectl", "cm", "first", "-o", "jsonpath={.metadata.annotations.note}"])?;
    ensure!(note == "any text", "{note}");
    has(&kubectl.ok(&["annotate", "-n", "kubectl", "cm", "first", "note-"])?, "first annotated")
}

pub(super) fn scale(kubectl: &Kubectl) -> Result<()> {
    let manifest = "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceReplicaSet
metadata: {name: scaled, namespace: kubectl}
spec:
  replicas: 1
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec: {domain: {devices: {}, memory: {guest: 128Mi}}}
";
    kubectl.given(&["create", "-f", "-"], manifest)?;
    has(&kubectl.ok(&["scale", "-n", "kubectl", "vmirs", "scaled", "--replicas=3"])?, "scaled scaled")?;
    let get = ["get", "-n", "kubectl", "vmirs", "scaled", "-o", "jsonpath={.spec.replicas} {.metadata.generation}"];
    has(&kubectl.ok(&get)?, "3 2")?;
    has(
        &kubectl.ok(&["scale", "-n", "kubectl", "vmirs", "scaled", "--current-replicas=3", "--replicas=1"])?,
        "scaled",
    )?;
    kubectl
        .refused(&["scale", "-n", "kubectl", "vmirs", "scaled", "--current-replicas=7", "--replicas=2"], "")
        .map(|_| ())
}

pub(super) fn conflict(kubectl: &Kubectl) -> Result<()> {
    let old = kubectl.ok(&["get", "-n", "kubectl", "cm", "first", "-o", "json"])?;
    kubectl.ok(&["annotate", "-n", "kubectl", "cm", "first", "moved=on"])?;
    let edited = old.replace(r#""k": "v""#, r#""k": "lost""#);
    has(&kubectl.refused(&["replace", "-f", "-"], &edited)?, "the object has been modified")
}

pub(super) fn strict(kubectl: &Kubectl) -> Result<()> {
    let wrong = machine("wrong").replace("runStrategy: Halted", "runStrategie: Halted");
    has(&kubectl.refused(&["create", "-f", "-"], &wrong)?, "runStrategie")?;
    let bad = machine("wrong").replace("runStrategy: Halted", "runStrategy: [1]");
    has(&kubectl.refused(&["create", "-f", "-"], &bad)?, "runStrategy")
}

pub(super) fn delete(kubectl: &Kubectl) -> Result<()> {
    for cascade in ["background", "foreground", "orphan"] {
        let name = format!("cascade-{cascade}");
        kubectl.given(&["create", "-f", "-"], &machine(&name))?;
        let option = format!("--cascade={cascade}");
        has(&kubectl.ok(&["delete", "-n", "kubectl", "vm", &name, &option, "--wait=false"])?, "deleted")?;
        let path = "jsonpath={.metadata.finalizers}";
        let left = kubectl.ok(&["get", "-n", "kubectl", "vm", &name, "--ignore-not-found", "-o", path])?;
        // Whether a collector of garbage runs is another matter: then it is gone.
        let finalizer = match cascade {
            "foreground" => "foregroundDeletion",
            other => other,
        };
        ensure!(left.is_empty() || left.contains(finalizer), "{cascade}: {left}");
        if !left.is_empty() {
            let free = r#"{"metadata":{"finalizers":null}}"#;
            kubectl.ok(&["patch", "-n", "kubectl", "vm", &name, "--type=merge", "-p", free])?;
        }
    }
    kubectl.given(&["create", "-f", "-"], &machine("now"))?;
    has(&kubectl.ok(&["delete", "-n", "kubectl", "vm", "now", "--grace-period=0", "--force"])?, "force deleted")?;
    has(&kubectl.refused(&["delete", "-n", "kubectl", "vm", "now"], "")?, "NotFound")?;
    kubectl.ok(&["delete", "-n", "kubectl", "vm", "now", "--ignore-not-found"]).map(|_| ())
}

pub(super) fn delete_many(kubectl: &Kubectl) -> Result<()> {
    for name in ["many-a", "many-b"] {
        kubectl.given(&["create", "-f", "-"], &machine(name).replace("set: machines", "set: many"))?;
    }
    let printed = kubectl.ok(&["delete", "-n", "kubectl", "vm", "-l", "set=many", "--timeout=300s"])?;
    has(&printed, "many-a")?;
    has(&printed, "many-b")?;
    kubectl.given(&["delete", "-f", "-"], &machine("second"))?;
    kubectl.ok(&["delete", "-n", "kubectl", "vm,vmirs", "--all", "--timeout=300s"])?;
    let left = kubectl.ok(&["get", "-n", "kubectl", "vm,vmirs", "-o", "name"])?;
    ensure!(left.trim().is_empty(), "left: {left}");
    Ok(())
}
