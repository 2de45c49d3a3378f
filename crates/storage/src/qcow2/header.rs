//! Reads qcow2 headers, which may be malicious.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::{BACKING_FORMAT, MAX_BACKING_NAME, MAX_L1_BYTES, Qcow2Error};

/// `QFI` and 0xfb.
pub(super) const MAGIC: u32 = 0x5146_49fb;
/// Header extensions: encryption, and the name of an external data file.
const LUKS: u32 = 0x0537_be77;
const DATA_FILE: u32 = 0x4441_5441;
/// Incompatible features.
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
/// Dirty, corrupt, external data, compression type, extended L2: all that exist.
const KNOWN_FEATURES: u64 = 0x1f;
/// The format keeps header, extensions and backing name within the first cluster, which has at most 2 MiB; real ones
/// need some hundred bytes.
const MAX_HEADER: usize = 64 << 10;

/// What a header says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Info {
    /// The size of the disk that the guest sees.
    pub virtual_size: u64,
    /// 2 or 3.
    pub version: u32,
    /// The name of the file that unwritten bytes come from, as stored.
    pub backing_file: Option<Vec<u8>>,
    /// That file's format, as stored.
    pub backing_format: Option<Vec<u8>>,
    /// Whether the guest's bytes are in another file.
    pub data_file: bool,
    /// Whether the guest's bytes are encrypted.
    pub encrypted: bool,
    /// Whether a writer has marked the image as damaged.
    pub corrupt: bool,
    /// How many snapshots are kept inside.
    pub snapshots: u32,
}

/// Whether a file begins as a qcow2 image does.
///
/// Ask only for files that no guest has written to; see [`crate::disk`].
#[must_use]
pub fn is_qcow2(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(&MAGIC.to_be_bytes())
}

/// Reads a header; the file's position stays.
///
/// # Guarantees
/// Reads at most 64 KiB, whatever the header claims.
///
/// # Errors
/// When it is no qcow2 image, or one that contradicts itself.
pub fn inspect(file: &File) -> Result<Info, Qcow2Error> {
    let mut bytes = vec![0; MAX_HEADER];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Qcow2Error::Io { action: "read", path: PathBuf::new(), source }),
        }
    }
    bytes.truncate(length);
    parse(&bytes)
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Info, Qcow2Error> {
    if !is_qcow2(bytes) {
        return Err(Qcow2Error::Magic);
    }
    let header = Fields(bytes);
    let version = header.u32(4)?;
    if !(2..=3).contains(&version) {
        return Err(Qcow2Error::Malformed("its version is neither 2 nor 3"));
    }
    let cluster_bits = header.u32(20)?;
    if !(9..=21).contains(&cluster_bits) {
        return Err(Qcow2Error::Malformed("its cluster size is not between 512 bytes and 2 MiB"));
    }
    let (features, header_length) = if version == 3 { (header.u64(72)?, header.u32(100)?) } else { (0, 72) };
    if features & !KNOWN_FEATURES != 0 {
        return Err(Qcow2Error::Features(features & !KNOWN_FEATURES));
    }
    if version == 3 && (header_length < 104 || header_length % 8 != 0) {
        return Err(Qcow2Error::Malformed("its length is invalid"));
    }
    let virtual_size = header.u64(24)?;
    check_tables(&header, virtual_size, cluster_bits)?;
    let backing_file = backing_name(&header, 1 << cluster_bits)?;
    let extensions = extensions(&header, header_length)?;
    Ok(Info {
        virtual_size,
        version,
        backing_file,
        backing_format: extensions.backing_format,
        data_file: features & EXTERNAL_DATA != 0 || extensions.data_file,
        encrypted: header.u32(32)? != 0 || extensions.luks,
        corrupt: features & CORRUPT != 0,
        snapshots: header.u32(60)?,
    })
}

/// The L1 table must describe the whole disk, and not be longer than any reader takes.
fn check_tables(header: &Fields<'_>, virtual_size: u64, cluster_bits: u32) -> Result<(), Qcow2Error> {
    let l1_entries = u64::from(header.u32(36)?);
    let needed = virtual_size.div_ceil(1_u64 << (2 * cluster_bits - 3));
    if l1_entries * 8 > MAX_L1_BYTES || l1_entries < needed {
        return Err(Qcow2Error::Malformed("its L1 table does not fit its virtual size"));
    }
    let in_clusters = |offset: u64| offset.is_multiple_of(1 << cluster_bits);
    if !in_clusters(header.u64(40)?) || !in_clusters(header.u64(48)?) {
        return Err(Qcow2Error::Malformed("a table is not aligned to a cluster"));
    }
    Ok(())
}

fn backing_name(header: &Fields<'_>, cluster: u64) -> Result<Option<Vec<u8>>, Qcow2Error> {
    let (offset, length) = (header.u64(8)?, header.u32(16)? as usize);
    if offset == 0 {
        return Ok(None);
    }
    if length > MAX_BACKING_NAME || offset.saturating_add(length as u64) > cluster {
        return Err(Qcow2Error::Malformed("the name of its backing file is too long"));
    }
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    Ok(Some(header.slice(offset, length)?.to_vec()))
}

