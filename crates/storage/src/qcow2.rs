//! qcow2 images: overlays are written, headers are read.
//!
//! An overlay is as small as an image can be: a header that names the backing file, one refcount table, one refcount
//! block and an empty L1 table. What its reader does with it is not this crate's business.

mod header;

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use header::parse;
pub use header::{Info, inspect, is_qcow2};

/// The unit in which new images grow; QEMU's default.
const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// One entry of the L1 table stands for one cluster of L2 entries.
const BYTES_PER_L1_ENTRY: u64 = CLUSTER * (CLUSTER / 8);
/// QEMU refuses longer L1 tables.
const MAX_L1_BYTES: u64 = 32 << 20;
/// The largest image that a table of this length describes: 2 PiB.
const MAX_VIRTUAL_SIZE: u64 = MAX_L1_BYTES / 8 * BYTES_PER_L1_ENTRY;
/// The longest name that the format can hold.
const MAX_BACKING_NAME: usize = 1023;
/// Type of the header extension that holds the backing file's format.
const BACKING_FORMAT: u32 = 0xe279_2aca;
/// Length of a version 3 header, with the byte for the compression type and its padding.
const HEADER_LENGTH: u32 = 112;

/// How the bytes of a disk are to be read.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Byte for byte what the guest sees.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

