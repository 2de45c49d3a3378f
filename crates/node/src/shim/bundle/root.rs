//! A container's root, mounted in the shim's own mount namespace: nothing of it shows on the machine, and all of it
//! is gone when the pod's last process is. Everything here may block.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::mounts::{Entry, normalized};
use crate::runtime::spec::{Root, User};

/// Where programs and libraries may be on a machine beside `/usr`: mostly links into it.
const BESIDE_USR: [&str; 6] = ["bin", "lib", "lib32", "lib64", "libx32", "sbin"];
/// Of the machine's `/etc`: which library is where, which of several programs a name means, and whose certificates are trusted:
/// those are in one place, and in some distributions only a link to another.
const OF_ETC: [&str; 6] =
    ["alternatives", "ca-certificates", "ld.so.cache", "pki/ca-trust", "pki/tls/certs", "ssl/certs"];
/// What a container may write to a root without an image.
const ROOT_SIZE: &std::ffi::CStr = c"mode=0755,size=64m";

/// Why there is no root.
#[derive(Debug, thiserror::Error)]
pub(in crate::shim) enum RootError {
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("files: {} must be an absolute path without `..`", .0.display())]
    Target(PathBuf),
    #[error("{} cannot be part of an overlay mount because of its name", .0.display())]
    Overlay(PathBuf),
}

/// Mounts a root in a container's directory, and says what else must be mounted on it.
pub(in crate::shim) fn prepare(root: &Root, user: &User, folder: &Path) -> Result<(PathBuf, Vec<Entry>), RootError> {
    let path = folder.join("root");
    create(&path)?;
    match root {
        Root::Image(image) => overlay(image, folder, &path).map(|()| (path, Vec::new())),
        Root::Machine { files } => {
            mount("tmpfs", &path, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, Some(ROOT_SIZE))
                .map_err(|error| failed("mount", &path)(error.into()))?;
            fill(&path, user)?;
            let mounts = of_machine(&path, files, &folder.join("usr"))?;
            Ok((path, mounts))
        }
    }
}

/// Takes the root away again, and all that the container wrote to it. None being there is fine.
pub(in crate::shim) fn remove(folder: &Path) {
    // A root that was never mounted is only a directory.
    let _ = unmount(folder.join("root"), UnmountFlags::DETACH);
    // What cannot be removed now is removed with the pod.
    let _ = std::fs::remove_dir_all(folder);
}

fn overlay(image: &Path, folder: &Path, root: &Path) -> Result<(), RootError> {
    let (upper, work) = (folder.join("upper"), folder.join("work"));
    create(&upper)?;
    create(&work)?;
    // What the container sees as `/` is the upper directory's.
    let of_image = std::fs::metadata(image).map_err(failed("look at", image))?;
    std::fs::set_permissions(&upper, of_image.permissions()).map_err(failed("set the mode of", &upper))?;
    let data = format!("lowerdir={},upperdir={},workdir={}", escaped(image)?, escaped(&upper)?, escaped(&work)?);
    mount("overlay", root, "overlay", MountFlags::empty(), Some(cstring(&data)?.as_c_str()))
        .map_err(|error| failed("mount an overlay on", root)(error.into()))
}

/// Directories, links and small files of a root without an image.
fn fill(root: &Path, user: &User) -> Result<(), RootError> {
    for name in ["dev", "etc", "proc", "run", "sys", "tmp", "usr", "var", "var/tmp"] {
        create(&root.join(name))?;
    }
    for name in ["tmp", "var/tmp"] {
        let path = root.join(name);
        std::fs::set_permissions(&path, Permissions::from_mode(0o1777)).map_err(failed("set the mode of", &path))?;
    }
    for name in BESIDE_USR {
        if let Ok(target) = std::fs::read_link(Path::new("/").join(name)) {
            let path = root.join(name);
            symlink(target, &path).map_err(failed("link", &path))?;
        }
    }
    let (passwd, group) = accounts(user);
    for (name, text) in [("passwd", passwd), ("group", group), ("nsswitch.conf", "hosts: files dns\n".to_owned())] {
        let path = root.join("etc").join(name);
        std::fs::write(&path, text).map_err(failed("write", &path))?;
    }
    Ok(())
}

/// Root, the user, and nobody else.
fn accounts(user: &User) -> (String, String) {
    let mut passwd = "root:x:0:0:root:/:/sbin/nologin\n".to_owned();
    let mut group = "root:x:0:\n".to_owned();
    if user.uid != 0 {
        passwd += &format!("user:x:{}:{}:user:/:/sbin/nologin\n", user.uid, user.gid);
    }
    if user.gid != 0 {
        group += &format!("user:x:{}:\n", user.gid);
    }
    (passwd, group)
}

/// The machine's programs, read-only, and the files that were asked for.
fn of_machine(root: &Path, files: &[(PathBuf, PathBuf)], extra: &Path) -> Result<Vec<Entry>, RootError> {
    let mut entries = Vec::new();
    let mut is_usr_extended = false;
    for (source, target) in files {
        let target = target.to_str().and_then(normalized).ok_or_else(|| RootError::Target(target.clone()))?;
        // A file cannot be mounted where the machine's `/usr` has none: a directory that has one is laid over it.
        if let Some(below) = target.strip_prefix("/usr/")
            && !Path::new(&target).is_file()
        {
            let path = extra.join(below);
            path.parent().map_or(Ok(()), create)?;
            std::fs::write(&path, "").map_err(failed("write", &path))?;
            is_usr_extended = true;
        }
        entries.push(Entry::read_only(source, &target));
    }
    entries.push(if is_usr_extended {
        let lower = format!("lowerdir={}:/usr", escaped(extra)?);
        Entry::new("/usr", "overlay", "overlay", &[&lower, "ro", "nosuid", "nodev"])
    } else {
        Entry::read_only(Path::new("/usr"), "/usr")
    });
    for name in BESIDE_USR {
        let path = Path::new("/").join(name);
        if std::fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir()) {
            create(&root.join(name))?;
            entries.push(Entry::read_only(&path, &path.to_string_lossy()));
        }
    }
    let of_etc = OF_ETC.iter().map(|name| Path::new("/etc").join(name)).filter(|path| path.exists());
    entries.extend(of_etc.map(|path| Entry::read_only(&path, &path.to_string_lossy())));
    entries.push(Entry::new("/tmp", "tmpfs", "tmpfs", &["nosuid", "nodev", "mode=1777"]));
    Ok(entries)
}

/// An overlay's options are one text, in which some characters end a path.
fn escaped(path: &Path) -> Result<String, RootError> {
    let text = path.to_str().ok_or_else(|| RootError::Overlay(path.to_owned()))?;
    let is_special = |it: char| matches!(it, ':' | ',' | '\\' | '"');
    if text.contains(is_special) { Err(RootError::Overlay(path.to_owned())) } else { Ok(text.to_owned()) }
}

fn cstring(text: &str) -> Result<std::ffi::CString, RootError> {
    std::ffi::CString::new(text).map_err(|_| RootError::Overlay(PathBuf::from(text)))
}

fn create(path: &Path) -> Result<(), RootError> {
    std::fs::create_dir_all(path).map_err(failed("create", path))
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> RootError + 'a {
    move |source| RootError::Io { action, path: path.to_owned(), source }
}
