//! Leader election on a Lease: of several processes one leads, and never two.
//!
//! Whoever holds the lease renews it; who cannot renew it in time stops leading before anyone else may start. Others only
//! compare the lease with what they saw before, on their own clock: clocks of machines need not agree.

use std::sync::Arc;
use std::time::Duration;

use crate::context::Now;
use crate::errors::chain;
use crate::fence::Fence;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long things take. The defaults are Kubernetes'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// A lease that was not renewed for this long may be taken by others.
    pub lease: Duration,
    /// The leader gives up if it could not renew for this long: before the lease is free.
    pub renew_deadline: Duration,
    /// Between attempts.
    pub retry: Duration,
}

impl Default for Durations {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew_deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// Who wants to lead what.
#[derive(Clone)]
pub struct Election {
    /// Where the lease is.
    pub leases: Api<Lease>,
    pub name: String,
    /// Unlike that of any other process, such as `host_uuid`.
    pub identity: String,
    /// How long things take.
    pub durations: Durations,
    /// The time that is written into the lease. Others do not compare it with their own clock, but it must go on: they
    /// tell a renewal by its change.
    pub now: Now,
    /// Is told who leads, whenever that changes.
    pub new_leader: NewLeader,
}

/// Hears the identity of each new leader.
pub type NewLeader = Arc<dyn Fn(&str) + Send + Sync>;

/// Why leading ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// The lease could not be renewed in time, or another has it: whoever leads must end at once.
    #[error("the lease {name} was lost")]
    Lost {
        /// The lease.
        name: String,
    },
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// There is none.
    Create,
    /// It is ours.
    Renew,
    /// It is free.
    Take,
    /// It is another's until then, unless it is renewed.
    Wait(Instant),
}

/// What was seen of the lease, and when it last changed by our clock.
#[derive(Clone, Debug, Default)]
struct Seen {
    spec: Option<LeaseSpec>,
    at: Option<Instant>,
}

impl Seen {
    fn update(&mut self, spec: Option<&LeaseSpec>, now: Instant) {
        if self.spec.as_ref() != spec || self.at.is_none() {
            self.spec = spec.cloned();
            self.at = Some(now);
        }
    }
}

/// # Guarantees
/// - A lease of another is taken only after it did not change for its whole duration, by our own clock.
fn decide(seen: &Seen, me: &str, now: Instant) -> Step {
    let (Some(spec), Some(at)) = (&seen.spec, seen.at) else { return Step::Create };
    match spec.holder_identity.as_deref().unwrap_or_default() {
        "" => Step::Take,
        holder if holder == me => Step::Renew,
        _ => {
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
            let free = at + Duration::from_secs(seconds);
            if now >= free { Step::Take } else { Step::Wait(free) }
        }
    }
}

/// Tells whether a leader still renews; for health checks. Its fence lets requests pass as long as the lease is certain.
#[derive(Clone, Debug, Default)]
pub struct Renewals {
    standing: Arc<watch::Sender<Standing>>,
    fence: Fence,
}

/// How a process stands to the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Waiting,
    /// The lease was asked for and may be ours: the answer is not here yet.
    Asking,
    /// It was ours when it was last asked for, at that time.
    Leading(Instant),
    /// It led; the lease is lost, or about to be given back.
    Led,
}

impl Renewals {
    /// Asked for at `at`; the lease was ours then, and is for so long.
    fn renewed(&self, at: Instant, lease: Duration) {
        self.standing.send_replace(Standing::Leading(at));
        self.fence.open_until(at + lease);
    }

    fn ended(&self) {
        self.standing.send_replace(Standing::Led);
        self.fence.close();
    }

    /// Resolves if it never led, and never if it did. Where the lease was asked for, the answer tells which; it is
    /// waited for, but not longer than that.
    pub(crate) async fn never_led(&self, longest: Duration) {
        let mut standing = self.standing.subscribe();
        drop(timeout(longest, standing.wait_for(|standing| *standing != Standing::Asking)).await);
        if matches!(*self.standing.borrow(), Standing::Leading(_) | Standing::Led) {
            std::future::pending::<()>().await;
        }
    }

