//! The files as a tree, and the names they get.

use std::collections::{BTreeMap, BTreeSet};

use super::IsoError;

/// What genisoimage's `-joliet-long` allows and Windows and Linux read; a directory record has no room for more.
const MAX_NAME: usize = 103;
/// Bytes of a Rock Ridge name that fit a directory record beside the other fields.
const MAX_NAME_BYTES: usize = 150;
/// ISO 9660 knows no deeper directories.
const MAX_DEPTH: usize = 8;
/// Path tables number directories with 16 bits; nobody needs as many here.
const MAX_ENTRIES: usize = 4096;

/// Directories in the order of the path table: parents first. The root is number 0.
pub(super) struct Tree<'a> {
    pub(super) folders: Vec<Folder>,
    pub(super) files: Vec<FileEntry<'a>>,
}

#[derive(Default)]
pub(super) struct Folder {
    pub(super) name: Name,
    pub(super) parent: usize,
    /// By number, sorted by name.
    pub(super) folders: Vec<usize>,
    pub(super) files: Vec<usize>,
}

pub(super) struct FileEntry<'a> {
    pub(super) name: Name,
    pub(super) bytes: &'a [u8],
}

/// One name in its three forms.
#[derive(Default)]
pub(super) struct Name {
    /// As given; Rock Ridge stores it.
    pub(super) full: String,
    /// Up to eight and three capital letters; unique in its directory.
    pub(super) short: Vec<u8>,
    /// UCS-2, big endian.
    pub(super) joliet: Vec<u8>,
}

#[derive(Default)]
struct Node<'a> {
    folders: BTreeMap<&'a str, Node<'a>>,
    files: BTreeMap<&'a str, &'a [u8]>,
}

impl<'a> Tree<'a> {
    pub(super) fn of(files: &'a BTreeMap<String, Vec<u8>>) -> Result<Self, IsoError> {
        let mut root = Node::default();
        for (path, bytes) in files {
            root.insert(path, bytes)?;
        }
        let mut tree = Tree { folders: vec![Folder::default()], files: Vec::new() };
        // Breadth first, as path tables are ordered.
        let mut level = vec![(0, root)];
        while !level.is_empty() {
            let mut below = Vec::new();
            for (number, node) in level {
                tree.fill(number, node, &mut below);
            }
            level = below;
        }
        if tree.folders.len() + tree.files.len() > MAX_ENTRIES {
            return Err(IsoError::Size("the number of files"));
        }
        Ok(tree)
    }

    fn fill(&mut self, number: usize, node: Node<'a>, below: &mut Vec<(usize, Node<'a>)>) {
        let mut used = BTreeSet::new();
        for (full, node) in node.folders {
            let child = self.folders.len();
            let name = Name::new(full, false, &mut used);
            self.folders.push(Folder { name, parent: number, ..Folder::default() });
            self.folders[number].folders.push(child);
            below.push((child, node));
        }
        for (full, bytes) in node.files {
            self.folders[number].files.push(self.files.len());
            self.files.push(FileEntry { name: Name::new(full, true, &mut used), bytes });
        }
    }
}

impl<'a> Node<'a> {
    fn insert(&mut self, path: &'a str, bytes: &'a [u8]) -> Result<(), IsoError> {
        let parts: Vec<&str> = path.split('/').collect();
        if parts.len() > MAX_DEPTH || !parts.iter().all(|part| fits(part)) {
            return Err(IsoError::Name(path.to_owned()));
        }
        let Some((file, folders)) = parts.split_last() else { return Err(IsoError::Name(path.to_owned())) };
        let mut node = self;
        for folder in folders {
            if node.files.contains_key(folder) {
                return Err(IsoError::Conflict(path.to_owned()));
            }
            node = node.folders.entry(folder).or_default();
        }
        if node.folders.contains_key(file) {
            return Err(IsoError::Conflict(path.to_owned()));
        }
        node.files.insert(file, bytes);
        Ok(())
    }
}

/// Joliet forbids a few characters, and knows none beyond 16 bits.
fn fits(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= MAX_NAME_BYTES
        && name.chars().count() <= MAX_NAME
        && name
            .chars()
            .all(|c| u32::from(c) < 0x1_0000 && !c.is_control() && !matches!(c, '*' | ':' | ';' | '?' | '\\'))
}

impl Name {
    fn new(full: &str, is_file: bool, used: &mut BTreeSet<Vec<u8>>) -> Self {
        let joliet = full.encode_utf16().flat_map(u16::to_be_bytes).collect();
        Self { full: full.to_owned(), short: short(full, is_file, used), joliet }
    }
}

/// The name that only readers without Rock Ridge and Joliet see.
fn short(full: &str, is_file: bool, used: &mut BTreeSet<Vec<u8>>) -> Vec<u8> {
    let plain = |text: &str, length: usize| -> String {
        text.chars()
            .take(length)
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect()
    };
    let (stem, extension) = match full.rsplit_once('.') {
        Some((stem, extension)) if is_file && !stem.is_empty() => (stem, plain(extension, 3)),
        _ => (full, String::new()),
    };
    let with_stem = |stem: &str| {
        if is_file { format!("{stem}.{extension};1").into_bytes() } else { stem.to_owned().into_bytes() }
    };
    let mut candidate = with_stem(&plain(stem, 8));
    let mut number = 0_u32;
    while !used.insert(candidate.clone()) {
        number += 1;
        candidate = with_stem(&format!("{}{number:04}", plain(stem, 4)));
    }
    candidate
}
