//! Volumes that are cut off at every step, against a model of what may be there afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::files::{DISK, Files, Step};
use super::*;

fn name(name: &str) -> Name {
    Name::try_from(name).unwrap()
}

fn volume(of: &str) -> Stored {
    Stored::Volume(name(of))
}

fn snapshot(of: &str) -> Stored {
    Stored::Snapshot(name(of))
}

/// Everything in a directory: paths, and what is there.
fn listing(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if metadata.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path.strip_prefix(root).unwrap().display().to_string(), content);
        }
    }
    found
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_name_is_never_a_path() {
    for bad in ["", ".", "..", ".work", "a/b", "../x", "-a", "A", "a\0b", &"a".repeat(300)] {
        assert!(matches!(Name::try_from(bad), Err(VolumeError::Name(_))), "{bad:?}");
    }
    assert_eq!(name("pvc-1.2").as_str(), "pvc-1.2");
}

#[test]
fn a_blank_disk_has_the_size_of_its_volume_and_takes_no_room() {
    let root = tempfile::tempdir().unwrap();
    let files = Files::open(root.path()).unwrap();
    files.create(&name("blank"), Filling::Disk, 1 << 30).unwrap();
    let disk = fs::metadata(files.path(&name("blank")).join(DISK)).unwrap();
    assert_eq!((disk.len(), disk.blocks(), disk.permissions().mode() & 0o777), (1 << 30, 0, 0o600));
    assert_eq!(fs::read_dir(files.path(&name("blank"))).unwrap().count(), 1);
    // As everybody else's, it is a copy's to grow, and is never made twice.
    files.create(&name("copy"), Filling::Copy(&volume("blank")), 2 << 30).unwrap();
    assert_eq!(fs::metadata(files.path(&name("copy")).join(DISK)).unwrap().len(), 2 << 30);
    fs::write(files.path(&name("blank")).join(DISK), "a guest's").unwrap();
    files.create(&name("blank"), Filling::Disk, 1 << 30).unwrap();
    assert_eq!(fs::read(files.path(&name("blank")).join(DISK)).unwrap(), b"a guest's");
}

#[test]
fn a_clone_and_a_snapshot_have_the_bytes_of_their_moment_and_holes_stay_holes() {
    let root = tempfile::tempdir().unwrap();
    let files = Files::open(root.path()).unwrap();
    files.create(&name("one"), Filling::Nothing, 1 << 30).unwrap();
    let disk = fs::File::create(files.path(&name("one")).join(DISK)).unwrap();
    disk.set_len(1 << 30).unwrap();
    disk.write_all_at(b"first", 0).unwrap();
    disk.write_all_at(b"second", (1 << 29) + 7).unwrap();
    let made = files.snapshot(&name("s"), &name("one")).unwrap();
    assert_eq!(files.found(&snapshot("s")).unwrap(), Some(made));
    disk.write_all_at(b"later", 0).unwrap();
    files.create(&name("two"), Filling::Copy(&snapshot("s")), 2 << 30).unwrap();

    let path = files.path(&name("two")).join(DISK);
    let copy = fs::File::open(&path).unwrap();
    let mut bytes = [0; 6];
    copy.read_exact_at(&mut bytes[..5], 0).unwrap();
    assert_eq!(&bytes[..5], b"first");
    copy.read_exact_at(&mut bytes, (1 << 29) + 7).unwrap();
    assert_eq!(&bytes, b"second");
    // As large as was asked for, and as sparse as before.
    let metadata = copy.metadata().unwrap();
    assert_eq!(metadata.len(), 2 << 30);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    assert!(files.usage(&volume("two")).unwrap() < 1 << 20);
    let capacity = files.capacity().unwrap();
    assert!(capacity.free <= capacity.total && capacity.total > 0);
}

