//! Searches the layers for the wanted file, from the topmost down.
//!
//! Layers are changes: a later one replaces files of an earlier one, or hides them by marker files, `.wh.NAME` for one
//! name and `.wh..wh..opq` for all that lies in a directory. Read from the top, the first sight of the wanted file is the
//! one that counts, unless a higher layer has hidden it.

pub(super) mod decode;
mod hidden;
pub(super) mod sparse;

use std::fs::File;
use std::io::{self, Read};

use super::tar::{Archive, Entry, Kind, TarError};
use super::transfer::Target;
use super::{Limits, Wanted};
use hidden::Hidden;

/// The directory of a container disk.
const DISK_FOLDER: &str = "disk";
/// Markers by which a layer hides what lies below it.
pub(super) const WHITEOUT: &str = ".wh.";
pub(super) const OPAQUE: &str = ".wh..wh..opq";

/// Why a layer was refused.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The wanted path is none.
    #[error("{0:?} is not a valid file path in an image")]
    Path(String),
    /// An entry's name is absolute or leads upwards.
    #[error("the layer has an entry with the unsafe name {0:?}")]
    Name(String),
    /// What is at the wanted path is no regular file.
    #[error("/{path} is {found}; expected a regular file")]
    Kind {
        path: String,
        /// What is there.
        found: &'static str,
    },
    /// There is more than one file to choose from.
    #[error("both /{first} and /{second} could be the disk; set the path, or keep only one file in /{DISK_FOLDER}/")]
    Several {
        /// The first that was found.
        first: String,
        /// Another one.
        second: String,
    },
    /// There is no such file.
    #[error("there is no file {0}")]
    Missing(String),
    /// The file is longer than allowed.
    #[error("/{path} is larger than {limit} bytes, the limit for a disk")]
    FileSize { path: String, limit: u64 },
    /// The layers are longer than allowed.
    #[error("the layers unpack to more than {0} bytes")]
    Unpacked(u64),
    /// The layer has more markers and directories than are kept in mind.
    #[error("the layers delete more than {0} names")]
    Hidden(usize),
    /// The layers have more entries than any image.
    #[error("the layers have more than {0} entries")]
    Entries(usize),
    /// Something stands in the way of an entry, or a link leads nowhere.
    #[error("cannot create /{path}")]
    Entry { path: String, source: io::Error },
    /// The archive or its compression is broken.
    #[error("a layer cannot be read")]
    Archive(#[source] io::Error),
    /// The file could not be written.
    #[error("write the file")]
    Write(#[source] io::Error),
}

impl UnpackError {
    /// Whether the same image can be unpacked later: if this machine was at fault, such as by a full disk.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Write(_))
    }
}

/// The state of a search between layers.
#[derive(Debug)]
pub(super) struct Search {
    /// Without a leading slash: a file's path or, when the file is not named, the directory to look in.
    path: String,
    is_folder: bool,
    limits: Limits,
    target: File,
    found: Option<Found>,
    hidden: Hidden,
    unpacked: u64,
}

#[derive(Debug)]
struct Found {
    path: String,
    bytes: u64,
}

impl Search {
    pub(super) fn new(wanted: &Wanted, limits: &Limits, target: File) -> Result<Self, UnpackError> {
        let (path, is_folder) = match wanted {
            Wanted::Disk(None) => (DISK_FOLDER, true),
            Wanted::Disk(Some(path)) | Wanted::File(path) => (path.as_str(), false),
        };
        let refuse = || UnpackError::Path(path.to_owned());
        let path = normalized(path.trim_start_matches('/')).ok_or_else(refuse)?;
        if path.is_empty() {
            return Err(refuse());
        }
        Ok(Self { path, is_folder, limits: *limits, target, found: None, hidden: Hidden::default(), unpacked: 0 })
    }

    /// Whether no lower layer can change the outcome.
    pub(super) fn is_over(&self) -> bool {
        let all_hidden =
            if self.is_folder { self.hidden.hides_all_below(&self.path) } else { self.hidden.hides(&self.path, false) };
        all_hidden || (self.found.is_some() && !self.is_folder)
    }

    /// The length of the file that was found.
    pub(super) fn finish(self) -> Result<u64, UnpackError> {
        match self.found {
            Some(found) => Ok(found.bytes),
            None if self.is_folder => Err(UnpackError::Missing(format!("below /{}/", self.path))),
            None => Err(UnpackError::Missing(format!("/{}", self.path))),
        }
    }

