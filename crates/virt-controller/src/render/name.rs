//! Names that follow from an instance's name and UID.

use sha2::{Digest as _, Sha256};
use virt_rules::launchers::name::{cut, letters};

pub use virt_rules::launchers::name::{launcher, provisioning};

/// The longest label, and the longest name that is also a host name.
const LABEL: usize = 63;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_cleanly() {
        for name in ["a".repeat(253), format!("{}.{}", "a".repeat(42), "b".repeat(60)), "é".repeat(40)] {
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
