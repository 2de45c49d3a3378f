//! What a reader sees first: volume descriptors and path tables.

use super::directory::{Extent, Layout, Names, both_16, both_32, byte, record};
use super::{IsoError, SECTOR};

pub(super) struct PathTables {
    pub(super) little: Vec<u8>,
    pub(super) big: Vec<u8>,
}

/// All directories in breadth-first order, each with the number of its parent.
pub(super) fn path_tables(layout: &Layout<'_>) -> Result<PathTables, IsoError> {
    let mut tables = PathTables { little: Vec::new(), big: Vec::new() };
    for (number, folder) in layout.tree.folders.iter().enumerate() {
        let identifier = if number == 0 { &[0][..] } else { layout.identifier(&folder.name) };
        let place = u32::try_from(layout.places[number]).map_err(|_| IsoError::Size("the image"))?;
        let parent = u16::try_from(folder.parent + 1).map_err(|_| IsoError::Size("the number of directories"))?;
        for (table, place, parent) in [
            (&mut tables.little, place.to_le_bytes(), parent.to_le_bytes()),
            (&mut tables.big, place.to_be_bytes(), parent.to_be_bytes()),
        ] {
            table.extend([byte(identifier.len()), 0]);
            table.extend(place);
            table.extend(parent);
            table.extend(identifier);
            table.resize(table.len().next_multiple_of(2), 0);
        }
    }
    // One sector each is set aside.
    if tables.little.len() > SECTOR {
        return Err(IsoError::Size("the number of directories"));
    }
    Ok(tables)
}

pub(super) fn descriptor(
    label: &str,
    layout: &Layout<'_>,
    sectors: usize,
    table: usize,
    table_length: usize,
) -> Vec<u8> {
    let is_joliet = layout.names == Names::Joliet;
    let text = |text: &str, length: usize| {
        let mut bytes = Vec::with_capacity(length);
        if is_joliet {
            bytes.extend(text.encode_utf16().take(length / 2).flat_map(u16::to_be_bytes));
            while bytes.len() + 1 < length {
                bytes.extend([0, b' ']);
            }
        }
        bytes.extend(text.bytes().take(if is_joliet { 0 } else { length }));
        bytes.resize(length, if is_joliet { 0 } else { b' ' });
        bytes
    };
    let mut bytes = vec![if is_joliet { 2 } else { 1 }];
    bytes.extend(b"CD001\x01\0");
    bytes.extend(text("LINUX", 32));
    bytes.extend(text(label, 32));
    bytes.extend([0; 8]);
    bytes.extend(both_32(sectors));
    // The escape sequence for UCS-2 level 3 is what makes a supplementary descriptor Joliet's.
    let mut escapes = [0; 32];
    if is_joliet {
        escapes[..3].copy_from_slice(b"%/E");
    }
    bytes.extend(escapes);
    bytes.extend(both_16(1));
    bytes.extend(both_16(1));
    bytes.extend(both_16(2048));
    bytes.extend(both_32(table_length));
    let place = |sector: usize| u32::try_from(sector).unwrap_or(u32::MAX);
    bytes.extend(place(table).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(place(table + 1).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(record(&[0], Extent { place: layout.places[0], length: layout.sizes[0], is_folder: true }, &[]));
    // Volume set, publisher, preparer, application; copyright, abstract and bibliographic files.
    for length in [128, 128, 128, 128, 37, 37, 37] {
        bytes.extend(text("", length));
    }
    // Created, modified, expires never, effective at once.
    for date in [b"1970010100000000\0", b"1970010100000000\0", b"0000000000000000\0", b"0000000000000000\0"] {
        bytes.extend(date);
    }
    bytes.extend([1, 0]);
    bytes.resize(SECTOR, 0);
    bytes
}

pub(super) fn terminator() -> Vec<u8> {
    b"\xffCD001\x01".to_vec()
}