#[test]
fn a_copy_follows_no_link_and_keeps_modes() {
    let root = tempfile::tempdir().unwrap();
    let files = Files::open(root.path()).unwrap();
    files.create(&name("one"), Filling::Nothing, 1).unwrap();
    let from = files.path(&name("one"));
    fs::create_dir(from.join("inner")).unwrap();
    fs::write(from.join("inner/file"), "text").unwrap();
    fs::set_permissions(from.join("inner/file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("/etc/shadow", from.join("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, from.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    files.create(&name("two"), Filling::Copy(&volume("one")), 1).unwrap();
    let to = files.path(&name("two"));
    assert_eq!(fs::metadata(to.join("inner/file")).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/shadow"));
    let mut expected = listing(&from.join("inner"));
    assert_eq!(listing(&to.join("inner")), expected);
    expected = listing(&to);
    assert_eq!(expected.keys().map(String::as_str).collect::<Vec<_>>(), ["inner", "inner/file", "link"]);
    // A disk that is a link is none.
    symlink("/etc/passwd", from.join(DISK)).unwrap();
    assert!(matches!(files.grow(&name("one"), 1 << 30), Err(VolumeError::Kind(_))));
}

#[test]
fn a_disk_grows_and_never_shrinks() {
    let root = tempfile::tempdir().unwrap();
    let files = Files::open(root.path()).unwrap();
    files.create(&name("one"), Filling::Nothing, 4096).unwrap();
    let disk = files.path(&name("one")).join(DISK);
    // Nobody has used it: there is no disk yet, and none is made.
    files.grow(&name("one"), 8192).unwrap();
    assert!(!disk.exists());
    fs::write(&disk, [7; 4096]).unwrap();
    files.grow(&name("one"), 8192).unwrap();
    assert_eq!(fs::metadata(&disk).unwrap().len(), 8192);
    files.grow(&name("one"), 1).unwrap();
    assert_eq!(fs::metadata(&disk).unwrap().len(), 8192);
    assert!(matches!(files.grow(&name("none"), 1), Err(VolumeError::Missing(_))));
}

#[test]
fn what_changes_under_a_plain_copy_gives_none() {
    let root = tempfile::tempdir().unwrap();
    let (one, other) = (root.path().join("one"), root.path().join("other"));
    fs::write(&one, [1; 8192]).unwrap();
    let source = fs::File::options().read(true).write(true).open(&one).unwrap();
    let before = rustix::fs::fstat(&source).unwrap();
    let copy = || super::copy::plain(&source, &fs::File::create(&other).unwrap(), &before, &one);
    copy().unwrap();
    assert_eq!(fs::read(&other).unwrap(), [1; 8192]);
    // The clock of a file system may tick a hundred times a second: write until it has.
    while rustix::fs::fstat(&source).unwrap().st_mtime_nsec == before.st_mtime_nsec {
        source.write_all_at(&[2], 0).unwrap();
    }
    assert!(matches!(copy(), Err(VolumeError::Changed(_))));
}

#[test]
fn what_is_being_copied_is_not_removed() {
    let root = tempfile::tempdir().unwrap();
    let other: Arc<Mutex<Option<Arc<Files>>>> = Arc::default();
    let asked = other.clone();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let gate = move |step: Step| {
        if step == Step::Rename
            && let Some(files) = &*asked.lock().unwrap()
        {
            assert!(matches!(files.delete(&volume("one")), Err(VolumeError::Copied(_))));
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let files = Arc::new(Files::open_with(root.path(), Arc::new(gate)).unwrap());
    files.create(&name("one"), Filling::Nothing, 1).unwrap();
    *other.lock().unwrap() = Some(files.clone());
    files.create(&name("two"), Filling::Copy(&volume("one")), 1).unwrap();
    other.lock().unwrap().take();
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    files.delete(&volume("one")).unwrap();
    assert!(!files.path(&name("one")).exists());
}

#[test]
fn what_is_missing_is_told_by_name() {
    let root = tempfile::tempdir().unwrap();
    let files = Files::open(root.path()).unwrap();
    let error = files.create(&name("two"), Filling::Copy(&snapshot("s")), 1).unwrap_err();
    assert_eq!(error.to_string(), "the snapshot s does not exist");
    assert!(files.snapshot(&name("s"), &name("one")).is_err());
    files.delete(&volume("one")).unwrap();
    assert!(is_empty(&root.path().join(".work")));
}

/// A process that is killed before its step of this number: nothing is done from then on, no cleaning up either.
struct Cut {
    left: AtomicUsize,
}

impl Cut {
    fn gate(steps: usize) -> Arc<dyn Fn(Step) -> io::Result<()> + Send + Sync> {
        let cut = Self { left: AtomicUsize::new(steps) };
        Arc::new(move |_| {
            let left = cut.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.map(drop).map_err(|_| io::Error::other("killed"))
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Create { to: u8 },
    CreateDisk { to: u8 },
    Clone { to: u8, from: u8 },
    Restore { to: u8, from: u8 },
    Snapshot { to: u8, from: u8 },
    Delete { volume: u8 },
    DeleteSnapshot { snapshot: u8 },
    Grow { volume: u8, size: u16 },
    Write { volume: u8, byte: u8, size: u16 },
}

fn action() -> impl Strategy<Value = Action> {
    let one = || 0..3_u8;
    prop_oneof![
        one().prop_map(|to| Action::Create { to }),
        one().prop_map(|to| Action::CreateDisk { to }),
        (one(), one()).prop_map(|(to, from)| Action::Clone { to, from }),
        (one(), one()).prop_map(|(to, from)| Action::Restore { to, from }),
        (one(), one()).prop_map(|(to, from)| Action::Snapshot { to, from }),
        one().prop_map(|volume| Action::Delete { volume }),
        one().prop_map(|snapshot| Action::DeleteSnapshot { snapshot }),
        (one(), 1..9000_u16).prop_map(|(volume, size)| Action::Grow { volume, size }),
        (one(), any::<u8>(), 1..9000_u16).prop_map(|(volume, byte, size)| Action::Write { volume, byte, size }),
    ]
}

/// What should be there: the disk of each, if it has one.
type Model = BTreeMap<Stored, Option<Vec<u8>>>;

fn of(kind: &str, index: u8) -> Name {
    name(&format!("{kind}{index}"))
}

fn grown(disk: Option<&Vec<u8>>, size: usize) -> Option<Vec<u8>> {
    let mut disk = disk?.clone();
    disk.resize(disk.len().max(size), 0);
    Some(disk)
}

/// The size of all volumes that are made.
const SIZE: u64 = 2048;

/// Acts on the model as storage should, and says whether storage is to succeed.
fn expect(model: &mut Model, action: Action) -> bool {
    let (volume, snapshot) = (|index| Stored::Volume(of("v", index)), |index| Stored::Snapshot(of("s", index)));
    let mut copy = |to: Stored, from: Stored, size: usize| {
        if !model.contains_key(&to) {
            let Some(disk) = model.get(&from) else { return false };
            let disk = grown(disk.as_ref(), size);
            model.insert(to, disk);
        }
        true
    };
    let size = usize::try_from(SIZE).unwrap();
    match action {
        Action::Create { to } => drop(model.entry(volume(to)).or_insert(None)),
        Action::CreateDisk { to } => drop(model.entry(volume(to)).or_insert(Some(vec![0; size]))),
        Action::Clone { to, from } => return copy(volume(to), volume(from), size),
        Action::Restore { to, from } => return copy(volume(to), snapshot(from), size),
        Action::Snapshot { to, from } => return copy(snapshot(to), volume(from), 0),
        Action::Delete { volume: index } => drop(model.remove(&volume(index))),
        Action::DeleteSnapshot { snapshot: index } => drop(model.remove(&snapshot(index))),
        Action::Grow { volume: index, size } => match model.get_mut(&volume(index)) {
            Some(disk) => *disk = grown(disk.as_ref(), size.into()),
            None => return false,
        },
        Action::Write { volume: index, byte, size } => {
            if let Some(disk) = model.get_mut(&volume(index)) {
                *disk = Some(vec![byte; size.into()]);
            }
        }
    }
    true
}

fn act(files: &Files, action: Action) -> Result<(), VolumeError> {
    match action {
        Action::Create { to } => files.create(&of("v", to), Filling::Nothing, SIZE),
        Action::CreateDisk { to } => files.create(&of("v", to), Filling::Disk, SIZE),
        Action::Clone { to, from } => files.create(&of("v", to), Filling::Copy(&Stored::Volume(of("v", from))), SIZE),
        Action::Restore { to, from } => {
            files.create(&of("v", to), Filling::Copy(&Stored::Snapshot(of("s", from))), SIZE)
        }
        Action::Snapshot { to, from } => files.snapshot(&of("s", to), &of("v", from)).map(drop),
        Action::Delete { volume } => files.delete(&Stored::Volume(of("v", volume))),
        Action::DeleteSnapshot { snapshot } => files.delete(&Stored::Snapshot(of("s", snapshot))),
        Action::Grow { volume, size } => files.grow(&of("v", volume), size.into()),
        Action::Write { volume, byte, size } => {
            let path = files.path(&of("v", volume));
            if path.exists() {
                fs::write(path.join(DISK), vec![byte; size.into()]).unwrap();
            }
            Ok(())
        }
    }
}

/// What is really there.
fn there(root: &Path) -> Model {
    let disk = |path: &Path| fs::read(path.join(DISK)).ok();
    let names = |folder: &Path| -> Vec<(Name, std::path::PathBuf)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let named = entries.filter_map(|entry| Some((Name::try_from(entry.file_name().to_str()?).ok()?, entry.path())));
        named.collect()
    };
    let volumes = names(root).into_iter().map(|(name, path)| (Stored::Volume(name), disk(&path)));
    let snapshots =
        names(&root.join(".snapshots")).into_iter().map(|(name, path)| (Stored::Snapshot(name), disk(&path)));
    volumes.chain(snapshots).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(64)))]

    /// Some actions, of which the last is cut at every step that it has: what is there afterwards is what was before it, or what
    /// should be after it, and when storage is opened again nothing is left of what was cut.
    #[test]
    fn after_a_cut_at_any_step_a_volume_is_old_or_new_and_nothing_is_left_over(
        before in prop::collection::vec(action(), 0..12),
        last in action(),
    ) {
        for steps in 0.. {
            let root = tempfile::tempdir().unwrap();
            let work = root.path().join(".work");
            let mut model = Model::new();
            let files = Files::open(root.path()).unwrap();
            for action in &before {
                let expected = expect(&mut model, *action);
                prop_assert_eq!(act(&files, *action).is_ok(), expected, "{:?}", action);
                prop_assert_eq!(&there(root.path()), &model, "{:?}", action);
            }
            for stored in files.unfinished().unwrap() {
                files.settle(&stored).unwrap();
            }
            prop_assert!(is_empty(&work), "{:?}", listing(&work));
            drop(files);

            let mut after = model.clone();
            let succeeds = expect(&mut after, last);
            let cut = Files::open_with(root.path(), Cut::gate(steps)).unwrap();
            let done = act(&cut, last).is_ok();
            drop(cut);
            let found = there(root.path());
            prop_assert!(found == model || found == after, "{:?} at {}: {:?}", last, steps, found);
            prop_assert!(!done || found == after, "{:?} at {} was answered", last, steps);

            let again = Files::open(root.path()).unwrap();
            prop_assert_eq!(&there(root.path()), &found);
            // What got its name and was not told of is known, and nothing else is.
            for stored in again.unfinished().unwrap() {
                prop_assert!(after.contains_key(&stored) && !model.contains_key(&stored));
                again.settle(&stored).unwrap();
            }
            prop_assert!(is_empty(&work), "{:?} at {}: {:?}", last, steps, listing(&work));
            // Repeated, it comes to its end.
            prop_assert_eq!(act(&again, last).is_ok(), succeeds);
            prop_assert_eq!(&there(root.path()), &after);
            if done || steps > 16 {
                prop_assert!(done || !succeeds, "{:?} has no end", last);
                break;
            }
        }
    }
}
