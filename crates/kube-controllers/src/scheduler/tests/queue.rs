use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::prelude::{Strategy, any, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;
use serde_json::json;

use super::{info, pod};
use crate::scheduler::{Event, PodInfo, Queue};

fn waiting(uid: &str, priority: i32, gated: bool) -> Arc<PodInfo> {
    let gates = if gated { json!([{ "name": "example.com/gate" }]) } else { json!([]) };
    info(&pod(uid, json!({ "spec": { "priority": priority, "schedulingGates": gates } })))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pop(queue: &mut Queue, now: Duration) -> Option<String> {
    queue.pop(now).map(|pod| pod.uid().to_owned())
}

fn queue(uids: &[&str]) -> Queue {
    let mut queue = Queue::default();
    uids.iter().for_each(|uid| queue.push(waiting(uid, 0, false)));
    queue
}

#[test]
fn higher_priority_goes_first_then_first_come_first_served() {
    let mut queue = queue(&["z", "a"]);
    queue.push(waiting("m", 5, false));
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, secs(0))).collect();
    assert_eq!(order, ["m", "z", "a"]);
}

#[test]
fn a_pod_is_in_the_queue_once() {
    let mut queue = queue(&["a", "a"]);
    assert_eq!((queue.len(), pop(&mut queue, secs(0))), (1, Some("a".to_owned())));
    queue.push(waiting("a", 0, false));
    assert_eq!(pop(&mut queue, secs(0)), None, "it is being tried");
    queue.remove("a");
    assert!(queue.is_empty());
}

#[test]
fn a_gate_keeps_a_pod_out() {
    let mut queue = Queue::default();
    queue.push(waiting("a", 0, true));
    assert_eq!((pop(&mut queue, secs(900)), queue.next_wakeup(secs(900))), (None, None));
    queue.push(waiting("a", 0, false));
    assert_eq!(pop(&mut queue, secs(900)).as_deref(), Some("a"));
}

#[test]
fn each_failure_doubles_the_pause_up_to_ten_seconds() {
    let mut queue = queue(&["a"]);
    let mut now = secs(100);
    for pause in [1, 2, 4, 8, 10, 10] {
        assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
        queue.retry("a", now);
        assert_eq!(queue.next_wakeup(now), Some(now + secs(pause)));
        assert_eq!(pop(&mut queue, now + secs(pause) - Duration::from_millis(1)), None);
        now += secs(pause);
    }
}

#[test]
fn an_unschedulable_pod_waits_for_an_event_that_may_help() {
    let mut queue = queue(&["a"]);
    pop(&mut queue, secs(0));
    queue.failed("a", secs(0), [Event::PodRemoved].into());
    queue.event(Event::PodAdded);
    assert_eq!(pop(&mut queue, secs(20)), None);
    queue.event(Event::PodRemoved);
    assert_eq!(pop(&mut queue, secs(20)).as_deref(), Some("a"), "its pause was over long ago");
}

#[test]
fn an_event_does_not_cut_the_pause_short() {
    let mut queue = queue(&["a"]);
    pop(&mut queue, secs(0));
    queue.failed("a", secs(0), [Event::Node].into());
    queue.event(Event::Node);
    assert_eq!((pop(&mut queue, secs(0)), queue.next_wakeup(secs(0))), (None, Some(secs(1))));
    assert_eq!(pop(&mut queue, secs(1)).as_deref(), Some("a"));
}

#[test]
fn an_event_during_the_attempt_is_not_lost() {
    let mut queue = queue(&["a"]);
    pop(&mut queue, secs(0));
    queue.event(Event::Node);
    queue.failed("a", secs(0), [Event::Node].into());
    assert_eq!(pop(&mut queue, secs(1)).as_deref(), Some("a"));
}

#[test]
fn after_five_minutes_a_pod_is_tried_again_in_any_case() {
    let mut queue = queue(&["a"]);
    pop(&mut queue, secs(0));
    queue.failed("a", secs(0), BTreeSet::new());
    assert_eq!((pop(&mut queue, secs(299)), queue.next_wakeup(secs(299))), (None, Some(secs(300))));
    assert_eq!(pop(&mut queue, secs(300)).as_deref(), Some("a"));
}

#[test]
fn an_edit_that_matters_ends_the_wait_and_one_that_does_not_does_not() {
    let mut queue = queue(&["a"]);
    pop(&mut queue, secs(0));
    queue.failed("a", secs(0), BTreeSet::new());
    queue.push(waiting("a", 0, false));
    assert_eq!(pop(&mut queue, secs(20)), None);
    queue.push(info(&pod("a", json!({ "metadata": { "labels": { "app": "x" } } }))));
    assert_eq!(pop(&mut queue, secs(20)).as_deref(), Some("a"));
}

#[test]
fn a_failed_pod_comes_anew() {
    let mut queue = queue(&["a", "b"]);
    pop(&mut queue, secs(0));
    queue.retry("a", secs(0));
    queue.push(waiting("c", 0, false));
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, secs(5))).collect();
    assert_eq!(order, ["b", "a", "c"]);
}

