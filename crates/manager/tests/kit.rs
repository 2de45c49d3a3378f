//! The rules that every controller may rely on.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::client::Body;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::caches::Caches;
use manager::context::{Chance, Context, Now, Started};
use manager::events::Recorder;
use manager::kit::{Expected, Kit, Orphans, Reconciler, Remembered, STUCK, Watched};
use manager::queue::QueueMetrics;
use manager::stopping::Stopping;
use manager::worker::Next;
use prometheus_client::metrics::counter::Counter;
use proptest::prelude::*;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const NAME: &str = "test-controller";

fn context() -> Context {
    let nobody = tower::service_fn(async |_: http::Request<Body>| {
        Ok::<_, Infallible>(http::Response::builder().status(500).body(Body::empty()).unwrap())
    });
    let client = Client::new(nobody, "default");
    let (now, chance): (Now, _) = (Arc::new(|| jiff::Timestamp::UNIX_EPOCH), Chance::seeded(1));
    let (recorder, _writer) = Recorder::new(client.clone(), NAME, now.clone());
    let (caches, queues, stopping) =
        (Caches::new(client.clone(), chance.clone()), QueueMetrics::default(), Stopping::default());
    Context { client, caches, recorder, now, queues, chance, stopping }
}

fn cache<T: Watched>() -> Cache<T> {
    Cache::new([], Counter::default())
}

