//! Names of what a restore makes.

use api::restore::{VirtualMachineRestore as Restore, VolumeRestorePolicy as Policy};
use manager::names::fnv1a;

/// A name that is also a DNS label.
const LONGEST: usize = 63;

/// What a restore marks its objects with.
#[must_use]
pub fn mark(restore: &Restore) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}-{}", text(&restore.metadata.name), text(&restore.metadata.uid))
}

/// The name of the claim, or data volume, that a volume is restored to; `claim` is what it was taken of.
#[must_use]
pub fn restored(restore: &Restore, volume: &str, claim: &str) -> String {
    let overrides = restore.spec.volume_restore_overrides.iter().flatten();
    let mut named = overrides.filter(|one| one.volume_name.as_deref() == Some(volume));
    let named = named.find_map(|one| one.restore_name.clone().filter(|name| !name.is_empty()));
    named.unwrap_or_else(|| match &restore.spec.volume_restore_policy {
        Some(Policy::InPlace) => claim.to_owned(),
        Some(Policy::PrefixTargetName) => prefixed(&restore.spec.target.name, volume),
        _ => format!("restore-{}-{volume}", restore.metadata.uid.as_deref().unwrap_or_default()),
    })
}

/// Whether claims are replaced by others of their name.
#[must_use]
pub fn is_in_place(restore: &Restore) -> bool {
    restore.spec.volume_restore_policy == Some(Policy::InPlace)
}

/// A name that is too long is cut, and told from others by a hash of the whole.
fn prefixed(target: &str, volume: &str) -> String {
    let name = format!("{target}-{volume}");
    if name.len() <= LONGEST {
        return name;
    }
    let hash = format!("{:08x}", fnv1a(name.as_bytes()));
    let cut: String = name.chars().take(LONGEST - hash.len() - 1).collect();
    format!("{}-{hash}", cut.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn restore(more: &serde_json::Value) -> Restore {
        let mut spec = json!({
            "target": { "kind": "VirtualMachine", "name": "vm" }, "virtualMachineSnapshotName": "s",
        });
        json_patch::merge(&mut spec, more);
        let metadata = json!({ "name": "r", "uid": "u-1" });
        serde_json::from_value(json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": metadata, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn the_policy_names_a_claim_unless_the_user_does() {
        let own = json!({ "volumeRestoreOverrides": [{ "volumeName": "disk", "restoreName": "mine" }] });
        let table = [
            (json!({}), "restore-u-1-disk"),
            (json!({ "volumeRestorePolicy": "RandomizeNames" }), "restore-u-1-disk"),
            (json!({ "volumeRestorePolicy": "InPlace" }), "claim"),
            (json!({ "volumeRestorePolicy": "PrefixTargetName" }), "vm-disk"),
            (own, "mine"),
        ];
        for (more, name) in table {
            assert_eq!(restored(&restore(&more), "disk", "claim"), name, "{more}");
        }
        assert_eq!(mark(&restore(&json!({}))), "r-u-1");
    }

    proptest! {
        #[test]
        fn prefixed_names_are_labels_and_differ(one in "[a-z][a-z-]{0,80}[a-z]", two in "[a-z][a-z-]{0,80}[a-z]") {
            prop_assert!(prefixed(&one, "v").len() <= LONGEST);
            prop_assert!(one == two || prefixed(&one, "v") != prefixed(&two, "v"));
        }
    }
}
