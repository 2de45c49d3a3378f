//! Why a node does not take a pod, and how a pod is told of it.

use std::collections::BTreeMap;
use std::fmt;

use super::queue::Event;

/// Why a node does not take a pod; displays as Kubernetes words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    NotNamed,
    NodeName,
    Cordon,
    Taints,
    NodeAffinity,
    HostPorts,
    /// All that is short, at least one.
    Resources(Vec<Shortage>),
    PodAffinity,
    PodAntiAffinity,
    ExistingAntiAffinity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    Pods,
    Cpu,
    Memory,
    EphemeralStorage,
    Extended(String),
}

impl Reason {
    /// Whether an event may make the reason go away. Any event of a node may.
    pub(super) fn is_cured_by(&self, event: Event) -> bool {
        let events: &[Event] = match self {
            Self::NotNamed | Self::NodeName | Self::Cordon | Self::Taints | Self::NodeAffinity => &[],
            Self::HostPorts | Self::Resources(_) => &[Event::PodRemoved, Event::PodChanged],
            // A removal too: the first pod of a kind may go anywhere.
            Self::PodAffinity => &[Event::PodAdded, Event::PodRemoved, Event::PodChanged, Event::Namespace],
            Self::PodAntiAffinity | Self::ExistingAntiAffinity => {
                &[Event::PodRemoved, Event::PodChanged, Event::Namespace]
            }
        };
        event == Event::Node || events.contains(&event)
    }
}

/// For a pod that none of `total` nodes takes: how often which reason was given.
pub(super) fn message(total: usize, reasons: &[Reason]) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for reason in reasons {
        match reason {
            Reason::Resources(short) => {
                short.iter().for_each(|shortage| *counts.entry(shortage.to_string()).or_default() += 1);
            }
            single => *counts.entry(single.to_string()).or_default() += 1,
        }
    }
    let mut parts: Vec<_> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    // As text, count first: 10 comes before 2 in Kubernetes as well.
    parts.sort();
    format!("0/{total} nodes are available: {}.", parts.join(", "))
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNamed => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::NodeName => "node(s) didn't match the requested node name",
            Self::Cordon => "node(s) were unschedulable",
            Self::Taints => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::HostPorts => "node(s) didn't have free ports for the requested pod ports",
            Self::Resources(short) => {
                let short: Vec<_> = short.iter().map(ToString::to_string).collect();
                return f.write_str(&short.join(", "));
            }
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
        })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods => f.write_str("Too many pods"),
            Self::Cpu => f.write_str("Insufficient cpu"),
            Self::Memory => f.write_str("Insufficient memory"),
            Self::EphemeralStorage => f.write_str("Insufficient ephemeral-storage"),
            Self::Extended(name) => write!(f, "Insufficient {name}"),
        }
    }
}
