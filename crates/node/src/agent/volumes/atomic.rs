//! Files that change all at once.
//!
//! ```text
//! VOLUME/name -> ..data/name      what a container sees
//! VOLUME/..data -> ..17654321.3   swapped in one rename
//! VOLUME/..17654321.3/name        the files
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use jiff::Timestamp;

use super::VolumeError;
use super::owner::Owner;
use super::payload::Payload;

const DATA: &str = "..data";

/// Brings a volume's files up to date. Nothing is touched if they are.
pub(super) fn write(volume: &Path, payload: &Payload, owner: &Owner, now: Timestamp) -> Result<(), VolumeError> {
    let old = fs::read_link(volume.join(DATA)).ok();
    if old.as_ref().is_some_and(|old| is_same(&volume.join(old), payload)) {
        return links(volume, payload, owner);
    }
    let name = (0_u32..).map(|n| format!("..{}.{n}", now.as_second())).find(|name| !volume.join(name).exists());
    let name = name.unwrap_or_default();
    let folder = volume.join(&name);
    fs::create_dir(&folder).map_err(VolumeError::io(&folder))?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).map_err(VolumeError::io(&folder))?;
    for (path, file) in &payload.files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            super::mounting::folder(parent, 0o755)?;
        }
        fs::write(&path, &file.bytes).map_err(VolumeError::io(&path))?;
        let shared = if owner.gid.is_some() { 0o440 } else { 0 };
        let mode = fs::Permissions::from_mode(file.mode | shared);
        std::os::unix::fs::chown(&path, owner.uid, owner.gid).map_err(VolumeError::io(&path))?;
        fs::set_permissions(&path, mode).map_err(VolumeError::io(&path))?;
    }
    let new = volume.join("..data_tmp");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(VolumeError::io(&new)(error)),
        _ => {}
    }
    symlink(&name, &new).map_err(VolumeError::io(&new))?;
    fs::rename(&new, volume.join(DATA)).map_err(VolumeError::io(&new))?;
    links(volume, payload, owner)?;
    if let Some(old) = old {
        super::mounting::remove_folder(&volume.join(old))?;
    }
    Ok(())
}

/// A link for each name at the top, and none for names that are gone.
fn links(volume: &Path, payload: &Payload, owner: &Owner) -> Result<(), VolumeError> {
    let top = |path: &String| path.split('/').next().unwrap_or_default().to_owned();
    let wanted: BTreeSet<String> = payload.files.keys().map(top).collect();
    for entry in fs::read_dir(volume).map_err(VolumeError::io(volume))? {
        let name = entry.map_err(VolumeError::io(volume))?.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !wanted.contains(&name) {
            fs::remove_file(volume.join(&name)).map_err(VolumeError::io(volume))?;
        }
    }
    for name in wanted {
        let link = volume.join(&name);
        match symlink(Path::new(DATA).join(&name), &link) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => {
                made.map_err(VolumeError::io(&link))?;
                std::os::unix::fs::lchown(&link, owner.uid, owner.gid).map_err(VolumeError::io(&link))?;
            }
        }
    }
    Ok(())
}

fn is_same(folder: &Path, payload: &Payload) -> bool {
    let same = |(path, file): (&String, &super::payload::File)| {
        fs::read(folder.join(path)).is_ok_and(|bytes| bytes == file.bytes)
    };
    payload.files.iter().all(same) && count(folder) == Some(payload.files.len())
}

fn count(folder: &Path) -> Option<usize> {
    let mut files = 0;
    for entry in fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        files += if entry.file_type().ok()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let mut payload = Payload::default();
        files.iter().for_each(|(path, text)| payload.add(path, text.as_bytes().to_vec(), 0o600).unwrap());
        payload
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn files_change_all_at_once_and_only_when_they_differ() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let owner = Owner::default();
        write(path, &payload(&[("a", "1"), ("deep/b", "2")]), &owner, at(1)).unwrap();
        assert_eq!(fs::read_to_string(path.join("deep/b")).unwrap(), "2");
        let first = fs::read_link(path.join(DATA)).unwrap();
        write(path, &payload(&[("a", "1"), ("deep/b", "2")]), &owner, at(2)).unwrap();
        assert_eq!(fs::read_link(path.join(DATA)).unwrap(), first);
        write(path, &payload(&[("a", "3")]), &owner, at(2)).unwrap();
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "3");
        assert!(!path.join("deep").exists() && !path.join(first).exists());
        let mode = fs::metadata(path.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn no_file_leads_out_of_its_volume() {
        for path in ["", "/a", "../a", "a/../../b", "..data", "..x/y"] {
            assert!(Payload::default().add(path, Vec::new(), 0).is_err(), "{path}");
        }
    }
}
