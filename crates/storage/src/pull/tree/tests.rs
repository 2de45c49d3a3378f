//! Layers, good and hostile.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, symlink};

use proptest::collection::vec;
use proptest::prelude::*;
use tar::EntryType;

use super::*;

/// A directory to unpack into, and one outside of it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["root", "work", "outside"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("outside/kept"), "kept").unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn unpack(&self, layers: &[Vec<u8>]) -> Result<u64, UnpackError> {
        let mut tree = Tree::new(&self.path("root"), &self.path("work"), &Limits::default(), ())?;
        layers.iter().try_for_each(|layer| tree.layer(layer.as_slice()))?;
        Ok(tree.bytes())
    }

    /// Whatever happened, nothing outside was touched.
    fn assert_outside_is_whole(&self) {
        let names: Vec<_> = std::fs::read_dir(self.folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        let outside: Vec<_> = std::fs::read_dir(self.path("outside")).unwrap().map(Result::unwrap).collect();
        assert_eq!(outside.len(), 1);
        assert_eq!(std::fs::read(self.path("outside/kept")).unwrap(), b"kept");
        assert_eq!(std::fs::metadata(self.path("outside/kept")).unwrap().nlink(), 1);
    }
}

struct Builder(tar::Builder<Vec<u8>>);

impl Builder {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    /// Names are taken as they are.
    fn entry(mut self, name: &str, kind: EntryType, target: &str, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o640);
        header.set_uid(12);
        header.set_gid(34);
        header.set_mtime(5678);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.entry(name, EntryType::Regular, "", content.as_bytes())
    }

    fn folder(self, name: &str) -> Self {
        self.entry(name, EntryType::Directory, "", b"")
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Symlink, target, b"")
    }

    fn hardlink(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Link, target, b"")
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

#[test]
#[ignore = "needs root: make test"]
fn files_folders_links_and_pipes_keep_their_attributes() {
    let place = Place::new();
    let layer = Builder::new()
        .folder("./etc/")
        .file("./etc/file", "content")
        .link("etc/link", "/etc/file")
        .hardlink("usr/other", "etc/file")
        .entry("pipe", EntryType::Fifo, "", b"")
        .entry("null", EntryType::Char, "", b"");
    assert_eq!(place.unpack(&[layer.bytes()]).unwrap(), 7);
    let look = |name: &str| std::fs::symlink_metadata(place.path("root").join(name)).unwrap();
    for name in ["etc", "etc/file", "etc/link", "pipe"] {
        let found = look(name);
        assert_eq!((found.uid(), found.gid(), found.mtime()), (12, 34, 5678), "{name}");
    }
    assert_eq!(look("etc/file").mode() & 0o7777, 0o640);
    assert_eq!(look("etc/file").ino(), look("usr/other").ino());
    assert!(look("usr").is_dir());
    assert!(!place.path("root/null").exists(), "devices are the container's own");
}

#[test]
#[ignore = "needs root: make test"]
fn later_layers_replace_and_hide() {
    let place = Place::new();
    let lower = Builder::new().file("a/x", "1").file("a/y", "1").file("b/x", "1").file("c", "1").link("d", "a");
    let upper =
        Builder::new().file("a/.wh.x", "").file("b/.wh..wh..opq", "").file("b/z", "2").folder("c").file("d", "2");
    place.unpack(&[lower.bytes(), upper.bytes()]).unwrap();
    let root = place.path("root");
    let there = |name: &str| root.join(name).symlink_metadata().is_ok();
    assert!(!there("a/x") && there("a/y") && !there("b/x") && there("b/z"));
    assert!(root.join("c").is_dir());
    assert!(root.join("d").symlink_metadata().unwrap().is_file(), "the link is replaced, not followed");
}

