//! What holds of every pod, whatever happens to it.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{Happens, World};
use crate::agent::view;

fn specs() -> impl Strategy<Value = Value> {
    let policy = prop::sample::select(vec!["Always", "OnFailure", "Never"]);
    let init = prop::sample::subsequence(vec!["first", "side", "output", "second"], 0..=4);
    (policy, init, 1_usize..3, prop::option::of(1_i64..1000)).prop_map(|(policy, init, count, deadline)| {
        let init: Vec<Value> = init
            .into_iter()
            .map(|name| match name {
                // It has no process: nothing ever waits for it.
                "output" => json!({ "name": name, "image": "orlop.dev/output-of/c0", "restartPolicy": "Always" }),
                "side" => json!({ "name": name, "image": "i", "restartPolicy": "Always" }),
                name => json!({ "name": name, "image": "i" }),
            })
            .collect();
        let main: Vec<Value> = (0..count).map(|index| json!({ "name": format!("c{index}"), "image": "i" })).collect();
        json!({
            "restartPolicy": policy, "initContainers": init, "containers": main, "activeDeadlineSeconds": deadline,
            "terminationGracePeriodSeconds": 30,
        })
    })
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (0_usize..4, prop::sample::select(vec![0, 0, 1])).prop_map(|(container, code)| Happens::Exit { container, code }),
        4 => (0_u64..400).prop_map(Happens::Time),
        1 => Just(Happens::Lost),
        1 => Just(Happens::Rebooted),
        2 => Just(Happens::NewAgent),
        1 => any::<bool>().prop_map(Happens::Heed),
        1 => prop::sample::select(vec![1, 30]).prop_map(|grace| Happens::Delete { grace }),
        1 => prop::sample::select(vec!["Failed", "Succeeded"]).prop_map(Happens::Phase),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(512), ..ProptestConfig::default() })]

    /// The model itself asserts that no container is started twice, that nothing is started which has ended for good, that a
    /// terminal phase never changes, and that an object is let go only after everything else.
    #[test]
    fn whatever_happens_a_pod_comes_to_rest_and_goes_when_it_is_deleted(
        spec in specs(), events in prop::collection::vec(happens(), 0..25), force in any::<bool>(),
    ) {
        let mut world = World::new(&spec);
        world.settle();
        let mut ended: Option<usize> = None;
        for event in &events {
            world.happens(event);
            world.settle();
            if world.phase().is_some_and(view::is_terminal) {
                let starts = *ended.get_or_insert(world.starts);
                prop_assert_eq!(world.starts, starts, "what has ended starts nothing");
            }
            if world.phase().is_none() {
                prop_assert!(world.record.is_none() && world.state.is_none());
            }
        }
        let writes = world.writes;
        world.settle();
        prop_assert_eq!(world.writes, writes, "nothing is written at rest");

        world.happens(&if force { Happens::ForceDelete } else { Happens::Delete { grace: 30 } });
        world.settle();
        for _ in 0..8 {
            world.happens(&Happens::Time(31));
            world.settle();
        }
        prop_assert!(world.pod.is_none(), "{:?}", world.record);
        prop_assert!(world.record.is_none() && world.state.is_none() && world.alive().is_empty());
    }
}

#[test]
fn a_plain_pod_is_told_of_once_when_it_runs() {
    let mut world = World::new(&json!({ "containers": [{ "name": "c", "image": "i" }] }));
    assert_eq!(world.settle(), None);
    assert_eq!((world.phase(), world.writes, world.starts), (Some("Running"), 1, 1));
}

#[test]
fn a_job_that_fails_is_not_run_again() {
    let mut world = World::new(&json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] }));
    world.settle();
    world.happens(&Happens::Exit { container: 0, code: 1 });
    world.settle();
    assert_eq!((world.phase(), world.starts), (Some("Failed"), 1));
    assert!(world.state.is_none(), "its sandbox is gone");
}

#[test]
fn whoever_does_not_heed_is_ended_when_the_time_is_over() {
    let mut world = World::new(&json!({ "containers": [{ "name": "c", "image": "i" }] }));
    world.settle();
    world.happens(&Happens::Heed(false));
    world.happens(&Happens::Delete { grace: 30 });
    assert_eq!(world.settle(), Some(std::time::Duration::from_secs(30)));
    world.happens(&Happens::Time(10));
    world.settle();
    assert_eq!(world.alive(), ["c"]);
    // Somebody is in a hurry.
    world.happens(&Happens::Delete { grace: 5 });
    world.settle();
    assert!(world.pod.is_none());
}
