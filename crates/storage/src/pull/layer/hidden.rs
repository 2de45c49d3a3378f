//! What the upper layers delete from the lower ones.

use std::collections::BTreeMap;

use super::UnpackError;

/// Names beyond this many are a denial of service, not an image: only names near the wanted file are kept.
const MAX_NAMES: usize = 100_000;

/// Paths, and how much of them is hidden.
#[derive(Debug, Default)]
pub(super) struct Hidden(BTreeMap<String, Extent>);

#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    /// A file of that name; directories are merged.
    name: bool,
    /// Whatever has that name.
    itself: bool,
    /// All that lies below.
    below: bool,
}

impl Hidden {
    /// A file replaces a file or a directory; a marker removes either.
    pub(super) fn tree(&mut self, path: &str) -> Result<(), UnpackError> {
        self.insert(path, Extent { name: true, itself: true, below: true })
    }

    /// A directory replaces a file, and is merged with a directory.
    pub(super) fn name(&mut self, path: &str) -> Result<(), UnpackError> {
        self.insert(path, Extent { name: true, ..Extent::default() })
    }

    /// An opaque directory shows nothing of the directories that it is merged with.
    pub(super) fn everything_below(&mut self, path: &str) -> Result<(), UnpackError> {
        self.insert(path, Extent { below: true, ..Extent::default() })
    }

    pub(super) fn add(&mut self, other: Self) -> Result<(), UnpackError> {
        other.0.into_iter().try_for_each(|(path, extent)| self.insert(&path, extent))
    }

    pub(super) fn hides(&self, path: &str, is_folder: bool) -> bool {
        let own = self.get(path);
        own.itself || (own.name && !is_folder) || self.is_in_hidden_folder(path)
    }

    pub(super) fn hides_all_below(&self, folder: &str) -> bool {
        self.get(folder).below || self.is_in_hidden_folder(folder)
    }

    fn is_in_hidden_folder(&self, path: &str) -> bool {
        let ancestors = path.match_indices('/').map(|(end, _)| &path[..end]);
        std::iter::once("").chain(ancestors).any(|ancestor| self.get(ancestor).below)
    }

    fn get(&self, path: &str) -> Extent {
        self.0.get(path).copied().unwrap_or_default()
    }

    fn insert(&mut self, path: &str, extent: Extent) -> Result<(), UnpackError> {
        let known = self.0.entry(path.to_owned()).or_default();
        known.name |= extent.name;
        known.itself |= extent.itself;
        known.below |= extent.below;
        if self.0.len() > MAX_NAMES { Err(UnpackError::Hidden(MAX_NAMES)) } else { Ok(()) }
    }
}
