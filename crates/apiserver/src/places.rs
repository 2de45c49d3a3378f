//! How many requests are worked on at the same time, and whose: no client takes all places, however many it asks for.
//!
//! ```text
//! who asks --> level --> reading: a body that comes or waits     (429 beyond the caller's share)
//!                   \--> working: a place, or a turn in a queue  (429 when the queue is full, or no turn comes)
//!                   |      \--> heavy: a large body, one of few   (the same)
//!                    \-> lasting: a watch, a log that goes on    (429 beyond the caller's share)
//! ```
//!
//! Guarantees:
//! - A level's places are its own: whatever workloads do, nodes and controllers find theirs.
//! - Within a level, users take turns. None holds more than its share. The service accounts of a namespace are one user: whoever
//!   administers it makes as many as it likes.
//! - Large bodies of workloads and strangers leave one of the runtime's threads to everybody else.
//! - Callers in the same process need no place: they are parts of this program, and bounded by it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::identity::{Identity, MASTERS};
use crate::status::Status;

/// A turn that does not come within this time does not come.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Bytes of a body from which on it is no matter of a moment.
const HEAVY: usize = 64 << 10;

/// Marks the requests of a caller in the same process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InThisProcess;

/// Who shares places with whom. As Kubernetes' default priority levels, and fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Whoever may do everything.
    System,
    Node,
    /// Kubernetes' own controllers, the scheduler, and accounts of namespaces that are trusted like `kube-system`.
    Controllers,
    Workload,
    /// Whoever has not said who it is.
    CatchAll,
}

impl Level {
    fn of(who: &Identity, trusted: &[String]) -> Self {
        let is_in = |group: &str| who.groups.iter().any(|one| one == group);
        let account = Identity::as_account(&who.user);
        let is_trusted = |namespace: &str| namespace == "kube-system" || trusted.iter().any(|one| one == namespace);
        if is_in(MASTERS) {
            Self::System
        } else if is_in("system:nodes") {
            Self::Node
        } else if matches!(who.user.as_str(), "system:kube-controller-manager" | "system:kube-scheduler")
            || account.is_some_and(|(namespace, _)| is_trusted(namespace))
        {
            Self::Controllers
        } else if is_in("system:authenticated") {
            Self::Workload
        } else {
            Self::CatchAll
        }
    }
}

/// All places.
pub(crate) struct Places {
    system: Lanes,
    node: Lanes,
    controllers: Lanes,
    workload: Lanes,
    catch_all: Lanes,
    /// For large bodies, of all levels together.
    heavy: Arc<Lane>,
    /// Namespaces whose accounts are at the level of controllers.
    trusted: Vec<String>,
}

/// The places of one level.
struct Lanes {
    reading: Arc<Lane>,
    working: Arc<Lane>,
    lasting: Arc<Lane>,
}

impl Places {
    /// On a runtime with so many threads.
    pub(crate) fn new(threads: usize, trusted: Vec<String>) -> Self {
        let heavy = threads.saturating_sub(1).max(1);
        // Bodies of one caller, places and those for one caller, turns that one caller may wait for, watches of one caller.
        let lanes = |bodies: usize, places: usize, share: usize, turns: usize, watches: usize| Lanes {
            reading: Arc::new(Lane::new(bodies * 4, bodies, 0)),
            working: Arc::new(Lane::new(places, share, turns)),
            lasting: Arc::new(Lane::new(watches * 4, watches, 0)),
        };
        Self {
            system: lanes(400, 80, 80, 2000, 10_000),
            node: lanes(200, 80, 40, 500, 10_000),
            controllers: lanes(400, 80, 60, 1000, 10_000),
            workload: lanes(100, 120, 60, 500, 2000),
            catch_all: lanes(20, 40, 20, 100, 100),
            heavy: Arc::new(Lane::new(heavy, heavy.div_ceil(2), 500)),
            trusted,
        }
    }
}

/// One caller, as far as places go.
pub(crate) struct Caller<'a> {
    /// None, if it needs no place.
    lanes: Option<&'a Lanes>,
    heavy: &'a Arc<Lane>,
    /// Whether its large bodies wait for those of others.
    shares: bool,
    flow: Arc<str>,
}

impl Places {
    /// Whose places a request takes.
    pub(crate) fn caller(&self, who: &Identity, extensions: &http::Extensions) -> Caller<'_> {
        let level = Level::of(who, &self.trusted);
        let lanes = match level {
            Level::System => &self.system,
            Level::Node => &self.node,
            Level::Controllers => &self.controllers,
            Level::Workload => &self.workload,
            Level::CatchAll => &self.catch_all,
        };
        let in_process = extensions.get::<InThisProcess>().is_some();
        // Administrators, nodes and controllers do not wait for tenants.
        let shares = matches!(level, Level::Workload | Level::CatchAll);
        Caller { lanes: (!in_process).then_some(lanes), heavy: &self.heavy, shares, flow: flow(level, who) }
    }
}