    /// Holds back what comes too late.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Whether a leader has not renewed for the lease's duration and this much more: it should be gone, and is not.
    #[must_use]
    pub fn is_stuck(&self, lease: Duration, tolerated: Duration) -> bool {
        match *self.standing.borrow() {
            Standing::Leading(last) => last.elapsed() > lease + tolerated,
            Standing::Waiting | Standing::Asking | Standing::Led => false,
        }
    }
}

impl Election {
    /// Waits until it leads, runs `lead`, and renews meanwhile. When `lead` ends, the lease is given back, so that the
    /// next one takes over at once.
    ///
    /// # Errors
    /// When the lease is lost; `lead` was dropped then, at an await point.
    pub async fn run<F: Future>(
        &self,
        renewals: &Renewals,
        lead: impl FnOnce() -> F,
    ) -> Result<F::Output, LeaderError> {
        renewals.fence.close();
        let (mut held, asked) = self.acquire(renewals).await;
        renewals.renewed(asked, self.durations.lease);
        tracing::info!(lease = self.name, identity = self.identity, "leading");
        let result = {
            let mut lead = std::pin::pin!(lead());
            tokio::select! {
                biased;
                lost = self.keep(&mut held, renewals) => Err(lost),
                output = &mut lead => Ok(output),
            }
        };
        renewals.ended();
        if result.is_ok() {
            self.release(held).await;
        }
        result
    }

    /// Waits for the lease, takes it, and tells when it asked for it.
    async fn acquire(&self, renewals: &Renewals) -> (Lease, Instant) {
        let mut seen = Seen::default();
        loop {
            let asked = Instant::now();
            renewals.standing.send_replace(Standing::Asking);
            match self.attempt(&mut seen).await {
                Ok(Some(lease)) => {
                    (self.new_leader)(&self.identity);
                    return (lease, asked);
                }
                Ok(None) => {}
                // Another was faster, or the server does not answer: the next attempt tells.
                Err(error) => tracing::debug!(lease = self.name, error = chain(&error), "cannot take the lease"),
            }
            renewals.standing.send_replace(Standing::Waiting);
            sleep(self.durations.retry).await;
        }
    }

