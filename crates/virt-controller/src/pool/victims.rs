//! Which VMs go first when there are too many, or are restarted first when all must be.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use api::pool::{
    VirtualMachinePoolSelectionPolicy as Policy, VirtualMachinePoolSelectors, VirtualMachinePoolSortPolicy,
};
use api::vm::VirtualMachine;
use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use manager::names::fnv1a;
use manager::selector::Selector;

use super::{Observed, indexed, is_available, name};

/// The first `count` of `active`, as the pool's strategy says.
pub(super) fn choose<'a>(seen: &Observed<'_>, active: &[&'a VirtualMachine], count: usize) -> Vec<&'a VirtualMachine> {
    let strategy = seen.pool.spec.scale_in_strategy.as_ref();
    if strategy.is_some_and(|one| one.unmanaged.is_some()) {
        return Vec::new();
    }
    if strategy.is_some_and(|one| one.opportunistic.is_some()) {
        // Nobody is shut down for it.
        let down = active.iter().copied().filter(|vm| !seen.instances.contains_key(name(vm)));
        return ordered(seen, down.collect(), None).into_iter().take(count).collect();
    }
    let policy = strategy.and_then(|one| one.proactive.as_ref()).and_then(|one| one.selection_policy.as_ref());
    ordered(seen, active.to_vec(), policy).into_iter().take(count).collect()
}

/// Those that the policy selects before all others, and both in its order.
pub(super) fn ordered<'a>(
    seen: &Observed<'_>,
    mut vms: Vec<&'a VirtualMachine>,
    policy: Option<&Policy>,
) -> Vec<&'a VirtualMachine> {
    let selectors = policy.and_then(|policy| policy.selectors.as_ref());
    let sort = policy.and_then(|policy| policy.sort_policy.as_ref());
    vms.sort_by_cached_key(|vm| {
        let selected = selectors.is_some_and(|selectors| is_selected(seen, selectors, vm));
        (!selected, place(seen, sort, vm), name(vm).to_owned())
    });
    vms
}

/// Where a VM stands by the order alone. Chance is a number that is the same for all who ask: those that nobody can use go first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Number(u32),
    NumberFromTheEnd(Reverse<u32>),
    Age(Option<jiff::Timestamp>),
    AgeFromTheEnd(Reverse<Option<jiff::Timestamp>>),
    Chance(bool, u32),
}

fn place(seen: &Observed<'_>, sort: Option<&VirtualMachinePoolSortPolicy>, vm: &VirtualMachine) -> Place {
    let number = indexed::number_of(seen.pool, vm).unwrap_or(u32::MAX);
    let made = vm.metadata.creation_timestamp.as_ref().map(|time| time.0);
    match sort {
        Some(VirtualMachinePoolSortPolicy::AscendingOrder) => Place::Number(number),
        Some(VirtualMachinePoolSortPolicy::DescendingOrder) => Place::NumberFromTheEnd(Reverse(number)),
        Some(VirtualMachinePoolSortPolicy::Oldest) => Place::Age(made),
        Some(VirtualMachinePoolSortPolicy::Newest) => Place::AgeFromTheEnd(Reverse(made)),
        Some(VirtualMachinePoolSortPolicy::Random) | None => {
            Place::Chance(is_available(seen, vm), fnv1a(vm.metadata.uid.as_deref().unwrap_or_default().as_bytes()))
        }
    }
}

/// Whether a VM has the labels and runs on the node that are asked for. Its labels are those of its template and its own, the former
/// first: KubeVirt looks at the template alone, in which one VM of a pool cannot be marked for long. Selectors that ask for nothing
/// select all.
pub(super) fn is_selected(seen: &Observed<'_>, selectors: &VirtualMachinePoolSelectors, vm: &VirtualMachine) -> bool {
    let by_labels = selectors.label_selector.as_ref().is_none_or(|selector| {
        let of_template = vm.spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
        let mut labels = vm.metadata.labels.clone().unwrap_or_default();
        labels.extend(of_template.unwrap_or_default());
        Selector::read_any(selector).is_ok_and(|selector| selector.matches(Some(&labels)))
    });
    let by_node = selectors.node_selector_requirement_matcher.as_ref().is_none_or(|requirements| {
        let node = seen.instances.get(name(vm)).and_then(|one| one.status.as_ref()?.node_name.as_deref());
        let labels = node.and_then(|node| seen.nodes.get(node));
        labels.is_some_and(|labels| requirements.iter().all(|one| fits(one, labels)))
    });
    by_labels && by_node
}

fn fits(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.contains(value));
    let compared = || {
        let (value, limit) = (value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?);
        Some(value.cmp(&limit))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}
