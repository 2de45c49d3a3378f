//! Clients that are trusted less: pods and guests, at the addresses that are for them. However many connections one of them
//! opens, the others are served, and who does not say who it is does not stay.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

/// Connections from one address at the same time. A client of HTTP/2 needs one, one of HTTP/1.1 one for each of its watches.
pub(super) const MOST_OF_ONE: usize = 128;
/// How long a connection may last on which nobody has said who it is.
pub(super) const UNKNOWN: Duration = Duration::from_secs(60);

/// How many connections there are from each address. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// One connection of a crowd, as long as it lives.
pub(super) struct Member {
    crowd: Crowd,
    from: IpAddr,
}

impl Crowd {
    /// One more from this address; none if there are too many.
    pub(super) fn enter(&self, from: IpAddr) -> Option<Member> {
        let from = from.to_canonical();
        let mut counts = self.counts();
        let count = counts.entry(from).or_default();
        if *count >= MOST_OF_ONE {
            return None;
        }
        *count += 1;
        Some(Member { crowd: self.clone(), from })
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts();
        if let Some(count) = counts.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.from);
            }
        }
    }
}

/// Whether a connection's client has said who it is, and was believed. Each request of the connection has a clone.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<AtomicBool>);

impl Known {
    /// It has.
    pub(crate) fn tell(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until a stranger has stayed too long without being known. Others may stay.
pub(super) async fn outstays(stranger: Option<Known>) {
    if let Some(Known(is_known)) = stranger {
        sleep(UNKNOWN).await;
        if !is_known.load(Ordering::Relaxed) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_its_own_places_and_gives_them_back() {
        let crowd = Crowd::default();
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut members: Vec<Member> = (0..MOST_OF_ONE).filter_map(|_| crowd.enter(one)).collect();
        assert_eq!(members.len(), MOST_OF_ONE);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(crowd.enter(one).is_none() && crowd.enter(mapped).is_none(), "in either spelling");
        let neighbour = crowd.enter(other);
        assert!(neighbour.is_some());
        members.pop();
        members.extend(crowd.enter(one));
        assert!(crowd.enter(one).is_none());
        drop((members, neighbour));
        assert!(crowd.counts().is_empty(), "nobody is remembered");
    }
}
