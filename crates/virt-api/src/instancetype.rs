//! Instancetypes and preferences, namespaced and of the cluster.

use api::instancetype::{VirtualMachineInstancetype, VirtualMachineInstancetypeSpec};
use api::preference::{PreferredCPUTopology, SpreadAcross, VirtualMachinePreference, VirtualMachinePreferenceSpec};
use api::quantity::{Amount, Quantity};

use crate::denial::Problems;
use crate::object;
use crate::request::{Operation, Request, Response};

/// Threads of a core: no CPU has more.
const THREADS: u32 = 2;

pub(crate) fn admit(request: &Request<'_>) -> Response {
    if request.operation == Operation::Delete {
        return Response::allowed();
    }
    // Both scopes have the same parts.
    let sent: VirtualMachineInstancetype = match object::read(request.object) {
        Ok(instancetype) => instancetype,
        Err(denial) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    check(&sent.spec, &mut problems);
    let mut warnings = Vec::new();
    if sent.spec.launch_security.is_some() {
        warnings.push("spec.launchSecurity: is deprecated; use preferredLaunchSecurity of a preference".to_owned());
    }
    object::decided(request.object, &sent, &sent, problems).with_warnings(warnings)
}

fn check(spec: &VirtualMachineInstancetypeSpec, problems: &mut Problems) {
    if spec.cpu.guest == 0 {
        problems.invalid("spec.cpu.guest", "must be 1 or more");
    }
    if spec.cpu.isolate_emulator_thread == Some(true) && spec.cpu.dedicated_cpu_placement != Some(true) {
        problems.invalid("spec.cpu.isolateEmulatorThread", "needs spec.cpu.dedicatedCPUPlacement; set it to true");
    }
    let memory = &spec.memory;
    let guest = memory.guest.amount();
    if guest <= Amount::default() {
        problems.invalid("spec.memory.guest", "must be greater than 0; use an amount such as 4Gi");
    }
    let percent = memory.overcommit_percent.unwrap_or_default();
    if percent > 100 {
        problems.invalid("spec.memory.overcommitPercent", format!("{percent} is not between 0 and 100"));
    }
    if memory.max_guest.as_ref().is_some_and(|most| most.amount() < guest) {
        problems.invalid("spec.memory.maxGuest", "is less than spec.memory.guest; raise it");
    }
    let Some(hugepages) = &memory.hugepages else { return };
    if percent > 0 {
        let message = "huge pages cannot be overcommitted; remove this field or spec.memory.hugepages";
        problems.invalid("spec.memory.overcommitPercent", message);
    }
    let page = hugepages.page_size.as_deref().unwrap_or_default();
    match page.parse::<Quantity>().map(|page| page.amount().units()) {
        Ok(size) if size > 0 && guest.units() % size == 0 => {}
        Ok(size) if size > 0 => {
            problems
                .invalid("spec.memory.guest", format!("is not a multiple of spec.memory.hugepages.pageSize, {page}"));
        }
        Ok(_) | Err(_) => {
            let message = format!("{page:?} is not a valid page size; use one that the nodes have, such as 2Mi");
            problems.invalid("spec.memory.hugepages.pageSize", message);
        }
    }
}

pub(crate) fn admit_preference(request: &Request<'_>) -> Response {
    if request.operation == Operation::Delete {
        return Response::allowed();
    }
    let sent: VirtualMachinePreference = match object::read(request.object) {
        Ok(preference) => preference,
        Err(denial) => return Response::denied(denial),
    };
    let mut problems = Problems::default();
    check_preference(&sent.spec, &mut problems);
    let warnings = deprecations(&sent.spec);
    object::decided(request.object, &sent, &sent, problems).with_warnings(warnings)
}

fn check_preference(spec: &VirtualMachinePreferenceSpec, problems: &mut Problems) {
    let cpu = spec.cpu.as_ref();
    let topology = cpu.and_then(|cpu| cpu.preferred_cpu_topology.as_ref());
    if let Some(PreferredCPUTopology::Other(other)) = topology {
        let known = PreferredCPUTopology::KNOWN.join(", ");
        problems.unsupported("spec.cpu.preferredCPUTopology", format!("{other:?} is unknown; use one of {known}"));
    }
    let options = cpu.and_then(|cpu| cpu.spread_options.as_ref());
    let across = options.and_then(|options| options.across.as_ref());
    if let Some(SpreadAcross::Other(other)) = across {
        let known = SpreadAcross::KNOWN.join(", ");
        problems.unsupported("spec.cpu.spreadOptions.across", format!("{other:?} is unknown; use one of {known}"));
    }
    let ratio = options.and_then(|options| options.ratio);
    if ratio == Some(0) {
        problems.invalid("spec.cpu.spreadOptions.ratio", "must be 1 or more");
    }
    let old = spec.prefer_spread_socket_to_core_ratio.filter(|ratio| *ratio > 0);
    let spread = matches!(topology, Some(PreferredCPUTopology::Spread | PreferredCPUTopology::PreferSpread));
    if spread && across == Some(&SpreadAcross::CoresThreads) && ratio.or(old).unwrap_or(THREADS) != THREADS {
        let message = format!("a core must have {THREADS} threads; use {THREADS}");
        problems.invalid("spec.cpu.spreadOptions.ratio", message);
    }
    let firmware = spec.firmware.as_ref();
    let bios = firmware.is_some_and(|firmware| firmware.preferred_use_bios == Some(true));
    let efi =
        firmware.is_some_and(|firmware| firmware.preferred_efi.is_some() || firmware.preferred_use_efi == Some(true));
    if bios && efi {
        problems.invalid("spec.firmware.preferredUseBios", "BIOS and EFI are mutually exclusive; prefer one");
    }
}

fn deprecations(spec: &VirtualMachinePreferenceSpec) -> Vec<String> {
    let topology = spec.cpu.as_ref().and_then(|cpu| cpu.preferred_cpu_topology.as_ref());
    let new = match topology {
        Some(PreferredCPUTopology::PreferSockets) => Some("sockets"),
        Some(PreferredCPUTopology::PreferCores) => Some("cores"),
        Some(PreferredCPUTopology::PreferThreads) => Some("threads"),
        Some(PreferredCPUTopology::PreferSpread) => Some("spread"),
        Some(PreferredCPUTopology::PreferAny) => Some("any"),
        Some(_) | None => None,
    };
    let mut warnings = Vec::new();
    if let (Some(old), Some(new)) = (topology, new) {
        warnings.push(format!("spec.cpu.preferredCPUTopology: {old} is deprecated; use {new}"));
    }
    let firmware = spec.firmware.as_ref();
    for (field, set, instead) in [
        ("preferSpreadSocketToCoreRatio", spec.prefer_spread_socket_to_core_ratio.is_some(), "cpu.spreadOptions.ratio"),
        (
            "firmware.preferredUseEfi",
            firmware.is_some_and(|firmware| firmware.preferred_use_efi.is_some()),
            "firmware.preferredEfi",
        ),
        (
            "firmware.preferredUseSecureBoot",
            firmware.is_some_and(|firmware| firmware.preferred_use_secure_boot.is_some()),
            "firmware.preferredEfi",
        ),
    ] {
        if set {
            warnings.push(format!("spec.{field}: is deprecated; use spec.{instead}"));
        }
    }
    warnings
}