#[derive(Clone, Debug)]
enum Step {
    Push(&'static str, i32, bool),
    Pop,
    Failed(&'static str, BTreeSet<Event>),
    Retry(&'static str),
    Event(Event),
    Remove(&'static str),
    Pass(Duration),
}

fn any_step() -> impl Strategy<Value = Step> {
    let uid = || select(vec!["a", "b", "c", "d"]);
    let event = || select(Event::ALL.to_vec());
    prop_oneof![
        3 => (uid(), 0..2, proptest::bool::weighted(0.2)).prop_map(|(uid, priority, gated)| Step::Push(uid, priority, gated)),
        4 => any::<()>().prop_map(|()| Step::Pop),
        4 => (uid(), btree_set(event(), 0..3)).prop_map(|(uid, events)| Step::Failed(uid, events)),
        1 => uid().prop_map(Step::Retry),
        2 => event().prop_map(Step::Event),
        1 => uid().prop_map(Step::Remove),
        3 => (0..5_u64).prop_map(|seconds| Step::Pass(secs(seconds))),
        1 => (290..310_u64).prop_map(|seconds| Step::Pass(secs(seconds))),
    ]
}

/// The queue as a plain list: nothing moves by itself, each question looks at all of it.
#[derive(Default)]
struct Model {
    pods: Vec<Pending>,
    arrivals: usize,
    now: Duration,
}

struct Pending {
    uid: &'static str,
    priority: i32,
    gated: bool,
    arrival: usize,
    attempts: u32,
    /// When it was handed out: what happened since, and whether it was edited.
    out: Option<(BTreeSet<Event>, bool)>,
    /// Not before.
    due: Duration,
    cured_by: BTreeSet<Event>,
    /// What `due` becomes once it is cured.
    cured_due: Duration,
}

impl Model {
    fn find(&mut self, uid: &str) -> Option<&mut Pending> {
        self.pods.iter_mut().find(|pod| pod.uid == uid)
    }

    fn push(&mut self, uid: &'static str, priority: i32, gated: bool) {
        if let Some(pod) = self.find(uid) {
            let edited = (pod.priority, pod.gated) != (priority, gated);
            (pod.priority, pod.gated) = (priority, gated);
            match &mut pod.out {
                Some((_, before)) => *before |= edited,
                // A gate that was laid and lifted again starts anew.
                None if edited => pod.due = if gated { Duration::ZERO } else { pod.cured_due.min(pod.due) },
                None => {}
            }
            if gated && pod.out.is_none() {
                (pod.due, pod.cured_due) = (Duration::ZERO, Duration::ZERO);
            }
            return;
        }
        self.arrivals += 1;
        self.pods.push(Pending {
            uid,
            priority,
            gated,
            arrival: self.arrivals,
            attempts: 0,
            out: None,
            due: Duration::ZERO,
            cured_by: BTreeSet::new(),
            cured_due: Duration::ZERO,
        });
    }

    fn pop(&mut self) -> Option<String> {
        let now = self.now;
        let due = self.pods.iter_mut().filter(|pod| pod.out.is_none() && !pod.gated && pod.due <= now);
        let first = due.min_by_key(|pod| (-pod.priority, pod.arrival))?;
        first.attempts += 1;
        first.out = Some((BTreeSet::new(), false));
        Some(first.uid.to_owned())
    }

    fn next_wakeup(&self) -> Option<Duration> {
        let waiting = self.pods.iter().filter(|pod| pod.out.is_none() && !pod.gated);
        waiting.map(|pod| pod.due.max(self.now)).min()
    }

    /// `None`: a retry.
    fn put_back(&mut self, uid: &str, cured_by: Option<BTreeSet<Event>>) {
        let (now, arrival) = (self.now, self.arrivals + 1);
        let Some(pod) = self.find(uid) else { return };
        let Some((events, edited)) = pod.out.take() else { return };
        pod.arrival = arrival;
        pod.cured_due = now + secs([1, 2, 4, 8].get(pod.attempts as usize - 1).copied().unwrap_or(10));
        pod.due = pod.cured_due;
        if let Some(cured_by) = cured_by
            && !edited
            && events.is_disjoint(&cured_by)
        {
            pod.due = now + secs(300);
            pod.cured_by = cured_by;
        }
        if pod.gated {
            (pod.due, pod.cured_due) = (Duration::ZERO, Duration::ZERO);
        }
        self.arrivals = arrival;
    }

    fn event(&mut self, event: Event) {
        for pod in &mut self.pods {
            match &mut pod.out {
                Some((events, _)) => drop(events.insert(event)),
                None if pod.cured_by.contains(&event) => pod.due = pod.cured_due.min(pod.due),
                None => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn the_queue_does_what_a_plain_list_would(steps in vec(any_step(), 1..80)) {
        let (mut queue, mut model) = (Queue::default(), Model::default());
        for step in steps {
            match step {
                Step::Push(uid, priority, gated) => {
                    queue.push(waiting(uid, priority, gated));
                    model.push(uid, priority, gated);
                }
                Step::Pop => prop_assert_eq!(pop(&mut queue, model.now), model.pop()),
                Step::Failed(uid, cured_by) => {
                    queue.failed(uid, model.now, cured_by.clone());
                    model.put_back(uid, Some(cured_by));
                }
                Step::Retry(uid) => {
                    queue.retry(uid, model.now);
                    model.put_back(uid, None);
                }
                Step::Event(event) => {
                    queue.event(event);
                    model.event(event);
                }
                Step::Remove(uid) => {
                    queue.remove(uid);
                    model.pods.retain(|pod| pod.uid != uid);
                }
                Step::Pass(time) => model.now += time,
            }
            prop_assert_eq!(queue.next_wakeup(model.now), model.next_wakeup());
            prop_assert_eq!(queue.len(), model.pods.len());
        }
    }
}
