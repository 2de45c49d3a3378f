//! Writing a disk without its zeros.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use super::UnpackError;

/// Holes have at least this many bytes: a multiple of every file system's block.
const CHUNK: usize = 64 << 10;

/// Replaces the content of `target` by that of `content`, and says how many bytes that were.
pub(in crate::pull) fn copy(content: &mut impl Read, mut target: &File) -> Result<u64, UnpackError> {
    // Emptied first, so that what is skipped below reads as zeros.
    target.set_len(0).and_then(|()| target.seek(SeekFrom::Start(0))).map_err(UnpackError::Write)?;
    let mut chunk = vec![0; CHUNK];
    let mut total = 0_u64;
    loop {
        let length = fill(content, &mut chunk).map_err(UnpackError::Archive)?;
        if length == 0 {
            break;
        }
        let bytes = &chunk[..length];
        let written = if bytes.iter().all(|byte| *byte == 0) {
            // At most 64 KiB, which fits any integer.
            target.seek_relative(i64::try_from(length).unwrap_or_default())
        } else {
            target.write_all(bytes)
        };
        written.map_err(UnpackError::Write)?;
        total += length as u64;
    }
    target.set_len(total).map_err(UnpackError::Write)?;
    Ok(total)
}

/// As much as fits, less only at the end.
fn fill(content: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < chunk.len() {
        match content.read(&mut chunk[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
