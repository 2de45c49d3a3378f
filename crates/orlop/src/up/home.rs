//! Which node of this machine a process is of, and what that node has to itself.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::paths;

/// Users of launchers: one per pod, beyond those of people, of containers' and of systemd's ranges.
const FIRST_USER: u32 = 0x4f52_0000;
const USERS: u32 = 0x1_0000;
/// Users of launchers of one of several nodes.
const SHARE_OF_USERS: u32 = 0x1000;
/// Beyond this, nodes would have no users of their own; and no machine has use for more.
pub(crate) const MOST_NODES: u32 = USERS / SHARE_OF_USERS;

/// What a process does for the nodes of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is the machine's only node, beside everything else.
    Sole,
    /// It runs everything but the nodes.
    Control { nodes: NonZeroU32 },
    /// It is one of the nodes.
    Agent { index: u32, nodes: NonZeroU32 },
}

/// A node, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// The node's name; for a process that is no node, the machine's.
    pub(super) node: String,
    /// The machine's name, which all its nodes have as a label.
    pub(super) machine: String,
    /// The directory of everything that is the node's own.
    pub(super) root: PathBuf,
    role: Role,
}

impl Home {
    /// The home of a process on a machine of this name, below the directory of `orlop up`.
    pub(super) fn new(role: Role, machine: &str, data: &Path) -> Self {
        let (node, root) = match role {
            Role::Sole | Role::Control { .. } => (machine.to_owned(), data.to_owned()),
            Role::Agent { index, .. } => {
                let name = node_name(machine, index);
                let root = paths::node(data, &name);
                (name, root)
            }
        };
        Self { node, machine: machine.to_owned(), root, role }
    }

    /// Whether the machine is one node.
    pub(super) fn is_sole(&self) -> bool {
        self.role == Role::Sole
    }

    /// The node or nodes, as `orlop status` shows them.
    pub(super) fn described(&self) -> String {
        match self.role {
            Role::Sole | Role::Agent { .. } => self.node.clone(),
            Role::Control { nodes } => {
                format!("{} to {}", node_name(&self.machine, 0), node_name(&self.machine, nodes.get() - 1))
            }
        }
    }

    /// How many nodes share the machine.
    pub(super) fn nodes(&self) -> NonZeroU32 {
        match self.role {
            Role::Sole => NonZeroU32::MIN,
            Role::Control { nodes } | Role::Agent { nodes, .. } => nodes,
        }
    }

    /// As which node the process shares the pods' network; none if it has that to itself.
    pub(super) fn network_node(&self) -> Option<String> {
        match self.role {
            Role::Sole => None,
            Role::Control { .. } => Some(String::new()),
            Role::Agent { .. } => Some(self.node.clone()),
        }
    }

    /// Users of its launchers. No two nodes have one in common: what belongs to a launcher of one is closed to those of others.
    pub(super) fn users(&self) -> Range<u32> {
        match self.role {
            Role::Sole | Role::Control { .. } => FIRST_USER..FIRST_USER + USERS,
            Role::Agent { index, .. } => {
                let first = FIRST_USER + index.min(MOST_NODES - 1) * SHARE_OF_USERS;
                first..first + SHARE_OF_USERS
            }
        }
    }
}

/// The name of one of several nodes.
pub(super) fn node_name(machine: &str, index: u32) -> String {
    format!("{machine}-{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_nothing_in_common() {
        let nodes = NonZeroU32::new(MOST_NODES).unwrap();
        let home = |index| Home::new(Role::Agent { index, nodes }, "here", Path::new("/data"));
        let sole = Home::new(Role::Sole, "here", Path::new("/data"));
        assert_eq!((sole.node.as_str(), sole.root.as_path(), sole.network_node()), ("here", Path::new("/data"), None));
        let mut end = sole.users().start;
        for index in 0..MOST_NODES {
            let home = home(index);
            assert_eq!((home.node.clone(), home.machine.as_str()), (format!("here-{index}"), "here"));
            assert_eq!(home.root, Path::new("/data/nodes").join(&home.node));
            assert_eq!(home.network_node(), Some(home.node.clone()));
            assert_eq!(home.users().start, end);
            end = home.users().end;
        }
        assert_eq!(end, sole.users().end);
    }
}