fn map(name: &str, uid: &str, version: u32) -> ConfigMap {
    let metadata = json!({ "name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string() });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// A pod of a config map of the name `a`; none controls it if there is no UID.
fn pod(name: &str, uid: &str, version: u32, owner: Option<&str>, deleted: bool) -> Pod {
    let owners = owner
        .map(|uid| json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid, "controller": true }]));
    let time = deleted.then_some("2026-01-01T00:00:00Z");
    let metadata = json!({
        "name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(), "ownerReferences": owners,
        "deletionTimestamp": time,
    });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn synced<T: Watched>(cache: &Cache<T>) {
    cache.apply(Event::Init);
    cache.apply(Event::InitDone);
}

/// Notes which keys it is asked for, and does what it is told.
#[derive(Clone, Default)]
struct Diary {
    asked: Arc<Mutex<Vec<String>>>,
    hangs: bool,
    last: Option<(Remembered<String>, Cache<ConfigMap>)>,
}

impl Diary {
    fn read(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Reconciler for Diary {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let mut text = key.to_string();
        if let Some((last, maps)) = &self.last {
            let uid = maps.get(key).and_then(|map| map.uid()).unwrap_or_default();
            text = format!("{text} {:?}", last.set(key, uid));
        }
        self.asked.lock().unwrap().push(text);
        if self.hangs {
            pending::<()>().await;
        }
        Ok(Next::Wait)
    }
}

fn spawn(started: Started) -> JoinHandle<()> {
    tokio::spawn(started.run)
}

async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_acts_before_every_list_is_complete_and_no_change_is_lost() {
    let (context, diary) = (context(), Diary::default());
    let (maps, pods) = (cache::<ConfigMap>(), cache::<Pod>());
    let run = spawn(Kit::new(NAME, &context).reconciles(&maps).needs(&pods).run(2, diary.clone()));
    for name in ["b", "a"] {
        maps.apply(Event::Apply(map(name, "u", 1)));
    }
    synced(&pods);
    settle().await;
    assert!(diary.read().is_empty());
    maps.apply(Event::Init);
    maps.apply(Event::InitApply(map("c", "u", 2)));
    maps.apply(Event::InitApply(map("a", "u", 1)));
    maps.apply(Event::InitDone);
    maps.apply(Event::Apply(map("d", "u", 3)));
    settle().await;
    assert_eq!(diary.read(), ["n/a", "n/c", "n/d"]);
    maps.apply(Event::Delete(map("c", "u", 4)));
    settle().await;
    assert_eq!(diary.read(), ["n/c"]);
    context.stopping.ask();
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_still_waits_for_its_caches_ends_when_asked() {
    let context = context();
    let run = spawn(Kit::new(NAME, &context).reconciles(&cache::<ConfigMap>()).run(1, Diary::default()));
    settle().await;
    context.stopping.ask();
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_an_object_is_not_found_by_another_of_its_name() {
    let (context, maps) = (context(), cache::<ConfigMap>());
    let kit = Kit::new(NAME, &context);
    let diary = Diary { last: Some((kit.remembers("uid"), maps.clone())), ..Diary::default() };
    spawn(kit.reconciles(&maps).run(1, diary.clone()));
    synced(&maps);
    let mut heard = Vec::new();
    // Made, changed, replaced unseen, deleted, made once more.
    let steps = [Some(("u", 1)), Some(("u", 2)), Some(("w", 4)), None, Some(("w", 6))];
    for step in steps {
        match step {
            Some((uid, version)) => maps.apply(Event::Apply(map("a", uid, version))),
            None => maps.apply(Event::Delete(map("a", "w", 5))),
        }
        settle().await;
        heard.extend(diary.read());
    }
    assert_eq!(heard, ["n/a None", "n/a Some(\"u\")", "n/a None", "n/a None", "n/a None"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_wakes_its_owner_and_an_orphan_those_who_may_adopt_it() {
    let (context, diary) = (context(), Diary::default());
    let (maps, pods) = (cache::<ConfigMap>(), cache::<Pod>());
    for (name, uid) in [("a", "u"), ("b", "v")] {
        maps.apply(Event::Apply(map(name, uid, 1)));
    }
    let kit = Kit::new(NAME, &context);
    let (expected, key) = (kit.expected(), Key { namespace: "n".to_owned(), name: "a".to_owned() });
    let may_adopt: fn(&ConfigMap, &Pod) -> bool = |map, _| map.name_any() == "b";
    spawn(kit.needs(&maps).owns(&pods, &maps, Orphans::Offered(may_adopt)).run(1, diary.clone()));
    synced(&pods);
    maps.apply(Event::Init);
    maps.apply(Event::InitApply(map("a", "u", 1)));
    maps.apply(Event::InitApply(map("b", "v", 1)));
    maps.apply(Event::InitDone);
    expected.expect(&key, 1, []);
    let heard = async |pod: Event<Pod>| {
        pods.apply(pod);
        settle().await;
        diary.read()
    };
    // Of an owner that is gone, although another has its name.
    assert!(heard(Event::Apply(pod("x", "x", 1, Some("old"), false))).await.is_empty());
    assert!(expected.remaining(&key).is_some());
    assert_eq!(heard(Event::Apply(pod("y", "y", 2, Some("u"), false))).await, ["n/a"]);
    assert_eq!(expected.remaining(&key), None);
    expected.expect(&key, 0, ["y".to_owned()]);
    assert_eq!(heard(Event::Apply(pod("y", "y", 3, Some("u"), true))).await, ["n/a"]);
    assert_eq!(expected.remaining(&key), None);
    assert_eq!(heard(Event::Apply(pod("z", "z", 4, None, false))).await, ["n/b"]);
    // Released: news for the owner from before, and for those who may adopt it.
    assert_eq!(heard(Event::Apply(pod("y", "y", 5, None, true))).await, ["n/a", "n/b"]);
}

/// Whoever owns hundreds reads all of them at each look.
#[tokio::test(start_paused = true)]
async fn the_owner_of_many_is_woken_once_for_changes_that_come_close_together() {
    let (context, diary) = (context(), Diary::default());
    let (maps, pods) = (cache::<ConfigMap>(), cache::<Pod>());
    let kit = Kit::new(NAME, &context);
    let (expected, key) = (kit.expected(), Key { namespace: "n".to_owned(), name: "a".to_owned() });
    spawn(kit.reconciles(&maps).owns_many(&pods, &maps, Orphans::Ignored).run(1, diary.clone()));
    synced(&pods);
    maps.apply(Event::Init);
    maps.apply(Event::InitApply(map("a", "u", 1)));
    maps.apply(Event::InitDone);
    sleep(Duration::from_secs(1)).await;
    diary.read();
    expected.expect(&key, 100, []);
    for number in 0..100 {
        pods.apply(Event::Apply(pod(&format!("p{number}"), &format!("p{number}"), 2 + number, Some("u"), false)));
        settle().await;
        assert_eq!(expected.remaining(&key).is_none(), number == 99, "what is expected is taken off at once");
    }
    assert_eq!(diary.read(), ["n/a"], "the first change after a rest");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(diary.read(), ["n/a"], "and all others");
    // The object itself is news at once, as ever.
    pods.apply(Event::Apply(pod("p1", "p1", 200, Some("u"), false)));
    settle().await;
    maps.apply(Event::Apply(map("a", "u", 201)));
    settle().await;
    assert_eq!(diary.read(), ["n/a", "n/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_shows_what_it_does_and_says_when_it_is_stuck() {
    let (context, maps) = (context(), cache::<ConfigMap>());
    let kit = Kit::new(NAME, &context);
    let (failures, key) = (kit.remembers::<&str>("failure"), Key { namespace: "n".to_owned(), name: "a".to_owned() });
    let expected = kit.expected();
    let started = kit.reconciles(&maps).run(1, Diary { hangs: true, ..Diary::default() });
    let (page, health) = (started.debug.clone().unwrap(), started.health.clone().unwrap());
    assert_eq!(page("").unwrap(), "caches\n  ConfigMap: 0 objects, first list not complete\nqueue\nremembered\n");
    assert_eq!(page("more"), None);
    spawn(started);
    synced(&maps);
    for (name, version) in [("a", 1), ("b", 2)] {
        maps.apply(Event::Apply(map(name, "u", version)));
    }
    settle().await;
    failures.set(&key, "no room");
    expected.expect(&key, 2, []);
    let text = "caches\n  ConfigMap: 2 objects\nqueue\n  n/a: worked on for 0 s\n  n/b: waits\nremembered\n  \
                n/a: expects 2 creations and the deletions of {}\n  n/a: failure: \"no room\"\n";
    assert_eq!(page("").unwrap(), text);
    assert_eq!(health(), Ok(()));
    sleep(STUCK).await;
    assert_eq!(health(), Err("n/a has been worked on for 600 seconds".to_owned()));
}

/// A child that is asked for, and what becomes of it: only marked, gone, or replaced by another of its name.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Marked,
    Gone,
    Replaced,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(64)))]

    /// However many changes a subscriber hears as one, what is expected is met as soon as all have happened, and not before:
    /// unless a child comes and goes unheard, which nobody can see.
    #[test]
    fn what_is_expected_is_met_when_it_has_happened(
        fates in prop::collection::vec(prop_oneof![Just(Fate::Marked), Just(Fate::Gone), Just(Fate::Replaced)], 1..6),
        listens in prop::collection::vec(any::<bool>(), 6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (expected, pods, key) = (Expected::default(), cache::<Pod>(), Key::cluster("a"));
            let mut changes = pods.subscribe();
            let mut hear = async || {
                use futures_util::FutureExt as _;
                while let Some(change) = changes.next().now_or_never() {
                    expected.saw(change.old.as_ref().map(|_| &key), change.new.as_ref().map(|_| &key), &change);
                }
            };
            let name = |index: usize| format!("p{index}");
            expected.expect(&key, fates.len(), []);
            for index in 0..fates.len() {
                prop_assert!(expected.remaining(&key).is_some());
                pods.apply(Event::Apply(pod(&name(index), &name(index), 1, None, false)));
                hear().await;
            }
            prop_assert_eq!(expected.remaining(&key), None);
            expected.expect(&key, 0, (0..fates.len()).map(name));
            let mut left: BTreeMap<String, Fate> = (0..fates.len()).map(name).zip(fates.iter().copied()).collect();
            for (version, listens) in (0..fates.len()).zip(&listens) {
                let Some((name, fate)) = left.pop_first() else { break };
                prop_assert!(expected.remaining(&key).is_some());
                let version = u32::try_from(version).unwrap() + 2;
                match fate {
                    Fate::Marked => pods.apply(Event::Apply(pod(&name, &name, version, None, true))),
                    Fate::Gone => pods.apply(Event::Delete(pod(&name, &name, version, None, true))),
                    Fate::Replaced => pods.apply(Event::Apply(pod(&name, "another", version, None, false))),
                }
                if *listens {
                    hear().await;
                }
            }
            hear().await;
            prop_assert_eq!(expected.remaining(&key), None);
            Ok(())
        })?;
    }
}
