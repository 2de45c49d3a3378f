//! The log: lines on standard error and, under `orlop up`, in a file.
//!
//! Programs that run for long log at `info`, which is one line per act that changes the world. Commands that answer and
//! end log at `warn`: their user reads the answer. `docs/logs.md` says what a line looks like and which keys it has.

mod filter;
mod layer;
mod line;
mod parts;
mod sink;

use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

use filter::Filter;
use layer::Lines;
use line::Format;
pub(crate) use sink::Sink;

/// The module of kube's client that logs each request that fails. Whoever made the request says so, too, and says what it was for.
const REQUESTS: &str = "kube_client::client::builder";

/// What is logged, and how.
#[derive(clap::Args)]
#[group(id = "logging")]
pub(crate) struct Arguments {
    /// What to log: a level (off, error, warn, info, debug, trace), and PART=LEVEL for single parts, such as vm=debug,warn.
    /// The default is info for servers and warn for all other commands.
    #[arg(long, global = true, value_name = "FILTER", env = "ORLOP_LOG")]
    log: Option<Filter>,
    /// Format of the log lines.
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text", env = "ORLOP_LOG_FORMAT")]
    log_format: Format,
}

/// Who logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// It runs until it is told to end; its lines are of this component, unless they are of another's.
    Serves(&'static str),
    /// It answers, and ends.
    Answers,
}

impl Arguments {
    /// Logs from now on, for the whole process.
    pub(crate) fn start(self, program: Program) -> Arc<Sink> {
        let Self { log, log_format: format } = self;
        let (program, own) = match program {
            Program::Serves(name) => (name, Filter::of(LevelFilter::INFO).without(&[REQUESTS])),
            // Its answer is the only line, even if a request failed. A line more would end up in the screen of a guest.
            Program::Answers => ("orlop", Filter::of(LevelFilter::WARN).without(&["kube_client", "kube_runtime"])),
        };
        let filter = match log {
            Some(filter) => filter.or(own),
            None => own,
        };
        let sink = Arc::<Sink>::default();
        let lines = Lines { filter, format, program, sink: sink.clone() };
        // It is the first, and the only one.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines));
        sink
    }
}
