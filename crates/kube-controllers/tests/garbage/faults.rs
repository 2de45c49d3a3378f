//! At rest, and when things fail.

use std::time::Duration;

use kube::api::PropagationPolicy;
use tokio::time::sleep;

use super::cluster::{CONFIG_MAP, Cluster, FOO, POD, REPLICA_SET, ROLE, SECRET, a_second, blocking, names, nobody};

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_asked() {
    let cluster = Cluster::start().await;
    let owner = cluster.make(SECRET, "default", "owner", &[]).await;
    for number in 0..20 {
        cluster.make(CONFIG_MAP, "default", &number.to_string(), &[blocking(&owner)]).await;
    }
    cluster.make(CONFIG_MAP, "default", "doubt", &[nobody(FOO, "1")]).await;
    cluster.make(ROLE, "", "wide", &[owner]).await;
    cluster.settle().await;
    let version =
        async || cluster.api(CONFIG_MAP, "").list(&Default::default()).await.unwrap().metadata.resource_version;
    let before = version().await;
    cluster.requests();
    // Not so long that the server drops the event about the role.
    sleep(Duration::from_secs(3000)).await;
    assert_eq!(cluster.requests(), Vec::<String>::new());
    assert_eq!(version().await, before);
    // And a deletion costs two requests a dependent: one to look, one to delete.
    cluster.delete(SECRET, "default", "owner", PropagationPolicy::Background).await;
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["doubt"]));
    let requests: Vec<_> = cluster.requests().into_iter().filter(|one| one.contains("configmaps")).collect();
    assert_eq!(requests.len(), 40, "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_and_a_conflict_do_no_harm() {
    let cluster = Cluster::start().await;
    let owner = cluster.make(SECRET, "default", "owner", &[]).await;
    for number in 0..10 {
        cluster.make(CONFIG_MAP, "default", &number.to_string(), std::slice::from_ref(&owner)).await;
    }
    a_second().await;
    {
        let mut tapped = cluster.tapped.lock().unwrap();
        (tapped.lose_deletions, tapped.conflicts) = (5, 3);
    }
    cluster.delete(SECRET, "default", "owner", PropagationPolicy::Background).await;
    a_second().await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&[]));
}

#[tokio::test(start_paused = true)]
async fn when_many_requests_fail_the_outcome_is_the_same() {
    assert_eq!(many_requests_fail().await, many_requests_fail().await, "the same run asks the same");
}

/// Gives what was asked.
async fn many_requests_fail() -> Vec<String> {
    let cluster = Cluster::start().await;
    cluster.define().await;
    cluster.settle().await;
    cluster.tapped.lock().unwrap().chaos = true;
    let stays = cluster.make(SECRET, "default", "stays", &[]).await;
    let policies =
        [("b", PropagationPolicy::Background), ("f", PropagationPolicy::Foreground), ("o", PropagationPolicy::Orphan)];
    for (name, policy) in policies {
        let owner = cluster.make(REPLICA_SET, "default", name, &[]).await;
        for kind in [CONFIG_MAP, FOO] {
            let parent = cluster.make(kind, "default", &format!("{name}-1"), &[blocking(&owner)]).await;
            cluster.make(kind, "default", &format!("{name}-2"), &[blocking(&parent)]).await;
            cluster.make(kind, "default", &format!("{name}-3"), &[blocking(&owner), stays.clone()]).await;
        }
        a_second().await;
        cluster.delete(REPLICA_SET, "default", name, policy).await;
    }
    sleep(Duration::from_secs(300)).await;
    // What failed again and again waits for its next try, for 1000 seconds at most: that one succeeds.
    cluster.tapped.lock().unwrap().chaos = false;
    sleep(Duration::from_secs(1100)).await;
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&[]));
    for kind in [CONFIG_MAP, FOO] {
        assert_eq!(cluster.names(kind, "default").await, names(&["b-3", "f-3", "o-1", "o-2", "o-3"]));
        for name in ["b-3", "f-3", "o-3"] {
            assert_eq!(cluster.owners(kind, "default", name).await, ["stays"]);
        }
        assert_eq!(cluster.owners(kind, "default", "o-1").await, Vec::<String>::new());
        assert_eq!(cluster.owners(kind, "default", "o-2").await, ["o-1"]);
    }
    cluster.requests()
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_cannot_be_read_holds_up_orphans_alone() {
    let cluster = Cluster::idle().await;
    cluster.tapped.lock().unwrap().unreadable = Some("/pods");
    let owner = cluster.make(REPLICA_SET, "default", "owner", &[]).await;
    cluster.make(POD, "default", "p", &[owner]).await;
    cluster.make(CONFIG_MAP, "default", "lost", &[nobody(SECRET, "1")]).await;
    cluster.run();
    cluster.delete(REPLICA_SET, "default", "owner", PropagationPolicy::Orphan).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["lost"]), "the picture may become complete yet");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&[]));
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&["owner"]));
    cluster.tapped.lock().unwrap().unreadable = None;
    cluster.settle().await;
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&[]));
    assert_eq!(cluster.names(POD, "default").await, names(&["p"]), "it was let go, not deleted");
}

#[tokio::test(start_paused = true)]
async fn one_that_starts_in_the_middle_goes_on() {
    let cluster = Cluster::idle().await;
    let first = cluster.make(REPLICA_SET, "default", "first", &[]).await;
    let second = cluster.make(REPLICA_SET, "default", "second", &[]).await;
    cluster.make(CONFIG_MAP, "default", "a", &[blocking(&first)]).await;
    cluster.make(CONFIG_MAP, "default", "b", &[blocking(&second)]).await;
    cluster.delete(REPLICA_SET, "default", "first", PropagationPolicy::Foreground).await;
    cluster.delete(REPLICA_SET, "default", "second", PropagationPolicy::Orphan).await;
    let collector = cluster.restarted();
    tokio::spawn(async move { collector.run(1).await });
    a_second().await;
    assert_eq!(cluster.names(REPLICA_SET, "default").await, names(&[]));
    assert_eq!(cluster.names(CONFIG_MAP, "default").await, names(&["b"]));
}
