//! The filter of the log: `LEVEL`, and `PART=LEVEL` for single parts.

use std::str::FromStr;

use tracing::Metadata;
use tracing::level_filters::LevelFilter;

use super::parts::{self, Part};

/// What is logged, as `--log` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Of what nothing else is said about; the program's own default if there is none.
    default: Option<LevelFilter>,
    named: Vec<(Name, LevelFilter)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Part(&'static str),
    Component(&'static str),
    Module(String),
}

/// Why a filter makes no sense.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FilterError {
    #[error("{0:?} is not a valid level; use off, error, warn, info, debug or trace")]
    Level(String),
    #[error(
        "unknown part {name:?}; use one of {}, or the path of a Rust module, such as apiserver::store or hyper::",
        .known.join(", ")
    )]
    Part { name: String, known: Vec<&'static str> },
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let level = |text: &str| text.parse().map_err(|_| FilterError::Level(text.to_owned()));
        let mut filter = Self { default: None, named: Vec::new() };
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                Some((name, told)) => filter.named.push((Name::parse(name)?, level(told)?)),
                None => filter.default = Some(level(item)?),
            }
        }
        Ok(filter)
    }
}

impl Name {
    fn parse(text: &str) -> Result<Self, FilterError> {
        let component = || parts::PARTS.iter().find(|part| part.component == text && !text.is_empty());
        if text.contains("::") {
            return Ok(Self::Module(text.trim_end_matches(':').to_owned()));
        }
        // A component's own part has its name; whoever types that means all of the component.
        if let Some(part) = component() {
            return Ok(Self::Component(part.component));
        }
        match parts::by_name(text) {
            Some(part) => Ok(Self::Part(part.name)),
            None => Err(FilterError::Part {
                name: text.to_owned(),
                known: parts::PARTS.iter().map(|part| part.name).collect(),
            }),
        }
    }
}

impl Filter {
    /// The same, with the program's own filter for what it does not speak of. One that has a level for everything speaks of it all.
    pub(super) fn or(self, own: Self) -> Self {
        if self.default.is_some() {
            return self;
        }
        // What is said last counts.
        Self { default: own.default, named: own.named.into_iter().chain(self.named).collect() }
    }

    /// Everything from a level on.
    pub(super) fn of(level: LevelFilter) -> Self {
        Self { default: Some(level), named: Vec::new() }
    }

    /// The same without these modules.
    pub(super) fn without(mut self, modules: &[&str]) -> Self {
        self.named.extend(modules.iter().map(|module| (Name::Module((*module).to_owned()), LevelFilter::OFF)));
        self
    }

    /// The most that any part logs.
    pub(super) fn most(&self) -> LevelFilter {
        let named = self.named.iter().map(|(_, level)| *level);
        named.chain(self.default).max().unwrap_or(LevelFilter::OFF)
    }

    /// Whether a line of this level, from this module, is logged.
    pub(super) fn allows(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level(metadata.target(), parts::by_module(metadata.target()))
    }

    /// Whether a line that works for another part is logged as that part's.
    pub(super) fn allows_for(&self, metadata: &Metadata<'_>, part: &'static Part) -> bool {
        *metadata.level() <= self.level("", Some(part))
    }

    /// What is said of a module, else of its part, else of its component.
    fn level(&self, module: &str, part: Option<&'static Part>) -> LevelFilter {
        let rank = |name: &Name| match name {
            Name::Module(outer) if parts::is_within(module, outer) => Some(2 + outer.len()),
            Name::Part(name) if part.is_some_and(|part| part.name == *name) => Some(1),
            Name::Component(name) if part.is_some_and(|part| part.component == *name) => Some(0),
            _ => None,
        };
        // Of two that are equal, the last one counts.
        let best = self.named.iter().filter_map(|(name, level)| Some((rank(name)?, level))).max_by_key(|one| one.0);
        best.map(|(_, level)| *level).or(self.default).unwrap_or(LevelFilter::OFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(filter: &str, module: &str) -> LevelFilter {
        let filter: Filter = filter.parse().unwrap();
        filter.or(Filter::of(LevelFilter::INFO)).level(module, parts::by_module(module))
    }

    #[test]
    fn a_part_has_its_own_level_and_the_rest_the_default() {
        let filter = "vm=debug,warn";
        assert_eq!(level(filter, "virt_controller::vm::controller"), LevelFilter::DEBUG);
        assert_eq!(level(filter, "virt_controller::vmi::controller"), LevelFilter::WARN);
        assert_eq!(level(filter, "hyper::proto"), LevelFilter::WARN);
        assert_eq!(level("vm=debug", "apiserver::store"), LevelFilter::INFO);
    }

    #[test]
    fn a_component_is_all_of_its_parts_and_a_part_beats_it() {
        let filter = "vmi=off,virt-controller=trace";
        assert_eq!(level(filter, "virt_controller::vm"), LevelFilter::TRACE);
        assert_eq!(level(filter, "virt_controller::configuration"), LevelFilter::TRACE);
        assert_eq!(level(filter, "virt_controller::vmi"), LevelFilter::OFF);
    }

    #[test]
    fn a_module_beats_its_part_and_others_are_named_by_their_path() {
        let filter = "apiserver=warn,apiserver::store=trace,hyper::=error";
        assert_eq!(level(filter, "apiserver::store::writer"), LevelFilter::TRACE);
        assert_eq!(level(filter, "apiserver::route"), LevelFilter::WARN);
        assert_eq!(level(filter, "hyper::proto::h2"), LevelFilter::ERROR);
    }

    #[test]
    fn the_last_word_counts_and_the_most_is_known() {
        assert_eq!(level("node=debug,node=error", "node::agent"), LevelFilter::ERROR);
        assert_eq!("node=debug,warn".parse::<Filter>().unwrap().most(), LevelFilter::DEBUG);
        assert_eq!(Filter::of(LevelFilter::WARN).most(), LevelFilter::WARN);
    }

    #[test]
    fn a_silent_module_is_heard_when_it_or_everything_is_asked_for() {
        let level = |filter: &str, module: &str| {
            let filter: Filter = filter.parse().unwrap();
            let filter = filter.or(Filter::of(LevelFilter::WARN).without(&["kube_client"]));
            filter.level(module, parts::by_module(module))
        };
        for silent in ["", "vm=debug"] {
            assert_eq!(level(silent, "kube_client::client::builder"), LevelFilter::OFF, "{silent:?}");
            assert_eq!(level(silent, "kube_client_of_others"), LevelFilter::WARN, "{silent:?}");
        }
        assert_eq!(level("kube_client::=info", "kube_client::client::builder"), LevelFilter::INFO);
        assert_eq!(level("debug", "kube_client::client::builder"), LevelFilter::DEBUG);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let refused = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
        assert!(refused("loud").starts_with("\"loud\" is not a valid level; "));
        assert!(refused("vm=loud").starts_with("\"loud\" is not a valid level; "));
        assert!(refused("vmm=debug").starts_with("unknown part \"vmm\"; use one of apiserver, "));
    }
}
