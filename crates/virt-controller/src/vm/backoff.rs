//! How long a VM waits that fails to start again and again.

use std::time::Duration;

use api::vm::VirtualMachineStartFailure;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const INTERVAL: u64 = 10;
const LONGEST: u64 = 300;

/// The wait after so many failures in a row: it grows with their square, and up to half of it more is chance, so that VMs
/// that failed together do not come back together. `chance` is from 0 to below 1.
#[must_use]
pub fn delay(failures: u32, chance: f64) -> Duration {
    let failures = u64::from(failures);
    let delay = INTERVAL.saturating_mul(failures.saturating_mul(failures)).min(LONGEST);
    let millis = Duration::from_secs(delay).mul_f64(chance.clamp(0.0, 1.0).mul_add(0.5, 1.0)).as_millis();
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).min(Duration::from_secs(LONGEST))
}

/// What a VM's status tells after an instance ended without ever having run. Counted once per instance.
#[must_use]
pub fn after_failure(
    known: Option<&VirtualMachineStartFailure>,
    uid: &str,
    now: Timestamp,
    chance: f64,
) -> VirtualMachineStartFailure {
    if let Some(known) = known.filter(|known| known.last_failed_vmiuid.as_deref() == Some(uid)) {
        return known.clone();
    }
    let count = known.and_then(|known| known.consecutive_fail_count).unwrap_or(0).saturating_add(1);
    VirtualMachineStartFailure {
        consecutive_fail_count: Some(count),
        last_failed_vmiuid: Some(uid.to_owned()),
        retry_after_timestamp: Some(Time(now + delay(count, chance))),
    }
}

/// How long to wait with the next start; none if it may be now.
#[must_use]
pub fn remaining(known: Option<&VirtualMachineStartFailure>, now: Timestamp) -> Option<Duration> {
    let Time(retry) = known?.retry_after_timestamp.as_ref()?;
    Duration::try_from(retry.duration_since(now)).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_wait_grows_with_the_square_of_the_failures() {
        let seconds: Vec<u64> = (0..8).map(|failures| delay(failures, 0.0).as_secs()).collect();
        assert_eq!(seconds, [0, 10, 40, 90, 160, 250, 300, 300]);
        assert_eq!(delay(1, 0.5).as_millis(), 12_500);
    }

    #[test]
    fn an_instance_is_counted_once() {
        let now = Timestamp::UNIX_EPOCH;
        let first = after_failure(None, "a", now, 0.0);
        assert_eq!(first.consecutive_fail_count, Some(1));
        assert_eq!(after_failure(Some(&first), "a", now + Duration::from_secs(5), 0.9), first);
        let second = after_failure(Some(&first), "b", now, 0.0);
        assert_eq!(second.consecutive_fail_count, Some(2));
        assert_eq!(remaining(Some(&second), now), Some(Duration::from_secs(40)));
        assert_eq!(remaining(Some(&second), now + Duration::from_secs(40)), None);
        assert_eq!(remaining(None, now), None);
    }

    proptest! {
        #[test]
        fn it_is_never_longer_than_five_minutes_nor_shorter_than_without_chance(failures: u32, chance in 0.0..1.0_f64) {
            let wait = delay(failures, chance);
            prop_assert!(wait <= Duration::from_secs(LONGEST) && wait >= delay(failures, 0.0));
        }
    }
}
