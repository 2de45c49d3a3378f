//! Names that follow from an instance's name and UID.

use sha2::{Digest as _, Sha256};

/// Kubernetes' alphabet of generated names: nothing that spells a word, nothing that looks like something else.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Letters of a suffix, as in names that a server generates.
const SUFFIX: usize = 5;
/// The longest label, and the longest name that is also a host name.
const LABEL: usize = 63;
const PREFIX: &str = "virt-launcher-";

/// The name of an instance's launcher pod.
///
/// # Guarantees
/// - It depends on the name and the UID alone: whoever creates the pod a second time gets AlreadyExists.
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

/// A name as the value of a label: itself if it fits, else its beginning and a part that tells it from others.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= LABEL {
        return name.to_owned();
    }
    format!("{}-{}", cut(name, LABEL - 11), letters(name, 10))
}

/// The host name of a guest that has none of its own: the first part of its name.
#[must_use]
pub fn hostname(name: &str) -> String {
    cut(name.split('.').next().unwrap_or(name), LABEL).to_owned()
}

/// The pod's side of a secondary network: a name that fits an interface and does not move when others are added.
#[must_use]
pub fn pod_interface(network: &str) -> String {
    let hash = Sha256::digest(network.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("pod{}", &hex[..11])
}

/// The beginning of a name, without a dot or dash that would then stand at an end.
fn cut(name: &str, room: usize) -> &str {
    let end =
        name.char_indices().map(|(start, letter)| start + letter.len_utf8()).take_while(|end| *end <= room).last();
    name.get(..end.unwrap_or(0)).unwrap_or_default().trim_end_matches(['.', '-'])
}

fn letters(text: &str, count: usize) -> String {
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
    fn another_uid_has_another_pod() {
        assert_ne!(launcher("vm", "a"), launcher("vm", "b"));
        assert_ne!(launcher("vm", "a"), provisioning("vm", "a"));
    }

    #[test]
    fn long_names_are_cut_cleanly() {
        for name in ["a".repeat(253), format!("{}.{}", "a".repeat(42), "b".repeat(60)), "é".repeat(40)] {
            let pod = launcher(&name, "u");
            assert!(pod.len() <= 63 && !pod.contains(".-") && !pod.contains("--"), "{pod}");
            assert!(label_value(&name).len() <= 63 && hostname(&name).len() <= 63);
        }
    }

    #[test]
    fn a_label_tells_long_names_apart() {
        let (left, right) = (format!("{}a", "x".repeat(70)), format!("{}b", "x".repeat(70)));
        assert_ne!(label_value(&left), label_value(&right));
        assert_eq!(label_value("short"), "short");
    }

    #[test]
    fn a_host_name_is_one_label() {
        assert_eq!(hostname("web.example.org"), "web");
    }

    #[test]
    fn interfaces_are_named_as_other_tools_expect() {
        assert_eq!(pod_interface("red"), "podb1f51a511f1");
        assert_eq!(pod_interface("ptp").len(), 14);
    }
}