#[test]
#[ignore = "needs root: make test"]
fn a_layer_does_not_hide_what_it_brings_itself() {
    let place = Place::new();
    let lower = Builder::new().file("a/old", "1").file("b", "1");
    let upper = Builder::new().file("a/new", "2").file(".wh.a", "").file("b", "2").file(".wh.b", "");
    place.unpack(&[lower.bytes(), upper.bytes()]).unwrap();
    let names: Vec<_> = std::fs::read_dir(place.path("root/a")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["new"]);
    assert_eq!(std::fs::read(place.path("root/b")).unwrap(), b"2");
}

#[test]
#[ignore = "needs root: make test"]
fn entries_go_through_links_within_the_image() {
    let place = Place::new();
    let lower = Builder::new().folder("usr/bin").link("bin", "usr/bin").link("sbin", "/usr/bin");
    let upper = Builder::new().file("bin/a", "a").file("sbin/b", "b");
    place.unpack(&[lower.bytes(), upper.bytes()]).unwrap();
    assert_eq!(std::fs::read(place.path("root/usr/bin/a")).unwrap(), b"a");
    assert_eq!(std::fs::read(place.path("root/usr/bin/b")).unwrap(), b"b");
}

#[test]
fn links_do_not_lead_out() {
    let outside = |place: &Place| place.path("outside").to_str().unwrap().to_owned();
    for target in ["../outside", "/../outside", "../../../../../../../etc"] {
        let place = Place::new();
        let layer = Builder::new().link("way", target).file("way/kept", "evil").bytes();
        let _ = place.unpack(&[layer]);
        place.assert_outside_is_whole();
    }
    let place = Place::new();
    let target = outside(&place);
    let layer = Builder::new().link("way", &target).file("way/kept", "evil").bytes();
    assert!(matches!(place.unpack(&[layer]), Err(UnpackError::Entry { .. })));
    place.assert_outside_is_whole();
    // Nor do markers, hard links, or a link that is there already.
    let place = Place::new();
    symlink(place.path("outside"), place.path("root/way")).unwrap();
    let attempts = [
        Builder::new().file("way/.wh.kept", ""),
        Builder::new().file("way/.wh..wh..opq", ""),
        Builder::new().hardlink("mine", "way/kept"),
        Builder::new().hardlink("mine", "/../outside/kept"),
        Builder::new().folder("way/kept"),
    ];
    for attempt in attempts {
        let _ = place.unpack(&[attempt.bytes()]);
        place.assert_outside_is_whole();
        assert!(!place.path("root/mine").exists());
    }
}

#[test]
#[ignore = "needs root: make test"]
fn names_that_lead_upwards_are_refused() {
    for name in ["../x", "a/../../x", "..", ".wh...", "a/.wh..", ".wh."] {
        let place = Place::new();
        let refused = place.unpack(&[Builder::new().folder("a").file(name, "x").bytes()]);
        assert!(matches!(&refused, Err(UnpackError::Name(found)) if found == name), "{name}: {refused:?}");
        place.assert_outside_is_whole();
    }
}

