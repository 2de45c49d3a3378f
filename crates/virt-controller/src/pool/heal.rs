//! VMs that cannot start: after a while they are deleted, and made again from the template.

use std::collections::BTreeSet;
use std::time::Duration;

use api::conditions::{self, ConditionStatus};
use api::pool::VirtualMachinePool;
use api::vm::{VirtualMachine, VirtualMachinePrintableStatus as Printable};
use jiff::{SignedDuration, Timestamp};

use super::name;

/// So many failed starts in a row, if the pool does not say.
const THRESHOLD: u32 = 3;
/// So long without a start, if the pool does not say.
const DURATION: SignedDuration = SignedDuration::from_mins(5);

pub(super) struct Healed {
    /// The names of VMs that are given up.
    pub(super) failing: BTreeSet<String>,
    /// When the next one may be.
    pub(super) recheck_after: Option<Duration>,
}

/// A pool without a strategy gives nobody up.
pub(super) fn failing(pool: &VirtualMachinePool, active: &[&VirtualMachine], now: Timestamp) -> Healed {
    let mut healed = Healed { failing: BTreeSet::new(), recheck_after: None };
    let Some(strategy) = &pool.spec.autohealing else { return healed };
    let threshold = strategy.start_up_failure_threshold.unwrap_or(THRESHOLD);
    let least = strategy.min_failing_to_start_duration.as_ref();
    let least = least.map_or(DURATION, |least| SignedDuration::from_nanos(least.nanoseconds()));
    for vm in active {
        let status = vm.status.as_ref();
        let failures = status.and_then(|status| status.start_failure.as_ref()?.consecutive_fail_count).unwrap_or(0);
        if failures >= threshold {
            healed.failing.insert(name(vm).to_owned());
            continue;
        }
        let Some(since) = failing_since(vm) else { continue };
        match Duration::try_from(least.saturating_sub(now.duration_since(since))) {
            Ok(left) if !left.is_zero() => {
                healed.recheck_after = Some(healed.recheck_after.map_or(left, |sooner| sooner.min(left)));
            }
            _ => {
                healed.failing.insert(name(vm).to_owned());
            }
        }
    }
    healed
}

/// Since when a VM is not ready because something stands in the way of its start.
fn failing_since(vm: &VirtualMachine) -> Option<Timestamp> {
    let status = vm.status.as_ref()?;
    let stands_in_the_way = matches!(
        status.printable_status.as_ref()?,
        Printable::CrashLoopBackOff
            | Printable::Unschedulable
            | Printable::DataVolumeError
            | Printable::PvcNotFound
            | Printable::ErrImagePull
            | Printable::ImagePullBackOff
    );
    let ready = conditions::find(status.conditions.as_deref(), "Ready").filter(|_| stands_in_the_way)?;
    let since = ready.last_transition_time.as_ref().filter(|_| ready.status == ConditionStatus::False)?;
    Some(since.0)
}
