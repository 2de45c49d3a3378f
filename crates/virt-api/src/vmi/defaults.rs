//! What an instance is that does not say so.
//!
//! Ceilings of CPU and memory hotplug are left open: nobody plugs in either yet, and a ceiling costs memory in QEMU.

use api::devices::{
    CDRomTarget, Devices, Diag288Watchdog, DiskBus, I6300ESBWatchdog, InputBus, InputType, TrayState, WatchdogAction,
};
use api::domain::{CPU, CPUFeature, CPUFeaturePolicy, Memory};
use api::features::{FeatureHyperv, FeatureState};
use api::firmware::{Bootloader, EFI};
use api::quantity::Quantity;
use api::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use api::vmi_status::{CPUTopology, MemoryStatus, VirtualMachineInstancePhase};
use api::volumes::PullPolicy;
use virt_rules::attach;
use virt_rules::config::{ClusterConfig, Gate};

use crate::request::Requester;

/// The user that QEMU runs as.
const QEMU: i64 = 107;
const HOST_MODEL: &str = "host-model";
const HOST_PASSTHROUGH: &str = "host-passthrough";

/// Fills in a spec. Done twice it changes nothing.
pub(crate) fn fill_in_spec(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig, architecture: &str) {
    let own = config.default_architecture().unwrap_or(architecture);
    let architecture = text(&mut spec.architecture, own).clone();
    let machine = config.architecture(Some(&architecture)).machine_type;
    text(&mut spec.domain.machine.get_or_insert_default().type_, machine);
    fill_in_memory(spec);
    fill_in_cpu(spec, config, &architecture);
    fill_in_pull_policies(spec);
    spec.eviction_strategy.get_or_insert_with(|| config.eviction_strategy());
    attach::network(spec, config);
    attach::disks(spec);
    attach::input(spec);
    fill_in_devices(&mut spec.domain.devices, &architecture);
    fill_in_features(spec, &architecture);
    if architecture == "arm64" {
        let bootloader = &mut spec.domain.firmware.get_or_insert_default().bootloader;
        let bootloader = bootloader.get_or_insert_with(|| Bootloader { efi: Some(EFI::default()), bios: None });
        if let Some(efi) = &mut bootloader.efi {
            efi.secure_boot.get_or_insert(false);
        }
    }
}

/// Begins the status. What others than our programs sent is not looked at.
pub(crate) fn fill_in_status(vmi: &mut VirtualMachineInstance, config: &ClusterConfig, requester: Requester) {
    if requester != Requester::Component {
        vmi.status = None;
    }
    let domain = &vmi.spec.domain;
    let status = vmi.status.get_or_insert_default();
    status.phase.get_or_insert(VirtualMachineInstancePhase::Pending);
    if !config.enabled(Gate::Root) {
        status.runtime_user.get_or_insert(QEMU);
    }
    if let (Some(guest), None) = (domain.memory.as_ref().and_then(|memory| memory.guest.clone()), &status.memory) {
        status.memory = Some(MemoryStatus {
            guest_at_boot: Some(guest.clone()),
            guest_current: Some(guest.clone()),
            guest_requested: Some(guest),
            memory_overhead: None,
        });
    }
    if let (Some(CPU { sockets, cores, threads, .. }), None) = (&domain.cpu, &status.current_cpu_topology) {
        let topology = CPUTopology { sockets: *sockets, cores: *cores, threads: *threads };
        status.current_cpu_topology = Some(topology);
    }
}

/// The pod's request stands in for the guest's memory, then its limit, then one huge page.
fn fill_in_memory(spec: &mut VirtualMachineInstanceSpec) {
    let domain = &mut spec.domain;
    if domain.memory.as_ref().is_some_and(|memory| memory.guest.is_some()) {
        return;
    }
    let resources = domain.resources.as_ref();
    let request = resources.and_then(|resources| resources.requests.as_ref()?.get("memory"));
    let limit = resources.and_then(|resources| resources.limits.as_ref()?.get("memory"));
    let page = domain.memory.as_ref().and_then(|memory| memory.hugepages.as_ref()?.page_size.as_deref());
    let page = page.and_then(|page| page.parse::<Quantity>().ok());
    let found = request.into_iter().chain(limit).chain(page.as_ref()).find(|amount| !amount.amount().is_zero());
    if let Some(found) = found.cloned() {
        let memory: &mut Memory = domain.memory.get_or_insert_default();
        memory.guest = Some(found);
    }
}

