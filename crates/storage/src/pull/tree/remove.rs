//! Removing what others have made, however deep.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Removes a file, a link, or a directory with all that is in it; nothing being there is fine. Directories are taken to
/// `work`, on the same file system, one by one: neither memory nor open files grow with the depth.
pub(crate) fn remove(parent: &OwnedFd, name: &[u8], work: &OwnedFd) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let mut next = Names::default();
    let mut waiting = vec![next.take(parent, name, work)?];
    while let Some(number) = waiting.pop() {
        let taken = number.to_string();
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(work, &taken, flags, Mode::empty())?;
        let listed = Dir::read_from(&folder)?;
        for entry in listed {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            match unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => waiting.push(next.take(&folder, name, work)?),
                Err(error) => return Err(error.into()),
            }
        }
        // What was taken out of it while it was listed may have hidden other names from the list.
        match unlinkat(work, &taken, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY) => waiting.push(number),
            removed => removed?,
        }
    }
    Ok(())
}

/// Numbers that no directory in `work` has.
#[derive(Default)]
struct Names(u64);

impl Names {
    fn take(&mut self, parent: &OwnedFd, name: &[u8], work: &OwnedFd) -> io::Result<u64> {
        loop {
            self.0 += 1;
            match renameat(parent, name, work, self.0.to_string()) {
                // What an interrupted removal has left; an empty one would be replaced.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                renamed => return renamed.map(|()| self.0).map_err(io::Error::from),
            }
        }
    }
}
