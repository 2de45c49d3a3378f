//! Names that become a part of a path.

use std::path::Path;

/// The most that an API server lets a name have.
const LONGEST: usize = 253;

/// One part of a path and no more: it leads neither up nor down, wherever its name came from. An API server sees to that as
/// well; a node that writes as root does not rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment<'a>(&'a str);

/// A name that is no such part.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a valid name; use letters, digits, '-' and '.', and begin and end with a letter or a digit")]
pub(super) struct NoSegment(String);

impl<'a> Segment<'a> {
    /// Checks a name.
    pub(super) fn new(name: &'a str) -> Result<Self, NoSegment> {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = name.as_bytes();
        let fits = bytes.len() <= LONGEST
            && ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
        if fits { Ok(Self(name)) } else { Err(NoSegment(name.chars().take(LONGEST).collect())) }
    }
}

impl AsRef<Path> for Segment<'_> {
    fn as_ref(&self) -> &Path {
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_kubernetes_are_taken() {
        for name in ["a", "web-0", "kube-api-access-x7f2k", "a.b", "3f6c1c1e-0d5e-4b0e-9a53-5c2b2d8e6f10"] {
            assert!(Segment::new(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "a/b", "/etc", "../x", "a/..", "-a", "a-", "a b", "a\0", "ä", &"a".repeat(254)] {
            assert!(Segment::new(name).is_err(), "{name:?}");
        }
    }

    proptest! {
        /// Whatever it is, it stays in the directory, right below it.
        #[test]
        fn a_part_leads_neither_up_nor_down(name in "[./a-zA-Z0-9\\\\\\-\\PC]{0,12}") {
            if let Ok(segment) = Segment::new(&name) {
                let path = Path::new("/folder").join(segment);
                prop_assert_eq!(path.parent(), Some(Path::new("/folder")));
                prop_assert_eq!(path.components().count(), 3);
                prop_assert!(!path.components().any(|part| part == std::path::Component::ParentDir));
            }
        }
    }
}
