use proptest::prelude::*;

use super::world::World;
use super::*;

/// What may happen next. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Event {
    Deploy,
    Replicate(usize),
    Ready(usize),
    Unready(usize),
    Fail(usize),
    Finish(usize),
    Template(usize),
    Resize(i32),
    Pause(bool),
    Wait(i64),
}

fn calm() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Deploy),
        6 => (0..4_usize).prop_map(Event::Replicate),
        8 => (0..12_usize).prop_map(Event::Ready),
        4 => (0..12_usize).prop_map(Event::Finish),
        1 => (0..3_usize).prop_map(Event::Template),
        1 => (1..400_i64).prop_map(Event::Wait),
    ]
}

fn rough() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => calm(),
        2 => (0..12_usize).prop_map(Event::Unready),
        1 => (0..12_usize).prop_map(Event::Fail),
        1 => (0..9_i32).prop_map(Event::Resize),
        1 => any::<bool>().prop_map(Event::Pause),
    ]
}

fn happen(world: &mut World, event: &Event) {
    match *event {
        Event::Deploy => _ = world.deploy(),
        Event::Replicate(index) => _ = world.replicate(index),
        Event::Ready(index) => world.set_ready(index, true),
        Event::Unready(index) => world.set_ready(index, false),
        Event::Fail(index) => world.fail(index),
        Event::Finish(index) => world.finish(index),
        Event::Template(index) => {
            let template = serde_json::from_value(template(["a", "b", "c"][index])).unwrap();
            world.edit(|spec| spec.template = template);
        }
        Event::Resize(replicas) => world.edit(|spec| spec.replicas = Some(replicas)),
        Event::Pause(paused) => world.edit(|spec| spec.paused = Some(paused)),
        Event::Wait(seconds) => world.wait(seconds),
    }
}

fn world(replicas: i32, surge: &Value, unavailable: &Value) -> World {
    let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
    World::new(deployment(replicas, "a", json!({ "spec": { "strategy": { "rollingUpdate": rolling } } })))
}

/// Exactly the wanted pods, all of the wanted template, and a status that says so.
fn assert_arrived(world: &World) -> Result<(), TestCaseError> {
    let spec = world.deployment.spec.as_ref().unwrap();
    let wanted = spec.replicas.unwrap();
    prop_assert_eq!(world.active(), usize::try_from(wanted).unwrap());
    for pod in &world.pods {
        prop_assert_eq!(&pod.spec, &spec.template.spec);
    }
    let status = world.deployment.status.clone().unwrap();
    let counts = [status.replicas, status.updated_replicas, status.available_replicas, status.ready_replicas];
    prop_assert_eq!(counts, [Some(wanted); 4]);
    prop_assert_eq!(status.unavailable_replicas, Some(0));
    let reason = condition(&status, "Progressing").and_then(|condition| condition.reason);
    prop_assert_eq!(reason.as_deref(), Some("NewReplicaSetAvailable"));
    let active = world.sets.iter().filter(|set| set.spec.as_ref().unwrap().replicas != Some(0)).count();
    prop_assert!(active <= 1);
    Ok(())
}

fn limit() -> impl Strategy<Value = Value> {
    prop_oneof![(0..4_i32).prop_map(|number| json!(number)), (0..101_i32).prop_map(|part| json!(format!("{part}%")))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(100)))]

    #[test]
    fn a_rollout_stays_within_its_limits_while_no_pod_fails(
        replicas in 0..8_i32, surge in limit(), unavailable in limit(),
        events in prop::collection::vec(calm(), 0..250),
    ) {
        let mut world = world(replicas, &surge, &unavailable);
        prop_assert_eq!(world.settle(), Ok(()));
        let limits = Limits::read(world.deployment.spec.as_ref().unwrap()).unwrap();
        for event in events {
            happen(&mut world, &event);
            prop_assert!(i32::try_from(world.peak).unwrap() <= limits.most(), "{} of {limits:?}", world.peak);
            prop_assert!(i32::try_from(world.ready()).unwrap() >= limits.fewest(), "{} of {limits:?}", world.ready());
        }
        prop_assert_eq!(world.settle(), Ok(()));
        prop_assert!(i32::try_from(world.peak).unwrap() <= limits.most());
        assert_arrived(&world)?;
    }

    #[test]
    fn whatever_happened_the_wanted_state_is_reached_and_kept(
        replicas in 0..8_i32, surge in limit(), unavailable in limit(), min_ready in 0..15_i32,
        events in prop::collection::vec(rough(), 0..250),
    ) {
        let mut world = world(replicas, &surge, &unavailable);
        world.edit(|spec| spec.min_ready_seconds = Some(min_ready));
        for event in events {
            happen(&mut world, &event);
        }
        world.edit(|spec| spec.paused = Some(false));
        prop_assert_eq!(world.settle(), Ok(()));
        assert_arrived(&world)?;
        world.wait(10_000);
        prop_assert!(!world.deploy(), "time alone writes nothing");
        for index in 0..world.sets.len() {
            prop_assert!(!world.replicate(index));
        }
    }

    #[test]
    fn recreate_never_mixes_templates(
        replicas in 0..5_i32, events in prop::collection::vec(rough(), 0..250),
    ) {
        let recreate = json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": null } } });
        let mut world = World::new(deployment(replicas, "a", recreate));
        for event in events {
            happen(&mut world, &event);
            let running = world.pods.iter().filter(|pod| !crate::pods::is_finished(pod));
            let images: BTreeSet<_> =
                running.map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone()).collect();
            prop_assert!(images.len() <= 1, "{images:?}");
        }
        world.edit(|spec| spec.paused = Some(false));
        prop_assert_eq!(world.settle(), Ok(()));
        assert_arrived(&world)?;
    }
}
