//! What is known of nodes and of the pods on them, kept up to date piece by piece.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};

use super::census::{Census, Counts};
use super::node::{Load, NodeInfo};
use super::pod::PodInfo;
use super::queue::Event;
use super::selector::Labels;

/// The nodes, the pods that sit on them, and the labels of namespaces.
///
/// # Guarantees
/// - Its state depends on the last thing said of each object, not on the order in which it was said.
/// - Each update returns the event that it means to pods that wait, for [`super::Queue::event`]; `None` if scheduling
///   cannot tell the difference (a heartbeat, a status).
///
/// # Assumptions
/// One caller feeds it in the order of a watch and removes what a new list no longer has. Its size is that of the
/// objects in the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    nodes: BTreeMap<String, NodeInfo>,
    /// Load on nodes whose objects are not known, yet or any more; never an empty one.
    orphans: BTreeMap<String, Load>,
    pods: BTreeMap<String, Placed>,
    namespaces: BTreeMap<String, Labels>,
    /// The same pods as pod affinity sees them.
    census: Census,
    rotation: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Placed {
    pod: Arc<PodInfo>,
    node: String,
    /// The binding is under way: nobody has seen the pod there yet.
    assumed: bool,
}

impl Cluster {
    /// A node was added or changed.
    pub fn set_node(&mut self, node: &Node) -> Option<Event> {
        let mut info = NodeInfo::new(node);
        let (changed, load) = match self.nodes.get_mut(&info.name) {
            Some(known) => {
                let load = mem::take(&mut known.load);
                (*known != info, load)
            }
            None => (true, self.orphans.remove(&info.name).unwrap_or_default()),
        };
        info.load = load;
        self.nodes.insert(info.name.clone(), info);
        changed.then_some(Event::Node)
    }

    /// A node is gone; pods on it count again should it come back.
    pub fn remove_node(&mut self, name: &str) -> Option<Event> {
        let node = self.nodes.remove(name)?;
        if !node.load.pods.is_empty() {
            self.orphans.insert(node.name, node.load);
        }
        Some(Event::Node)
    }

    /// A pod was added or changed. Only one that sits on a node and has not ended counts.
    pub fn set_pod(&mut self, pod: &Pod) -> Option<Event> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return self.remove_pod(uid);
        }
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty());
        match node {
            // The same pod as it was when it was assumed has its node in neither case.
            Some(node) => self.place(Arc::new(PodInfo { node_name: None, ..PodInfo::new(pod) }), node, false),
            // It was seen before its binding was; what is assumed stands.
            None if self.is_assumed(uid) => None,
            None => self.remove_pod(uid),
        }
    }

    /// A pod is gone.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Event> {
        let Placed { pod, node, .. } = self.pods.remove(uid)?;
        self.census.remove(&pod, &node);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.load.remove(&pod);
        } else if let Some(load) = self.orphans.get_mut(&node) {
            load.remove(&pod);
            if load.pods.is_empty() {
                self.orphans.remove(&node);
            }
        }
        Some(Event::PodRemoved)
    }

    /// A binding is on its way: from now on the pod counts. What the API server says of it later wins.
    pub fn assume(&mut self, pod: &Arc<PodInfo>, node: &str) -> Option<Event> {
        let seen = self.pods.get(&pod.uid).is_some_and(|placed| !placed.assumed);
        if seen { None } else { self.place(Arc::clone(pod), node, true) }
    }

    /// The binding failed; does nothing once the pod was seen on a node.
    pub fn forget(&mut self, uid: &str) -> Option<Event> {
        if self.is_assumed(uid) { self.remove_pod(uid) } else { None }
    }

    /// A namespace was added or changed. One that is not known counts as one without labels.
    pub fn set_namespace(&mut self, namespace: &Namespace) -> Option<Event> {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        let labels = namespace.metadata.labels.clone().unwrap_or_default();
        let changed = self.namespaces.get(&name) != Some(&labels);
        self.namespaces.insert(name, labels);
        changed.then_some(Event::Namespace)
    }

    /// A namespace is gone.
    pub fn remove_namespace(&mut self, name: &str) -> Option<Event> {
        self.namespaces.remove(name).map(|_| Event::Namespace)
    }

    pub(super) fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeInfo> {
        self.nodes.values()
    }

    pub(super) fn namespace_labels(&self, namespace: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(namespace).unwrap_or(&NONE)
    }

    pub(super) fn census(&self) -> &Census {
        &self.census
    }

    /// The nodes that are known of those that pods were counted on.
    pub(super) fn counted(&self, counts: &Counts) -> impl Iterator<Item = (&NodeInfo, usize)> {
        counts.iter().filter_map(|(name, count)| Some((self.nodes.get(name)?, *count)))
    }

    pub(super) fn rotation(&self) -> usize {
        self.rotation
    }

    pub(super) fn advance_rotation(&mut self) {
        self.rotation = self.rotation.wrapping_add(1);
    }

    fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|placed| placed.assumed)
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: &str, assumed: bool) -> Option<Event> {
        if let Some(known) = self.pods.get_mut(&pod.uid)
            && known.node == node
            && known.pod == pod
        {
            known.assumed = assumed;
            return None;
        }
        let event = self.remove_pod(&pod.uid).map_or(Event::PodAdded, |_| Event::PodChanged);
        let load = match self.nodes.get_mut(node) {
            Some(node) => &mut node.load,
            None => self.orphans.entry(node.to_owned()).or_default(),
        };
        load.add(&pod);
        self.census.add(&pod, node);
        self.pods.insert(pod.uid.clone(), Placed { pod, node: node.to_owned(), assumed });
        Some(event)
    }
}
