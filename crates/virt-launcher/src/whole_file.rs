//! Files that are whole, or as they were before, whatever happens while they are written.

use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a file that only its owner can read, such that it is there after a crash: with these bytes, or as it was before.
pub(crate) fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let fresh = folder.join(format!("{name}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    rename(&fresh, folder.join(name))?;
    File::open(folder)?.sync_all()
}