    fn look_through(&mut self, stored: impl Read) -> Result<(), UnpackError> {
        let limit = self.limits.max_unpacked_bytes.saturating_sub(self.unpacked);
        let decoded = decode::reader(stored).map_err(UnpackError::Archive)?;
        let mut archive = Archive::new(decode::Limited::new(decoded, limit));
        // A layer's markers hide what is below the layer, not what is in it.
        let mut hides = Hidden::default();
        let result = self.entries(&mut archive, &mut hides);
        let counter = archive.into_inner();
        self.unpacked += counter.count();
        if counter.is_exhausted() {
            return Err(UnpackError::Unpacked(self.limits.max_unpacked_bytes));
        }
        result?;
        self.hidden.add(hides)
    }

    fn entries(&mut self, archive: &mut Archive<impl Read>, hides: &mut Hidden) -> Result<(), UnpackError> {
        while let Some(entry) = archive.next().map_err(broken)? {
            let stored_name = String::from_utf8_lossy(&entry.name).into_owned();
            let path = normalized(&stored_name).ok_or(UnpackError::Name(stored_name))?;
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path.as_str()));
            if name == OPAQUE {
                if self.concerns(parent) {
                    hides.everything_below(parent)?;
                }
            } else if name.starts_with(".wh..wh.") {
                // Notes of an old file system to itself.
            } else if let Some(hidden_name) = name.strip_prefix(WHITEOUT) {
                let hidden_path =
                    if parent.is_empty() { hidden_name.to_owned() } else { format!("{parent}/{hidden_name}") };
                if self.concerns(&hidden_path) {
                    hides.tree(&hidden_path)?;
                }
            } else if self.concerns(&path) {
                self.entry(&path, &entry, archive, hides)?;
            }
        }
        Ok(())
    }

    /// Whether a path is the wanted one, leads to it, or lies in the directory to look in.
    fn concerns(&self, path: &str) -> bool {
        path == self.path || is_below(&self.path, path) || (self.is_folder && is_below(path, &self.path))
    }

    fn entry(
        &mut self,
        path: &str,
        entry: &Entry,
        archive: &mut Archive<impl Read>,
        hides: &mut Hidden,
    ) -> Result<(), UnpackError> {
        let is_directory = entry.kind == Kind::Directory;
        if is_directory {
            hides.name(path)?;
        } else {
            hides.tree(path)?;
        }
        if self.hidden.hides(path, is_directory) {
            return Ok(());
        }
        let could_be_wanted = if self.is_folder { is_below(path, &self.path) } else { path == self.path };
        match entry.kind {
            Kind::Directory if self.is_folder || !could_be_wanted => Ok(()),
            Kind::File if could_be_wanted => self.keep(path, entry.size, archive),
            // A link on the way is not followed either: it could lead anywhere.
            kind => Err(UnpackError::Kind { path: path.to_owned(), found: kind.describe() }),
        }
    }

    fn keep(&mut self, path: &str, size: u64, archive: &mut Archive<impl Read>) -> Result<(), UnpackError> {
        if let Some(found) = self.found.as_ref().filter(|found| found.path != path) {
            return Err(UnpackError::Several { first: found.path.clone(), second: path.to_owned() });
        }
        let limit = self.limits.max_disk_bytes;
        if size > limit {
            return Err(UnpackError::FileSize { path: path.to_owned(), limit });
        }
        // A layer may hold a name twice; the later entry replaces the earlier.
        let bytes = sparse::copy(archive, &self.target)?;
        self.found = Some(Found { path: path.to_owned(), bytes });
        Ok(())
    }
}

impl Target for Search {
    fn layer(&mut self, stored: impl Read) -> Result<(), UnpackError> {
        self.look_through(stored)
    }
}

pub(super) fn broken(error: TarError) -> UnpackError {
    UnpackError::Archive(match error {
        TarError::Io(source) => source,
        TarError::Malformed(_) => io::Error::new(io::ErrorKind::InvalidData, error),
    })
}

/// `./a//b/` as `a/b`; `None` if the name is absolute or leads upwards.
fn normalized(name: &str) -> Option<String> {
    let parts = || name.split('/').filter(|part| !matches!(*part, "" | "."));
    if name.starts_with('/') || name.contains('\0') || parts().any(|part| part == "..") {
        return None;
    }
    Some(parts().collect::<Vec<_>>().join("/"))
}

/// Whether `path` lies in the directory or deeper. Everything lies below the root, whose name is empty.
fn is_below(path: &str, folder: &str) -> bool {
    if folder.is_empty() {
        return !path.is_empty();
    }
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
