//! CPU of the compute container: what the guest's vCPUs ask of the node.

use api::quantity::{Amount, Quantity};
use api::vmi::VirtualMachineInstance;

use super::{Input, RenderError};

/// More vCPUs than any QEMU gives a guest; beyond, sums of memory would leave the range of quantities.
const MOST: u64 = 8192;

/// What the guest's CPUs ask for; `None` leaves a side unset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cpu {
    pub(super) request: Option<Amount>,
    pub(super) limit: Option<Amount>,
}

/// The vCPUs of a guest: its topology; else whole CPUs of its limit or request; at least one.
pub(super) fn vcpus(vmi: &VirtualMachineInstance) -> u64 {
    topology(vmi).unwrap_or_else(|| {
        let amount = own(vmi, Side::Limit).or_else(|| own(vmi, Side::Request)).map_or(1, Amount::units);
        u64::try_from(amount).unwrap_or(1).max(1)
    })
}

/// Whether each vCPU has a CPU of its own.
pub(super) fn is_dedicated(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true))
}

/// Requests and limits of CPU.
///
/// What the instance asks for itself stands. Else the request is its vCPUs by the cluster's allocation ratio, and there is
/// a limit of as many CPUs as vCPUs where the namespace wants one. Dedicated CPUs are both requested and the limit.
pub(super) fn cpu(input: &Input<'_>) -> Result<Cpu, RenderError> {
    let vmi = input.vmi;
    if vcpus(vmi) > MOST {
        let problem = format!("asks for {} vCPUs; the limit is {MOST}", vcpus(vmi));
        return Err(RenderError::invalid("spec.domain.cpu", problem));
    }
    let (request, limit) = (own(vmi, Side::Request), own(vmi, Side::Limit));
    if is_dedicated(vmi) {
        return dedicated(vmi, request, limit);
    }
    let all = Amount::from(i64::try_from(vcpus(vmi)).unwrap_or(i64::MAX));
    let wants_limit = input.config.limits_cpu(&input.namespace.labels) || input.namespace.quota_on_cpu_limits;
    let limit = limit.or_else(|| wants_limit.then(|| request.map_or(all, |request| request.max(all))));
    let request = request.unwrap_or_else(|| {
        let computed = || share(vcpus(vmi), input.config.cpu_allocation_ratio());
        let wanted = input.config.cpu_request().unwrap_or_else(computed);
        // A computed request gives way to a limit that somebody chose.
        limit.map_or(wanted, |limit| wanted.min(limit))
    });
    Ok(Cpu { request: Some(request), limit })
}

fn dedicated(vmi: &VirtualMachineInstance, request: Option<Amount>, limit: Option<Amount>) -> Result<Cpu, RenderError> {
    let count = match (topology(vmi), limit.or(request)) {
        (Some(count), _) => Amount::from(i64::try_from(count).unwrap_or(i64::MAX)),
        (None, Some(asked)) => asked,
        (None, None) => Amount::from(1),
    };
    let path = "spec.domain.cpu.dedicatedCpuPlacement";
    if [request, limit].into_iter().flatten().any(|asked| asked != count) {
        return Err(RenderError::invalid(path, "needs a CPU request and limit, if any, equal to the guest's vCPUs"));
    }
    if count.milli_units() % 1000 != 0 {
        return Err(RenderError::invalid(path, "needs a whole number of CPUs"));
    }
    let isolated = vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true));
    let count = if isolated { count + Amount::from(1) } else { count };
    Ok(Cpu { request: Some(count), limit: Some(count) })
}

#[derive(Clone, Copy)]
enum Side {
    Request,
    Limit,
}

fn own(vmi: &VirtualMachineInstance, side: Side) -> Option<Amount> {
    let resources = vmi.spec.domain.resources.as_ref()?;
    let list = match side {
        Side::Request => resources.requests.as_ref()?,
        Side::Limit => resources.limits.as_ref()?,
    };
    list.get("cpu").map(Quantity::amount)
}

/// Sockets by cores by threads, where any is set; a zero is as if unset.
fn topology(vmi: &VirtualMachineInstance) -> Option<u64> {
    let cpu = vmi.spec.domain.cpu.as_ref()?;
    let counts = [cpu.sockets, cpu.cores, cpu.threads].map(|count| count.filter(|count| *count > 0));
    counts
        .iter()
        .any(Option::is_some)
        .then(|| counts.iter().flatten().fold(1_u64, |product, count| product.saturating_mul(u64::from(*count))))
}

/// vCPUs over the ratio, in whole thousandths, rounded up.
fn share(vcpus: u64, ratio: u32) -> Amount {
    let milli = vcpus.saturating_mul(1000).div_ceil(u64::from(ratio.max(1)));
    Amount::milli(i64::try_from(milli).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::{Value, json};

    fn asked(bench: &Bench, domain: &Value) -> (String, Option<String>) {
        let vmi = vmi(json!({ "domain": domain }));
        let cpu = cpu(&bench.input(&vmi)).unwrap();
        (cpu.request.unwrap().to_string(), cpu.limit.map(|limit| limit.to_string()))
    }

    #[test]
    fn the_request_follows_from_the_vcpus() {
        let bench = Bench::default();
        assert_eq!(asked(&bench, &json!({})), ("100m".into(), None));
        assert_eq!(asked(&bench, &json!({ "cpu": { "cores": 4, "sockets": 3 } })), ("1200m".into(), None));
        let bench = Bench::configured(&json!({ "developerConfiguration": { "cpuAllocationRatio": 3 } }));
        assert_eq!(asked(&bench, &json!({})).0, "334m");
    }

    #[test]
    fn the_cluster_may_set_a_request_and_the_instance_its_own() {
        let bench = Bench::configured(&json!({ "cpuRequest": "250m" }));
        assert_eq!(asked(&bench, &json!({ "cpu": { "cores": 4 } })).0, "250m");
        assert_eq!(asked(&bench, &json!({ "resources": { "requests": { "cpu": "2" } } })).0, "2");
        assert_eq!(
            asked(&bench, &json!({ "resources": { "limits": { "cpu": "100m" } } })),
            ("100m".into(), Some("100m".into()))
        );
    }

    #[test]
    fn a_namespace_may_want_limits() {
        let mut bench = Bench::default();
        bench.namespace.quota_on_cpu_limits = true;
        assert_eq!(asked(&bench, &json!({ "cpu": { "cores": 2 } })), ("200m".into(), Some("2".into())));
        assert_eq!(asked(&bench, &json!({ "resources": { "requests": { "cpu": "3" } } })).1, Some("3".into()));
    }

    #[test]
    fn dedicated_cpus_are_requested_whole() {
        let bench = Bench::default();
        let pinned = json!({ "cpu": { "cores": 2, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true } });
        assert_eq!(asked(&bench, &pinned), ("3".into(), Some("3".into())));
        let torn = json!({ "domain": { "cpu": { "dedicatedCpuPlacement": true }, "resources": { "limits": { "cpu": "1500m" } } } });
        assert!(cpu(&bench.input(&vmi(torn))).is_err());
    }
}