impl Format {
    /// The name that the format goes by: `raw` or `qcow2`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Why an image was not written or not understood.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// A file could not be read or written.
    #[error("{action} the qcow2 image {}", path.display())]
    Io {
        action: &'static str,
        /// On which file; empty when the caller passed an open one.
        path: PathBuf,
        source: io::Error,
    },
    /// The backing file's name is one that a reader could take for something else.
    #[error("{0:?} is not a valid backing file; use an absolute path of at most {MAX_BACKING_NAME} bytes")]
    BackingName(PathBuf),
    /// The size does not fit the format, or is zero.
    #[error("a virtual size of {0} bytes is out of range")]
    VirtualSize(u64),
    /// It does not begin as a qcow2 image does.
    #[error("not a qcow2 image")]
    Magic,
    /// The header contradicts itself or the format.
    #[error("malformed qcow2 header: {0}")]
    Malformed(&'static str),
    /// The image needs features that this version does not know.
    #[error("the qcow2 image needs unknown features {0:#x}")]
    Features(u64),
}

/// Writes an image whose every byte comes from `backing` until it is written to.
///
/// `virtual_size` may be larger than that of the backing file; what lies beyond reads as zeros.
///
/// # Guarantees
/// - An existing file is never touched, the new one has mode 0600.
/// - The backing name is stored as an absolute path. QEMU takes a colon before the first slash for a protocol, and
///   `json:` for options; a name that begins with a slash is neither, whatever follows.
///
/// # Errors
/// When the name or the size does not fit, or the file cannot be written.
pub fn create_overlay(
    path: &Path,
    backing: &Path,
    backing_format: Format,
    virtual_size: u64,
) -> Result<(), Qcow2Error> {
    let name = backing.as_os_str().as_bytes();
    if !backing.is_absolute() || name.len() > MAX_BACKING_NAME || name.contains(&0) {
        return Err(Qcow2Error::BackingName(backing.to_owned()));
    }
    create(path, Some((name, backing_format)), virtual_size)
}

/// Writes an image that reads as zeros.
///
/// # Errors
/// When the size does not fit, or the file exists or cannot be written.
pub fn create_empty(path: &Path, virtual_size: u64) -> Result<(), Qcow2Error> {
    create(path, None, virtual_size)
}

fn create(path: &Path, backing: Option<(&[u8], Format)>, virtual_size: u64) -> Result<(), Qcow2Error> {
    if virtual_size == 0 || virtual_size > MAX_VIRTUAL_SIZE {
        return Err(Qcow2Error::VirtualSize(virtual_size));
    }
    let failed = |action| move |source| Qcow2Error::Io { action, path: path.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed("create"))?;
    let written = write_image(&mut file, backing, virtual_size);
    if written.is_err() {
        // Half an image is worse than none: the next attempt must not find it. The first error is the one to report.
        let _ = std::fs::remove_file(path);
    }
    written.map_err(failed("write"))
}

/// Clusters, in order: header, refcount table, refcount block, L1 table.
fn write_image(file: &mut File, backing: Option<(&[u8], Format)>, virtual_size: u64) -> io::Result<()> {
    // A guest sees whole sectors.
    let virtual_size = virtual_size.next_multiple_of(512);
    let l1_entries = virtual_size.div_ceil(BYTES_PER_L1_ENTRY);
    let clusters = 3 + (l1_entries * 8).div_ceil(CLUSTER);

    file.write_all(&header(backing, virtual_size, l1_entries))?;
    file.seek(SeekFrom::Start(CLUSTER))?;
    file.write_all(&(2 * CLUSTER).to_be_bytes())?;
    file.seek(SeekFrom::Start(2 * CLUSTER))?;
    // The longest L1 table has 512 clusters, and one block counts 32768 of them.
    for _ in 0..clusters {
        file.write_all(&1_u16.to_be_bytes())?;
    }
    file.set_len(clusters * CLUSTER)?;
    file.sync_all()
}

fn header(backing: Option<(&[u8], Format)>, virtual_size: u64, l1_entries: u64) -> Vec<u8> {
    let mut extensions = Vec::new();
    if let Some((_, format)) = backing {
        let format = format.name().as_bytes();
        extensions.extend(BACKING_FORMAT.to_be_bytes());
        extensions.extend(short(format.len()).to_be_bytes());
        extensions.extend(format);
        extensions.resize(extensions.len().next_multiple_of(8), 0);
    }
    extensions.extend([0; 8]);

    let name = backing.map(|(name, _)| name).unwrap_or_default();
    let name_offset = if name.is_empty() { 0 } else { u64::from(HEADER_LENGTH) + extensions.len() as u64 };
    let mut bytes = Vec::with_capacity(2048);
    bytes.extend(header::MAGIC.to_be_bytes());
    bytes.extend(3_u32.to_be_bytes());
    bytes.extend(name_offset.to_be_bytes());
    bytes.extend(short(name.len()).to_be_bytes());
    bytes.extend(CLUSTER_BITS.to_be_bytes());
    bytes.extend(virtual_size.to_be_bytes());
    bytes.extend(0_u32.to_be_bytes()); // encryption
    bytes.extend(short(l1_entries).to_be_bytes());
    bytes.extend((3 * CLUSTER).to_be_bytes()); // L1 table
    bytes.extend(CLUSTER.to_be_bytes()); // refcount table
    bytes.extend(1_u32.to_be_bytes()); // its clusters
    bytes.extend([0; 12]); // snapshots
    bytes.extend([0; 24]); // incompatible, compatible and autoclear features
    bytes.extend(4_u32.to_be_bytes()); // refcounts of 16 bits
    bytes.extend(HEADER_LENGTH.to_be_bytes());
    bytes.extend([0; 8]); // compression type and padding
    bytes.extend(extensions);
    bytes.extend(name);
    bytes
}

/// For lengths that were checked against limits far below 2^32.
fn short<T: TryInto<u32>>(length: T) -> u32 {
    length.try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn qemu_img(arguments: &[&str], path: &Path) -> Value {
        let output = Command::new("qemu-img")
            .args(arguments)
            .arg(path)
            .output()
            .expect("qemu-img is needed by these tests; Debian has it in qemu-utils");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn checked(path: &Path) -> Value {
        let check = qemu_img(&["check", "--output=json", "-f", "qcow2"], path);
        assert_eq!((&check["check-errors"], &check.get("leaks")), (&json!(0), &None), "{check}");
        qemu_img(&["info", "--output=json", "-f", "qcow2"], path)
    }

    #[test]
    #[ignore = "needs QEMU: make test"]
    fn an_empty_image_is_sound_at_every_size() {
        let folder = tempfile::tempdir().unwrap();
        for (index, size) in [512, 1 << 20, (1 << 29) + 512, 10 << 40, MAX_VIRTUAL_SIZE].into_iter().enumerate() {
            let path = folder.path().join(index.to_string());
            create_empty(&path, size).unwrap();
            let info = checked(&path);
            assert_eq!((&info["virtual-size"], &info["format"]), (&json!(size), &json!("qcow2")));
            assert_eq!(inspect(&File::open(&path).unwrap()).unwrap().virtual_size, size);
        }
    }

    #[test]
    #[ignore = "needs QEMU: make test"]
    fn an_overlay_names_its_backing_file_and_its_format() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("base, with=odd:chars é.img");
        std::fs::write(&base, vec![7; 1 << 16]).unwrap();
        let path = folder.path().join("overlay");
        create_overlay(&path, &base, Format::Raw, 1 << 20).unwrap();
        let info = checked(&path);
        assert_eq!(info["backing-filename"], json!(base));
        assert_eq!(info["full-backing-filename"], json!(base));
        assert_eq!(info["backing-filename-format"], "raw");
        assert_eq!(info["virtual-size"], 1 << 20);

        let second = folder.path().join("second");
        create_overlay(&second, &path, Format::Qcow2, 1 << 20).unwrap();
        assert_eq!(checked(&second)["backing-filename-format"], "qcow2");
        let flat = folder.path().join("flat");
        let convert = Command::new("qemu-img").args(["convert", "-O", "raw"]).args([&second, &flat]).status().unwrap();
        assert!(convert.success());
        let bytes = std::fs::read(&flat).unwrap();
        assert!(bytes.len() == 1 << 20 && bytes[..1 << 16].iter().all(|b| *b == 7) && bytes[1 << 16] == 0);
    }

    #[test]
    fn names_that_could_be_read_as_a_protocol_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let long = format!("/{}", "a".repeat(MAX_BACKING_NAME));
        for name in ["json:{}", "nbd:localhost:10809", "http://x/y", "base.img", "./base", "", "/a\0b", &long] {
            let error = create_overlay(&folder.path().join("o"), Path::new(name), Format::Raw, 512).unwrap_err();
            assert!(matches!(error, Qcow2Error::BackingName(_)), "{name}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    #[ignore = "needs QEMU: make test"]
    fn a_colon_behind_the_first_slash_is_no_protocol() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("nbd:localhost:10809");
        std::fs::write(&base, [0; 512]).unwrap();
        let path = folder.path().join("overlay");
        create_overlay(&path, &base, Format::Raw, 512).unwrap();
        assert_eq!(checked(&path)["full-backing-filename"], json!(base));
    }

    #[test]
    fn an_existing_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(create_empty(&path, 512), Err(Qcow2Error::Io { action: "create", .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        let path = Path::new("/nonexistent/disk");
        for size in [0, MAX_VIRTUAL_SIZE + 1, u64::MAX] {
            assert!(matches!(create_empty(path, size), Err(Qcow2Error::VirtualSize(s)) if s == size));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(32)))]

        #[test]
        fn what_was_written_is_read_back(size in 1_u64..MAX_VIRTUAL_SIZE, name in "/[ -~é]{0,200}") {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("disk");
            create_overlay(&path, Path::new(&name), Format::Raw, size).unwrap();
            let info = inspect(&File::open(&path).unwrap()).unwrap();
            prop_assert_eq!(info.virtual_size, size.next_multiple_of(512));
            prop_assert_eq!(info.backing_file.as_deref(), Some(name.as_bytes()));
            prop_assert_eq!(info.backing_format.as_deref(), Some(&b"raw"[..]));
            prop_assert!(!info.data_file && !info.encrypted && !info.corrupt);
        }
    }
}
