use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::model::{Placement, SketchNode, SketchPod, any_node, any_pod, fits, holds, node_name, pull};
use crate::scheduler::affinity::Pull;
use crate::scheduler::{Cluster, Outcome, PodInfo};

/// Places one pod after the other, each assumed where it was put.
fn place_all(nodes: &[SketchNode], pods: &[SketchPod]) -> (Cluster, Vec<Outcome>) {
    let mut cluster = Cluster::default();
    for (index, node) in nodes.iter().enumerate() {
        cluster.set_node(&node.object(index));
    }
    let mut outcomes = Vec::new();
    for (index, pod) in pods.iter().enumerate() {
        let info = Arc::new(PodInfo::new(&pod.object(&format!("p{index}"), None)));
        let outcome = cluster.schedule(&info);
        if let Outcome::Bind { node } = &outcome {
            cluster.assume(&info, node);
        }
        outcomes.push(outcome);
    }
    (cluster, outcomes)
}

#[derive(Clone, Debug)]
enum Step {
    SetNode(usize, SketchNode),
    RemoveNode(usize),
    SetPod { pod: usize, sketch: SketchPod, node: Option<usize>, ended: bool },
    RemovePod(usize),
    Assume(usize, SketchPod, usize),
    Forget(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let pod = (0..6_usize, any_pod(), proptest::option::weighted(0.8, 0..3_usize), proptest::bool::weighted(0.1));
    prop_oneof![
        (0..3_usize, any_node()).prop_map(|(index, node)| Step::SetNode(index, node)),
        (0..3_usize).prop_map(Step::RemoveNode),
        pod.prop_map(|(pod, sketch, node, ended)| Step::SetPod { pod, sketch, node, ended }),
        (0..6_usize).prop_map(Step::RemovePod),
        (0..6_usize, any_pod(), 0..3_usize).prop_map(|(index, pod, node)| Step::Assume(index, pod, node)),
        (0..6_usize).prop_map(Step::Forget),
    ]
}

/// The last word on each object, without any sums.
#[derive(Default)]
struct Truth {
    nodes: BTreeMap<usize, SketchNode>,
    /// With the index of the node, and whether that is assumed.
    pods: BTreeMap<usize, (SketchPod, usize, bool)>,
}

impl Truth {
    fn apply(&mut self, step: &Step) {
        match *step {
            Step::SetNode(index, node) => drop(self.nodes.insert(index, node)),
            Step::RemoveNode(index) => drop(self.nodes.remove(&index)),
            Step::SetPod { pod, sketch, node: Some(node), ended: false } => {
                self.pods.insert(pod, (sketch, node, false));
            }
            Step::SetPod { pod, node: None, ended: false, .. } => {
                self.pods.retain(|index, known| *index != pod || known.2);
            }
            Step::SetPod { pod, ended: true, .. } | Step::RemovePod(pod) => drop(self.pods.remove(&pod)),
            Step::Assume(index, pod, node) => {
                if self.pods.get(&index).is_none_or(|known| known.2) {
                    self.pods.insert(index, (pod, node, true));
                }
            }
            Step::Forget(pod) => self.pods.retain(|index, known| *index != pod || !known.2),
        }
    }