/// Who takes turns with others of its level.
fn flow(level: Level, who: &Identity) -> Arc<str> {
    match Identity::as_account(&who.user) {
        Some((namespace, _)) if level == Level::Workload => format!("system:serviceaccounts:{namespace}").into(),
        _ => who.user.as_str().into(),
    }
}

impl Caller<'_> {
    /// A place for a body, from its first byte until it is worked on.
    pub(crate) fn read(&self) -> Result<Option<Seat>, Status> {
        self.lanes.map(|lanes| lanes.reading.enter_now(&self.flow)).transpose()
    }

    /// A place to be worked on, once it is this caller's turn.
    pub(crate) async fn work(&self) -> Result<Option<Seat>, Status> {
        match self.lanes {
            None => Ok(None),
            Some(lanes) => lanes.working.enter(&self.flow).await.map(Some),
        }
    }

    /// A place for work that keeps a thread to itself, if the body is large; beside that of [`Caller::work`].
    pub(crate) async fn work_on(&self, body: &[u8]) -> Result<Option<Seat>, Status> {
        match self.lanes {
            Some(_) if self.shares && body.len() > HEAVY => self.heavy.enter(&self.flow).await.map(Some),
            _ => Ok(None),
        }
    }

    /// A place for what ends when its client likes.
    pub(crate) fn last(&self) -> Result<Option<Seat>, Status> {
        self.lanes.map(|lanes| lanes.lasting.enter_now(&self.flow)).transpose()
    }
}

/// Some places, and who waits for them.
struct Lane {
    seats: usize,
    /// For one caller.
    share: usize,
    /// That may wait, of one caller.
    turns: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    held: BTreeMap<Arc<str>, usize>,
    /// None of them is empty. Whoever waits while a place is free holds its share.
    waiting: BTreeMap<Arc<str>, VecDeque<oneshot::Sender<Seat>>>,
    /// Whose turn was last.
    last: Option<Arc<str>>,
}

/// A place, for as long as it is kept.
pub(crate) struct Seat {
    /// None of a seat that nobody took.
    lane: Option<Arc<Lane>>,
    flow: Arc<str>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.leave(&self.flow);
        }
    }
}