/// CPUs of the pod become sockets if the guest has no topology of its own.
fn fill_in_cpu(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig, architecture: &str) {
    let domain = &mut spec.domain;
    let resources = domain.resources.as_ref();
    let request = resources.and_then(|resources| resources.requests.as_ref()?.get("cpu"));
    let limit = resources.and_then(|resources| resources.limits.as_ref()?.get("cpu"));
    let whole = limit.or(request).and_then(|amount| u32::try_from(amount.amount().units()).ok()).unwrap_or(1);
    let cpu = domain.cpu.get_or_insert_default();
    let open = [cpu.sockets, cpu.cores, cpu.threads].iter().all(|count| count.unwrap_or_default() == 0);
    for (count, otherwise) in
        [(&mut cpu.sockets, if open { whole.max(1) } else { 1 }), (&mut cpu.cores, 1), (&mut cpu.threads, 1)]
    {
        if count.unwrap_or_default() == 0 {
            *count = Some(otherwise);
        }
    }
    let model = if architecture == "arm64" { HOST_PASSTHROUGH } else { config.cpu_model().unwrap_or(HOST_MODEL) };
    text(&mut cpu.model, model);
}

/// A tag that moves is looked up at every start.
fn fill_in_pull_policies(spec: &mut VirtualMachineInstanceSpec) {
    for disk in spec.volumes.iter_mut().flatten().filter_map(|volume| volume.container_disk.as_mut()) {
        let unset = disk.image_pull_policy.as_ref().is_none_or(|policy| policy.as_str().is_empty());
        if unset {
            let moves = moves(&disk.image);
            disk.image_pull_policy = Some(if moves { PullPolicy::Always } else { PullPolicy::IfNotPresent });
        }
    }
}

/// Whether an image's reference may mean another image tomorrow: `:latest`, or no tag and no digest. A port of the
/// registry is no tag.
fn moves(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    name.ends_with(":latest") || !name.contains([':', '@'])
}

fn fill_in_devices(devices: &mut Devices, architecture: &str) {
    let bus = if architecture == "amd64" { DiskBus::Sata } else { DiskBus::Virtio };
    let fill = |slot: &mut Option<DiskBus>, bus: &DiskBus| {
        if slot.as_ref().is_none_or(|set| set.as_str().is_empty()) {
            *slot = Some(bus.clone());
        }
    };
    for disk in devices.disks.iter_mut().flatten() {
        if let Some(CDRomTarget { bus: slot, readonly, tray }) = &mut disk.cdrom {
            // No machine has a CD-ROM on virtio.
            fill(slot, if bus == DiskBus::Virtio { &DiskBus::Scsi } else { &bus });
            readonly.get_or_insert(true);
            tray.get_or_insert(TrayState::Closed);
        } else if let Some(lun) = &mut disk.lun {
            fill(&mut lun.bus, &bus);
        } else {
            fill(&mut disk.disk.get_or_insert_default().bus, &bus);
        }
    }
    for input in devices.inputs.iter_mut().flatten() {
        input.bus.get_or_insert(InputBus::Usb);
        if input.type_.as_str().is_empty() {
            input.type_ = InputType::Tablet;
        }
    }
    let Some(watchdog) = &mut devices.watchdog else { return };
    match architecture {
        "amd64" => {
            let device = watchdog.i6300esb.get_or_insert_with(I6300ESBWatchdog::default);
            device.action.get_or_insert(WatchdogAction::Reset);
        }
        "s390x" => {
            let device = watchdog.diag288.get_or_insert_with(Diag288Watchdog::default);
            device.action.get_or_insert(WatchdogAction::Reset);
        }
        _ => {}
    }
}

fn fill_in_features(spec: &mut VirtualMachineInstanceSpec, architecture: &str) {
    if architecture == "s390x" {
        // Its firmware has no ACPI.
        let acpi = spec.domain.features.get_or_insert_default().acpi.get_or_insert_default();
        acpi.enabled.get_or_insert(false);
    }
    let Some(hyperv) = spec.domain.features.as_mut().and_then(|features| features.hyperv.as_mut()) else { return };
    enlighten(hyperv);
    let nested = hyperv.evmcs.as_ref().is_some_and(|state| state.enabled != Some(false));
    let features = spec.domain.cpu.get_or_insert_default().features.get_or_insert_default();
    if nested && !features.iter().any(|feature| feature.name == "vmx") {
        features.push(CPUFeature { name: "vmx".to_owned(), policy: Some(CPUFeaturePolicy::Require) });
    }
    if features.is_empty() {
        spec.domain.cpu.get_or_insert_default().features = None;
    }
}

