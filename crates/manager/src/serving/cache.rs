//! Answers that are kept for a short time, and questions that are asked once however many wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::Instant;

/// What was asked, as a digest: it is short however long the question was, and a token cannot be read from it.
pub(super) type Key = [u8; 32];

type Asking<V, E> = BoxFuture<'static, Result<(V, Instant), E>>;

/// Answers to questions. A failure to answer is not kept, but told to all who waited for that answer.
pub(super) struct Answers<V, E> {
    kept_for: Duration,
    most: usize,
    state: Mutex<State<V, E>>,
}

struct State<V, E> {
    /// Answers, and until when they hold.
    known: BTreeMap<Key, (V, Instant)>,
    /// As they came: all are kept equally long, so the first to come is the first to go.
    order: VecDeque<(Instant, Key)>,
    /// Questions that somebody waits for. Who waits keeps the question alive, nobody else does: when all have gone, it is
    /// not asked any more.
    asked: BTreeMap<Key, Asked<V, E>>,
    /// How many questions there were.
    count: u64,
}

struct Asked<V, E> {
    number: u64,
    asking: WeakShared<Asking<V, E>>,
}

enum Found<V, E> {
    Known(V),
    Asked(u64, Shared<Asking<V, E>>),
}

impl<V, E> Answers<V, E>
where
    V: Clone + Send + 'static,
    E: Clone + Send + 'static,
{
    pub(super) fn new(kept_for: Duration, most: usize) -> Self {
        let state = State { known: BTreeMap::new(), order: VecDeque::new(), asked: BTreeMap::new(), count: 0 };
        Self { kept_for, most, state: Mutex::new(state) }
    }

    /// The answer that is known, or that of a question which runs already, or that of a new one.
    pub(super) async fn get<F>(&self, key: Key, ask: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let (number, asking) = match self.find(key, ask) {
            Found::Known(value) => return Ok(value),
            Found::Asked(number, asking) => (number, asking),
        };
        let result = asking.await;
        let mut state = self.lock();
        // Another may have asked again meanwhile.
        if state.asked.get(&key).is_some_and(|asked| asked.number == number) {
            state.asked.remove(&key);
            if let Ok((value, until)) = &result {
                state.keep(key, value.clone(), *until, self.most);
            }
        }
        result.map(|(value, _)| value)
    }

    fn find<F>(&self, key: Key, ask: impl FnOnce() -> F) -> Found<V, E>
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let mut state = self.lock();
        state.forget(Instant::now(), self.most);
        if let Some((value, _)) = state.known.get(&key) {
            return Found::Known(value.clone());
        }
        if let Some((number, asking)) =
            state.asked.get(&key).and_then(|asked| Some((asked.number, asked.asking.upgrade()?)))
        {
            return Found::Asked(number, asking);
        }
        if state.asked.len() >= self.most {
            // Questions that nobody waits for any more.
            state.asked.retain(|_, asked| asked.asking.upgrade().is_some());
        }
        let (asking, kept_for) = (ask(), self.kept_for);
        let asking = async move { asking.await.map(|value| (value, Instant::now() + kept_for)) }.boxed().shared();
        state.count += 1;
        let number = state.count;
        if let Some(weak) = asking.downgrade() {
            state.asked.insert(key, Asked { number, asking: weak });
        }
        Found::Asked(number, asking)
    }

    fn lock(&self) -> MutexGuard<'_, State<V, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V, E> State<V, E> {
    fn keep(&mut self, key: Key, value: V, until: Instant, most: usize) {
        self.known.insert(key, (value, until));
        self.order.push_back((until, key));
        self.forget(Instant::now(), most);
    }

    /// Forgets what is old, and what is too much.
    fn forget(&mut self, now: Instant, most: usize) {
        while let Some((until, key)) = self.order.front() {
            if *until > now && self.order.len() <= most {
                break;
            }
            // A later answer to the same question stays.
            if self.known.get(key).is_some_and(|(_, known)| known == until) {
                self.known.remove(key);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::{advance, sleep};

    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    fn key(number: u8) -> Key {
        [number; 32]
    }

    #[derive(Clone, Default)]
    struct Server(Arc<AtomicU32>);

    impl Server {
        /// Answers after a second with how often it was asked.
        fn ask(&self) -> impl Future<Output = Result<u32, &'static str>> + Send + use<> {
            let asked = self.0.clone();
            async move {
                let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
                sleep(Duration::from_secs(1)).await;
                Ok(number)
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_its_time_and_no_longer() {
        let (answers, server) = (Answers::new(TEN, 8), Server::default());
        assert_eq!(answers.get(key(1), || server.ask()).await, Ok(1));
        advance(Duration::from_millis(9_999)).await;
        assert_eq!(answers.get(key(1), || server.ask()).await, Ok(1));
        assert_eq!(answers.get(key(2), || server.ask()).await, Ok(2));
        assert_eq!(answers.get(key(1), || server.ask()).await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_same_shares_one_question() {
        let (answers, server) = (Arc::new(Answers::new(TEN, 8)), Server::default());
        let waiting: Vec<_> = (0..50)
            .map(|_| {
                let (answers, server) = (answers.clone(), server.clone());
                tokio::spawn(async move { answers.get(key(1), || server.ask()).await })
            })
            .collect();
        // The first who asked goes away; the others still get the answer.
        sleep(Duration::from_millis(500)).await;
        waiting[0].abort();
        for one in waiting.into_iter().skip(1) {
            assert_eq!(one.await.unwrap(), Ok(1));
        }
        assert_eq!(answers.lock().asked.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_waits_for_is_asked_anew() {
        let (answers, server) = (Answers::new(TEN, 1), Server::default());
        drop(tokio::time::timeout(Duration::from_millis(1), answers.get(key(1), || server.ask())).await);
        assert_eq!(answers.get(key(1), || server.ask()).await, Ok(2));
        drop(tokio::time::timeout(Duration::from_millis(1), answers.get(key(2), || server.ask())).await);
        assert_eq!(answers.get(key(3), || server.ask()).await, Ok(4));
        assert_eq!(answers.lock().asked.len(), 0, "the dead one is gone too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_to_all_who_wait_and_not_kept() {
        let (answers, server) = (Answers::new(TEN, 8), Server::default());
        let fail = || {
            let asked = server.ask();
            async move { asked.await.and(Err::<u32, _>("away")) }
        };
        let both = futures_util::future::join(answers.get(key(1), fail), answers.get(key(1), fail)).await;
        assert_eq!(both, (Err("away"), Err("away")));
        assert_eq!(answers.get(key(1), || server.ask()).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_go_when_there_are_too_many() {
        let (answers, server) = (Answers::new(TEN, 2), Server::default());
        for number in 1..=3 {
            assert_eq!(answers.get(key(number), || server.ask()).await, Ok(number.into()));
        }
        assert_eq!(answers.lock().known.len(), 2);
        assert_eq!(answers.lock().order.len(), 2);
        assert_eq!(answers.get(key(3), || server.ask()).await, Ok(3));
        assert_eq!(answers.get(key(1), || server.ask()).await, Ok(4));
    }
}
