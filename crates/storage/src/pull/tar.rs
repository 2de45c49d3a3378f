//! A reader for tar archives that trusts nothing.
//!
//! It knows what image builders write: ustar, GNU's long names, PAX headers. Every length that an archive states is
//! checked before memory is taken for it, which is why this is not a general library.

use std::io::{self, Read};

/// Archives are made of these.
const BLOCK: usize = 512;
/// The most bytes of a long name or a PAX header. Linux ends paths at 4 KiB; the rest is for attributes.
const MAX_EXTENSION: u64 = 1 << 20;

/// Why an archive cannot be read further.
#[derive(Debug, thiserror::Error)]
pub(super) enum TarError {
    #[error("read the archive")]
    Io(#[source] io::Error),
    #[error("malformed archive: {0}")]
    Malformed(&'static str),
}

/// What an entry is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    Hardlink,
    /// Character and block devices.
    Device,
    Pipe,
    /// A regular file stored with its holes left out, or of a kind unknown here.
    Other,
}

impl Kind {
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::File => "a regular file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Hardlink => "a hard link",
            Self::Device => "a device",
            Self::Pipe => "a pipe",
            Self::Other => "stored in a form that is not supported",
        }
    }
}

/// One member of an archive; its content is read from the [`Archive`] until the next is asked for.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// As stored: it may be absolute, lead upwards, or be no UTF-8.
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) attributes: Attributes,
}

/// What a file system keeps beside a name and content.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Attributes {
    /// Permissions, with the bits for other users' rights.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Whole seconds since 1970.
    pub(super) modified: i64,
    /// Where a link leads to, as stored.
    pub(super) target: Vec<u8>,
    /// What the program may do beyond its user's rights, as the kernel stores it.
    pub(super) capability: Option<Vec<u8>>,
}

/// An archive that is read once, front to back.
pub(super) struct Archive<R> {
    reader: R,
    /// Of the current entry: content not yet read, and what fills its last block.
    remaining: u64,
    padding: u64,
}

/// What the headers before an entry say about it.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
    target: Option<Vec<u8>>,
    uid: Option<u64>,
    gid: Option<u64>,
    modified: Option<i64>,
    capability: Option<Vec<u8>>,
}

