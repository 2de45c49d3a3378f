//! Names of launcher pods. They derive from UIDs, so that whoever creates a pod a second time gets AlreadyExists.

use sha2::{Digest as _, Sha256};

/// Kubernetes' alphabet of generated names: nothing that spells a word, nothing that looks like something else.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Letters of a suffix, as in names that a server generates.
const SUFFIX: usize = 5;
/// The longest label, and the longest name that is also a host name.
const LABEL: usize = 63;
const PREFIX: &str = "virt-launcher-";

/// The name of an instance's first launcher pod.
///
/// # Guarantees
/// - It depends on the name and the UID alone.
/// - It has at most 63 characters; an instance of the same name and another UID has another pod.
#[must_use]
pub fn launcher(name: &str, uid: &str) -> String {
    let room = LABEL - PREFIX.len() - SUFFIX - 1;
    format!("{PREFIX}{}-{}", cut(name, room), letters(uid, SUFFIX))
}

/// The name of the pod that only has an instance's claims bound; it stands beside the launcher's.
#[must_use]
pub fn provisioning(name: &str, uid: &str) -> String {
    launcher(name, &format!("{uid}/provisioning"))
}

/// The name of the pod that a migration moves an instance to: by the migration's UID, so that each attempt has a pod of its own
/// and a lost answer makes no second one.
#[must_use]
pub fn target(name: &str, migration: &str) -> String {
    launcher(name, &format!("{migration}/target"))
}

/// A name as the value of a label: as it is where it fits, else its beginning and letters that tell it from others.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= LABEL {
        return name.to_owned();
    }
    format!("{}-{}", cut(name, LABEL - SUFFIX - 1), letters(name, SUFFIX))
}

/// The beginning of a name, without a dot or dash that would then stand at an end.
#[must_use]
pub fn cut(name: &str, room: usize) -> &str {
    let end =
        name.char_indices().map(|(start, letter)| start + letter.len_utf8()).take_while(|end| *end <= room).last();
    name.get(..end.unwrap_or(0)).unwrap_or_default().trim_end_matches(['.', '-'])
}

/// So many letters that tell a text from others, always the same ones.
#[must_use]
pub fn letters(text: &str, count: usize) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(count).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_after_its_instance() {
        let name = launcher("vm-cirros", "db6109f4-73dc-4a04-9e56-7fe0ea823806");
        // Pinned: a release that names pods otherwise would give a live instance a second one.
        assert_eq!(name, "virt-launcher-vm-cirros-j7b4h");
    }

    #[test]
    fn a_label_holds_every_name_and_tells_long_ones_apart() {
        assert_eq!(label_value("vm.cirros"), "vm.cirros");
        let (a, b) = (label_value(&format!("{}a", "v".repeat(200))), label_value(&format!("{}b", "v".repeat(200))));
        assert_ne!(a, b);
        assert_eq!((a.len(), b.len()), (63, 63));
        assert_eq!(label_value(&"v".repeat(63)), "v".repeat(63));
    }

    #[test]
    fn another_uid_has_another_pod() {
        assert_ne!(launcher("vm", "a"), launcher("vm", "b"));
        assert_ne!(launcher("vm", "a"), provisioning("vm", "a"));
    }

    #[test]
    fn each_migration_has_a_pod_of_its_own_beside_the_first() {
        assert_ne!(target("vm", "m1"), target("vm", "m2"));
        assert_eq!(target("vm", "m1"), target("vm", "m1"));
        // Nor is it another's, where the UIDs happen to be the same.
        assert_ne!(target("vm", "a"), launcher("vm", "a"));
        assert_ne!(target("vm", "a"), provisioning("vm", "a"));
    }

    #[test]
    fn long_names_are_cut_cleanly() {
        for name in ["a".repeat(253), format!("{}.{}", "a".repeat(42), "b".repeat(60)), "é".repeat(40)] {
            for pod in [launcher(&name, "u"), target(&name, "m")] {
                assert!(pod.len() <= 63 && !pod.contains(".-") && !pod.contains("--"), "{pod}");
            }
        }
    }
}