#[derive(Default)]
struct Extensions {
    backing_format: Option<Vec<u8>>,
    data_file: bool,
    luks: bool,
}

fn extensions(header: &Fields<'_>, start: u32) -> Result<Extensions, Qcow2Error> {
    let mut found = Extensions::default();
    let mut offset = start as usize;
    loop {
        // A version 2 image may end right behind its header.
        let Ok(kind) = header.u32(offset) else { return Ok(found) };
        if kind == 0 {
            return Ok(found);
        }
        let length = header.u32(offset + 4)? as usize;
        let data = header.slice(offset + 8, length)?;
        match kind {
            BACKING_FORMAT => found.backing_format = Some(data.to_vec()),
            DATA_FILE => found.data_file = true,
            LUKS => found.luks = true,
            _ => {}
        }
        offset += 8 + length.next_multiple_of(8);
    }
}

/// Big-endian numbers at fixed places.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn slice(&self, offset: usize, length: usize) -> Result<&[u8], Qcow2Error> {
        offset
            .checked_add(length)
            .and_then(|end| self.0.get(offset..end))
            .ok_or(Qcow2Error::Malformed("the file ends too early"))
    }

    fn array<const N: usize>(&self, offset: usize) -> Result<[u8; N], Qcow2Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(offset, N)?);
        Ok(array)
    }

    fn u32(&self, offset: usize) -> Result<u32, Qcow2Error> {
        self.array(offset).map(u32::from_be_bytes)
    }

    fn u64(&self, offset: usize) -> Result<u64, Qcow2Error> {
        self.array(offset).map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn made_by_qemu(folder: &Path, arguments: &[&str]) -> Info {
        let path = folder.join(format!("disk{}.qcow2", arguments.len()));
        let output = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .args(&arguments[..arguments.len() - 1])
            .arg(&path)
            .arg(arguments[arguments.len() - 1])
            .current_dir(folder)
            .output()
            .expect("qemu-img is needed by these tests; Debian has it in qemu-utils");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        inspect(&File::open(&path).unwrap()).unwrap()
    }

    #[test]
    #[ignore = "needs QEMU: make test"]
    fn headers_of_other_writers_are_understood() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("base"), [0; 4096]).unwrap();
        let plain = made_by_qemu(folder.path(), &["10M"]);
        assert_eq!((plain.virtual_size, plain.version, plain.backing_file), (10 << 20, 3, None));
        assert_eq!(made_by_qemu(folder.path(), &["-o", "compat=0.10", "1G"]).version, 2);
        assert_eq!(made_by_qemu(folder.path(), &["-o", "cluster_size=512", "-u", "1M"]).virtual_size, 1 << 20);
        let overlay = made_by_qemu(folder.path(), &["-b", "base", "-F", "raw", "1M"]);
        assert_eq!(overlay.backing_file.as_deref(), Some(&b"base"[..]));
        assert_eq!(overlay.backing_format.as_deref(), Some(&b"raw"[..]));
        let data = made_by_qemu(folder.path(), &["-o", "data_file=data,data_file_raw=on", "-q", "-u", "-q", "1M"]);
        assert!(data.data_file && !data.encrypted);
        let secret = ["--object", "secret,id=s,data=x", "-o", "encrypt.format=aes,encrypt.key-secret=s", "1M"];
        assert!(made_by_qemu(folder.path(), &secret).encrypted);
    }

    fn valid() -> Vec<u8> {
        super::super::header(None, 1 << 30, 2)
    }

    #[test]
    fn lies_are_found_out() {
        assert!(parse(&valid()).is_ok());
        let broken = |offset: usize, value: &[u8]| {
            let mut bytes = valid();
            bytes[offset..offset + value.len()].copy_from_slice(value);
            parse(&bytes).unwrap_err().to_string()
        };
        assert!(broken(0, b"X").contains("not a qcow2"));
        assert!(broken(4, &4_u32.to_be_bytes()).contains("version"));
        assert!(broken(20, &63_u32.to_be_bytes()).contains("cluster size"));
        assert!(broken(24, &u64::MAX.to_be_bytes()).contains("L1"));
        assert!(broken(36, &u32::MAX.to_be_bytes()).contains("L1"));
        assert!(broken(40, &5_u64.to_be_bytes()).contains("cluster"));
        assert!(broken(72, &(1_u64 << 40).to_be_bytes()).contains("0x10000000000"));
        assert!(broken(100, &5_u32.to_be_bytes()).contains("length"));
        assert!(broken(8, &u64::MAX.to_be_bytes()).contains("too long"));
        assert!(parse(&valid()[..50]).unwrap_err().to_string().contains("too early"));
    }

    proptest! {
        #[test]
        fn no_header_makes_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), patch in any::<bool>()) {
            if patch {
                let valid = valid();
                let kept = valid.len().min(bytes.len()).min(72);
                bytes[..kept].copy_from_slice(&valid[..kept]);
            }
            let _ = parse(&bytes);
        }
    }
}