/// Switches on what other enlightenments need, unless it is switched off.
fn enlighten(hyperv: &mut FeatureHyperv) {
    let on = |state: Option<Option<bool>>| state.is_some_and(|enabled| enabled != Some(false));
    let state = |feature: &Option<FeatureState>| feature.as_ref().map(|feature| feature.enabled);
    let need = |feature: &mut Option<FeatureState>| {
        feature.get_or_insert_with(|| FeatureState { enabled: Some(true) });
    };
    if on(state(&hyperv.evmcs)) {
        need(&mut hyperv.vapic);
    }
    if on(hyperv.synictimer.as_ref().map(|timer| timer.enabled)) {
        need(&mut hyperv.synic);
    }
    let flush = on(hyperv.tlbflush.as_ref().map(|flush| flush.enabled));
    if on(state(&hyperv.synic)) || on(state(&hyperv.ipi)) || flush {
        need(&mut hyperv.vpindex);
    }
}

/// Sets a text that says nothing.
fn text<'a>(slot: &'a mut Option<String>, otherwise: &str) -> &'a String {
    let text = slot.get_or_insert_default();
    if text.is_empty() {
        otherwise.clone_into(text);
    }
    text
}

#[cfg(test)]
mod tests {
    use api::testing::{Optional, values};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn instances() -> BoxedStrategy<Value> {
        let schema = api::schema::structural::<VirtualMachineInstance>();
        let spec = values(&schema["properties"]["spec"], 5, Optional::Sometimes);
        spec.prop_map(|spec| json!({ "metadata": { "name": "v" }, "spec": spec })).boxed()
    }

    fn filled(domain: &Value, architecture: &str) -> Value {
        let vmi = json!({ "domain": domain, "volumes": [{ "name": "root", "containerDisk": { "image": "a:1" } }] });
        let mut spec: VirtualMachineInstanceSpec = serde_json::from_value(vmi).unwrap();
        fill_in_spec(&mut spec, &ClusterConfig::default(), architecture);
        serde_json::to_value(spec).unwrap()["domain"].clone()
    }

    #[test]
    fn other_architectures_have_other_defaults() {
        let bare = json!({ "devices": { "disks": [{ "name": "root" }] } });
        let arm = filled(&bare, "arm64");
        assert_eq!(arm["cpu"]["model"], "host-passthrough");
        assert_eq!(arm["machine"]["type"], "virt");
        assert_eq!(arm["firmware"]["bootloader"], json!({ "efi": { "secureBoot": false } }));
        assert_eq!(arm["devices"]["disks"][0]["disk"]["bus"], "virtio");
        let z = filled(&bare, "s390x");
        assert_eq!(z["features"]["acpi"], json!({ "enabled": false }));
        assert_eq!(z["machine"]["type"], "s390-ccw-virtio");
    }

    #[test]
    fn enlightenments_bring_what_they_need() {
        let hyperv = json!({ "synictimer": {}, "evmcs": {} });
        let domain = filled(&json!({ "devices": {}, "features": { "hyperv": hyperv } }), "amd64");
        let on = json!({ "enabled": true });
        let wanted = json!({ "synictimer": {}, "evmcs": {}, "synic": on, "vpindex": on, "vapic": on });
        assert_eq!(domain["features"]["hyperv"], wanted);
        assert_eq!(domain["cpu"]["features"], json!([{ "name": "vmx", "policy": "require" }]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: testkit::soak::cases(128), ..ProptestConfig::default() })]

        #[test]
        fn what_is_filled_in_is_filled_in_once(
            vmi in instances(),
            architecture in proptest::sample::select(vec!["amd64", "arm64", "s390x"]),
            requester in proptest::sample::select(vec![Requester::User, Requester::Component]),
        ) {
            let config = ClusterConfig::default();
            let mut once: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
            fill_in_spec(&mut once.spec, &config, architecture);
            fill_in_status(&mut once, &config, requester);
            let mut twice = once.clone();
            fill_in_spec(&mut twice.spec, &config, architecture);
            fill_in_status(&mut twice, &config, requester);
            prop_assert_eq!(once, twice);
        }
    }
}
