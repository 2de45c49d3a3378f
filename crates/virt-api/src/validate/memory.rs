//! Memory: that there is some, and that its parts agree.

use api::configuration::VMRolloutStrategy;
use api::domain::Hugepages;
use api::quantity::{Amount, Quantity};
use api::vmi::VirtualMachineInstanceSpec;
use virt_rules::config::ClusterConfig;

use super::cpu::amount;
use crate::denial::Problems;

const GUEST: &str = "spec.domain.memory.guest";
const REQUEST: &str = "spec.domain.resources.requests.memory";
const LIMIT: &str = "spec.domain.resources.limits.memory";
/// Less is a mistyped unit.
const LEAST: i64 = 1_000_000;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig, problems: &mut Problems) {
    let zero = Amount::default();
    let memory = spec.domain.memory.as_ref();
    let guest = memory.and_then(|memory| memory.guest.as_ref()).map(Quantity::amount);
    let (request, limit) = (amount(spec, "requests", "memory"), amount(spec, "limits", "memory"));
    if guest.is_none() && request.is_none_or(Amount::is_zero) {
        problems.required(GUEST, "is required; set the guest's memory, for instance to 1Gi");
    }
    for (field, given) in [(GUEST, guest), (REQUEST, request), (LIMIT, limit)] {
        let Some(given) = given else { continue };
        if given < zero {
            problems.invalid(field, format!("{given} must not be negative; use an amount such as 1Gi"));
        } else if given < Amount::from(LEAST) && !given.is_zero() && field == REQUEST {
            problems.invalid(field, format!("{given} is less than 1M; use an amount such as 1Gi"));
        }
    }
    let limit = limit.filter(|limit| *limit > zero);
    if let (Some(request), Some(limit)) = (request, limit)
        && request > limit
    {
        problems.invalid(REQUEST, format!("{request} is more than {LIMIT}, {limit}; lower it"));
    }
    // With live updates a guest may grow, and the limit with it.
    let fixed = config.rollout_strategy() != VMRolloutStrategy::LiveUpdate;
    if let (Some(guest), Some(limit)) = (guest, limit)
        && fixed
        && guest > limit
    {
        problems.invalid(GUEST, format!("{guest} is more than {LIMIT}, {limit}; lower it"));
    }
    let most = memory.and_then(|memory| memory.max_guest.as_ref()).map(Quantity::amount);
    if let (Some(guest), Some(most)) = (guest, most)
        && guest > most
    {
        problems.invalid(GUEST, format!("{guest} is more than spec.domain.memory.maxGuest, {most}; lower it"));
    }
    check_hugepages(spec, guest.or(request).or(limit), problems);
}

fn check_hugepages(spec: &VirtualMachineInstanceSpec, whole: Option<Amount>, problems: &mut Problems) {
    let Some(hugepages) = hugepages(spec) else { return };
    let field = "spec.domain.memory.hugepages.pageSize";
    let size = hugepages.page_size.as_deref().unwrap_or_default();
    let page = match size.parse::<Quantity>() {
        Ok(page) if page.amount() > Amount::default() => page.amount().units(),
        Ok(_) | Err(_) => {
            problems
                .invalid(field, format!("{size:?} is not a valid page size; use one that the nodes have, such as 2Mi"));
            return;
        }
    };
    let Some(whole) = whole else { return };
    if whole.units() % page != 0 || whole.units() < page {
        problems.invalid(GUEST, format!("{whole} is not a multiple of {field}, {size}"));
    }
}

/// The huge pages behind the guest's memory, if it has any.
pub(super) fn hugepages(spec: &VirtualMachineInstanceSpec) -> Option<&Hugepages> {
    spec.domain.memory.as_ref()?.hugepages.as_ref()
}
