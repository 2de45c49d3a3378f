//! One copy of everything that is equal.
//!
//! KubeVirt's schemas repeat each other: across versions whole, across kinds in most parts. Nodes are made from the
//! leaves up, so that equal subtrees have equal children by address, and comparing two nodes costs no walk.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::node::{Node, Pattern, Shared};

/// Keeps one copy of equal schema parts; may serve many schemas.
///
/// It holds what it has seen alive until [`Interner::forget_unused`] or its own end; the schemas stay valid without it.
#[derive(Debug, Default)]
pub struct Interner {
    nodes: HashSet<ByContent>,
    patterns: HashSet<Arc<Pattern>>,
}

impl Interner {
    /// An interner that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of distinct nodes that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Lets go of what no schema uses any more, as after a CRD was deleted.
    #[expect(clippy::mutable_key_type, reason = "what is compiled on first use is not part of hash and equality")]
    #[expect(clippy::disallowed_methods, reason = "what stays depends on no order, and nothing is hashed again")]
    pub fn forget_unused(&mut self) {
        // A parent that goes frees its children, so this repeats until nothing more goes. In which order does not matter.
        loop {
            let before = self.nodes.len();
            self.nodes.retain(|ByContent(node)| Arc::strong_count(node) > 1);
            if self.nodes.len() == before {
                break;
            }
        }
        let kept = std::mem::take(&mut self.patterns);
        self.patterns = kept.into_iter().filter(|pattern| Arc::strong_count(pattern) > 1).collect();
    }

    pub(crate) fn node(&mut self, node: Node) -> Shared {
        let node = ByContent(Arc::new(node));
        if let Some(ByContent(known)) = self.nodes.get(&node) {
            return Shared(Arc::clone(known));
        }
        let shared = Shared(Arc::clone(&node.0));
        self.nodes.insert(node);
        shared
    }

    pub(crate) fn pattern(&mut self, source: &str) -> Arc<Pattern> {
        let pattern = Arc::new(Pattern::new(source));
        if let Some(known) = self.patterns.get(&pattern) {
            return Arc::clone(known);
        }
        self.patterns.insert(Arc::clone(&pattern));
        pattern
    }
}

/// A node that is compared by what it holds.
#[derive(Debug)]
struct ByContent(Arc<Node>);

impl PartialEq for ByContent {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Eq for ByContent {}

impl Hash for ByContent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
