//! What was asked and answered, in order.

use std::fmt;
use std::io;
use std::sync::Arc;

use kube::core::ObjectMeta;

use crate::Seconds;
use crate::world::World;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A request and what became of it.
    Request {
        /// When it was answered.
        at: Seconds,
        /// The process and the client in it.
        who: String,
        /// GET, POST, ...
        method: String,
        /// With its query.
        path: String,
        /// The name of what it makes; the path does not tell it.
        makes: Option<String>,
        /// The answer, or the fault that took its place.
        outcome: String,
    },
    /// What happened to a process, what the user did, what did not hold.
    Note { at: Seconds, text: String },
    /// What a controller logged.
    Logged {
        at: Seconds,
        /// The line.
        text: String,
    },
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { at, who, method, path, makes: None, outcome } => {
                write!(f, "{at:>9} {who}: {method} {path} → {outcome}")
            }
            Self::Request { at, who, method, path, makes: Some(name), outcome } => {
                write!(f, "{at:>9} {who}: {method} {path} of {name} → {outcome}")
            }
            Self::Note { at, text } | Self::Logged { at, text } => write!(f, "{at:>9} -- {text}"),
        }
    }
}

impl Entry {
    /// Whether it has to do with an object. What happens to processes and what the user does has to do with all.
    fn concerns(&self, about: &About) -> bool {
        match self {
            Self::Note { .. } => true,
            Self::Logged { text, .. } => about.is_in(text, &about.namespace),
            Self::Request { path, makes, .. } => {
                let place = if about.namespace.is_empty() { "/" } else { &format!("/namespaces/{}/", about.namespace) };
                let text = format!("{path}/{}", makes.as_deref().unwrap_or_default());
                !self.is_sign_of_life() && about.is_in(&text, place)
            }
        }
    }

    /// Whether it says that somebody lives, or tells what somebody saw: most requests do.
    fn is_sign_of_life(&self) -> bool {
        match self {
            Self::Request { path, .. } => path.contains("/leases") || path.contains("/events"),
            Self::Note { .. } | Self::Logged { .. } => false,
        }
    }
}

/// The object that something is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Empty for cluster-wide kinds.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl About {
    /// The object with this metadata.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        Self { namespace: text(&metadata.namespace), name: text(&metadata.name), uid: text(&metadata.uid) }
    }

    /// Whether a text names it, or what is named after it, in its place.
    fn is_in(&self, text: &str, place: &str) -> bool {
        let named = |word: &str| !word.is_empty() && text.contains(word);
        named(&self.uid) || (text.contains(place) && named(&self.name))
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// All lines of a run.
#[derive(Clone, Debug, Default)]
pub struct Log(pub(crate) Vec<Entry>);

impl Log {
    /// How many requests there were.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.0.iter().filter(|entry| matches!(entry, Entry::Request { .. })).count()
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// Those that have to do with an object; all but signs of life, where nobody knows which it is.
    pub(crate) fn concerning(&self, about: Option<&About>) -> Vec<String> {
        let concerns = |entry: &&Entry| about.map_or(!entry.is_sign_of_life(), |about| entry.concerns(about));
        self.0.iter().filter(concerns).map(ToString::to_string).collect()
    }

    /// Where two runs part: the index, and the lines.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<(usize, String, String)> {
        let line = |log: &Self, index: usize| log.0.get(index).map_or("nothing".to_owned(), ToString::to_string);
        let index = (0..self.0.len().max(other.0.len())).find(|&index| self.0.get(index) != other.0.get(index))?;
        Some((index, line(self, index), line(other, index)))
    }
}

/// Puts what controllers log into the world's log, until it is dropped.
pub(crate) fn collect(world: &Arc<World>) -> tracing::subscriber::DefaultGuard {
    let world = world.clone();
    let subscriber = tracing_subscriber::fmt()
        .without_time()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || Writer(world.clone()))
        .finish();
    tracing::subscriber::set_default(subscriber)
}

const OURS: [&str; 5] = [" manager::", " kube_controllers::", " node::", " virt_controller::", " virt_handler::"];

struct Writer(Arc<World>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // What libraries have to say is not what was decided.
        if OURS.iter().any(|target| text.contains(target)) {
            self.0.logged(text.trim().to_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, makes: Option<&str>) -> Entry {
        Entry::Request {
            at: Seconds(0),
            who: "p/c".to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            makes: makes.map(ToOwned::to_owned),
            outcome: "200".to_owned(),
        }
    }

    #[test]
    fn a_report_has_what_names_the_object_and_no_leases() {
        let about = About { namespace: "blue".to_owned(), name: "web".to_owned(), uid: "u-1".to_owned() };
        let logged = |text: &str| Entry::Logged { at: Seconds(0), text: text.to_owned() };
        let its_own = [
            request("PATCH", "/apis/kubevirt.io/v1/namespaces/blue/virtualmachineinstances/web", None),
            request("POST", "/api/v1/namespaces/blue/pods", Some("virt-launcher-web-x")),
            request("POST", "/apis/apps/v1/namespaces/blue/controllerrevisions", Some("revision-start-vm-u-1-1")),
            logged("reconcile{namespace=\"blue\" name=\"web\"}: reconciled"),
            Entry::Note { at: Seconds(0), text: "scheduler-0 crashes".to_owned() },
        ];
        let others = [
            request("PUT", "/apis/coordination.k8s.io/v1/namespaces/blue/leases/web", None),
            request("POST", "/api/v1/namespaces/blue/events", Some("web.1")),
            request("PATCH", "/apis/kubevirt.io/v1/namespaces/green/virtualmachineinstances/web", None),
            request("POST", "/api/v1/namespaces/blue/pods", Some("virt-launcher-db-x")),
            logged("reconcile{namespace=\"green\" name=\"web\"}: reconciled"),
        ];
        assert!(its_own.iter().all(|entry| entry.concerns(&about)));
        assert!(!others.iter().any(|entry| entry.concerns(&about)));
        let log = Log(others.to_vec());
        assert_eq!(log.concerning(None).len(), 3);
    }
}
