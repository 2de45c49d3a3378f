//! `--claim NAME=PATH`: the path on this machine of something that a manifest names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// A text that is not a name and a path.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not of the form NAME=PATH")]
pub(crate) struct NamedPathError(String);

/// A name and a path.
#[derive(Clone, Debug)]
pub(crate) struct NamedPath {
    name: String,
    path: PathBuf,
}

impl NamedPath {
    pub(crate) fn collect(paths: &[Self]) -> BTreeMap<String, PathBuf> {
        paths.iter().map(|Self { name, path }| (name.clone(), path.clone())).collect()
    }
}

impl FromStr for NamedPath {
    type Err = NamedPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                // QEMU and its guard may run elsewhere; a path is made absolute where the user is.
                let path = std::path::absolute(path).map_err(|_| NamedPathError(text.to_owned()))?;
                Ok(Self { name: name.to_owned(), path })
            }
            _ => Err(NamedPathError(text.to_owned())),
        }
    }
}
