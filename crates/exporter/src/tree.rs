//! A directory: file by file, or all of it as an archive.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::fs::{AtFlags, Dir, FileType, readlinkat, statat};
use tar::{Builder, EntryType, Header};

use crate::answer::{self, Answer};
use crate::{below, image};

/// What file systems keep for themselves, and only root reads.
const LOST: &str = "lost+found";
/// Deeper trees are refused: each level is an open directory.
const DEEPEST: usize = 128;
/// What stays as it is in a link to a file.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Sends a file below a directory, or the list of what is in a directory.
pub(crate) fn send(volume: &Path, path: &Path, method: &Method, headers: &HeaderMap) -> io::Result<Answer> {
    let volume = File::open(volume)?;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let found = File::from(below::open(&volume, path)?);
    let metadata = found.metadata()?;
    if metadata.is_dir() {
        let page = list(&OwnedFd::from(found))?;
        return Ok(answer::text("text/html; charset=utf-8", page));
    }
    if !metadata.is_file() {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    image::send(found, method, headers)
}

/// Sends all of a directory as a compressed archive.
pub(crate) fn send_archive(volume: &Path, method: &Method) -> io::Result<Answer> {
    let directory = OwnedFd::from(File::open(volume)?);
    let mut answer = if method == Method::HEAD {
        answer::empty(StatusCode::OK)
    } else {
        answer::written(move |pieces| {
            let mut archive = Builder::new(GzEncoder::new(pieces, Compression::fast()));
            add_directory(&mut archive, &directory, Path::new("."), 0)?;
            archive.into_inner()?.finish().map(drop)
        })
    };
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    Ok(answer)
}

/// As Go's file servers show a directory.
fn list(directory: &OwnedFd) -> io::Result<String> {
    use std::fmt::Write as _;
    let mut page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in names(directory)? {
        let stat = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let slash = if FileType::from_raw_mode(stat.st_mode).is_dir() { "/" } else { "" };
        let name = name.to_string_lossy();
        let address = utf8_percent_encode(&name, PLAIN);
        let shown = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        // Writing to a String cannot fail.
        let _ = writeln!(page, "<a href=\"{address}{slash}\">{shown}{slash}</a>");
    }
    page.push_str("</pre>\n");
    Ok(page)
}

/// In order, so that two archives of the same are the same.
fn names(directory: &OwnedFd) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        }
    }
    names.sort();
    Ok(names)
}

fn add_directory(
    archive: &mut Builder<impl io::Write>,
    directory: &OwnedFd,
    path: &Path,
    depth: usize,
) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other(format!("the directory is more than {DEEPEST} levels deep")));
    }
    let own = File::from(directory.as_fd().try_clone_to_owned()?);
    let mut header = describe(&own.metadata()?, EntryType::Directory);
    archive.append_data(&mut header, path, io::empty())?;
    for name in names(directory)? {
        let within = path.join(&name);
        let stat = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth == 0 && name == Path::new(LOST) => {}
            FileType::Directory => add_directory(archive, &below::open(directory, &name)?, &within, depth + 1)?,
            FileType::RegularFile => add_file(archive, &below::open_file(directory, &name)?, &within)?,
            FileType::Symlink => {
                let target = readlinkat(directory, &name, Vec::new())?;
                let mut header = Header::new_gnu();
                header.set_entry_type(EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                let target = Path::new(std::ffi::OsStr::from_bytes(target.as_bytes())).to_owned();
                archive.append_link(&mut header, &within, target)?;
            }
            other => tracing::info!(file = %within.display(), kind = ?other, "left out of the archive"),
        }
    }
    Ok(())
}

fn add_file(archive: &mut Builder<impl io::Write>, file: &File, path: &Path) -> io::Result<()> {
    let metadata = file.metadata()?;
    let mut header = describe(&metadata, EntryType::Regular);
    header.set_size(metadata.len());
    archive.append_data(&mut header, path, Exactly { file, at: 0, end: metadata.len() })
}

fn describe(metadata: &std::fs::Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or_default());
    header.set_size(0);
    header
}

/// So many bytes of a file: an archive promises the size before the content.
struct Exactly<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl io::Read for Exactly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt as _;
        let left = usize::try_from(self.end - self.at).unwrap_or(buffer.len());
        let most = buffer.len().min(left);
        if most == 0 {
            return Ok(0);
        }
        let length = self.file.read_at(&mut buffer[..most], self.at)?;
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter"));
        }
        self.at += length as u64;
        Ok(length)
    }
}
