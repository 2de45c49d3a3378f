//! Turns the events of `tracing` into lines of the log.

use std::sync::Arc;

use serde_json::Value;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::filter::Filter;
use super::line::{Fields, Format, Line};
use super::parts::{self, Part};
use super::sink::Sink;
use crate::cluster::clock;

/// The part that works for all controllers: its lines are those of the controller it works for.
const FRAME: &str = "manager";
/// The part that is the binary.
const OWN: &str = "orlop";

/// Writes a line for each event that the filter lets through, with what the spans around it know.
pub(super) struct Lines {
    pub(super) filter: Filter,
    pub(super) format: Format,
    /// The component of what belongs to none.
    pub(super) program: &'static str,
    pub(super) sink: Arc<Sink>,
}

impl Lines {
    /// Spans of ours carry what every line inside them must say, whatever its level.
    fn keeps(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && parts::by_module(metadata.target()).is_some()
    }

    /// Whether it depends on the spans around it if it is logged.
    fn depends(&self, metadata: &Metadata<'_>) -> bool {
        is_frame(metadata) && *metadata.level() <= self.filter.most()
    }
}

fn is_frame(metadata: &Metadata<'_>) -> bool {
    parts::by_module(metadata.target()).is_some_and(|part| part.name == FRAME)
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.keeps(metadata) || self.filter.allows(metadata) && !is_frame(metadata) {
            Interest::always()
        } else if self.depends(metadata) {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        if self.keeps(metadata) {
            return true;
        }
        let worked_for = || {
            let span = context.lookup_current()?;
            let parts = span.scope().map(|span| part_of(span.extensions().get::<Fields>()?));
            parts.flatten().next()
        };
        match is_frame(metadata).then(worked_for).flatten() {
            Some(part) => self.filter.allows_for(metadata, part),
            None => self.filter.allows(metadata),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        // Ours are spans of `info`: they are kept as long as anything is logged.
        let most = self.filter.most();
        Some(if most == LevelFilter::OFF { most } else { most.max(LevelFilter::INFO) })
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        // In the order in which they are declared, whenever they are known.
        let mut fields = Fields::default();
        attributes.metadata().fields().iter().for_each(|field| fields.set(field.name(), Value::Null));
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = self.sink.known();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(known) = span.extensions().get::<Fields>() {
                fields.extend(known);
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        let own = parts::by_module(metadata.target());
        let part = if is_frame(metadata) { part_of(&fields).or(own) } else { own };
        let component = part.map(|part| part.component).filter(|component| !component.is_empty());
        let line = Line {
            time: clock()(),
            level: *metadata.level(),
            component: component.unwrap_or(self.program),
            part: match part {
                // What is wired together here is the program itself.
                Some(part) if part.name == OWN => self.program,
                Some(part) => part.name,
                None => root(metadata),
            },
            fields,
        };
        self.sink.write(line.render(self.format).as_bytes());
    }
}

fn part_of(fields: &Fields) -> Option<&'static Part> {
    parts::by_controller(fields.controller()?)
}

/// The crate of somebody else's line.
fn root(metadata: &'static Metadata<'static>) -> &'static str {
    let target = metadata.target();
    target.split_once("::").map_or(target, |(root, _)| root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// The lines of what is done, under a filter.
    fn lines(filter: &str, work: impl FnOnce()) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let sink = Arc::<Sink>::default();
        sink.keep(&path).unwrap();
        let filter = filter.parse::<Filter>().unwrap().or(Filter::of(LevelFilter::INFO));
        let lines = Lines { filter, format: Format::Text, program: "orlop", sink };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), work);
        let text = std::fs::read_to_string(&path).unwrap();
        // Without the time.
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    #[test]
    fn a_line_says_what_the_spans_around_it_know() {
        let told = lines("info", || {
            let span = tracing::info_span!(target: "manager::worker", "reconcile", controller = "vm-controller",
                name = "a", uid = tracing::field::Empty, attempt = 1);
            let _entered = span.enter();
            span.record("uid", "u");
            tracing::info!(target: "virt_controller::vm::controller", instance = "a", "created the instance");
        });
        let rest = "controller=vm-controller name=a uid=u attempt=1 instance=a";
        assert_eq!(told, [format!("INFO  virt-controller/vm: created the instance {rest}")]);
    }

    #[test]
    fn a_warning_has_its_context_where_only_warnings_are_logged() {
        let told = lines("warn", || {
            let _entered = tracing::info_span!(target: "manager::worker", "reconcile", uid = "u").entered();
            tracing::info!(target: "node::agent", "started");
            tracing::warn!(target: "node::agent", "did not start");
        });
        assert_eq!(told, ["WARN  node: did not start uid=u"]);
    }

    #[test]
    fn the_frames_lines_are_those_of_the_controller_it_works_for() {
        let work = || {
            for controller in ["vm-controller", "vmi-controller"] {
                let span = tracing::info_span!(target: "manager::worker", "reconcile", controller);
                let _entered = span.enter();
                tracing::debug!(target: "manager::worker", "reconciled");
            }
            tracing::debug!(target: "manager::cache", "synced");
        };
        assert_eq!(lines("vm=debug", work), ["DEBUG virt-controller/vm: reconciled controller=vm-controller"]);
        assert_eq!(lines("manager=debug", work), ["DEBUG orlop/manager: synced"]);
        assert!(lines("off,vm=info", work).is_empty());
    }

    #[test]
    fn a_process_for_one_object_says_which_in_every_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let sink = Arc::<Sink>::default();
        sink.keep(&path).unwrap();
        sink.always([("name", "a"), ("uid", "u")]);
        let filter = Filter::of(LevelFilter::INFO);
        let lines = Lines { filter, format: Format::Text, program: "virt-launcher", sink };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::info!(target: "hypervisor::qmp", "x");
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with(" INFO  virt-launcher/qemu: x name=a uid=u\n"), "{text}");
    }

    #[test]
    fn lines_of_others_are_under_their_crates_name() {
        let told = lines("warn,hyper::=info", || {
            tracing::info!(target: "hyper::proto::h2", "x");
            tracing::info!(target: "rustls::conn", "y");
        });
        assert_eq!(told, ["INFO  orlop/hyper: x"]);
    }
}