impl<R: Read> Archive<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, remaining: 0, padding: 0 }
    }

    /// The reader, wherever it stands.
    pub(super) fn into_inner(self) -> R {
        self.reader
    }

    /// The next entry, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, TarError> {
        let mut extensions = Extensions::default();
        loop {
            self.skip(self.remaining.saturating_add(self.padding))?;
            (self.remaining, self.padding) = (0, 0);
            let Some(block) = self.block()? else { return Ok(None) };
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let header = Header(&block);
            header.check()?;
            let stated = header.size()?;
            match header.kind() {
                b'x' => self.pax(stated, &mut extensions)?,
                b'L' => extensions.name = Some(until_nul(&self.extension(stated)?).to_vec()),
                b'K' => extensions.target = Some(until_nul(&self.extension(stated)?).to_vec()),
                // Defaults for all that follow; git writes its commit there, and nobody a name or a size.
                b'g' => self.content(stated),
                kind => return self.entry(&header, kind, stated, extensions).map(Some),
            }
        }
    }

    fn entry(&mut self, header: &Header<'_>, kind: u8, stated: u64, extensions: Extensions) -> Result<Entry, TarError> {
        let size = extensions.size.unwrap_or(stated);
        let attributes = header.attributes(&extensions)?;
        let name = extensions.name.unwrap_or_else(|| header.name());
        let kind = match kind {
            // Before POSIX, a directory was a file whose name ends in a slash.
            0 | b'0' | b'7' if name.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' if extensions.sparse => Kind::Other,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::Hardlink,
            b'2' => Kind::Symlink,
            b'3' | b'4' => Kind::Device,
            b'6' => Kind::Pipe,
            b'5' => Kind::Directory,
            b'S' => {
                self.skip_sparse_map(header)?;
                Kind::Other
            }
            _ => Kind::Other,
        };
        // Links have no content, whatever size they state: POSIX leaves theirs undefined.
        let has_content = matches!(kind, Kind::File | Kind::Other);
        self.content(if has_content { size } else { 0 });
        Ok(Entry { name, kind, size: if has_content { size } else { 0 }, attributes })
    }

    fn content(&mut self, size: u64) {
        self.remaining = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    /// One block, or `None` if the archive ends before it. Some writers leave out the empty blocks at the end.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut block = [0; BLOCK];
        let mut length = 0;
        while length < BLOCK {
            match self.reader.read(&mut block[length..]) {
                Ok(0) if length == 0 => return Ok(None),
                Ok(0) => return Err(TarError::Malformed("it ends within a header")),
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TarError::Io(error)),
            }
        }
        Ok(Some(block))
    }

    fn skip(&mut self, count: u64) -> Result<(), TarError> {
        let skipped = io::copy(&mut (&mut self.reader).take(count), &mut io::sink()).map_err(TarError::Io)?;
        if skipped < count { Err(TarError::Malformed("it ends within a file")) } else { Ok(()) }
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_EXTENSION {
            return Err(TarError::Malformed("a header is too long"));
        }
        self.content(size);
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(TarError::Io)?;
        Ok(bytes)
    }

    /// Records such as `30 path=some/long/name\n`, the number being the record's length.
    fn pax(&mut self, size: u64, extensions: &mut Extensions) -> Result<(), TarError> {
        const BAD: TarError = TarError::Malformed("a PAX record is broken");
        let bytes = self.extension(size)?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let space = rest.iter().position(|byte| *byte == b' ').ok_or(BAD)?;
            let length = usize::try_from(number(&rest[..space], 10).ok_or(BAD)?).map_err(|_| BAD)?;
            let record = rest.get(space + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or(BAD)?;
            rest = &rest[length..];
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => extensions.name = Some(value.to_vec()),
                b"linkpath" => extensions.target = Some(value.to_vec()),
                b"uid" => extensions.uid = Some(number(value, 10).ok_or(BAD)?),
                b"gid" => extensions.gid = Some(number(value, 10).ok_or(BAD)?),
                b"mtime" => extensions.modified = Some(seconds(value).ok_or(BAD)?),
                b"SCHILY.xattr.security.capability" => extensions.capability = Some(value.to_vec()),
                b"size" => extensions.size = Some(number(value, 10).ok_or(BAD)?),
                key if key.starts_with(b"GNU.sparse.") => extensions.sparse = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// GNU's older form of sparse files continues its map in blocks of its own.
    fn skip_sparse_map(&mut self, header: &Header<'_>) -> Result<(), TarError> {
        let mut continues = header.0[482] != 0;
        while continues {
            let block = self.block()?.ok_or(TarError::Malformed("it ends within a header"))?;
            continues = block[504] != 0;
        }
        Ok(())
    }
}

/// Reads the current entry's content. An archive that ends before its content does is malformed, not short.
impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let count = self.reader.read(&mut buffer[..wanted])?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends within a file"));
        }
        self.remaining -= count as u64;
        Ok(count)
    }
}

struct Header<'a>(&'a [u8; BLOCK]);