#[test]
fn a_bomb_is_stopped_at_the_limit() {
    let place = Place::new();
    let limits = Limits { max_unpacked_bytes: 4000, ..Limits::default() };
    let mut tree = Tree::new(&place.path("root"), &place.path("work"), &limits, ()).unwrap();
    let layer = Builder::new().file("bomb", &"x".repeat(10_000)).bytes();
    assert!(matches!(tree.layer(layer.as_slice()), Err(UnpackError::Unpacked(4000))));
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let place = Place::new();
    let folder = place.path("root/top");
    std::fs::create_dir(&folder).unwrap();
    let mut depth = openat(CWD, &folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..3000 {
        mkdirat(&depth, "d", Mode::RWXU).unwrap();
        depth = openat(&depth, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    drop(depth);
    place.unpack(&[Builder::new().file(".wh.top", "").bytes()]).unwrap();
    assert!(!folder.exists());
    assert_eq!(std::fs::read_dir(place.path("work")).unwrap().count(), 0);
}

/// One entry of a layer, as the model sees it.
#[derive(Clone, Debug)]
enum Step {
    File(String, String),
    Folder(String),
    Hide(String),
    HideAll(String),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let path = "[abc](/[abc]){0,2}";
    let step = prop_oneof![
        3 => (path, "[a-z]{1,3}").prop_map(|(path, content)| Step::File(path, content)),
        2 => path.prop_map(Step::Folder),
        2 => path.prop_map(Step::Hide),
        1 => path.prop_map(Step::HideAll),
    ];
    vec(step, 0..6)
}

fn layer_of(steps: &[Step]) -> Vec<u8> {
    let build = |builder: Builder, step: &Step| match step {
        Step::File(path, content) => builder.file(path, content),
        Step::Folder(path) => builder.folder(path),
        Step::Hide(path) => {
            let (parent, name) = path.rsplit_once('/').map_or(("", path.as_str()), |(parent, name)| (parent, name));
            builder.file(&format!("{parent}/.wh.{name}"), "")
        }
        Step::HideAll(path) => builder.file(&format!("{path}/.wh..wh..opq"), ""),
    };
    steps.iter().fold(Builder::new(), build).bytes()
}

/// What an overlay of such layers shows: markers hide what is below the layer, then its entries are put there. Files
/// have content, directories none.
fn expected(layers: &[Vec<Step>]) -> BTreeMap<String, Option<String>> {
    let mut seen = BTreeMap::<String, Option<String>>::new();
    let is_below = |path: &str, folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    for layer in layers {
        for step in layer {
            match step {
                Step::Hide(path) => seen.retain(|it, _| it != path && !is_below(it, path)),
                Step::HideAll(path) => seen.retain(|it, _| !is_below(it, path)),
                Step::File(..) | Step::Folder(_) => {}
            }
        }
        for step in layer {
            let (path, content) = match step {
                Step::File(path, content) => (path, Some(content.clone())),
                Step::Folder(path) => (path, None),
                Step::Hide(_) | Step::HideAll(_) => continue,
            };
            if content.is_some() {
                seen.retain(|it, _| !is_below(it, path));
            }
            let parents = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
            seen.extend(parents.map(|parent| (parent, None)));
            seen.insert(path.clone(), content);
        }
    }
    seen
}

fn seen(root: &Path) -> BTreeMap<String, Option<String>> {
    let mut seen = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                seen.insert(name, None);
                folders.push(path);
            } else {
                seen.insert(name, Some(std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(300), ..ProptestConfig::default() })]

    #[test]
    #[ignore = "needs root: make test"]
    fn layers_add_up_as_an_overlay_of_them_would(layers in vec(steps(), 1..4)) {
        let place = Place::new();
        let archives: Vec<_> = layers.iter().map(|layer| layer_of(layer)).collect();
        match place.unpack(&archives) {
            Ok(_) => prop_assert_eq!(seen(&place.path("root")), expected(&layers)),
            // A file is in the way of a directory.
            Err(error) => prop_assert!(matches!(error, UnpackError::Entry { .. }), "{:?}", error),
        }
        prop_assert_eq!(std::fs::read_dir(place.path("work")).unwrap().count(), 0);
    }

    #[test]
    fn whatever_links_there_are_nothing_outside_is_touched(
        entries in vec((0..6_u8, "[ab](/[abk]){0,2}", 0..8_usize), 1..12),
    ) {
        let place = Place::new();
        let outside = place.path("outside").to_str().unwrap().to_owned();
        let targets = ["..", "../outside", "/", "/../outside", &outside, "a", "../../outside/kept", "."];
        let mut builder = Builder::new();
        for (kind, name, target) in entries {
            let target = targets[target];
            builder = match kind {
                0 => builder.file(&name, "evil"),
                1 => builder.folder(&name),
                2 | 3 => builder.link(&name, target),
                4 => builder.hardlink(&name, target),
                _ => builder.file(&format!("{name}/.wh..wh..opq"), ""),
            };
        }
        let _ = place.unpack(&[builder.bytes()]);
        place.assert_outside_is_whole();
    }
}
