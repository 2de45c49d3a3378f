//! Volumes that come from the machine.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use super::owner::Owner;
use super::*;

#[test]
fn host_paths_are_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, kind: &str| {
        let path = folder.path().join(name).to_string_lossy().into_owned();
        host_path::prepare(&HostPathVolumeSource { path, type_: Some(kind.to_owned()) })
    };
    assert!(of("made/deep", "DirectoryOrCreate").is_ok() && folder.path().join("made/deep").is_dir());
    assert!(of("file", "FileOrCreate").is_ok() && folder.path().join("file").is_file());
    assert!(of("absent", "").is_ok(), "nothing is said of it");
    for (name, kind) in [
        ("absent", "Directory"),
        ("absent", "File"),
        ("file", "Directory"),
        ("file", "DirectoryOrCreate"),
        ("made", "FileOrCreate"),
        ("made", "File"),
        ("file", "Socket"),
        ("file", "CharDevice"),
        ("file", "BlockDevice"),
        ("file", "Nonsense"),
    ] {
        assert!(of(name, kind).is_err(), "{name} as {kind}");
    }
    let null = HostPathVolumeSource { path: "/dev/null".to_owned(), type_: Some("CharDevice".to_owned()) };
    assert!(host_path::prepare(&null).is_ok());
}

#[test]
#[ignore = "needs root: make test"]
fn a_volume_is_given_with_all_that_is_in_it_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, other) = (folder.path().join("v"), folder.path().join("other"));
    fs::create_dir_all(volume.join("deep")).unwrap();
    fs::write(volume.join("deep/file"), "").unwrap();
    fs::set_permissions(volume.join("deep/file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&other, "").unwrap();
    symlink(&other, volume.join("link")).unwrap();
    let owner = Owner { uid: Some(1234), gid: Some(1235), only_root: false };
    owner.give_all(&volume).unwrap();
    let file = fs::metadata(volume.join("deep/file")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (1234, 1235, 0o660));
    let deep = fs::metadata(volume.join("deep")).unwrap();
    assert_eq!((deep.uid(), deep.mode() & 0o2070), (1234, 0o2070));
    assert_eq!(fs::symlink_metadata(volume.join("link")).unwrap().uid(), 1234);
    assert_ne!(fs::metadata(&other).unwrap().uid(), 1234, "links are not followed");
}

#[test]
#[ignore = "needs root: make test"]
fn a_volume_whose_top_is_right_is_left_alone_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let owner = Owner { uid: None, gid: Some(1235), only_root: true };
    owner.give_top(folder.path()).unwrap();
    owner.give_all(folder.path()).unwrap();
    assert_ne!(fs::metadata(folder.path().join("file")).unwrap().gid(), 1235);
}

/// A volume with `deep/file`, and a directory of the machine's own with a file of the same name.
fn volume_and_other(folder: &Path) -> (PathBuf, PathBuf) {
    let (volume, other) = (folder.join("v"), folder.join("other"));
    for folder in [volume.join("deep"), other.clone()] {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        fs::set_permissions(folder.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    (volume, other)
}

/// Gives a volume away while somebody swaps one name in it for a link, right after the walk has looked at it; returns the
/// owners and modes of the other directory and its file.
fn swapped(name: &str) -> [(u32, u32, u32); 2] {
    let folder = tempfile::tempdir().unwrap();
    let (volume, other) = volume_and_other(folder.path());
    let (swapped, target) = match name {
        "deep" => (volume.join("deep"), other.clone()),
        _ => (volume.join("deep/file"), other.join("file")),
    };
    let mut swaps = 0;
    let owner = Owner { uid: Some(1234), gid: Some(1235), only_root: false };
    let given = owner.give_while(&volume, &mut |path| {
        if path == swapped {
            fs::rename(path, folder.path().join("aside")).unwrap();
            symlink(&target, path).unwrap();
            swaps += 1;
        }
    });
    given.unwrap();
    assert_eq!(swaps, 1);
    let moved = fs::metadata(folder.path().join("aside")).unwrap();
    assert_eq!(moved.uid(), 1234, "what was looked at is what was given");
    [other.clone(), other.join("file")].map(|path| {
        let found = fs::metadata(path).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    })
}

#[test]
#[ignore = "needs root: make test"]
fn a_link_that_takes_the_place_of_a_folder_while_it_is_given_leads_nowhere() {
    assert_eq!(swapped("deep"), [(0, 0, 0o700), (0, 0, 0o600)]);
}

#[test]
#[ignore = "needs root: make test"]
fn a_link_that_takes_the_place_of_a_file_while_it_is_given_leads_nowhere() {
    assert_eq!(swapped("file"), [(0, 0, 0o700), (0, 0, 0o600)]);
}

#[test]
#[ignore = "needs root: make test"]
fn what_goes_while_it_is_given_is_no_matter() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, _) = volume_and_other(folder.path());
    fs::write(volume.join("deep/second"), "").unwrap();
    let owner = Owner { uid: Some(1234), gid: Some(1235), only_root: false };
    let mut first = None;
    let given = owner.give_while(&volume, &mut |path| {
        if first.is_none() && path.is_file() {
            // The directory is being read: the other file is known by its name, and gone.
            let other = if path.ends_with("file") { "second" } else { "file" };
            fs::remove_file(volume.join("deep").join(other)).unwrap();
            first = Some(path.to_owned());
        }
    });
    given.unwrap();
    assert_eq!(fs::metadata(first.unwrap()).unwrap().uid(), 1234);
}

#[test]
#[ignore = "needs root: make test"]
fn what_is_as_it_should_be_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let (volume, _) = volume_and_other(folder.path());
    let owner = Owner { uid: Some(1234), gid: Some(1235), only_root: false };
    owner.give_all(&volume).unwrap();
    let changed = || {
        ["", "deep", "deep/file"].map(|path| {
            let found = fs::metadata(volume.join(path)).unwrap();
            (found.ctime(), found.ctime_nsec())
        })
    };
    let before = changed();
    owner.give_all(&volume).unwrap();
    assert_eq!(changed(), before);
}
