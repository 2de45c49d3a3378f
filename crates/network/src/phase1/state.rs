//! How far a namespace's set-up came, on disk.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{AttachedInterface, Phase1Error};
use crate::files;
use crate::namespace::Namespace;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) namespace: Namespace,
    pub(super) progress: Progress,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Progress {
    /// Anything may have been made; all of it is made sure of again.
    Started,
    Finished(Vec<AttachedInterface>),
}

pub(super) async fn read(path: &Path) -> Result<Option<State>, Phase1Error> {
    blocking("read", path, files::read_json).await
}

pub(super) async fn write(path: &Path, state: State) -> Result<(), Phase1Error> {
    blocking("write", path, move |path| files::write_json(path, &state)).await
}

async fn blocking<T: Send + 'static>(
    action: &'static str,
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, Phase1Error> {
    let owned = path.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&owned)).await;
    let done = done.map_err(io::Error::other).and_then(|done| done);
    done.map_err(|source| Phase1Error::Record { action, path: path.to_owned(), source })
}
