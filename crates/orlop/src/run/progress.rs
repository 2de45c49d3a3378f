//! A line on the terminal while an image is fetched.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storage::image::Reference;
use storage::pull::Progress;

/// Draws how far a pull is: on a terminal in place, elsewhere a line at each tenth.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// The percentage that was drawn last; none yet is beyond any.
    drawn: Arc<AtomicU64>,
}

impl Default for Bar {
    fn default() -> Self {
        Self { drawn: Arc::new(AtomicU64::new(u64::MAX)) }
    }
}

impl Bar {
    /// Ends the line, if one was drawn.
    pub(super) fn finish(&self) {
        if self.drawn.load(Ordering::Relaxed) != u64::MAX && std::io::stderr().is_terminal() {
            let _ = writeln!(std::io::stderr());
        }
    }
}

impl Progress for Bar {
    fn update(&self, image: &Reference, done: u64, total: u64) {
        let percent = (done * 100).checked_div(total).unwrap_or(0).min(100);
        let terminal = std::io::stderr().is_terminal();
        let step = if terminal { percent } else { percent / 10 * 10 };
        if self.drawn.swap(step, Ordering::Relaxed) == step {
            return;
        }
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let text = format!("orlop: fetching {image}: {step:3} % of {} MiB", mib(total));
        // A progress line that cannot be drawn is no reason to stop.
        let _ = if terminal { write!(std::io::stderr(), "\r{text}") } else { writeln!(std::io::stderr(), "{text}") };
    }
}
