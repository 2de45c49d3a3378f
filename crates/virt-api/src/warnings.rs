//! Input that works and will not for ever.

use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;

const OLD_VERSION: &str = "kubevirt.io/v1alpha3";

/// What is on its way out in an instance, or in a template below `prefix`.
pub(crate) fn instance(vmi: &VirtualMachineInstance, prefix: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    version(vmi.api_version.as_deref(), &mut warnings);
    let machine = vmi.spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref()).unwrap_or_default();
    if machine == "pc" || (machine.starts_with("pc-") && !machine.starts_with("pc-q35")) {
        warnings.push(format!("{prefix}spec.domain.machine.type: {machine} is deprecated; use q35"));
    }
    let preset = vmi.metadata.annotations.iter().flatten().find(|(key, _)| key.contains("virtualmachinepreset"));
    if let Some((key, _)) = preset {
        let text = "presets are deprecated and not applied here; use a VirtualMachinePreference";
        warnings.push(format!("{prefix}metadata.annotations[{key}]: {text}"));
    }
    warnings
}

/// What is on its way out in a VM, its template included.
pub(crate) fn machine(vm: &VirtualMachine, template: &VirtualMachineInstance) -> Vec<String> {
    let mut warnings = Vec::new();
    version(vm.api_version.as_deref(), &mut warnings);
    if vm.spec.running.is_some() {
        warnings.push("spec.running: is deprecated; use spec.runStrategy".to_owned());
    }
    warnings.extend(instance(template, "spec.template."));
    warnings
}

fn version(version: Option<&str>, warnings: &mut Vec<String>) {
    if version == Some(OLD_VERSION) {
        warnings.push(format!("apiVersion: {OLD_VERSION} is deprecated; use kubevirt.io/v1"));
    }
}
