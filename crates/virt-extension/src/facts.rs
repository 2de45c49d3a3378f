//! What the rules look up in the cluster, for one review.
//!
//! The rules are functions without a client: they ask for what they need, and are asked again once it is here. So nothing is watched
//! that there may be thousands of, and what a user has just created is found.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kubevirt::KubeVirt;
use api::names::group;
use api::preset::VirtualMachineInstancePreset;
use http::Request;
use kube::Client;
use manager::cache::{Cache, namespace_of};
use manager::caches::Caches;
use serde_json::Value;
use virt_server::Objects;

const KUBEVIRTS: &str = "kubevirts";
const PRESETS: &str = "virtualmachineinstancepresets";
const BY_NAMESPACE: &str = "namespace";

/// What every review needs, and there is little of.
#[derive(Clone)]
pub(crate) struct Watched {
    kubevirts: Cache<KubeVirt>,
    presets: Cache<VirtualMachineInstancePreset>,
}

impl Watched {
    pub(crate) fn new(caches: &Caches) -> Self {
        Self { kubevirts: caches.of(&[]), presets: caches.of(&[(BY_NAMESPACE, namespace_of)]) }
    }

    pub(crate) async fn synced(&self) {
        self.kubevirts.synced().await;
        self.presets.synced().await;
    }
}

/// Something to look up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lookup {
    One {
        group: String,
        plural: String,
        namespace: String,
        name: String,
    },
    /// All of a namespace; all there are, if it is empty.
    Within {
        group: String,
        plural: String,
        namespace: String,
    },
    /// Whether there is one, at least.
    Any {
        group: String,
        plural: String,
    },
}

/// What was found so far, and what is missing.
pub(crate) struct Facts<'a> {
    watched: &'a Watched,
    found: BTreeMap<Lookup, Vec<Value>>,
    missing: RefCell<BTreeSet<Lookup>>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(watched: &'a Watched) -> Self {
        Self { watched, found: BTreeMap::new(), missing: RefCell::default() }
    }

    /// What was asked for and is not here.
    pub(crate) fn missing(&mut self) -> BTreeSet<Lookup> {
        std::mem::take(self.missing.get_mut())
    }

    pub(crate) fn learn(&mut self, lookup: Lookup, found: Vec<Value>) {
        self.found.insert(lookup, found);
    }

    fn look(&self, lookup: Lookup) -> Vec<Value> {
        match self.found.get(&lookup) {
            Some(found) => found.clone(),
            None => {
                self.missing.borrow_mut().insert(lookup);
                Vec::new()
            }
        }
    }
}

impl Objects for Facts<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let text = str::to_owned;
        let lookup =
            Lookup::One { group: text(group), plural: text(plural), namespace: text(namespace), name: text(name) };
        self.look(lookup).pop()
    }

    fn all(&self, group: &str, plural: &str) -> Vec<Value> {
        match (group, plural) {
            (group::KUBEVIRT, KUBEVIRTS) => values(&self.watched.kubevirts.all()),
            _ => self.within(group, plural, ""),
        }
    }

    fn count(&self, group: &str, plural: &str) -> usize {
        match (group, plural) {
            (group::KUBEVIRT, KUBEVIRTS) => self.watched.kubevirts.all().len(),
            (group::KUBEVIRT, PRESETS) => self.watched.presets.all().len(),
            _ => self.look(Lookup::Any { group: group.to_owned(), plural: plural.to_owned() }).len(),
        }
    }

    fn within(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let text = str::to_owned;
        match (group, plural) {
            (group::KUBEVIRT, PRESETS) => values(&self.watched.presets.find(BY_NAMESPACE, namespace)),
            _ => self.look(Lookup::Within { group: text(group), plural: text(plural), namespace: text(namespace) }),
        }
    }
}

fn values<T: serde::Serialize>(objects: &[Arc<T>]) -> Vec<Value> {
    objects.iter().filter_map(|one| serde_json::to_value(&**one).ok()).collect()
}

impl Lookup {
    /// Looks it up now.
    pub(crate) async fn find(&self, client: &Client) -> Result<Vec<Value>, kube::Error> {
        // What no object is called, none is; and nobody's text becomes a part of a path.
        let Some(path) = self.path() else { return Ok(Vec::new()) };
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        match client.request::<Value>(request).await {
            Ok(mut found) => Ok(match (self, found["items"].take()) {
                (Self::One { .. }, _) => vec![found],
                (Self::Within { .. } | Self::Any { .. }, Value::Array(items)) => items,
                (Self::Within { .. } | Self::Any { .. }, _) => Vec::new(),
            }),
            // Nor is there anything of a kind that the cluster does not have.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn path(&self) -> Option<String> {
        let (group, plural, namespace) = match self {
            Self::One { group, plural, namespace, .. } | Self::Within { group, plural, namespace } => {
                (group, plural, namespace.as_str())
            }
            Self::Any { group, plural } => (group, plural, ""),
        };
        let version = match group.as_str() {
            "instancetype.kubevirt.io" | "snapshot.kubevirt.io" => "v1beta1",
            _ => "v1",
        };
        let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/{version}") };
        let base = match namespace {
            "" => format!("{root}/{plural}"),
            namespace if is_plain(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            _ => return None,
        };
        match self {
            Self::One { name, .. } => is_plain(name).then(|| format!("{base}/{name}")),
            Self::Within { .. } => Some(base),
            Self::Any { .. } => Some(format!("{base}?limit=1")),
        }
    }
}

/// Whether an object could be called so.
fn is_plain(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    name.len() <= 253 && name.bytes().all(is_known) && name.bytes().any(|byte| byte != b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> Lookup {
        let text = str::to_owned;
        Lookup::One { group: text("apps"), plural: text("controllerrevisions"), namespace: text("n"), name: text(name) }
    }

    #[test]
    fn no_name_leads_to_another_path() {
        let path = "/apis/apps/v1/namespaces/n/controllerrevisions/a.b-1";
        assert_eq!(one("a.b-1").path().as_deref(), Some(path));
        for name in ["", "..", "a/b", "a?b", "a%2fb", "A", "../../secrets/x", "a b", "ä"] {
            assert_eq!(one(name).path(), None, "{name:?}");
        }
    }
}
