//! The end of a program: queues are closed, so that workers finish what they have and take nothing new.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use crate::once::Once;
use crate::queue::Queue;

type Close = Box<dyn Fn() + Send>;

/// Asks all controllers to end. Clones share it.
#[derive(Clone, Default)]
pub struct Stopping {
    asked: Arc<Once>,
    queues: Arc<Mutex<Vec<Close>>>,
}

impl Stopping {
    /// This queue is closed when the end is asked for.
    pub(crate) fn closes<K: Ord + Clone + Debug + Send + 'static>(&self, queue: &Queue<K>) {
        let queue = queue.clone();
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(move || queue.close()));
    }

    /// Asks for the end.
    pub fn ask(&self) {
        self.asked.happen();
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|close| close());
    }

    /// Waits until the end was asked for; for controllers that do not work on a queue.
    pub async fn asked(&self) {
        self.asked.wait().await;
    }
}
