//! Files of keys and certificates: read within bounds, written whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::CertificateError;

/// Longer than any chain or list of authorities.
const LONGEST: u64 = 1024 * 1024;

/// The mode of a file that only its owner reads.
pub const SECRET: u32 = 0o600;
/// The mode of a file that everybody may read.
pub const PUBLIC: u32 = 0o644;

/// What is in a file.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|opened| opened.take(LONGEST).read_to_end(&mut content));
    read.map_err(CertificateError::file("read", path))?;
    Ok(content)
}

/// The certificates in a file.
///
/// # Errors
/// When it cannot be read, or has none.
pub fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let chain = chain.map_err(|source| CertificateError::Pem { path: path.to_owned(), source })?;
    if chain.is_empty() { Err(CertificateError::None { place: path.display().to_string() }) } else { Ok(chain) }
}

/// The key in a file.
///
/// # Errors
/// When it cannot be read, or has none.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let key = PrivateKeyDer::from_pem_slice(&read(path)?);
    key.map_err(|source| CertificateError::Pem { path: path.to_owned(), source })
}

/// A file's text; none if there is no file.
///
/// # Errors
/// When it is there and cannot be read.
pub fn read_if_there(path: &Path) -> Result<Option<String>, CertificateError> {
    match read(path) {
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).into_owned())),
        Err(CertificateError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file whole or not at all. When this returns, it is on disk.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = || {
        // What a crash left may have another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut opened = OpenOptions::new().create_new(true).write(true).mode(mode).open(&new)?;
        opened.write_all(text.as_bytes())?;
        opened.sync_all()?;
        fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
    };
    written().map_err(CertificateError::file("write", path))
}

/// Removes a file, if it is there.
///
/// # Errors
/// When it stays.
pub(crate) fn remove(path: &Path) -> Result<(), CertificateError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(CertificateError::file("remove", path)),
    }
}

/// Makes a directory that only its owner looks into, if it is missing.
///
/// # Errors
/// When it cannot be made.
pub fn make_folder(folder: &Path) -> Result<(), CertificateError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(CertificateError::file("create the directory", folder))
}
