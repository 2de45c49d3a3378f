//! CD images in memory: ISO 9660 with Rock Ridge and Joliet names, for a handful of small files.
//!
//! ```text
//! sector  0..16   empty                        system area
//!        16..19   primary, Joliet, terminator  volume descriptors
//!        19..23   path tables                  two trees, each in little and big endian
//!        23       Rock Ridge's declaration
//!        24..     directories of the primary tree, directories of the Joliet tree, files (shared by both)
//! ```
//!
//! Linux reads the Rock Ridge names, Windows the Joliet ones. The same files give the same bytes: every time stamp is
//! the epoch, so that a configuration that did not change is seen not to have changed.

mod directory;
mod tree;
mod volume;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use directory::Names;
use tree::Tree;

/// The unit of everything on a CD.
const SECTOR: usize = 2048;
/// Where the first directory begins; what lies before is fixed.
const FIRST_FOLDER: usize = 24;
/// Empty sectors at the end, as other makers of images add: small readers, that of busybox among them, look for labels
/// by reading the first 68 KiB whole, and find nothing on a disk that is shorter.
const PADDING: usize = 150;
/// The longest label that the primary descriptor holds.
const MAX_LABEL: usize = 32;
/// The most bytes in one image. Secrets and ConfigMaps end at 1 MiB, so that this is ample for several of them.
const MAX_CONTENT: usize = 64 << 20;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum IsoError {
    /// The label is too long or not plain ASCII.
    #[error("{0:?} is not a valid volume label; use 1 to {MAX_LABEL} printable ASCII characters")]
    Label(String),
    /// A file's name cannot be stored.
    #[error("{0:?} is not a valid file name on a CD")]
    Name(String),
    /// A file and a directory share a name.
    #[error("{0:?} is both a file and a directory")]
    Conflict(String),
    /// There is more than an image takes.
    #[error("{0} is too large for a CD image")]
    Size(&'static str),
    /// The image could not be written.
    #[error("write the CD image {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Whether an image can have this label.
///
/// # Errors
/// When it cannot.
pub fn check_label(label: &str) -> Result<(), IsoError> {
    let fits = (1..=MAX_LABEL).contains(&label.len()) && label.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if fits { Ok(()) } else { Err(IsoError::Label(label.to_owned())) }
}

/// The bytes of an image with these files; a slash in a name makes a directory.
///
/// # Errors
/// When the label or a name cannot be stored, or there is too much.
pub fn build(label: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, IsoError> {
    check_label(label)?;
    if files.values().map(Vec::len).sum::<usize>() > MAX_CONTENT {
        return Err(IsoError::Size("the sum of the files"));
    }
    let tree = Tree::of(files)?;

    // Sizes first, places next, bytes last: a record holds the place of what it names.
    let primary_sizes = directory::sizes(&tree, Names::Primary);
    let joliet_sizes = directory::sizes(&tree, Names::Joliet);
    let mut next = FIRST_FOLDER;
    let mut place = |bytes: usize| {
        let start = next;
        next += bytes.div_ceil(SECTOR);
        start
    };
    let primary_places: Vec<usize> = primary_sizes.iter().map(|size| place(*size)).collect();
    let joliet_places: Vec<usize> = joliet_sizes.iter().map(|size| place(*size)).collect();
    let file_places: Vec<usize> = tree.files.iter().map(|file| place(file.bytes.len())).collect();
    let sectors = next + PADDING;

    let mut image = Image(vec![0; sectors * SECTOR]);
    for (names, places, sizes, descriptor, table) in [
        (Names::Primary, &primary_places, &primary_sizes, 16, 19),
        (Names::Joliet, &joliet_places, &joliet_sizes, 17, 21),
    ] {
        let layout = directory::Layout { tree: &tree, names, places, sizes, file_places: &file_places };
        let tables = volume::path_tables(&layout)?;
        image.put(descriptor, &volume::descriptor(label, &layout, sectors, table, tables.little.len()));
        image.put(table, &tables.little);
        image.put(table + 1, &tables.big);
        for (folder, place) in places.iter().enumerate() {
            image.put(*place, &directory::records(&layout, folder));
        }
    }
    image.put(18, &volume::terminator());
    image.put(directory::CONTINUATION, &directory::rock_ridge_declaration());
    for (file, place) in tree.files.iter().zip(&file_places) {
        image.put(*place, file.bytes);
    }
    Ok(image.0)
}

/// Writes an image, mode 0600: user data holds passwords more often than not.
///
/// # Guarantees
/// A reader finds the old image or the new one, never half of one.
///
/// # Errors
/// As [`build`], and when the file cannot be written.
pub fn create(path: &Path, label: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<(), IsoError> {
    let image = build(label, files)?;
    let failed = |source| IsoError::Io { path: path.to_owned(), source };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    // Left by a writer that was killed; `create_new` below then refuses links put in its place.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(&image)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
        failed(error)
    })
}

struct Image(Vec<u8>);

impl Image {
    fn put(&mut self, sector: usize, bytes: &[u8]) {
        let start = sector * SECTOR;
        if let Some(place) = self.0.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
