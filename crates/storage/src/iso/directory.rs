//! Directories: directory records, with Rock Ridge's fields in the primary tree.

use super::SECTOR;
use super::tree::{Name, Tree};

/// The sector that declares Rock Ridge; the root's first record points at it.
pub(super) const CONTINUATION: usize = 23;

/// 1970-01-01 00:00:00 UTC, in seven bytes.
pub(super) const EPOCH: [u8; 7] = [70, 1, 1, 0, 0, 0, 0];

const FOLDER_MODE: u32 = 0o040_755;
/// Readable by all inside the guest, as on any CD; the image itself is private on the host.
const FILE_MODE: u32 = 0o100_644;

/// Which of the two trees.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Names {
    Primary,
    Joliet,
}

/// A tree and where its parts lie.
pub(super) struct Layout<'a> {
    pub(super) tree: &'a Tree<'a>,
    pub(super) names: Names,
    /// Sectors of the directories, and their lengths in bytes.
    pub(super) places: &'a [usize],
    pub(super) sizes: &'a [usize],
    pub(super) file_places: &'a [usize],
}

/// The lengths of all directories, in whole sectors.
pub(super) fn sizes(tree: &Tree<'_>, names: Names) -> Vec<usize> {
    // Places do not change a record's length.
    let nowhere = vec![0; tree.folders.len().max(tree.files.len())];
    let layout = Layout { tree, names, places: &nowhere, sizes: &nowhere, file_places: &nowhere };
    (0..tree.folders.len()).map(|folder| records(&layout, folder).len()).collect()
}

/// All records of a directory; none crosses the border of a sector.
pub(super) fn records(layout: &Layout<'_>, number: usize) -> Vec<u8> {
    let folder = &layout.tree.folders[number];
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for child in &folder.folders {
        let name = &layout.tree.folders[*child].name;
        let extent = Extent { place: layout.places[*child], length: layout.sizes[*child], is_folder: true };
        entries.push((layout.identifier(name).to_vec(), layout.record(name, extent)));
    }
    for child in &folder.files {
        let file = &layout.tree.files[*child];
        let extent = Extent { place: layout.file_places[*child], length: file.bytes.len(), is_folder: false };
        entries.push((layout.identifier(&file.name).to_vec(), layout.record(&file.name, extent)));
    }
    entries.sort();

    let dots = [(0_u8, number), (1, folder.parent)].map(|(identifier, target)| {
        let extent = Extent { place: layout.places[target], length: layout.sizes[target], is_folder: true };
        layout.dot_record(identifier, extent, number == 0)
    });
    let mut bytes = Vec::new();
    for record in dots.iter().chain(entries.iter().map(|(_, record)| record)) {
        if bytes.len() % SECTOR + record.len() > SECTOR {
            bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        }
        bytes.extend(record);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    bytes
}

#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) place: usize,
    pub(super) length: usize,
    pub(super) is_folder: bool,
}

impl Layout<'_> {
    pub(super) fn identifier<'n>(&self, name: &'n Name) -> &'n [u8] {
        match self.names {
            Names::Primary => &name.short,
            Names::Joliet => &name.joliet,
        }
    }

    fn record(&self, name: &Name, extent: Extent) -> Vec<u8> {
        let mut system_use = Vec::new();
        if self.names == Names::Primary {
            system_use.extend(posix_attributes(extent.is_folder));
            system_use.extend(alternate_name(&name.full));
        }
        record(self.identifier(name), extent, &system_use)
    }

    /// The directory itself (identifier 0) or its parent (1).
    fn dot_record(&self, identifier: u8, extent: Extent, is_root: bool) -> Vec<u8> {
        let mut system_use = Vec::new();
        if self.names == Names::Primary {
            let declares = is_root && identifier == 0;
            if declares {
                system_use.extend([b'S', b'P', 7, 1, 0xbe, 0xef, 0]);
            }
            system_use.extend(posix_attributes(true));
            if declares {
                system_use.extend([b'C', b'E', 28, 1]);
                system_use.extend(both_32(CONTINUATION));
                system_use.extend(both_32(0));
                system_use.extend(both_32(rock_ridge_declaration().len()));
            }
        }
        record(&[identifier], extent, &system_use)
    }
}

pub(super) fn record(identifier: &[u8], extent: Extent, system_use: &[u8]) -> Vec<u8> {
    let padding = 1 - identifier.len() % 2;
    let length = 33 + identifier.len() + padding + system_use.len();
    let mut bytes = Vec::with_capacity(length + 1);
    bytes.extend([byte(length.next_multiple_of(2)), 0]);
    bytes.extend(both_32(extent.place));
    bytes.extend(both_32(extent.length));
    bytes.extend(EPOCH);
    bytes.extend([if extent.is_folder { 2 } else { 0 }, 0, 0]);
    bytes.extend(both_16(1));
    bytes.push(byte(identifier.len()));
    bytes.extend(identifier);
    bytes.resize(bytes.len() + padding, 0);
    bytes.extend(system_use);
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes
}

/// `PX`: mode, links, owner, group.
fn posix_attributes(is_folder: bool) -> Vec<u8> {
    let (mode, links) = if is_folder { (FOLDER_MODE, 2) } else { (FILE_MODE, 1) };
    let mut bytes = vec![b'P', b'X', 36, 1];
    bytes.extend(both_32(mode as usize));
    bytes.extend(both_32(links));
    bytes.extend(both_32(0));
    bytes.extend(both_32(0));
    bytes
}

/// `NM`: the name as it was given.
fn alternate_name(name: &str) -> Vec<u8> {
    let mut bytes = vec![b'N', b'M', byte(5 + name.len()), 1, 0];
    bytes.extend(name.as_bytes());
    bytes
}

/// `ER`: says that the fields above are Rock Ridge's, in the words that readers compare with.
pub(super) fn rock_ridge_declaration() -> Vec<u8> {
    const IDENTIFIER: &[u8] = b"RRIP_1991A";
    const DESCRIPTION: &[u8] = b"THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS";
    const SOURCE: &[u8] = b"PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER IDENTIFIER IN PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION.";
    let length = 8 + IDENTIFIER.len() + DESCRIPTION.len() + SOURCE.len();
    let mut bytes = vec![b'E', b'R', byte(length), 1];
    bytes.extend([byte(IDENTIFIER.len()), byte(DESCRIPTION.len()), byte(SOURCE.len()), 1]);
    bytes.extend([IDENTIFIER, DESCRIPTION, SOURCE].concat());
    bytes
}

/// Little endian, then big endian, as most numbers on a CD.
pub(super) fn both_32(number: usize) -> [u8; 8] {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub(super) fn both_16(number: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (number.to_le_bytes(), number.to_be_bytes());
    [a, b, c, d]
}

/// For lengths that the limits on names keep below 256; the test with the longest names would fail otherwise.
pub(super) fn byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}
