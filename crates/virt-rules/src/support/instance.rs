//! The instance itself: its annotations, how it is placed, started and watched.

use api::names::annotation;
use api::vmi::{Probe, StartStrategy, VirtualMachineInstance, VirtualMachineInstanceSpec};

use super::sheet::Sheet;
use super::{domain, interfaces, room, sources, volumes};

/// Data for Ignition, which KubeVirt puts on a disk.
const IGNITION: &str = "kubevirt.io/ignitiondata";
/// What launchers run.
const ARCHITECTURES: &[&str] = &["amd64"];

pub(super) fn place(sheet: &mut Sheet<'_>, vmi: &VirtualMachineInstance) {
    let VirtualMachineInstance { api_version: _, kind: _, metadata, spec: spec_of_it, status: _ } = vmi;
    let annotations = metadata.annotations.as_ref();
    for (name, instead) in [
        (annotation::HOOK_SIDECARS, "remove it; a guest is defined by its spec only"),
        (IGNITION, "use a cloudInitConfigDrive or cloudInitNoCloud volume"),
    ] {
        let asks = annotations.and_then(|annotations| annotations.get(name)).is_some_and(|data| !data.is_empty());
        sheet.unsupported(&format!("metadata.annotations[{name}]"), instead, asks);
    }
    sheet.part("spec", Some(spec_of_it), spec);
}

fn spec(sheet: &mut Sheet<'_>, spec: &VirtualMachineInstanceSpec) {
    let VirtualMachineInstanceSpec {
        domain: domain_spec,
        access_credentials,
        affinity,
        architecture,
        dns_config,
        dns_policy,
        eviction_strategy,
        hostname,
        liveness_probe,
        networks,
        node_selector,
        priority_class_name,
        readiness_probe,
        resource_claims,
        scheduler_name,
        service_account_name,
        start_strategy,
        subdomain,
        termination_grace_period_seconds,
        tolerations,
        topology_spread_constraints,
        utility_volumes,
        volumes: volumes_of_it,
    } = spec;
    let credentials = "put keys and passwords into the user data of a cloud-init volume";
    sheet.unsupported("accessCredentials", credentials, filled(access_credentials.as_ref()));
    sheet.works("affinity", affinity);
    sheet.words("architecture", architecture.as_deref(), ARCHITECTURES);
    sheet.works("dnsConfig", dns_config);
    sheet.works("dnsPolicy", dns_policy);
    sheet.part("domain", Some(domain_spec), domain::place);
    sheet.works("evictionStrategy", eviction_strategy);
    sheet.works("hostname", hostname);
    sheet.part("livenessProbe", liveness_probe.as_ref(), probe);
    sheet.each("networks", networks.as_ref(), interfaces::network);
    sheet.works("nodeSelector", node_selector);
    sheet.works("priorityClassName", priority_class_name);
    sheet.part("readinessProbe", readiness_probe.as_ref(), probe);
    sheet.unsupported("resourceClaims", super::devices::NO_CLAIMS, filled(resource_claims.as_ref()));
    sheet.works("schedulerName", scheduler_name);
    sheet.works("serviceAccountName", service_account_name);
    sheet.words("startStrategy", start_strategy.as_ref().map(StartStrategy::as_str), StartStrategy::KNOWN);
    sheet.works("subdomain", subdomain);
    sheet.works("terminationGracePeriodSeconds", termination_grace_period_seconds);
    sheet.works("tolerations", tolerations);
    sheet.works("topologySpreadConstraints", topology_spread_constraints);
    sheet.unsupported("utilityVolumes", "remove it", filled(utility_volumes.as_ref()));
    sheet.each("volumes", volumes_of_it.as_ref(), volumes::place);
    room::check(sheet, spec);
    sources::check(sheet, spec);
}

fn probe(sheet: &mut Sheet<'_>, probe: &Probe) {
    let Probe {
        exec,
        failure_threshold,
        guest_agent_ping,
        http_get,
        initial_delay_seconds,
        period_seconds,
        success_threshold,
        tcp_socket,
        timeout_seconds,
    } = probe;
    sheet.works("exec", exec);
    sheet.works("failureThreshold", failure_threshold);
    sheet.works("guestAgentPing", guest_agent_ping);
    sheet.works("httpGet", http_get);
    sheet.works("initialDelaySeconds", initial_delay_seconds);
    sheet.works("periodSeconds", period_seconds);
    sheet.works("successThreshold", success_threshold);
    sheet.works("tcpSocket", tcp_socket);
    sheet.works("timeoutSeconds", timeout_seconds);
}

/// Whether a list has anything in it.
pub(super) fn filled<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}
