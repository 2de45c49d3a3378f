//! Answers that are on their way to one client: one that reads a byte now and then would keep a place for ever, and so would one
//! that gives HTTP/2 no window.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// An answer that is not sent by then ends its connection. Watches, logs that are followed and streams are none of these.
const LONGEST_ANSWER: Duration = Duration::from_secs(300);
/// How often it is looked for them.
const LOOKS: Duration = Duration::from_secs(30);

/// Those of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(Arc<Mutex<Begun>>);

#[derive(Debug, Default)]
struct Begun {
    next: u64,
    /// When each began. Earlier ones have lower numbers.
    all: BTreeMap<u64, Instant>,
}

/// An answer, until it was sent or given up.
#[derive(Debug)]
pub(crate) struct Answer {
    of: Answers,
    number: u64,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.of.begun().all.remove(&self.number);
    }
}

impl Answers {
    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that is sent from now on.
    pub(crate) fn begin(&self) -> Answer {
        let mut begun = self.begun();
        let number = begun.next;
        begun.next += 1;
        begun.all.insert(number, Instant::now());
        Answer { of: self.clone(), number }
    }

    /// Resolves when one of them takes too long.
    pub(super) async fn overdue(&self) {
        loop {
            sleep(LOOKS).await;
            let oldest = self.begun().all.first_key_value().map(|(_, began)| *began);
            if oldest.is_some_and(|began| began.elapsed() > LONGEST_ANSWER) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_never_read_is_overdue_and_those_that_were_are_not() {
        let answers = Answers::default();
        let never = timeout(Duration::from_secs(3600), answers.overdue());
        let read = async {
            for _ in 0..50 {
                let _answer = answers.begin();
                sleep(Duration::from_secs(60)).await;
            }
        };
        let (never, ()) = tokio::join!(never, read);
        assert!(never.is_err());
        let (_answer, began) = (answers.begin(), Instant::now());
        answers.overdue().await;
        assert!(began.elapsed() > LONGEST_ANSWER && began.elapsed() <= LONGEST_ANSWER + LOOKS * 2);
    }
}