    async fn attempt(&self, seen: &mut Seen) -> Result<Option<Lease>, kube::Error> {
        let current = self.leases.get_opt(&self.name).await?;
        let holder = |spec: Option<&LeaseSpec>| spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        let before = holder(seen.spec.as_ref());
        seen.update(current.as_ref().and_then(|lease| lease.spec.as_ref()), Instant::now());
        let after = holder(seen.spec.as_ref());
        if after != before && !after.is_empty() && after != self.identity {
            (self.new_leader)(&after);
        }
        if current.is_some() && seen.spec.is_none() {
            seen.spec = Some(LeaseSpec::default());
        }
        match (decide(seen, &self.identity, Instant::now()), current) {
            (Step::Wait(_), _) => Ok(None),
            (Step::Create, _) | (_, None) => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.spec(None)) };
                self.leases.create(&PostParams::default(), &lease).await.map(Some)
            }
            (Step::Renew | Step::Take, Some(lease)) => self.write(lease).await.map(Some),
        }
    }

    /// Renews until it fails for too long.
    async fn keep(&self, held: &mut Lease, renewals: &Renewals) -> LeaderError {
        let lost = || LeaderError::Lost { name: self.name.clone() };
        let mut deadline = Instant::now() + self.durations.renew_deadline;
        loop {
            sleep(self.durations.retry).await;
            let asked = Instant::now();
            match timeout_at(deadline, self.renew(held)).await {
                Ok(Ok(lease)) => {
                    *held = lease;
                    // Counted from when it was asked for: the answer may have taken its time.
                    deadline = asked + self.durations.renew_deadline;
                    renewals.renewed(asked, self.durations.lease);
                }
                Ok(Err(Renewal::Taken)) => return lost(),
                Ok(Err(Renewal::Failed(error))) => {
                    tracing::warn!(lease = self.name, error = chain(&error), "cannot renew the lease");
                }
                Err(_) => return lost(),
            }
            if Instant::now() >= deadline {
                return lost();
            }
        }
    }

    async fn renew(&self, held: &Lease) -> Result<Lease, Renewal> {
        match self.write(held.clone()).await {
            Ok(lease) => Ok(lease),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // Somebody wrote it. If that was us, an answer was lost.
                let current = self.leases.get(&self.name).await.map_err(Renewal::Failed)?;
                if !is_held(&current, &self.identity) {
                    return Err(Renewal::Taken);
                }
                self.write(current).await.map_err(Renewal::Failed)
            }
            Err(error) => Err(Renewal::Failed(error)),
        }
    }

    async fn write(&self, mut lease: Lease) -> Result<Lease, kube::Error> {
        lease.spec = Some(self.spec(lease.spec.as_ref()));
        self.leases.replace(&self.name, &PostParams::default(), &lease).await
    }

    /// Lets go of the lease.
    async fn release(&self, held: Lease) {
        let mut result = self.give_back(held).await;
        if matches!(&result, Err(kube::Error::Api(status)) if status.code == 409) {
            // The renewal that was under way was made all the same; or another has the lease by now.
            result = match self.leases.get(&self.name).await {
                Ok(current) if is_held(&current, &self.identity) => self.give_back(current).await,
                other => other.map(drop),
            };
        }
        // Whoever comes next waits a little longer, and that is all.
        if let Err(error) = result {
            tracing::debug!(lease = self.name, error = chain(&error), "cannot release the lease");
        }
    }

    async fn give_back(&self, mut held: Lease) -> Result<(), kube::Error> {
        let spec = held.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime((self.now)()));
        self.leases.replace(&self.name, &PostParams::default(), &held).await.map(drop)
    }

    fn spec(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime((self.now)());
        let same = old.is_some_and(|old| old.holder_identity.as_deref() == Some(self.identity.as_str()));
        let acquired = old.filter(|_| same).and_then(|old| old.acquire_time.clone());
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.durations.lease.as_secs()).ok(),
            acquire_time: acquired.or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if same || old.is_none() { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

fn is_held(lease: &Lease, identity: &str) -> bool {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(identity)
}

/// Why a renewal was not made.
enum Renewal {
    Taken,
    Failed(kube::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holder: &str, seconds: i32, at: Instant) -> Seen {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        };
        Seen { spec: Some(spec), at: Some(at) }
    }

    #[test]
    fn a_lease_of_another_is_left_alone_until_it_ran_out_by_our_clock() {
        let now = Instant::now();
        let other = seen("other", 15, now);
        assert_eq!(decide(&other, "me", now), Step::Wait(now + Duration::from_secs(15)));
        assert_eq!(decide(&other, "me", now + Duration::from_secs(14)), Step::Wait(now + Duration::from_secs(15)));
        assert_eq!(decide(&other, "me", now + Duration::from_secs(15)), Step::Take);
        assert_eq!(decide(&seen("", 1, now), "me", now), Step::Take);
        assert_eq!(decide(&seen("me", 15, now), "me", now), Step::Renew);
        assert_eq!(decide(&Seen::default(), "me", now), Step::Create);
    }

    #[test]
    fn a_renewal_by_the_other_starts_the_wait_anew() {
        let now = Instant::now();
        let mut other = seen("other", 15, now);
        let mut renewed = other.spec.clone().unwrap();
        renewed.lease_transitions = Some(1);
        let later = now + Duration::from_secs(10);
        other.update(Some(&renewed), later);
        assert_eq!(decide(&other, "me", now + Duration::from_secs(16)), Step::Wait(later + Duration::from_secs(15)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_may_lead() {
        let renewals = Renewals::default();
        let longest = Duration::from_secs(5);
        renewals.never_led(longest).await;
        renewals.standing.send_replace(Standing::Asking);
        let (waiting, second) = (renewals.clone(), Duration::from_secs(1));
        let never_led = tokio::spawn(async move { waiting.never_led(longest).await });
        sleep(second).await;
        // It may end at once; the lease must be given back all the same.
        renewals.renewed(Instant::now(), second);
        renewals.ended();
        assert!(timeout(longest * 2, never_led).await.is_err(), "it led");
        renewals.standing.send_replace(Standing::Asking);
        renewals.never_led(longest).await;
    }
}