impl Header<'_> {
    fn check(&self) -> Result<(), TarError> {
        let counts = |index: usize| !(148..156).contains(&index);
        let sum: u64 = self.0.iter().enumerate().map(|(i, byte)| if counts(i) { u64::from(*byte) } else { 32 }).sum();
        match number(trimmed(&self.0[148..156]), 8) {
            Some(stated) if stated == sum => Ok(()),
            _ => Err(TarError::Malformed("the checksum of a header is wrong")),
        }
    }

    fn kind(&self) -> u8 {
        self.0[156]
    }

    fn size(&self) -> Result<u64, TarError> {
        self.number(124, 12)
    }

    /// Octal digits or, for what does not fit, a binary number behind a set bit.
    fn number(&self, from: usize, length: usize) -> Result<u64, TarError> {
        let field = &self.0[from..from + length];
        if field[0] & 0x80 == 0 {
            let digits = trimmed(field);
            return if digits.is_empty() { Some(0) } else { number(digits, 8) }
                .ok_or(TarError::Malformed("a number is invalid"));
        }
        let value = field[1..].iter().try_fold(u64::from(field[0] & 0x7f), |value, byte| {
            value.checked_mul(256).map(|value| value + u64::from(*byte))
        });
        value.filter(|value| *value <= i64::MAX.unsigned_abs()).ok_or(TarError::Malformed("a number is out of range"))
    }

    fn attributes(&self, extensions: &Extensions) -> Result<Attributes, TarError> {
        const RANGE: TarError = TarError::Malformed("an owner is out of range");
        let owner = |stated: Option<u64>, from| -> Result<u32, TarError> {
            u32::try_from(stated.map_or_else(|| self.number(from, 8), Ok)?).map_err(|_| RANGE)
        };
        // A time before 1970, or none at all, is not worth an image.
        let modified = || self.number(136, 12).ok().and_then(|it| i64::try_from(it).ok()).unwrap_or(0);
        Ok(Attributes {
            mode: u32::try_from(self.number(100, 8)? & 0o7777).unwrap_or_default(),
            uid: owner(extensions.uid, 108)?,
            gid: owner(extensions.gid, 116)?,
            modified: extensions.modified.unwrap_or_else(modified),
            target: extensions.target.clone().unwrap_or_else(|| until_nul(&self.0[157..257]).to_vec()),
            capability: extensions.capability.clone(),
        })
    }

    /// POSIX splits long names in two; GNU uses the second field for other things.
    fn name(&self) -> Vec<u8> {
        let name = until_nul(&self.0[..100]);
        let prefix = if self.0[257..263] == *b"ustar\0" { until_nul(&self.0[345..500]) } else { &[] };
        if prefix.is_empty() { name.to_vec() } else { [prefix, name].join(&b'/') }
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn trimmed(field: &[u8]) -> &[u8] {
    until_nul(field.trim_ascii_start()).trim_ascii()
}

/// Whole seconds of a time such as `1700000000.25`.
fn seconds(value: &[u8]) -> Option<i64> {
    let whole = value.split(|byte| *byte == b'.').next().unwrap_or_default();
    std::str::from_utf8(whole).ok()?.parse().ok()
}

/// At most 63 bits, so that sums of two sizes cannot overflow.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok().filter(|number| i64::try_from(*number).is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
        let mut archive = Archive::new(bytes);
        let mut entries = Vec::new();
        while let Some(entry) = archive.next()? {
            let mut content = Vec::new();
            archive.read_to_end(&mut content).map_err(TarError::Io)?;
            entries.push((entry, content));
        }
        Ok(entries)
    }

    fn header(size: u64) -> ::tar::Header {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        header
    }

    #[test]
    fn long_names_and_large_sizes_are_understood() {
        let long = "d/".repeat(150) + "file";
        let mut builder = ::tar::Builder::new(Vec::new());
        builder.append_data(&mut header(3), &long, &b"abc"[..]).unwrap();
        builder.append_pax_extensions([("path", long.as_bytes()), ("size", b"2")]).unwrap();
        let mut small = header(0);
        small.set_cksum();
        builder.append(&small, &b""[..]).unwrap();
        let mut bytes = builder.into_inner().unwrap();
        // The PAX size holds, not the header's.
        bytes.truncate(bytes.len() - 1024);
        bytes.extend(b"hi");
        bytes.resize(bytes.len().next_multiple_of(512) + 1024, 0);
        let entries = read_all(&bytes).unwrap();
        let seen: Vec<_> =
            entries.iter().map(|(entry, content)| (entry.name.as_slice(), entry.size, content.as_slice())).collect();
        assert_eq!(seen, [(long.as_bytes(), 3, &b"abc"[..]), (long.as_bytes(), 2, &b"hi"[..])]);
    }

    #[test]
    fn attributes_come_from_the_header_unless_an_extension_has_them() {
        let mut builder = ::tar::Builder::new(Vec::new());
        let mut link = header(0);
        link.set_entry_type(::tar::EntryType::Symlink);
        link.set_mode(0o4755);
        link.set_uid(5);
        link.set_gid(6);
        link.set_mtime(7);
        builder.append_link(&mut link, "a", "x".repeat(200)).unwrap();
        builder.append_pax_extensions([("uid", &b"3000000"[..]), ("mtime", b"-1.5")]).unwrap();
        builder.append_link(&mut link, "b", "c").unwrap();
        let entries = read_all(&builder.into_inner().unwrap()).unwrap();
        let expected =
            Attributes { mode: 0o4755, uid: 5, gid: 6, modified: 7, target: vec![b'x'; 200], capability: None };
        assert_eq!(entries[0].0.attributes, expected);
        let expected = Attributes { uid: 3_000_000, modified: -1, target: b"c".to_vec(), ..expected };
        assert_eq!(entries[1].0.attributes, expected);
    }

    #[test]
    fn a_size_beyond_the_archive_is_found_out() {
        for size in [1000, 1 << 40, 1 << 62] {
            let mut lying = header(size);
            lying.set_path("disk/a").unwrap();
            lying.set_cksum();
            let mut bytes = lying.as_bytes().to_vec();
            bytes.extend([0; 512]);
            assert!(matches!(read_all(&bytes), Err(TarError::Io(_))), "{size}");
            let mut archive = Archive::new(bytes.as_slice());
            archive.next().unwrap();
            assert!(matches!(archive.next(), Err(TarError::Malformed(_))), "{size}, skipped");
        }
    }

    #[test]
    fn a_name_may_not_fill_the_memory() {
        let mut long = header(1 << 40);
        long.set_entry_type(::tar::EntryType::GNULongName);
        long.set_cksum();
        let bytes = [&long.as_bytes()[..], &[0; 4096]].concat();
        let error = read_all(&bytes).unwrap_err().to_string();
        assert!(error.contains("too long"), "{error}");
    }

    #[test]
    fn garbage_is_told_from_an_archive() {
        assert!(matches!(read_all(&[7; 1024]), Err(TarError::Malformed(_))));
        assert!(matches!(read_all(&[0; 100]), Err(TarError::Malformed(_))));
        assert!(read_all(&[]).unwrap().is_empty());
        assert!(read_all(&[0; 1024]).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn every_archive_of_another_writer_is_read(
            files in proptest::collection::vec(("[a-z./]{1,300}", proptest::collection::vec(any::<u8>(), 0..1500)), 0..5)
        ) {
            let mut builder = ::tar::Builder::new(Vec::new());
            let mut expected = Vec::new();
            for (name, content) in files {
                let name = format!("x{}", name.replace("..", ".").replace("//", "/")).trim_end_matches('/').to_owned();
                if builder.append_data(&mut header(content.len() as u64), &name, content.as_slice()).is_ok() {
                    expected.push(content);
                }
            }
            let entries = read_all(&builder.into_inner().unwrap()).unwrap();
            prop_assert!(entries.iter().all(|(entry, _)| entry.kind == Kind::File));
            prop_assert_eq!(entries.into_iter().map(|(_, content)| content).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(blocks in proptest::collection::vec(any::<u8>(), 0..2048), kind in any::<u8>(), size in any::<u64>()) {
            let mut lying = header(size);
            lying.as_mut_bytes()[156] = kind;
            lying.set_cksum();
            let _ = read_all(&[&lying.as_bytes()[..], &blocks].concat());
            let _ = read_all(&blocks);
        }
    }
}
