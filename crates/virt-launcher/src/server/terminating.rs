//! The end of a guest whose launcher is told to end.

use std::time::Duration;

use launcher_api::rpc;
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Service, Slot};
use crate::domain::{Domain, State};
use crate::driver::RequestError;
use crate::lifecycle::{Denied, Request as Wish};

impl Service {
    /// Asks the guest to power off, as SIGTERM does, and kills it when the time is over. True once it has ended, false if there is none.
    ///
    /// # Guarantees
    /// - A guest between two launchers keeps its launcher until it is known where it goes on, or the time is over: the other launcher
    ///   may not have all of it yet, or this one may be about to be given it.
    pub async fn terminate(&self, grace: Duration) -> bool {
        let (handle, usual) = match &*self.inner.slot.lock().await {
            Slot::Taken { guest, .. } => (guest.handle.clone(), guest.grace),
            Slot::Empty | Slot::Failed { .. } => return false,
        };
        let ask = async || handle.request(Wish::Shutdown { grace: usual }).await;
        if timeout(grace, asked_to_end(handle.domain(), ask)).await.is_err() {
            self.kill_now().await;
        }
        let ended = |domain: &Option<rpc::Domain>| domain.as_ref().is_some_and(|one| one.state() == rpc::State::Ended);
        // The sender is in the service and outlives this.
        let _ = self.domain().wait_for(ended).await;
        true
    }
}

/// Asks until the guest is asked where it can hear, and waits for its end.
async fn asked_to_end(mut domain: watch::Receiver<Domain>, ask: impl AsyncFn() -> Result<(), RequestError>) {
    loop {
        // What changes from here on is seen below.
        domain.mark_unchanged();
        // All of it is here, and the other launcher may have promised it already: asked now, it would only be killed.
        let is_loaded = domain.borrow().state == State::Loaded;
        // What QEMU did not do now, the end of the grace period does.
        if !is_loaded && !matches!(ask().await, Err(RequestError::Denied(Denied::Away))) {
            break;
        }
        tracing::info!("the guest is on its way; waiting for where it goes on");
        if domain.changed().await.is_err() {
            return;
        }
    }
    // A driver that is gone has ended with its guest.
    let _ = domain.wait_for(|domain| matches!(domain.state, State::Ended(_))).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::domain::{End, Exit};
    use crate::lifecycle::{Action, Lifecycle, Told};

    /// A guest that has parted, as its driver would hold it.
    struct Guest {
        life: Mutex<Lifecycle>,
        domain: watch::Sender<Domain>,
    }

    impl Guest {
        fn arrived() -> Self {
            let mut life = Lifecycle::arrival("m");
            life.up();
            life.told(Told::Migrated);
            let domain = watch::Sender::new(life.domain().clone());
            Self { life: Mutex::new(life), domain }
        }

        fn parted() -> Self {
            let mut life = Lifecycle::boot(false);
            life.told(Told::Resumed);
            for request in [Wish::Leave { to: "m".into() }, Wish::Part { to: "m".into() }] {
                life.request(&request, Instant::now()).unwrap();
            }
            let domain = watch::Sender::new(life.domain().clone());
            Self { life: Mutex::new(life), domain }
        }

        fn does(&self, what: impl FnOnce(&mut Lifecycle) -> Result<Vec<Action>, Denied>) -> Result<(), RequestError> {
            let mut life = self.life.lock().unwrap();
            if what(&mut life)?.contains(&Action::Kill) {
                life.exited(&Exit { code: None, signal: Some(9), words: String::new(), out_of_memory: false });
            }
            self.domain.send_replace(life.domain().clone());
            Ok(())
        }

        async fn terminated(&self) -> State {
            let shutdown = Wish::Shutdown { grace: Duration::from_secs(1) };
            let ask = async || self.does(|life| life.request(&shutdown, Instant::now()));
            asked_to_end(self.domain.subscribe(), ask).await;
            self.domain.borrow().state.clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_has_arrived_is_asked_once_it_may_run_here() {
        let arrived = Guest::arrived();
        let is_taken = async {
            sleep(Duration::from_secs(20)).await;
            assert_eq!(arrived.domain.borrow().state, State::Loaded, "nobody has ended it");
            let take = Wish::Take { from: "m".into(), paused: None };
            arrived.does(|life| life.request(&take, Instant::now())).unwrap();
            arrived.does(|life| Ok(life.told(Told::Resumed))).unwrap();
            sleep(Duration::from_secs(5)).await;
            assert_eq!(arrived.domain.borrow().state, State::Stopping, "it was asked");
            arrived.does(|life| Ok(life.tick(Instant::now()))).unwrap();
        };
        assert_eq!(tokio::join!(arrived.terminated(), is_taken).0, State::Ended(End::Killed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_has_parted_keeps_its_launcher_until_it_is_known_where_it_goes_on() {
        let stays = Guest::parted();
        let comes_back = async {
            sleep(Duration::from_secs(20)).await;
            assert_eq!(stays.domain.borrow().state, State::Left, "nobody has ended it");
            stays.does(|life| Ok(life.told(Told::NotMigrated))).unwrap();
            stays.does(|life| Ok(life.told(Told::Resumed))).unwrap();
            sleep(Duration::from_secs(5)).await;
            assert_eq!(stays.domain.borrow().state, State::Stopping, "it was asked again");
            stays.does(|life| Ok(life.tick(Instant::now()))).unwrap();
        };
        assert_eq!(tokio::join!(stays.terminated(), comes_back).0, State::Ended(End::Killed));

        let goes = Guest::parted();
        let is_given = async {
            sleep(Duration::from_secs(20)).await;
            goes.does(|life| Ok(life.told(Told::Migrated))).unwrap();
        };
        assert_eq!(tokio::join!(goes.terminated(), is_given).0, State::Ended(End::Moved));
    }
}
