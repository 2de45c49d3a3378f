//! The record of how far the set-up of a namespace came.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::AttachedInterface;
use super::error::{FinalError, RetryableError, SetUpError};
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

pub(super) async fn read(path: &Path) -> Result<Option<State>, SetUpError> {
    blocking("read", path, files::read_json).await
}

pub(super) async fn write(path: &Path, state: State) -> Result<(), SetUpError> {
    blocking("write", path, move |path| files::write_json(path, &state)).await
}

async fn blocking<T: Send + 'static>(
    action: &'static str,
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, SetUpError> {
    let owned = path.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&owned)).await;
    let done = done.map_err(io::Error::other).and_then(|done| done);
    done.map_err(|source| match source.kind() {
        // Its content stays as it is.
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            FinalError::Damaged { path: path.to_owned(), source }.into()
        }
        _ => RetryableError::Record { action, path: path.to_owned(), source }.into(),
    })
}
