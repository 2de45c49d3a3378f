//! For [`crate::fuzzing`]: what is private here.

use std::io::Read as _;

use super::layer::decode;
use super::manifest::{self, Parsed};
use super::tar::Archive;

/// What a fuzzer waits for at the most.
const MOST: u64 = 1 << 20;

/// A manifest or an index. Tells whether it is one.
pub fn manifest(bytes: &[u8]) -> bool {
    match manifest::parse(bytes) {
        Ok(Parsed::Image(_)) => true,
        Ok(Parsed::Index(index)) => {
            drop(index.for_this_machine());
            true
        }
        Err(_) => false,
    }
}

/// A layer, compressed or not. Tells how many entries it has.
pub fn archive(bytes: &[u8]) -> usize {
    let Ok(decoded) = decode::reader(bytes) else { return 0 };
    let mut archive = Archive::new(decode::Limited::new(decoded, MOST));
    let mut count = 0;
    while let Ok(Some(entry)) = archive.next() {
        count += 1;
        let mut content = Vec::new();
        if archive.read_to_end(&mut content).is_err() {
            break;
        }
        assert_eq!(content.len() as u64, entry.size, "an entry has the content that it states");
        assert!(content.len() as u64 <= MOST);
    }
    count
}
