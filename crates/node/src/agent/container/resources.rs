//! What a container may use, as a kubelet computes it.

use api::quantity::Amount;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::agent::view;
use crate::runtime::spec::Resources;

const PERIOD: u64 = 100_000;
/// The kernel takes no fewer and no more.
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;
/// The kernel takes no smaller one.
const SMALLEST_QUOTA: i64 = 1000;

fn amount(container: &Container, limits: bool, name: &str) -> Option<Amount> {
    let resources = container.resources.as_ref()?;
    let list = if limits { resources.limits.as_ref() } else { resources.requests.as_ref() };
    list?.get(name)?.0.parse().ok()
}

fn milli_cpu(container: &Container, limits: bool) -> Option<u64> {
    amount(container, limits, "cpu").and_then(|cpu| u64::try_from(cpu.milli_units()).ok()).filter(|cpu| *cpu > 0)
}

fn memory(container: &Container, limits: bool) -> Option<u64> {
    amount(container, limits, "memory")
        .and_then(|memory| u64::try_from(memory.units()).ok())
        .filter(|memory| *memory > 0)
}

fn cgroup(requested: u64, cpu_limit: Option<u64>, memory: Option<u64>) -> Resources {
    let shares = requested.saturating_mul(1024) / 1000;
    let quota = cpu_limit.map(|milli| i64::try_from(milli.saturating_mul(PERIOD) / 1000).unwrap_or(i64::MAX));
    Resources {
        cpu_shares: Some(shares.clamp(*SHARES.start(), *SHARES.end())),
        cpu_quota_us: quota.map(|quota| quota.max(SMALLEST_QUOTA)),
        cpu_period_us: quota.map(|_| PERIOD),
        memory,
        pids: None,
    }
}

/// Limits of one container.
pub(in crate::agent) fn of_container(container: &Container) -> Resources {
    let requested = milli_cpu(container, false).or_else(|| milli_cpu(container, true)).unwrap_or(0);
    cgroup(requested, milli_cpu(container, true), memory(container, true))
}

/// Limits of the whole pod: what its containers may use together, where each of them is limited.
pub(in crate::agent) fn of_pod(spec: &PodSpec) -> Resources {
    let sidecars: Vec<&Container> = view::init_containers(spec).filter(|one| view::is_sidecar(one)).collect();
    let ordinary: Vec<&Container> = view::init_containers(spec).filter(|one| !view::is_sidecar(one)).collect();
    let most = |of: &dyn Fn(&Container) -> Option<u64>, all: bool| -> Option<u64> {
        let sum = |containers: &[&Container]| -> Option<u64> {
            containers.iter().try_fold(0_u64, |sum, one| match of(one) {
                Some(value) => Some(sum.saturating_add(value)),
                None if all => None,
                None => Some(sum),
            })
        };
        let together: Vec<&Container> = spec.containers.iter().chain(sidecars.iter().copied()).collect();
        let running = sum(&together)?;
        let beside = sum(&sidecars)?;
        ordinary.iter().try_fold(running, |highest, one| match of(one) {
            Some(value) => Some(highest.max(beside.saturating_add(value))),
            None if all => None,
            None => Some(highest),
        })
    };
    let requested = |one: &Container| milli_cpu(one, false).or_else(|| milli_cpu(one, true));
    cgroup(
        most(&requested, false).unwrap_or(0),
        most(&|one| milli_cpu(one, true), true),
        most(&|one| memory(one, true), true),
    )
}

/// How readily a container is ended when memory is short: last of all where all is guaranteed, first where nothing was asked for.
pub(in crate::agent) fn oom_score(pod: &Pod, container: &Container, node_memory: u64) -> i32 {
    let class = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
    match class {
        Some("Guaranteed") => -997,
        Some("BestEffort") => 1000,
        _ => {
            let requested = u128::from(memory(container, false).or_else(|| memory(container, true)).unwrap_or(0));
            let share = requested.saturating_mul(1000) / u128::from(node_memory.max(1));
            let score = 1000_i32.saturating_sub(i32::try_from(share).unwrap_or(i32::MAX));
            score.clamp(3, 999)
        }
    }
}
