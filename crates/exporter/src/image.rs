//! One file, such as the image of a disk: as it is, or a part of it, or compressed.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::answer::{self, Answer, PIECE};
use crate::below;
use crate::range::{self, Part};

/// As every claim has it.
const DISK: &str = "disk.img";

/// Opens the disk of a volume: the block device itself, or the image in the directory.
pub(crate) fn open(volume: &Path) -> io::Result<File> {
    let whole = File::open(volume)?;
    if whole.metadata()?.is_dir() { below::open_file(&whole, Path::new(DISK)) } else { Ok(whole) }
}

/// Sends a file, or the part of it that is asked for.
pub(crate) fn send(file: File, method: &Method, headers: &HeaderMap) -> io::Result<Answer> {
    let length = length(&file)?;
    let mark = mark(&file, length)?;
    let text = |name: HeaderName| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_same = text(header::IF_RANGE).is_none_or(|wanted| wanted == mark);
    let part = text(header::RANGE).filter(|_| is_same).map_or(Part::Whole, |range| range::parse(range, length));
    let (status, first, count) = match part {
        Part::Whole => (StatusCode::OK, 0, length),
        Part::Some { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        Part::Outside => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
    };
    let mut answer = match status {
        StatusCode::RANGE_NOT_SATISFIABLE => answer::empty(status),
        _ if method == Method::HEAD => answer::empty(status),
        _ => answer::written(move |pieces| copy(&file, first, count, pieces)),
    };
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Ok(mark) = HeaderValue::from_str(&mark) {
        headers.insert(header::ETAG, mark);
    }
    let range = match part {
        Part::Whole => None,
        Part::Some { first, last } => Some(format!("bytes {first}-{last}/{length}")),
        Part::Outside => Some(format!("bytes */{length}")),
    };
    if let Some(range) = range.and_then(|range| HeaderValue::from_str(&range).ok()) {
        headers.insert(header::CONTENT_RANGE, range);
    }
    if part != Part::Outside {
        headers.insert(header::CONTENT_LENGTH, count.into());
    }
    Ok(answer)
}

/// Sends a file compressed.
pub(crate) fn send_compressed(file: File, method: &Method) -> Answer {
    let mut answer = if method == Method::HEAD {
        answer::empty(StatusCode::OK)
    } else {
        answer::written(move |pieces| {
            let mut compressed = GzEncoder::new(pieces, Compression::fast());
            let length = length(&file)?;
            copy(&file, 0, length, &mut compressed)?;
            compressed.finish().map(drop)
        })
    };
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    answer
}

/// Writes so many bytes of a file. One that has become shorter is an error: what was promised would not come.
pub(crate) fn copy(file: &File, first: u64, count: u64, target: &mut impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let (mut at, end) = (first, first.saturating_add(count));
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        match file.read_at(&mut piece[..most], at) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter")),
            Ok(length) => {
                target.write_all(&piece[..length])?;
                at += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn length(mut file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() { file.seek(SeekFrom::End(0)) } else { Ok(metadata.len()) }
}

/// What changes whenever the content does, so that a download that was broken off goes on with the same.
fn mark(file: &File, length: u64) -> io::Result<String> {
    let metadata = file.metadata()?;
    let times = (metadata.mtime(), metadata.mtime_nsec());
    Ok(format!("\"{:x}-{:x}-{:x}-{length:x}\"", metadata.ino(), times.0, times.1))
}

/// Reads a small file.
pub(crate) fn read_small(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut content)?;
    Ok(content)
}
