//! Devices in a launcher's container belong to root, as on the node; the launcher does not run as root.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

use crate::isolation::Peer;

/// What a launcher opens itself. Taps are made for their owner.
const DEVICES: [&str; 3] = ["dev/kvm", "dev/vhost-net", "dev/net/tun"];

/// Makes the devices in the container of a process its own.
///
/// # Guarantees
/// Only a device of the container's own changes its owner: the same device as the node's of that name, and not the node's
/// own file.
pub(crate) fn give_devices(peer: &Peer) -> io::Result<()> {
    if peer.uid == 0 {
        return Ok(());
    }
    let root = open(CWD, &format!("/proc/{}/root", peer.pid), ResolveFlags::empty())?;
    if !peer.is_alive() {
        return Err(io::ErrorKind::NotFound.into());
    }
    DEVICES.iter().try_for_each(|device| give(&root, device, peer.uid, peer.gid))
}

fn give(root: &OwnedFd, device: &str, uid: u32, gid: u32) -> io::Result<()> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = match open(root, device, within) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let theirs = rustix::fs::fstat(&opened)?;
    let ours = match rustix::fs::stat(Path::new("/").join(device)) {
        Err(Errno::NOENT) => return Ok(()),
        ours => ours?,
    };
    if !is_copy(&theirs, &ours) || (theirs.st_uid, theirs.st_gid) == (uid, gid) {
        return Ok(());
    }
    let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    Ok(rustix::fs::chownat(&opened, "", owner.0, owner.1, AtFlags::EMPTY_PATH)?)
}

/// Whether a file is the same device as another, and not the same file.
fn is_copy(theirs: &Stat, ours: &Stat) -> bool {
    let is_device = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    let is_same_file = (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino);
    is_device(theirs) && is_device(ours) && theirs.st_rdev == ours.st_rdev && !is_same_file
}

fn open(root: impl std::os::fd::AsFd, path: &str, how: ResolveFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    #[ignore = "needs root: make test"]
    fn a_copy_of_a_device_changes_its_owner_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("dev/net")).unwrap();
        let root = open(CWD, folder.path().to_str().unwrap(), ResolveFlags::empty()).unwrap();
        let tun = folder.path().join("dev/net/tun");
        give(&root, "dev/net/tun", 107, 107).unwrap();
        let number = rustix::fs::stat("/dev/net/tun").unwrap().st_rdev;
        let make = |device: u64| {
            let _ = std::fs::remove_file(&tun);
            rustix::fs::mknodat(CWD, &tun, FileType::CharacterDevice, Mode::RUSR, device).unwrap();
            give(&root, "dev/net/tun", 107, 108).unwrap();
            let found = std::fs::metadata(&tun).unwrap();
            (found.uid(), found.gid())
        };
        assert_eq!(make(number), (107, 108));
        assert_eq!(make(rustix::fs::makedev(1, 3)), (0, 0), "another device stays root's");
        std::fs::remove_file(&tun).unwrap();
        std::os::unix::fs::symlink("/dev/net/tun", &tun).unwrap();
        assert!(give(&root, "dev/net/tun", 107, 107).is_err(), "a link is not followed");
        let own = rustix::fs::stat("/dev/net/tun").unwrap();
        assert!(!is_copy(&own, &own), "the node's own file stays as it is");
    }
}
