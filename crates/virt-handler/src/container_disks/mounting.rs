//! Mounts by descriptor, not by name.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::folders;

/// A file of another mount namespace as a mount of its own, that is nowhere yet: read-only, and nothing in it is a device,
/// a program or more privileged.
pub(super) fn clone_from(namespace: &OwnedFd, file: OwnedFd) -> io::Result<OwnedFd> {
    let namespace = namespace.try_clone()?;
    // A thread that has been in another namespace is used for nothing else.
    let worker = std::thread::Builder::new()
        .name("container-disk".to_owned())
        .spawn(move || enter_and_clone(&namespace, &file))?;
    let tree = worker.join().map_err(|_| io::Error::other("the thread that mounts ended early"))??;
    restrict(tree.as_fd())?;
    Ok(tree)
}

/// The kernel clones only what is mounted in the caller's own namespace.
fn enter_and_clone(namespace: &OwnedFd, file: &OwnedFd) -> io::Result<OwnedFd> {
    leave_shared_folders()?;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(file, "", flags)?)
}

#[expect(unsafe_code, reason = "a thread's working folder is its own from here on, which is what is wanted")]
fn leave_shared_folders() -> io::Result<()> {
    // SAFETY: only the root and working folder of this thread are no longer shared; no memory or descriptor is concerned.
    unsafe { Ok(rustix::thread::unshare_unsafe(UnshareFlags::FS)?) }
}

/// Makes a mount that is nowhere yet read-only and harmless.
#[expect(unsafe_code, reason = "no safe crate offers this call")]
fn restrict(tree: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the descriptor is open, the path ends with a zero, and the structure lives as long as the call and has the size
    // that is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Mounts a tree onto a new file in a folder. A folder in between is made; nothing that is there is used but one that an
/// attempt before has made.
pub(super) fn attach(tree: &OwnedFd, folder: &OwnedFd, target: &Path) -> io::Result<()> {
    let target = place(folder, target)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", &target, "", flags)?)
}

/// An empty file to mount onto, new or left by an attempt that was cut off.
fn place(folder: &OwnedFd, target: &Path) -> io::Result<OwnedFd> {
    let (parent, name) = parent(folder, target, true)?;
    let create = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(&parent, &name, create, Mode::RUSR | Mode::RGRP | Mode::ROTH) {
        Ok(_) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let opened = rustix::fs::openat2(
        &parent,
        &name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )?;
    let mode = rustix::fs::fstat(&opened)?.st_mode;
    if rustix::fs::FileType::from_raw_mode(mode).is_file() { Ok(opened) } else { Err(Errno::LOOP.into()) }
}

fn parent(folder: &OwnedFd, target: &Path, make: bool) -> io::Result<(OwnedFd, PathBuf)> {
    let name = PathBuf::from(target.file_name().ok_or(Errno::INVAL)?);
    let between = target.parent().filter(|between| !between.as_os_str().is_empty());
    let Some(between) = between else { return Ok((folder.try_clone()?, name)) };
    if make {
        match rustix::fs::mkdirat(folder, between, Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((folders::open_beneath(folder, between)?, name))
}

/// Whether something is mounted onto a file of a folder.
pub(super) fn is_mounted(folder: &OwnedFd, target: &Path) -> io::Result<bool> {
    let found = parent(folder, target, false).and_then(|(parent, name)| is_mount_point(&parent, &name));
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found,
    }
}

fn is_mount_point(folder: &OwnedFd, name: &Path) -> io::Result<bool> {
    let found = rustix::fs::statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Takes away all that is mounted in a folder and one level below.
pub(super) fn unmount_below(folder: &OwnedFd) -> io::Result<()> {
    for entry in fs::read_dir(folders::by_descriptor(folder.as_fd()))? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        if is_mount_point(folder, &name)? {
            unmount(folder, &name)?;
        } else if entry.file_type()?.is_dir() {
            let inner = folders::open_beneath(folder, &name)?;
            for entry in fs::read_dir(folders::by_descriptor(inner.as_fd()))? {
                let name = PathBuf::from(entry?.file_name());
                if is_mount_point(&inner, &name)? {
                    unmount(&inner, &name)?;
                }
            }
        }
    }
    Ok(())
}

/// Whoever still has the file open keeps it; its name is gone at once.
fn unmount(folder: &OwnedFd, name: &Path) -> io::Result<()> {
    let path = folders::by_descriptor(folder.as_fd()).join(name);
    Ok(rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}
