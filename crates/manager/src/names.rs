//! Names that need no random number: from a hash, in the alphabet that Kubernetes draws generated names from.

use std::collections::BTreeSet;

/// No vowels and no 0, 1, 3: a generated name spells no word and is not misread.
const ALPHABET: [char; 27] = [
    'b', 'c', 'd', 'f', 'g', 'h', 'j', 'k', 'l', 'm', 'n', 'p', 'q', 'r', 's', 't', 'v', 'w', 'x', 'z', '2', '4', '5',
    '6', '7', '8', '9',
];
const SUFFIX_LENGTH: usize = 5;
/// A pod's name becomes its host name, a DNS label of at most 63 characters; the server cuts generated names so.
const PREFIX_LENGTH: usize = 63 - SUFFIX_LENGTH;

/// FNV-1a, 32 bits. Not for secrets: for names that are the same on every run and every machine.
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// `number` in decimal, its digits replaced by letters of the safe alphabet.
#[must_use]
pub fn safe(number: u32) -> String {
    number.to_string().bytes().map(|digit| ALPHABET[usize::from(digit) % ALPHABET.len()]).collect()
}

/// What the names of an owner's children begin with.
#[must_use]
pub fn prefix(owner: &str) -> String {
    format!("{owner}-")
}

/// `count` names for children of the owner of this UID, from the lowest slots whose names are not in use. Whoever makes the
/// same child again, after a lost answer or as another leader, gives it the same name.
#[must_use]
pub fn free_names(prefix: &str, uid: &str, in_use: &BTreeSet<&str>, count: usize) -> Vec<String> {
    let prefix: String = prefix.chars().take(PREFIX_LENGTH).collect();
    let mut chosen = BTreeSet::new();
    let mut names = Vec::with_capacity(count);
    // Two slots may share a name, one time in fourteen million: the later one is skipped like a name in use.
    for slot in 0..u32::MAX {
        if names.len() == count {
            break;
        }
        let name = format!("{prefix}{}", suffix(uid, slot));
        if !in_use.contains(name.as_str()) && chosen.insert(name.clone()) {
            names.push(name);
        }
    }
    names
}

fn suffix(uid: &str, slot: u32) -> String {
    let mut rest = mix(fnv1a(format!("{uid}/{slot}").as_bytes()));
    let mut suffix = String::with_capacity(SUFFIX_LENGTH);
    for _ in 0..SUFFIX_LENGTH {
        let letter = usize::try_from(rest % 27).unwrap_or(0);
        suffix.push(ALPHABET[letter]);
        rest /= 27;
    }
    suffix
}

/// Spreads neighbouring hashes (slots differ in their last digit only) over the whole range.
fn mix(hash: u32) -> u32 {
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
