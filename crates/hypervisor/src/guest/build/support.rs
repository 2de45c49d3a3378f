//! Which fields are acted on at all, at the levels that several builders share.

use api::devices::Devices;
use api::domain::DomainSpec;
use api::vmi::VirtualMachineInstanceSpec;

use crate::refusal::Refusals;

/// Refuses what nothing acts on yet. Fields bound to `_` are acted on by a builder, or by someone above QEMU: the
/// scheduler, the network, probes.
pub(super) fn instance(refusals: &mut Refusals, spec: &VirtualMachineInstanceSpec) {
    let VirtualMachineInstanceSpec {
        domain: domain_spec,
        access_credentials,
        affinity: _,
        architecture,
        dns_config: _,
        dns_policy: _,
        eviction_strategy: _,
        hostname: _,
        liveness_probe: _,
        networks: _,
        node_selector: _,
        priority_class_name: _,
        readiness_probe: _,
        resource_claims,
        scheduler_name: _,
        service_account_name: _,
        start_strategy: _,
        subdomain: _,
        termination_grace_period_seconds: _,
        tolerations: _,
        topology_spread_constraints: _,
        utility_volumes,
        volumes: _,
    } = spec;
    refusals.unsupported("spec.accessCredentials", access_credentials.iter().flatten().next().is_some());
    refusals.unsupported("spec.resourceClaims", resource_claims.iter().flatten().next().is_some());
    refusals.unsupported("spec.utilityVolumes", utility_volumes.iter().flatten().next().is_some());
    if let Some(architecture) = architecture.as_deref().filter(|name| !matches!(*name, "" | "amd64")) {
        refusals.refuse("spec.architecture", format!("{architecture:?} is not supported; only amd64 is"));
    }
    domain(refusals, domain_spec);
    devices(refusals, &domain_spec.devices);
}

fn domain(refusals: &mut Refusals, domain: &DomainSpec) {
    let DomainSpec {
        devices: _,
        chassis: _,
        clock: _,
        cpu: _,
        features: _,
        firmware: _,
        io_threads,
        io_threads_policy,
        launch_security,
        machine: _,
        memory: _,
        reboot_policy: _,
        resources: _,
    } = domain;
    refusals.unsupported("spec.domain.ioThreads", io_threads.is_some());
    refusals.unsupported("spec.domain.ioThreadsPolicy", io_threads_policy.is_some());
    refusals.unsupported("spec.domain.launchSecurity", launch_security.is_some());
}

fn devices(refusals: &mut Refusals, devices: &Devices) {
    let Devices {
        autoattach_graphics_device: _,
        autoattach_input_device: _,
        autoattach_mem_balloon: _,
        autoattach_pod_interface: _,
        autoattach_serial_console: _,
        autoattach_vsock,
        block_multi_queue: _,
        client_passthrough,
        disable_hotplug: _,
        disks: _,
        downward_metrics,
        filesystems,
        gpus,
        host_devices,
        inputs: _,
        interfaces: _,
        log_serial_console: _,
        network_interface_multiqueue,
        panic_devices: _,
        rng: _,
        sound,
        tpm,
        use_virtio_transitional,
        video: _,
        watchdog: _,
    } = devices;
    refusals.unsupported("spec.domain.devices.autoattachVSOCK", *autoattach_vsock == Some(true));
    refusals.unsupported("spec.domain.devices.clientPassthrough", client_passthrough.is_some());
    refusals.unsupported("spec.domain.devices.downwardMetrics", downward_metrics.is_some());
    refusals.unsupported("spec.domain.devices.networkInterfaceMultiqueue", *network_interface_multiqueue == Some(true));
    refusals.unsupported("spec.domain.devices.sound", sound.is_some());
    refusals.unsupported("spec.domain.devices.tpm", tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false)));
    refusals.unsupported("spec.domain.devices.useVirtioTransitional", *use_virtio_transitional == Some(true));
    for (name, count) in [
        ("filesystems", filesystems.as_ref().map_or(0, Vec::len)),
        ("gpus", gpus.as_ref().map_or(0, Vec::len)),
        ("hostDevices", host_devices.as_ref().map_or(0, Vec::len)),
    ] {
        for index in 0..count {
            refusals.unsupported(&format!("spec.domain.devices.{name}[{index}]"), true);
        }
    }
}
