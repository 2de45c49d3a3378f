//! The audit log: who asked for what and what came of it, a line of JSON for each request, as Kubernetes writes it
//! (`audit.k8s.io/v1`, level `Metadata`). No body of a request or an answer is in it.
//!
//! # Guarantees
//! - A request waits for nothing here. Events that come faster than they can be written are counted
//!   (`apiserver_audit_error_total`) and left out, and the log warns of it.
//! - What was answered before [`AuditLog::flush`] is written when that returns in time.

mod event;
mod trail;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

pub(crate) use trail::{Peer, Trail};

/// Events that wait to be written: some megabytes, and seconds of a disk that stalls.
const WAITING: usize = 4096;

/// Where events go. Clones are the same log.
#[derive(Clone)]
pub struct AuditLog {
    orders: SyncSender<Order>,
    /// Whether the last event was lost.
    losing: Arc<AtomicBool>,
    counts: Counts,
}

/// Under the names that dashboards of Kubernetes know.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub(crate) events: Counter,
    pub(crate) lost: Counter,
}

enum Order {
    Write(Vec<u8>),
    /// Answered when all before it is written.
    Flush(SyncSender<()>),
}

impl AuditLog {
    /// A log that is written by a thread of its own. Each event is one call of `write`.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn new(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (orders, taken) = sync_channel(WAITING);
        let counts = Counts::default();
        let lost = counts.lost.clone();
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || work(out, &taken, &lost))?;
        Ok(Self { orders, losing: Arc::default(), counts })
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Has an event written, if there is room for it.
    fn write(&self, line: Vec<u8>) {
        self.counts.events.inc();
        match self.orders.try_send(Order::Write(line)) {
            Ok(()) => {
                if self.losing.swap(false, Ordering::Relaxed) {
                    tracing::warn!(lost = self.counts.lost.get(), "audit events are being written again");
                }
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.lost.inc();
                if !self.losing.swap(true, Ordering::Relaxed) {
                    tracing::warn!("dropped audit events: they arrive faster than they can be written");
                }
            }
        }
    }

    /// Waits, but not for ever, until all events so far are written. Blocks: for the end of a process.
    pub fn flush(&self, patience: Duration) {
        let (written, answer) = sync_channel(1);
        let orders = self.orders.clone();
        // There may be no room for it at the moment, and only answers are waited for with a limit.
        std::thread::spawn(move || orders.send(Order::Flush(written)));
        // Whoever has waited long enough goes without it.
        let _ = answer.recv_timeout(patience);
    }
}

fn work(mut out: impl Write, orders: &Receiver<Order>, lost: &Counter) {
    let mut failing = false;
    while let Ok(order) = orders.recv() {
        let written = match order {
            Order::Write(line) => out.write_all(&line),
            Order::Flush(asked) => {
                let flushed = out.flush();
                // It may have gone on without an answer.
                let _ = asked.try_send(());
                flushed
            }
        };
        match written {
            Ok(()) => failing = false,
            Err(error) => {
                lost.inc();
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "dropped audit events: they cannot be written");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::Sender;

    use super::*;

    /// A disk that takes a write only when it is let.
    struct Slow {
        let_go: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // After the test has hung up, everything goes.
            let _ = self.let_go.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (AuditLog, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (go, let_go) = std::sync::mpsc::channel();
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let log = AuditLog::new(Slow { let_go, written: written.clone() }).unwrap();
        (log, go, written)
    }

    #[test]
    fn a_disk_that_stalls_holds_nobody_up_and_what_is_lost_is_counted() {
        let (log, go, written) = slow();
        let many = WAITING + 100;
        for number in 0..many {
            log.write(format!("{number}\n").into_bytes());
        }
        let lost = usize::try_from(log.counts.lost.get()).unwrap();
        // One may be in the writer's hands.
        assert!((99..=100).contains(&lost), "{lost}");
        drop(go);
        // However full it is: all of it is waited for.
        log.flush(Duration::from_secs(60));
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let numbers: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
        // What there was room for is all there, in order; the one that came into the room that the writer made may be any.
        assert_eq!(numbers.len(), many - lost);
        assert!(numbers.is_sorted() && numbers.iter().take(WAITING).copied().eq(0..WAITING), "{:?}", numbers.last());
    }

    #[test]
    fn the_end_is_not_waited_for_for_ever() {
        let (log, _go, written) = slow();
        log.write(b"x\n".to_vec());
        log.flush(Duration::from_millis(1));
        assert!(written.lock().unwrap().is_empty());
    }
}
