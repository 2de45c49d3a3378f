//! What virtctl makes or changes through plain objects: Services, manifests, credentials, the configuration.

use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use api::clone::{VirtualMachineClone, VirtualMachineClonePhase};
use api::vm::VirtualMachine;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;

use super::Virtctl;

pub(crate) fn expand(virtctl: &Virtctl<'_>) -> Result<()> {
    let said = virtctl.ok(&["expand", "--vm", "v", "--output", "json"])?;
    let vm: Value = serde_json::from_str(&said)?;
    ensure!(vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "256Mi", "{vm}");
    Ok(())
}

/// The same of a manifest that the server has never seen.
pub(crate) fn expand_file(virtctl: &Virtctl<'_>) -> Result<()> {
    let file = virtctl.0.data().join("given.json");
    let manifest = super::guests::bare("given", "Halted");
    std::fs::write(&file, manifest.to_string())?;
    let said = virtctl.ok(&["expand", "--file", &file.display().to_string()])?;
    ensure!(said.contains("guest: 256Mi") && said.contains("name: given"), "{said}");
    ensure!(virtctl.0.get::<VirtualMachine>("given")?.is_none(), "it was stored");
    let mut other = manifest;
    other["spec"]["instancetype"] = serde_json::json!({ "name": "none" });
    std::fs::write(&file, other.to_string())?;
    virtctl.refused(&["expand", "--file", &file.display().to_string()], "error expanding VirtualMachine - given")
}

pub(crate) fn permitted_devices(virtctl: &Virtctl<'_>) -> Result<()> {
    virtctl.refused(&["permitted-devices"], "no KubeVirt resource in \"default\" namespace")?;
    let said = virtctl.ok(&["permitted-devices", "--namespace", "kubevirt"])?;
    ensure!(said.contains("Permitted Devices:") && said.contains("Host Devices:"), "{said}");
    Ok(())
}

/// The Service has the selector that leads to this VM's pod, and a refusal is the API server's own.
pub(crate) fn expose(virtctl: &Virtctl<'_>) -> Result<()> {
    let said = virtctl.ok(&["expose", "vm", "v", "--name", "shell", "--port", "22022", "--target-port", "22"])?;
    ensure!(said.trim() == "Service shell successfully created for vm v", "{said}");
    let service = virtctl.0.get::<Service>("shell")?.and_then(|service| service.spec).context("no Service")?;
    let selector = service.selector.unwrap_or_default();
    ensure!(selector.get("vmi.kubevirt.io/id").map(String::as_str) == Some("v"), "{selector:?}");
    let ports = service.ports.unwrap_or_default();
    ensure!(ports.len() == 1 && ports[0].port == 22022, "{ports:?}");
    ensure!(service.type_.as_deref() == Some("ClusterIP"), "{:?}", service.type_);
    virtctl.refused(&["expose", "vm", "v", "--name", "shell", "--port", "22"], "services \"shell\" already exists")?;
    virtctl.refused(&["expose", "vm", "v", "--name", "none"], "couldn't find port via --port flag or introspection")?;
    virtctl.refused(&["expose", "vm", "nobody", "--name", "none", "--port", "22"], "\"nobody\" not found")
}

/// Hands what virtctl printed to the server.
fn apply(virtctl: &Virtctl<'_>, manifest: &str) -> Result<()> {
    let mut orlop = virtctl.0.orlop(&["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    orlop.stdin.take().context("no standard input")?.write_all(manifest.as_bytes())?;
    ensure!(orlop.wait()?.success(), "refused:\n{manifest}");
    Ok(())
}

pub(crate) fn create_instancetype(virtctl: &Virtctl<'_>) -> Result<()> {
    let small = ["create", "instancetype", "--namespaced", "--name", "small", "--cpu", "1", "--memory", "192Mi"];
    apply(virtctl, &virtctl.ok(&small)?)
}

pub(crate) fn create_preference(virtctl: &Virtctl<'_>) -> Result<()> {
    let plain = ["create", "preference", "--namespaced", "--name", "plain", "--machine-type", "q35"];
    apply(virtctl, &virtctl.ok(&plain)?)
}

/// A VM of both, as virtctl writes it: it runs.
pub(crate) fn create_vm(virtctl: &Virtctl<'_>) -> Result<()> {
    let disk = format!("src:{}", e2e::guest::image("demo")?);
    let made = [
        "create",
        "vm",
        "--name",
        "made",
        "--run-strategy",
        "Manual",
        "--instancetype",
        "virtualmachineinstancetype/small",
        "--preference",
        "virtualmachinepreference/plain",
        "--volume-containerdisk",
        &disk,
    ];
    apply(virtctl, &virtctl.ok(&made)?)?;
    virtctl.0.status("made", "Stopped")?;
    virtctl.ok(&["start", "made"])?;
    let vmi = virtctl.0.phase("made", Phase::Running, None)?;
    let memory = vmi.spec.domain.memory.and_then(|memory| memory.guest).map(|guest| guest.to_string());
    ensure!(memory.as_deref() == Some("192Mi"), "{memory:?}");
    virtctl.ok(&["stop", "made", "--force", "--grace-period", "0"])?;
    virtctl.0.status("made", "Stopped").map(drop)
}

pub(crate) fn create_clone(virtctl: &Virtctl<'_>) -> Result<()> {
    apply(
        virtctl,
        &virtctl.ok(&["create", "clone", "--name", "twice", "--source-name", "made", "--target-name", "copy"])?,
    )?;
    let succeeded = |clone: Option<&VirtualMachineClone>| {
        let phase = clone.and_then(|clone| clone.status.as_ref()?.phase.as_ref());
        phase == Some(&VirtualMachineClonePhase::Succeeded)
    };
    virtctl.0.wait::<VirtualMachineClone>("twice", "cloned", succeeded)?;
    let copy = virtctl.0.get::<VirtualMachine>("copy")?.context("no copy")?;
    ensure!(copy.spec.instancetype.and_then(|matcher| matcher.name).as_deref() == Some("small"));
    Ok(())
}

/// Credentials that an agent would carry into a running guest are refused by their field; what virtctl finds out for itself, it
/// says itself.
pub(crate) fn credentials(virtctl: &Virtctl<'_>) -> Result<()> {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFakeKeyForTheTest someone@example.org";
    let add = ["credentials", "add-ssh-key", "--user", "root", "--value", key, "v"];
    virtctl.refused(&add, "virtual machine v is running")?;
    let refusal = "spec.template.spec.accessCredentials: is not supported yet; put keys and passwords into the user data of a \
                   cloud-init volume";
    virtctl.refused(&[&add[..], &["--force"]].concat(), refusal)?;
    let said = virtctl.ok(&["credentials", "remove-ssh-key", "--user", "root", "--value", key, "v"])?;
    ensure!(said.contains("No secrets associated with user root"), "{said}");
    let password = ["credentials", "set-password", "--user", "root", "--password", "secret", "v"];
    virtctl.refused(&password, "no secrets assigned to UserPassword AccessCredentials")
}

pub(crate) fn adm(virtctl: &Virtctl<'_>) -> Result<()> {
    let verbosity = |words: &[&str]| virtctl.ok(&[&["adm", "log-verbosity"], words].concat());
    ensure!(verbosity(&["--virt-handler"])?.trim() == "virt-handler=2");
    ensure!(verbosity(&["--virt-handler=5"])?.contains("successfully set/reset the log verbosity"));
    ensure!(verbosity(&["--all"])?.contains("virt-handler=5\n"));
    verbosity(&["--reset"])?;
    ensure!(verbosity(&["--virt-handler"])?.trim() == "virt-handler=2");
    Ok(())
}
