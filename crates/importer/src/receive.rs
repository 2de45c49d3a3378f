//! What arrives, decompressed and written. Everything here may block, and has a thread of its own.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use bytes::Bytes;
use lzma_rust2::XzReader;
use tokio::sync::mpsc;

use crate::ImportError;

/// Holes have at least this many bytes: a multiple of every file system's block.
const CHUNK: usize = 64 << 10;
/// What an xz decoder may remember, in KiB: what `xz -9` asks for, and some more.
const XZ_MEMORY: u32 = 128 << 10;
/// The longest of the beginnings below.
const MAGIC: usize = 32;
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const QCOW2: &[u8] = b"QFI\xfb";
/// Formats that others import and we do not, by what they begin with.
const OTHERS: [(&[u8], &str); 6] = [
    (b"KDMV", "VMDK"),
    (b"COWD", "VMDK"),
    (b"# Disk DescriptorFile", "VMDK"),
    (b"conectix", "VHD"),
    (b"vhdxfile", "VHDX"),
    (b"<<< ", "VDI"),
];

/// How much there is room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// On the disk.
    pub(crate) disk: u64,
    /// In the scratch file.
    pub(crate) scratch: u64,
}

/// What has arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Received {
    /// The disk itself. It is written.
    Raw,
    /// An image of it, in the scratch file.
    Qcow2,
}

/// Takes in all that comes. The first bytes decide what it is; nobody but who made the image has written them.
pub(crate) fn receive(
    stored: impl Read,
    disk: &File,
    path: &Path,
    scratch: &Path,
    room: Room,
) -> Result<Received, ImportError> {
    let (magic, mut content) = peek(decompressed(stored)?)?;
    let magic = magic.as_slice();
    if magic.is_empty() {
        return Err(ImportError::Empty);
    }
    if let Some((_, name)) = OTHERS.iter().find(|(begin, _)| magic.starts_with(begin)) {
        return Err(ImportError::Format(name));
    }
    // Some compress twice by mistake; such a disk would only not boot.
    if is_compressed(magic) {
        return Err(ImportError::Format("twice compressed"));
    }
    if !magic.starts_with(QCOW2) {
        copy(&mut content, disk, path, Limit { what: "the disk", bytes: room.disk })?;
        return Ok(Received::Raw);
    }
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(scratch);
    let file = opened.map_err(ImportError::file("create", scratch))?;
    copy(&mut content, &file, scratch, Limit { what: "the image", bytes: room.scratch })?;
    Ok(Received::Qcow2)
}

/// As it was before it was compressed with gzip, zstd or xz.
fn decompressed<'a>(stored: impl Read + 'a) -> Result<Box<dyn Read + 'a>, ImportError> {
    let (magic, stored) = peek(stored)?;
    if magic.starts_with(XZ) {
        return Ok(Box::new(XzReader::new_mem_limit(BufReader::with_capacity(CHUNK, stored), true, XZ_MEMORY)));
    }
    storage::pull::decompressed(stored).map_err(ImportError::Archive)
}

fn is_compressed(magic: &[u8]) -> bool {
    [XZ, &[0x1f, 0x8b, 8], &[0x28, 0xb5, 0x2f, 0xfd]].iter().any(|begin| magic.starts_with(begin))
}

/// The first bytes, and the whole: a server may send them one by one, and what is not recognised would be taken for raw.
fn peek<R: Read>(mut reader: R) -> Result<(Vec<u8>, impl Read + use<R>), ImportError> {
    let mut magic = vec![0; MAGIC];
    let length = fill(&mut reader, &mut magic).map_err(ImportError::Archive)?;
    magic.truncate(length);
    Ok((magic.clone(), io::Cursor::new(magic).chain(reader)))
}

#[derive(Clone, Copy)]
struct Limit {
    what: &'static str,
    bytes: u64,
}

/// Writes content without its zeros, and not more than there is room for.
fn copy(content: &mut impl Read, mut target: &File, path: &Path, limit: Limit) -> Result<(), ImportError> {
    // Emptied first, so that what is skipped below reads as zeros.
    let emptied = target.set_len(0).and_then(|()| target.seek(SeekFrom::Start(0)));
    emptied.map_err(ImportError::file("empty", path))?;
    let mut chunk = vec![0; CHUNK];
    let mut total = 0_u64;
    loop {
        let length = fill(content, &mut chunk).map_err(ImportError::Archive)?;
        if length == 0 {
            break;
        }
        total += length as u64;
        if total > limit.bytes {
            return Err(ImportError::TooLarge { what: limit.what, limit: limit.bytes });
        }
        let bytes = &chunk[..length];
        let written = if bytes.iter().all(|byte| *byte == 0) {
            // At most 64 KiB, which fits any integer.
            target.seek_relative(i64::try_from(length).unwrap_or_default())
        } else {
            target.write_all(bytes)
        };
        written.map_err(ImportError::file("write", path))?;
    }
    target.set_len(total).map_err(ImportError::file("size", path))
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

/// The pieces as one reader; ends when the sender is gone.
pub(crate) struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Pieces {
    pub(crate) fn new(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self { receiver, current: Bytes::new() }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        buffer[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}
