//! Scores: which of the nodes that can take a pod should. One function per rule, with its weight and its scale.

use super::affinity::Pull;
use super::filter::is_tolerated;
use super::node::NodeInfo;
use super::pod::PodInfo;

/// A pod to be placed, and where the pods that are there pull it.
pub(super) struct Preferences<'a> {
    pub(super) pod: &'a PodInfo,
    pub(super) pull: Pull<'a>,
}

pub(super) struct Score {
    weight: i64,
    pub(super) of: fn(&Preferences<'_>, &NodeInfo) -> i64,
    scale: Scale,
}

/// How the numbers of one score come to lie between 0 and 100.
#[derive(Clone, Copy)]
enum Scale {
    /// They do already.
    AsIs,
    /// The highest number is worth 100.
    Most,
    /// The highest number is worth nothing.
    Fewest,
    /// The highest is worth 100, the lowest nothing, whatever their signs.
    Span,
}

const FULL: i64 = 100;

/// Kubernetes' default weights.
pub(super) const SCORES: [Score; 5] = [
    Score { weight: 3, of: unpreferred_taints, scale: Scale::Fewest },
    Score { weight: 2, of: preferred_nodes, scale: Scale::Most },
    Score { weight: 1, of: least_allocated, scale: Scale::AsIs },
    Score { weight: 2, of: preferred_pods, scale: Scale::Span },
    Score { weight: 1, of: balanced_allocation, scale: Scale::AsIs },
];

/// The name of the node with the highest sum; among equals, the turn of `rotation`. Empty without nodes.
pub(super) fn best<'a>(preferences: &Preferences<'_>, nodes: &[&'a NodeInfo], rotation: usize) -> &'a str {
    let mut sums = vec![0; nodes.len()];
    for score in &SCORES {
        let numbers: Vec<_> = nodes.iter().map(|node| (score.of)(preferences, node)).collect();
        for (sum, number) in sums.iter_mut().zip(score.scale.apply(numbers)) {
            *sum += score.weight * number;
        }
    }
    let highest = sums.iter().max();
    let equals: Vec<_> = nodes.iter().zip(&sums).filter(|(_, sum)| Some(*sum) == highest).collect();
    let turn = rotation.checked_rem(equals.len()).unwrap_or_default();
    equals.get(turn).map(|(node, _)| node.name.as_str()).unwrap_or_default()
}

impl Scale {
    fn apply(self, mut numbers: Vec<i64>) -> Vec<i64> {
        let highest = numbers.iter().copied().max().unwrap_or_default();
        let lowest = numbers.iter().copied().min().unwrap_or_default();
        for number in &mut numbers {
            *number = match self {
                Self::AsIs => *number,
                Self::Most => share(*number, highest),
                Self::Fewest => FULL - share(*number, highest),
                Self::Span => share(*number - lowest, highest - lowest),
            };
        }
        numbers
    }
}

fn share(part: i64, whole: i64) -> i64 {
    if whole > 0 { part * FULL / whole } else { 0 }
}

/// Counts the `PreferNoSchedule` taints that the pod does not tolerate.
fn unpreferred_taints(preferences: &Preferences<'_>, node: &NodeInfo) -> i64 {
    let soft = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    let untolerated = soft.filter(|taint| !is_tolerated(&preferences.pod.tolerations, taint)).count();
    i64::try_from(untolerated).unwrap_or(i64::MAX)
}

fn preferred_nodes(preferences: &Preferences<'_>, node: &NodeInfo) -> i64 {
    let terms = preferences.pod.preferred_nodes.iter();
    terms.filter(|(_, term)| term.matches(&node.name, &node.labels)).map(|(weight, _)| weight).sum()
}

fn preferred_pods(preferences: &Preferences<'_>, node: &NodeInfo) -> i64 {
    preferences.pull.towards(node)
}

/// How much of CPU and memory would be left, on average; a pod that asks for nothing counts as a small one.
fn least_allocated(preferences: &Preferences<'_>, node: &NodeInfo) -> i64 {
    let (taken, wanted) = (node.load.demand, preferences.pod.demand);
    let left = [
        (taken.milli_cpu + wanted.milli_cpu, node.allocatable.milli_cpu),
        (taken.memory + wanted.memory, node.allocatable.memory),
    ]
    .map(|(used, whole)| fraction(whole - used, whole, FULL));
    match left {
        [Some(cpu), Some(memory)] => i64::midpoint(cpu, memory),
        [Some(only), None] | [None, Some(only)] => only,
        [None, None] => 0,
    }
}

/// Whether the pod brings the used shares of CPU and memory nearer to each other: 75 if it changes nothing, 100 at best.
fn balanced_allocation(preferences: &Preferences<'_>, node: &NodeInfo) -> i64 {
    let (taken, wanted, whole) = (&node.load.requested, &preferences.pod.requests, &node.allocatable);
    let before = balance([(taken.milli_cpu, whole.milli_cpu), (taken.memory, whole.memory)]);
    let after =
        balance([(taken.milli_cpu + wanted.milli_cpu, whole.milli_cpu), (taken.memory + wanted.memory, whole.memory)]);
    FULL / 2 + (FULL / 2 + after - before) / 2
}

/// 100 where both shares are the same, 50 where one is full and the other empty. In millionths, so that no float is
/// needed: off by one from Kubernetes' number at most.
fn balance(used: [(i128, i128); 2]) -> i64 {
    const MILLION: i64 = 1_000_000;
    match used.map(|(used, whole)| fraction(used, whole, MILLION)) {
        [Some(cpu), Some(memory)] => (MILLION - (cpu - memory).abs() / 2) * FULL / MILLION,
        _ => FULL,
    }
}

/// `part / whole` in `of`ths, between none and all of them; `None` where there is no whole.
fn fraction(part: i128, whole: i128, of: i64) -> Option<i64> {
    if whole <= 0 {
        return None;
    }
    let fraction = part.clamp(0, whole).saturating_mul(i128::from(of)) / whole;
    i64::try_from(fraction).ok()
}
