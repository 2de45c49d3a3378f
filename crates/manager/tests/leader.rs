//! Leader election on the embedded API server, on a clock that the tests step.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apiserver::{ApiServer, Clock, Identity, InProcess, Place};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use manager::leader::{Durations, Election, LeaderError, Renewals};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

async fn server() -> ApiServer {
    ApiServer::builder(Place::Memory).clock(Clock::starting_at(Timestamp::UNIX_EPOCH)).seed(1).start().await.unwrap()
}

/// A way to the server that can be cut.
fn client(server: &ApiServer, open: watch::Receiver<bool>) -> Client {
    let service = server.for_identity(Identity::admin());
    let cut = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (mut service, mut open): (InProcess, _) = (service.clone(), open.clone());
        async move {
            // A cut connection does not fail: nothing comes back.
            drop(open.wait_for(|open| *open).await);
            tower::Service::call(&mut service, request).await
        }
    });
    Client::new(cut, "default")
}

fn election(client: Client, identity: &str) -> Election {
    let started = Instant::now();
    Election {
        leases: Api::namespaced(client, "kube-system"),
        name: "controllers".to_owned(),
        identity: identity.to_owned(),
        durations: Durations::default(),
        now: Arc::new(move || Timestamp::UNIX_EPOCH + started.elapsed()),
        new_leader: Arc::new(|_| {}),
    }
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_hands_over_at_once() {
    let server = server().await;
    let (_keep, open) = watch::channel(true);
    let one = election(client(&server, open.clone()), "one");
    let two = election(client(&server, open.clone()), "two");
    let (stop, mut stopped) = watch::channel(false);
    let first = tokio::spawn(async move {
        let lead = || async move { drop(stopped.wait_for(|stop| *stop).await) };
        one.run(&Renewals::default(), lead).await
    });
    sleep(Duration::from_secs(30)).await;
    let started = Instant::now();
    let second = tokio::spawn(async move { two.run(&Renewals::default(), || async { Instant::now() }).await });
    sleep(Duration::from_secs(20)).await;
    assert!(!second.is_finished(), "the first still leads");
    stop.send(true).unwrap();
    first.await.unwrap().unwrap();
    let led = second.await.unwrap().unwrap();
    assert!(led - started < Duration::from_secs(23), "{:?}", led - started);
    let lease = Api::<Lease>::namespaced(client(&server, open), "kube-system").get("controllers").await.unwrap();
    assert_eq!(lease.spec.unwrap().lease_transitions, Some(1), "from the first to the second");
}

/// The answer to a renewal is under way when the leader ends: the lease is newer than it knows.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_under_way_does_not_keep_the_lease() {
    let server = server().await;
    let (answers, answered) = watch::channel(true);
    let service = server.for_identity(Identity::admin());
    let slow = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (mut service, mut answered): (InProcess, _) = (service.clone(), answered.clone());
        async move {
            let answer = tower::Service::call(&mut service, request).await;
            drop(answered.wait_for(|answered| *answered).await);
            answer
        }
    });
    let one = election(Client::new(slow, "default"), "one");
    let (stop, mut stopped) = watch::channel(false);
    let leader = tokio::spawn(async move {
        let lead = || async move { drop(stopped.wait_for(|stop| *stop).await) };
        one.run(&Renewals::default(), lead).await
    });
    sleep(Duration::from_secs(1)).await;
    answers.send(false).unwrap();
    sleep(Duration::from_secs(2)).await;
    stop.send(true).unwrap();
    sleep(Duration::from_secs(1)).await;
    answers.send(true).unwrap();
    leader.await.unwrap().unwrap();
    let (_keep, open) = watch::channel(true);
    let lease = Api::<Lease>::namespaced(client(&server, open), "kube-system").get("controllers").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
}

/// A leader that hears nothing stops before anyone else may start.
#[tokio::test(start_paused = true)]
async fn there_are_never_two() {
    let server = server().await;
    let leading = Arc::new(AtomicUsize::new(0));
    let (_keep, always) = watch::channel(true);
    let (cut, open) = watch::channel(true);
    let lead = |leading: Arc<AtomicUsize>| async move {
        struct Here(Arc<AtomicUsize>);
        impl Drop for Here {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "another leads");
        let _here = Here(leading);
        std::future::pending::<()>().await;
    };
    let (one, two) = (election(client(&server, open), "one"), election(client(&server, always), "two"));
    let (counted, other) = (leading.clone(), leading.clone());
    let first = tokio::spawn(async move { one.run(&Renewals::default(), || lead(counted)).await });
    sleep(Duration::from_secs(5)).await;
    let second = tokio::spawn(async move { two.run(&Renewals::default(), || lead(other)).await });
    sleep(Duration::from_secs(60)).await;
    assert_eq!(leading.load(Ordering::SeqCst), 1);
    cut.send(false).unwrap();
    let lost = timeout(Duration::from_secs(12), first).await.unwrap().unwrap();
    assert!(matches!(lost, Err(LeaderError::Lost { .. })));
    assert_eq!(leading.load(Ordering::SeqCst), 0, "nobody leads until the lease is free");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(leading.load(Ordering::SeqCst), 1, "the second leads");
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_does_not_renew_is_told_by_its_health() {
    let server = server().await;
    let (_keep, open) = watch::channel(true);
    let renewals = Renewals::default();
    let tolerated = Duration::from_secs(20);
    let lease = Durations::default().lease;
    assert!(!renewals.is_stuck(lease, tolerated), "who does not lead need not renew");
    let one = election(client(&server, open), "one");
    let watched = renewals.clone();
    let leader = tokio::spawn(async move { one.run(&watched, std::future::pending::<()>).await });
    sleep(Duration::from_secs(60)).await;
    assert!(!renewals.is_stuck(lease, tolerated));
    // As if the process had been stopped: its tasks do not run, its clock does.
    leader.abort();
    sleep(Duration::from_secs(36)).await;
    assert!(renewals.is_stuck(lease, tolerated));
}