impl Lane {
    fn new(seats: usize, share: usize, turns: usize) -> Self {
        Self { seats, share, turns, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter_now(self: &Arc<Self>, flow: &Arc<str>) -> Result<Seat, Status> {
        self.take(&mut self.state(), flow).ok_or_else(busy)
    }

    async fn enter(self: &Arc<Self>, flow: &Arc<str>) -> Result<Seat, Status> {
        let turn = {
            let mut state = self.state();
            if let Some(seat) = self.take(&mut state, flow) {
                return Ok(seat);
            }
            let waiting = state.waiting.entry(flow.clone()).or_default();
            // Some may have gone while they waited.
            waiting.retain(|one| !one.is_closed());
            if waiting.len() >= self.turns {
                return Err(busy());
            }
            let (turn, seat) = oneshot::channel();
            waiting.push_back(turn);
            seat
        };
        timeout(LONGEST_WAIT, turn).await.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// A seat, if one is free and the caller does not have its share.
    fn take(self: &Arc<Self>, state: &mut State, flow: &Arc<str>) -> Option<Seat> {
        let held = state.held.get(flow).copied().unwrap_or_default();
        if state.used >= self.seats || held >= self.share {
            return None;
        }
        state.used += 1;
        state.held.insert(flow.clone(), held + 1);
        Some(Seat { lane: Some(self.clone()), flow: flow.clone() })
    }

    fn leave(self: &Arc<Self>, flow: &Arc<str>) {
        let mut state = self.state();
        release(&mut state, flow);
        // Whoever is next takes it; those that have gone meanwhile do not.
        while let Some((flow, turn)) = self.next(&mut state) {
            let Some(seat) = self.take(&mut state, &flow) else { return };
            match turn.send(seat) {
                Ok(()) => {}
                Err(mut seat) => {
                    seat.lane = None;
                    release(&mut state, &flow);
                }
            }
        }
    }

    /// Whose turn it is, of those that may have one more: callers take turns in the order of their names.
    fn next(&self, state: &mut State) -> Option<(Arc<str>, oneshot::Sender<Seat>)> {
        if state.used >= self.seats {
            return None;
        }
        let may = |flow: &Arc<str>| state.held.get(flow).copied().unwrap_or_default() < self.share;
        let after = state.last.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let later = state.waiting.range((after, Bound::Unbounded)).map(|(flow, _)| flow);
        let flow = later.chain(state.waiting.keys()).find(|flow| may(flow))?.clone();
        let waiting = state.waiting.get_mut(&flow)?;
        let turn = waiting.pop_front();
        if waiting.is_empty() {
            state.waiting.remove(&flow);
        }
        state.last = Some(flow.clone());
        Some((flow, turn?))
    }
}

fn release(state: &mut State, flow: &Arc<str>) {
    state.used = state.used.saturating_sub(1);
    match state.held.get_mut(flow) {
        Some(held) if *held > 1 => *held -= 1,
        _ => drop(state.held.remove(flow)),
    }
}

/// Kubernetes' words, and when to come again.
fn busy() -> Status {
    let mut status = Status::too_many_requests("too many requests, please try again later");
    status.retry_after = Some(1);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(name: &str) -> Arc<str> {
        name.into()
    }

    #[tokio::test(start_paused = true)]
    async fn users_take_turns_and_none_takes_more_than_its_share() {
        let lane = Arc::new(Lane::new(3, 2, 10));
        let (a, b) = (flow("a"), flow("b"));
        let first = lane.enter(&a).await.unwrap();
        let _second = lane.enter(&a).await.unwrap();
        assert!(lane.enter_now(&a).is_err(), "a share is a share");
        let third = lane.enter(&b).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let wait = |flow: &Arc<str>| {
            let (lane, flow, order) = (lane.clone(), flow.clone(), order.clone());
            tokio::spawn(async move {
                let seat = lane.enter(&flow).await.unwrap();
                order.lock().unwrap().push(flow.to_string());
                tokio::task::yield_now().await;
                drop(seat);
            })
        };
        let waiting = [wait(&a), wait(&a), wait(&a), wait(&b), wait(&b)];
        tokio::task::yield_now().await;
        drop((first, third));
        for one in waiting {
            one.await.unwrap();
        }
        assert_eq!(order.lock().unwrap().len(), 5);
        let first: Vec<String> = order.lock().unwrap().iter().take(3).cloned().collect();
        assert!(first.contains(&"b".to_owned()), "{first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_while_it_waits_takes_no_place_along() {
        let lane = Arc::new(Lane::new(1, 1, 10));
        let (a, b) = (flow("a"), flow("b"));
        let held = lane.enter(&a).await.unwrap();
        let gone = tokio::spawn({
            let (lane, b) = (lane.clone(), b.clone());
            async move { lane.enter(&b).await.map(drop) }
        });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        drop(held);
        drop(lane.enter_now(&a).unwrap());
        let left = |state: &State| (state.used, state.waiting.len());
        assert_eq!(left(&lane.state()), (0, 0));
        // A turn that does not come is given up.
        let _held = lane.enter(&a).await.unwrap();
        assert_eq!(lane.enter(&b).await.map(drop).unwrap_err().retry_after, Some(1));
    }

    #[test]
    fn levels_are_told_by_who_asks() {
        let trusted = ["trusted".to_owned()];
        let of = |user: &str, groups: &[&str]| {
            Level::of(&Identity::new(user, groups.iter().map(|group| (*group).to_owned())), &trusted)
        };
        let account = |namespace: &str| Level::of(&Identity::account(namespace, "a"), &trusted);
        assert_eq!(of("x", &[MASTERS]), Level::System);
        assert_eq!(of("system:node:n", &["system:nodes"]), Level::Node);
        assert_eq!(of("system:kube-scheduler", &[]), Level::Controllers);
        assert_eq!((account("kube-system"), account("trusted")), (Level::Controllers, Level::Controllers));
        assert_eq!(account("default"), Level::Workload);
        // Whoever may be called anything is not trusted for its name.
        assert_eq!(of("trusted", &[]), Level::Workload);
        assert_eq!((of("someone", &[]), Level::of(&Identity::anonymous(), &[])), (Level::Workload, Level::CatchAll));
    }

    #[test]
    fn the_accounts_of_a_namespace_share_what_one_user_has() {
        let places = Places::new(2, vec!["trusted".to_owned()]);
        let flow = |who: &Identity| places.caller(who, &http::Extensions::new()).flow;
        let account = Identity::account;
        assert_eq!(flow(&account("tenant", "a")), flow(&account("tenant", "b")));
        assert_ne!(flow(&account("tenant", "a")), flow(&account("other", "a")));
        assert_ne!(flow(&account("kube-system", "a")), flow(&account("kube-system", "b")));
        assert_ne!(flow(&account("trusted", "a")), flow(&account("trusted", "b")));
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_leave_a_thread_to_others() {
        for (threads, at_once) in [(1, 1), (2, 1), (4, 3)] {
            let places = Places::new(threads, Vec::new());
            let callers =
                ["a", "b", "c", "d"].map(|name| places.caller(&Identity::new(name, []), &http::Extensions::new()));
            let body = vec![0; HEAVY + 1];
            let mut seats = Vec::new();
            for caller in &callers {
                seats.extend(caller.work_on(&body).await.ok().flatten());
                assert!(caller.work_on(&body[1..]).await.unwrap().is_none(), "a small one needs no place");
            }
            assert_eq!(seats.len(), at_once, "{threads}");
        }
    }
}
