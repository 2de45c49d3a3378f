//! Agents, shims and machines that die.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::sleep;

use crate::bench::{Bench, is_ready, phase, simple, status};

#[tokio::test(start_paused = true)]
async fn the_next_agent_adopts_what_runs() {
    let mut bench = Bench::new().await;
    bench.create("a", simple()).await;
    let before = bench.until("a", is_ready).await;
    bench.kill();
    sleep(Duration::from_secs(100)).await;
    bench.start();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.get("a").await, before, "nothing is to be told");
    assert_eq!(bench.machine.log(), ["sandbox a", "connect a", "start c 0"]);
    bench.pods().delete("a", &DeleteParams::default()).await.unwrap();
    bench.gone("a").await;
}

/// A pod that a guest has come to has the guest's addresses from then on.
#[tokio::test(start_paused = true)]
async fn a_pod_tells_the_addresses_that_it_has_claimed_also_those_of_before_the_agent_began() {
    let mut bench = Bench::new().await;
    let uid = bench.create("a", simple()).await.metadata.uid.unwrap();
    bench.until("a", is_ready).await;
    let claim = |bench: &Bench, address: &str| {
        let address = address.parse().unwrap();
        bench.machine.0.claimed.send_modify(|all| drop(all.insert(uid.clone(), vec![address])));
    };
    let has = |address: &'static str| {
        move |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()) == Some(address)
        }
    };
    claim(&bench, "10.0.0.7");
    bench.until("a", has("10.0.0.7")).await;
    bench.kill();
    claim(&bench, "10.0.0.8");
    bench.start();
    bench.until("a", has("10.0.0.8")).await;
    assert_eq!(bench.machine.log(), ["sandbox a", "connect a", "start c 0"], "it is the same pod");
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_meanwhile_is_ended() {
    let mut bench = Bench::new().await;
    bench.create("a", simple()).await;
    bench.until("a", is_ready).await;
    bench.kill();
    bench.pods().delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    bench.start();
    sleep(Duration::from_secs(5)).await;
    assert!(bench.machine.0.pods.lock().unwrap().is_empty());
    assert!(bench.machine.0.connected.lock().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(bench.root().join("pods")).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_shim_ran_is_unknown() {
    for (policy, expected) in [("Never", "Failed"), ("Always", "Running")] {
        let bench = Bench::new().await;
        let mut spec = simple();
        spec["restartPolicy"] = json!(policy);
        bench.create("a", spec).await;
        bench.until("a", is_ready).await;
        bench.machine.shim().lose();
        let again = |pod: &_| {
            phase(pod) == expected && status(pod, "c").is_some_and(|one| policy == "Never" || one.restart_count == 1)
        };
        let pod = bench.until("a", again).await;
        let container = status(&pod, "c").unwrap();
        let end = if policy == "Never" { container.state.clone() } else { container.last_state.clone() };
        let end = end.unwrap().terminated.unwrap();
        assert_eq!((end.exit_code, end.reason.as_deref()), (255, Some("ContainerStatusUnknown")));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_nothing_runs_and_all_is_told() {
    let mut bench = Bench::new().await;
    let mut spec = simple();
    spec["restartPolicy"] = json!("Never");
    bench.create("a", spec).await;
    bench.create("b", simple()).await;
    bench.until("a", is_ready).await;
    bench.until("b", is_ready).await;
    bench.kill();
    bench.machine.0.pods.lock().unwrap().clear();
    bench.start();
    bench.until("a", |pod| phase(pod) == "Failed").await;
    bench.until("b", |pod| is_ready(pod) && status(pod, "c").is_some_and(|one| one.restart_count == 1)).await;
}

/// Killed after every so many milliseconds, and started again, until all is done: nothing is started twice (the machine that
/// pretends would panic), and nothing is left.
#[tokio::test(start_paused = true)]
async fn an_agent_may_be_killed_at_any_time() {
    for pause in [1, 2, 3, 5, 8, 13, 40] {
        let mut bench = Bench::new().await;
        *bench.machine.0.pull.lock().unwrap() = Duration::from_millis(10);
        bench.create("a", simple()).await;
        for _ in 0..20 {
            sleep(Duration::from_millis(pause)).await;
            bench.kill();
            bench.start();
        }
        bench.until("a", is_ready).await;
        let starts = bench.machine.log().iter().filter(|one| one.starts_with("start")).count();
        assert_eq!(starts, 1);
        bench.pods().delete("a", &DeleteParams::default()).await.unwrap();
        for _ in 0..20 {
            sleep(Duration::from_millis(pause)).await;
            bench.kill();
            bench.start();
        }
        bench.gone("a").await;
        sleep(Duration::from_secs(1)).await;
        assert!(bench.machine.0.pods.lock().unwrap().is_empty());
        assert_eq!(std::fs::read_dir(bench.root().join("pods")).unwrap().count(), 0);
    }
}
