//! A disk that may forget, at a power cut, whatever was not synced.
//!
//! A sync of the file keeps its content, and a sync of the directory its name. Until then, each change may reach the disk
//! or not, a write also in part, in sectors; and a later change may be there while an earlier one is not.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand::rngs::StdRng;

const SECTOR: usize = 512;

/// What a store did to its files.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// Makes the file, if there is none.
    Open {
        name: String,
    },
    Write {
        name: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        name: String,
        length: usize,
    },
    /// The first sync of a new log is one of the directory as well.
    Sync {
        name: String,
        folder: bool,
    },
    Delete {
        name: String,
        folder: bool,
    },
}

/// The files that are found after a power cut.
pub(super) type Image = BTreeMap<String, Vec<u8>>;

/// Which of the changes that were not synced have reached the disk.
pub(super) enum Luck {
    None,
    All,
    Some(Box<StdRng>),
}

#[derive(Default)]
pub(super) struct Disk {
    files: Vec<File>,
    /// Which file a name stands for: now, and after a power cut.
    names: BTreeMap<String, usize>,
    synced: BTreeMap<String, usize>,
    /// Names since the directory was synced: given to a file, or taken away.
    renamed: Vec<(String, Option<usize>)>,
}

#[derive(Default)]
struct File {
    synced: Vec<u8>,
    changes: Vec<Change>,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
}

impl Disk {
    pub(super) fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Open { name } => {
                if !self.names.contains_key(&name) {
                    self.names.insert(name.clone(), self.files.len());
                    self.renamed.push((name, Some(self.files.len())));
                    self.files.push(File::default());
                }
            }
            Operation::Write { name, offset, bytes } => self.file(&name).changes.push(Change::Write { offset, bytes }),
            Operation::Truncate { name, length } => self.file(&name).changes.push(Change::Truncate { length }),
            Operation::Sync { name, folder } => {
                let file = self.file(&name);
                file.synced = file.after(&mut Luck::All);
                file.changes.clear();
                self.sync_folder(folder);
            }
            Operation::Delete { name, folder } => {
                self.names.remove(&name);
                self.renamed.push((name, None));
                self.sync_folder(folder);
            }
        }
    }

    /// What is there after a power cut now.
    pub(super) fn after_power_cut(&self, luck: &mut Luck) -> Image {
        let mut names = self.synced.clone();
        for (name, file) in self.renamed.iter().filter(|_| luck.strikes()) {
            match file {
                Some(file) => drop(names.insert(name.clone(), *file)),
                None => drop(names.remove(name)),
            }
        }
        names.into_iter().map(|(name, file)| (name, self.files[file].after(luck))).collect()
    }

    fn file(&mut self, name: &str) -> &mut File {
        &mut self.files[self.names[name]]
    }

    fn sync_folder(&mut self, whether: bool) {
        if whether {
            self.synced.clone_from(&self.names);
            self.renamed.clear();
        }
    }
}

impl File {
    fn after(&self, luck: &mut Luck) -> Vec<u8> {
        let mut content = self.synced.clone();
        for change in &self.changes {
            match change {
                Change::Truncate { length } if luck.strikes() => content.resize(*length, 0),
                Change::Truncate { .. } => {}
                Change::Write { offset, bytes } => {
                    let mut luck = luck.of_a_write();
                    let mut rest = bytes.as_slice();
                    let mut at = *offset;
                    while !rest.is_empty() {
                        let (sector, others) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                        if luck() {
                            content.resize(content.len().max(at + sector.len()), 0);
                            content[at..at + sector.len()].copy_from_slice(sector);
                        }
                        at += sector.len();
                        rest = others;
                    }
                }
            }
        }
        content
    }
}

impl Luck {
    fn strikes(&mut self) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(chance) => chance.random(),
        }
    }

    /// Tells sector by sector what a write leaves: often all of it or nothing.
    fn of_a_write(&mut self) -> impl FnMut() -> bool {
        let torn = if let Self::Some(chance) = self { chance.random_ratio(1, 3) } else { false };
        let whole = self.strikes();
        move || if torn { self.strikes() } else { whole }
    }
}