    /// Pods before nodes, and the last of them first.
    fn build(&self) -> Cluster {
        let mut cluster = Cluster::default();
        for (index, (pod, node, assumed)) in self.pods.iter().rev() {
            if *assumed {
                cluster.assume(&Arc::new(PodInfo::new(&pod.object(&format!("p{index}"), None))), &node_name(*node));
            } else {
                cluster.set_pod(&pod.object(&format!("p{index}"), Some(*node)));
            }
        }
        for (index, node) in self.nodes.iter().rev() {
            cluster.set_node(&node.object(*index));
        }
        cluster
    }
}

fn apply(cluster: &mut Cluster, step: &Step) {
    match *step {
        Step::SetNode(index, node) => cluster.set_node(&node.object(index)),
        Step::RemoveNode(index) => cluster.remove_node(&node_name(index)),
        Step::SetPod { pod, sketch, node, ended } => {
            let mut object = sketch.object(&format!("p{pod}"), node);
            object.status.get_or_insert_default().phase = ended.then(|| "Failed".to_owned());
            cluster.set_pod(&object)
        }
        Step::RemovePod(index) => cluster.remove_pod(&format!("p{index}")),
        Step::Assume(index, pod, node) => {
            let info = Arc::new(PodInfo::new(&pod.object(&format!("p{index}"), None)));
            cluster.assume(&info, &node_name(node))
        }
        Step::Forget(index) => cluster.forget(&format!("p{index}")),
    };
}

proptest! {
    #[test]
    fn a_pod_is_placed_exactly_if_a_node_takes_it_and_only_there(
        nodes in vec(any_node(), 1..5),
        pods in vec(any_pod(), 1..12),
    ) {
        let (_, outcomes) = place_all(&nodes, &pods);
        let mut placed: Vec<Placement> = Vec::new();
        for (pod, outcome) in pods.iter().zip(outcomes) {
            let taking: Vec<_> = (0..nodes.len()).filter(|index| fits(pod, *index, &nodes, &placed)).collect();
            match outcome {
                Outcome::Bind { node } => {
                    let chosen = taking.iter().find(|index| node_name(**index) == node);
                    prop_assert!(chosen.is_some(), "{} is not among {:?}", node, taking);
                    placed.extend(chosen.map(|index| (*pod, *index)));
                }
                Outcome::Unschedulable { message, .. } => prop_assert!(taking.is_empty(), "{} {:?}", message, taking),
            }
            prop_assert!((0..nodes.len()).all(|index| holds(index, &nodes, &placed)));
        }
    }

    #[test]
    fn the_pull_on_a_pod_is_that_of_all_pods_that_are_there(
        nodes in vec(any_node(), 1..5),
        placed in vec((any_pod(), 0..4_usize), 0..12),
        gone in vec(0..12_usize, 0..4),
        pod in any_pod(),
    ) {
        let mut cluster = Cluster::default();
        for (index, node) in nodes.iter().enumerate() {
            cluster.set_node(&node.object(index));
        }
        for (index, (other, at)) in placed.iter().enumerate() {
            cluster.set_pod(&other.object(&format!("p{index}"), Some(*at)));
        }
        for index in &gone {
            cluster.remove_pod(&format!("p{index}"));
        }
        let there = placed.iter().enumerate().filter(|(index, (_, at))| *at < nodes.len() && !gone.contains(index));
        let there: Vec<Placement> = there.map(|(_, placement)| *placement).collect();
        let info = PodInfo::new(&pod.object("new", None));
        let found = Pull::on(&info, &cluster);
        for (index, node) in cluster.nodes().enumerate() {
            prop_assert_eq!(found.towards(node), pull(&pod, index, &nodes, &there));
        }
    }

    #[test]
    fn the_same_calls_lead_to_the_same_decisions(nodes in vec(any_node(), 1..5), pods in vec(any_pod(), 1..12)) {
        prop_assert_eq!(place_all(&nodes, &pods), place_all(&nodes, &pods));
    }

    #[test]
    fn a_cluster_kept_up_to_date_equals_one_built_anew(steps in vec(any_step(), 1..40)) {
        let (mut cluster, mut truth) = (Cluster::default(), Truth::default());
        for step in &steps {
            apply(&mut cluster, step);
            truth.apply(step);
            prop_assert_eq!(&cluster, &truth.build());
        }
    }

    #[test]
    fn an_update_that_is_repeated_changes_nothing(steps in vec(any_step(), 1..20)) {
        let mut cluster = Cluster::default();
        for step in &steps {
            apply(&mut cluster, step);
            let before = cluster.clone();
            apply(&mut cluster, step);
            prop_assert_eq!(&cluster, &before);
        }
    }
}
