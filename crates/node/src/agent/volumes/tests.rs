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
