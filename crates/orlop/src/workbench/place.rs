//! `--claim NAME=PATH`: where something that a manifest names is on this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// A text that is no place.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not NAME=PATH")]
pub(crate) struct PlaceError(String);

/// A name and a path.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    name: String,
    path: PathBuf,
}

impl Place {
    pub(crate) fn collect(places: &[Self]) -> BTreeMap<String, PathBuf> {
        places.iter().map(|Self { name, path }| (name.clone(), path.clone())).collect()
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                // QEMU and its guard may run elsewhere; a path is made absolute where the user is.
                let path = std::path::absolute(path).map_err(|_| PlaceError(text.to_owned()))?;
                Ok(Self { name: name.to_owned(), path })
            }
            _ => Err(PlaceError(text.to_owned())),
        }
    }
}
