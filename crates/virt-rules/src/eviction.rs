//! What an eviction does to an instance: its strategy, and whether its guest can move.
//!
//! | strategy | can move | its pod is evicted | its guest is moved |
//! |---|---|---|---|
//! | `None`, or one of a later release | | yes | no |
//! | `LiveMigrate` | yes | no | yes |
//! | `LiveMigrate` | no | no | no: it stays until somebody stops it |
//! | `LiveMigrateIfPossible` | yes | no | yes |
//! | `LiveMigrateIfPossible` | no | yes | no |
//! | `External` | | no | no: somebody else acts on the mark |

use api::conditions::{ConditionStatus, has};
use api::vmi::{EvictionStrategy, VirtualMachineInstance};

use crate::config::ClusterConfig;

/// What becomes of an instance whose pod is to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// The pod goes, and the guest with it.
    Ends,
    /// Its guest is moved.
    Moves,
    /// Its guest should be moved and cannot be.
    Stays,
    /// It is marked, and somebody else takes it away.
    IsMarked,
}

/// What becomes of an instance whose pod is to be evicted: its own strategy counts, else that of the cluster.
#[must_use]
pub fn consequence(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Consequence {
    let strategy = vmi.spec.eviction_strategy.clone().unwrap_or_else(|| config.eviction_strategy());
    match (strategy, can_move(vmi)) {
        (EvictionStrategy::LiveMigrate | EvictionStrategy::LiveMigrateIfPossible, true) => Consequence::Moves,
        (EvictionStrategy::LiveMigrate, false) => Consequence::Stays,
        (EvictionStrategy::External, _) => Consequence::IsMarked,
        (EvictionStrategy::LiveMigrateIfPossible, false) | (EvictionStrategy::None | EvictionStrategy::Other(_), _) => {
            Consequence::Ends
        }
    }
}

/// Whether its handler says that the guest can be moved.
#[must_use]
pub fn can_move(vmi: &VirtualMachineInstance) -> bool {
    let conditions = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    has(conditions, "LiveMigratable", &ConditionStatus::True)
}

/// The node that an instance is to leave; none if nobody asked for that.
#[must_use]
pub fn marked(vmi: &VirtualMachineInstance) -> Option<&str> {
    let node = vmi.status.as_ref()?.evacuation_node_name.as_deref()?;
    Some(node).filter(|node| !node.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(strategy: Option<&str>, migratable: Option<&str>) -> VirtualMachineInstance {
        let conditions: Vec<_> =
            migratable.iter().map(|is| json!({ "type": "LiveMigratable", "status": is })).collect();
        let vmi = json!({
            "metadata": { "name": "v" }, "spec": { "domain": { "devices": {} }, "evictionStrategy": strategy },
            "status": { "conditions": conditions },
        });
        serde_json::from_value(vmi).unwrap()
    }

    fn config(strategy: &str) -> ClusterConfig {
        let configuration = json!({ "evictionStrategy": strategy });
        let kubevirt = json!({ "metadata": { "name": "kubevirt" }, "spec": { "configuration": configuration } });
        ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap()))
    }

    #[test]
    fn each_strategy_has_its_consequence() {
        let usual = ClusterConfig::default();
        for (strategy, can, cannot) in [
            (None, Consequence::Ends, Consequence::Ends),
            (Some("None"), Consequence::Ends, Consequence::Ends),
            (Some("Later"), Consequence::Ends, Consequence::Ends),
            (Some("LiveMigrate"), Consequence::Moves, Consequence::Stays),
            (Some("LiveMigrateIfPossible"), Consequence::Moves, Consequence::Ends),
            (Some("External"), Consequence::IsMarked, Consequence::IsMarked),
        ] {
            assert_eq!(consequence(&vmi(strategy, Some("True")), &usual), can, "{strategy:?}");
            for unable in [None, Some("False"), Some("Unknown")] {
                assert_eq!(consequence(&vmi(strategy, unable), &usual), cannot, "{strategy:?}");
            }
        }
    }

    #[test]
    fn what_the_instance_says_counts_before_the_cluster() {
        let cluster = config("LiveMigrate");
        assert_eq!(consequence(&vmi(None, Some("True")), &cluster), Consequence::Moves);
        assert_eq!(consequence(&vmi(Some("None"), Some("True")), &cluster), Consequence::Ends);
    }
}
