use std::io;

use storage::image::Reference;

use super::*;

fn broken() -> io::Error {
    io::Error::other("broken")
}

fn path() -> String {
    "spec.volumes[0]".to_owned()
}

fn file() -> PathBuf {
    "/a".into()
}

fn unreadable() -> Qcow2Error {
    Qcow2Error::Io { action: "read", path: file(), source: broken() }
}

#[track_caller]
fn helps(error: &VolumeError) {
    assert!(error.is_retryable() && error.refusal().is_none(), "{}", chain(error));
}

#[track_caller]
fn is_in_vain(error: &VolumeError) {
    assert!(!error.is_retryable(), "{}", chain(error));
    assert!(error.refusal().unwrap().to_string().contains("spec.volumes[0]"));
}

#[test]
fn what_is_refused_by_its_field_stays_refused() {
    is_in_vain(&VolumeError::refused(path(), "is not supported"));
}

#[test]
fn what_is_no_reference_stays_none() {
    let source = "A:B:C".parse::<Reference>().unwrap_err();
    is_in_vain(&VolumeError::Reference { path: path(), source });
}

#[test]
fn an_image_is_waited_for_until_it_is_there_and_not_if_it_cannot_be_used() {
    let image = |source| VolumeError::Image { path: path(), source };
    let pull = |source| image(CacheError::Pull(source));
    let name = || "registry.example/disk:1".to_owned();
    helps(&image(CacheError::Absent(name().parse().unwrap())));
    helps(&image(CacheError::Io { action: "write", path: file(), source: broken() }));
    helps(&image(CacheError::Interrupted));
    // Whoever names a layout may copy it there, or tag it, later.
    helps(&pull(PullError::Layout { path: file(), source: io::ErrorKind::NotFound.into() }));
    helps(&pull(PullError::LayoutTag { folder: file(), image: name(), found: 0 }));
    helps(&pull(PullError::Interrupted));
    helps(&pull(PullError::Inspect { image: name(), source: unreadable() }));
    is_in_vain(&pull(PullError::Folder("/a".into())));
    is_in_vain(&pull(PullError::Refused { image: name(), reason: "it has a backing file".into() }));
    is_in_vain(&pull(PullError::Inspect { image: name(), source: Qcow2Error::Malformed("a table beyond its end") }));
}

#[test]
fn a_mounted_image_with_two_files_or_a_hostile_header_is_not_tried_again() {
    let mounted = |source| VolumeError::Mounted { path: path(), source };
    helps(&mounted(MountedError::Open { path: file(), source: broken() }));
    helps(&mounted(MountedError::Inspect { path: file(), source: unreadable() }));
    is_in_vain(&mounted(MountedError::Several { folder: file(), found: 2 }));
    is_in_vain(&mounted(MountedError::Kind(file())));
    is_in_vain(&mounted(MountedError::Inspect { path: file(), source: Qcow2Error::Features(1 << 63) }));
    is_in_vain(&mounted(MountedError::Refused { path: file(), reason: "it has a backing file".into() }));
}

#[test]
fn a_disk_is_waited_for_and_not_if_it_is_something_else() {
    let disk = |source| VolumeError::Disk { path: path(), source };
    helps(&disk(DiskError::Missing(file())));
    helps(&disk(DiskError::Io { action: "open", path: file(), source: broken() }));
    is_in_vain(&disk(DiskError::Kind { path: file(), found: "a socket", wanted: "regular file" }));
    is_in_vain(&disk(DiskError::Size(u64::MAX)));
}

#[test]
fn an_overlay_waits_for_room_and_not_for_another_size() {
    let overlay = |source| VolumeError::Overlay { path: path(), source };
    helps(&overlay(unreadable()));
    is_in_vain(&overlay(Qcow2Error::VirtualSize(0)));
    is_in_vain(&overlay(Qcow2Error::BackingName(file())));
}

#[test]
fn a_disk_of_files_waits_for_room_and_not_for_another_name() {
    let iso = |source| VolumeError::Iso { path: path(), source };
    helps(&iso(IsoError::Io { path: file(), source: broken() }));
    is_in_vain(&iso(IsoError::Label("\u{e9}".into())));
    is_in_vain(&iso(IsoError::Name("a/../b".into())));
    is_in_vain(&iso(IsoError::Conflict("a".into())));
    is_in_vain(&iso(IsoError::Size("the sum of the files")));
}

#[test]
fn what_could_not_be_removed_or_read_may_be_later() {
    helps(&VolumeError::Clear { path: path(), file: file(), source: broken() });
    helps(&VolumeError::Read { path: path(), file: file(), source: broken() });
}
