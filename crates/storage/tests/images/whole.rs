//! Whole images: unpacked once, shared, and gone when nobody needs them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use storage::cache::PullPolicy;
use storage::image::Reference;
use storage::images::{Failure, Image, Images, ImagesError};
use storage::pull::{Limits, Registries};

use super::build::{Compression, Layer, Layout, chain};
use super::server::Registry;

async fn get(images: &Images, reference: &Reference, policy: PullPolicy) -> Result<Image, ImagesError> {
    images.image(reference, policy, &Registries::default(), &()).await
}

async fn pull(images: &Images, layout: &Layout) -> Result<Image, ImagesError> {
    get(images, &layout.reference(), PullPolicy::IfNotPresent).await
}

fn open(folder: &Path) -> Images {
    Images::open(folder, Limits::default()).unwrap()
}

/// All that is in the directory but the locks.
fn content(folder: &Path) -> Vec<String> {
    let lists = ["images", "work", "references"].map(|name| std::fs::read_dir(folder.join(name)).unwrap());
    lists.into_iter().flatten().map(|entry| entry.unwrap().path().display().to_string()).collect()
}

#[tokio::test]
async fn layers_of_every_compression_become_one_root() {
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let folder = tempfile::tempdir().unwrap();
        let layers = vec![
            Layer::new().file("etc/a", b"lower").file("etc/b", b"lower"),
            Layer::new().file("etc/a", b"upper").file("etc/.wh.b", b""),
        ];
        let layout = Layout::new().image("latest", compression, layers);
        let image = pull(&open(folder.path()), &layout).await.unwrap();
        assert_eq!(std::fs::read(image.root().join("etc/a")).unwrap(), b"upper");
        assert!(!image.root().join("etc/b").exists());
        assert!(image.id().starts_with("sha256:") && image.digest().starts_with("sha256:"));
        assert_ne!(image.id(), image.digest());
        assert_eq!(image.size(), 15);
    }
}

#[tokio::test]
async fn the_configuration_says_how_to_run_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut layout = Layout::new();
    let config = json!({"config": {"Entrypoint": ["/init"], "Env": ["A=b"], "User": "7", "StopSignal": "SIGINT"}});
    let config = layout.blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
    let layer = layout.layer(&Layer::new().file("init", b"#!").bytes(), Compression::Gzip);
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let manifest = layout.blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes());
    layout.tag("latest", manifest);
    let image = pull(&open(folder.path()), &layout).await.unwrap();
    assert_eq!(image.config().entrypoint, ["/init"]);
    assert_eq!(image.config().env, [("A".to_owned(), "b".to_owned())]);
    assert_eq!(image.config().stop_signal.as_deref(), Some("SIGINT"));
    assert_eq!(image.account(&image.config().user).unwrap().uid, 7);
    assert_eq!(image.id(), config["digest"]);
}

#[tokio::test]
async fn an_image_is_unpacked_once_however_many_ask() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::of(vec![Layer::new().file("a", b"a")]);
    let (one, other) = (open(folder.path()), open(folder.path()));
    let pulls = [pull(&one, &layout), pull(&other, &layout), pull(&one, &layout)];
    let [first, second, third] = pulls;
    let (first, second, third) = tokio::join!(first, second, third);
    let inode = |image: Result<Image, ImagesError>| {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(image.unwrap().root()).unwrap())
    };
    let (first, second, third) = (inode(first), inode(second), inode(third));
    assert_eq!((first, first), (second, third));
}

#[tokio::test]
async fn what_was_pulled_needs_no_source_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let images = open(folder.path());
    let layout = Layout::of(vec![Layer::new().file("a", b"a")]);
    let reference = layout.reference();
    let error = get(&images, &reference, PullPolicy::Never).await.unwrap_err();
    assert_eq!(error.failure(), Failure::NeverPull);
    drop(pull(&images, &layout).await.unwrap());
    drop(layout);
    let found = get(&images, &reference, PullPolicy::Never).await.unwrap();
    assert_eq!(std::fs::read(found.root().join("a")).unwrap(), b"a");
    assert_eq!(get(&images, &reference, PullPolicy::Always).await.unwrap_err().failure(), Failure::Missing);
}

#[tokio::test]
async fn a_broken_image_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let images = open(folder.path());
    let layout = Layout::of(vec![Layer::new().file("good", b"good"), Layer::new().file("a", b"a")]);
    let largest = std::fs::read_dir(layout.path().join("blobs/sha256")).unwrap().map(|it| it.unwrap().path());
    // The layers are what is no JSON.
    for path in largest.filter(|path| std::fs::read(path).unwrap()[0] != b'{') {
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let error = pull(&images, &layout).await.unwrap_err();
    assert_eq!(error.failure(), Failure::Corrupt, "{}", chain(&error));
    assert_eq!(content(folder.path()), [""; 0]);
    let upwards = Layout::of(vec![Layer::new().raw("../evil", tar::EntryType::Regular, 1, b"x")]);
    assert_eq!(pull(&images, &upwards).await.unwrap_err().failure(), Failure::Corrupt);
    assert_eq!(content(folder.path()), [""; 0]);
}

#[tokio::test]
async fn an_image_in_use_or_wanted_is_kept_and_the_oldest_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let images = open(folder.path());
    let layout = |content: &[u8]| Layout::of(vec![Layer::new().file("a", content)]);
    let mut ids = Vec::new();
    for content in [&b"1"[..], b"22", b"333"] {
        ids.push(pull(&images, &layout(content)).await.unwrap().id().to_owned());
    }
    let held = pull(&images, &layout(b"1")).await.unwrap();
    assert_eq!(images.collect(&BTreeSet::new(), 0).unwrap(), [""; 0], "there is room enough");
    let removed = images.collect(&BTreeSet::from([ids[2].clone()]), u64::MAX).unwrap();
    assert_eq!(removed, [ids[1].clone()]);
    assert!(held.root().join("a").exists());
    drop(held);
    let removed = images.collect(&BTreeSet::new(), u64::MAX).unwrap();
    assert_eq!(removed, [ids[2].clone(), ids[0].clone()], "the first one was used last");
    assert_eq!(content(folder.path()), [""; 0]);
}

#[tokio::test]
async fn what_an_interrupted_pull_has_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path());
    std::fs::create_dir_all(folder.path().join("work/abc/image/root/etc")).unwrap();
    std::fs::create_dir_all(folder.path().join("work/abc.removed/1/x")).unwrap();
    open(folder.path());
    assert_eq!(content(folder.path()), [""; 0]);
}

/// A small disk, gone with the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", folder.path(), "tmpfs", flags, Some(c"size=1m")).unwrap();
        Self(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[tokio::test]
#[ignore = "needs root: make test"]
async fn a_full_disk_is_told_and_nothing_is_left_on_it() {
    let disk = SmallDisk::new();
    let images = open(disk.0.path());
    let noise: Vec<u8> = (0..3_000_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    let declared = Layout::new().image("latest", Compression::None, vec![Layer::new().file("a", &noise)]);
    let packed = Layout::of(vec![Layer::new().file("a", &vec![b'x'; 3_000_000])]);
    for layout in [declared, packed] {
        let error = pull(&images, &layout).await.unwrap_err();
        assert_eq!(error.failure(), Failure::NoSpace, "{}", chain(&error));
        assert_eq!(content(disk.0.path()), [""; 0]);
    }
    pull(&images, &Layout::of(vec![Layer::new().file("a", b"small")])).await.unwrap();
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn a_registry_that_lacks_an_image_is_told_from_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let images = open(folder.path());
    let registry = Registry::start().await;
    let layout = Layout::new().image("v1", Compression::Gzip, vec![Layer::new().file("a", b"a")]);
    registry.push(&layout, "v1", "app:v1");
    let with = registry.registries();
    let found = images.image(&registry.reference("app:v1"), PullPolicy::IfNotPresent, &with, &()).await.unwrap();
    assert_eq!(std::fs::read(found.root().join("a")).unwrap(), b"a");
    let missing = images.image(&registry.reference("app:v2"), PullPolicy::Always, &with, &()).await.unwrap_err();
    assert_eq!(missing.failure(), Failure::Missing, "{}", chain(&missing));
    let mut nowhere = Registries::default();
    nowhere.set_insecure("127.0.0.1:1").unwrap();
    let reference = "127.0.0.1:1/app:v1".parse().unwrap();
    let unreachable = images.image(&reference, PullPolicy::Always, &nowhere, &()).await.unwrap_err();
    assert_eq!((unreachable.failure(), unreachable.is_retryable()), (Failure::Unreachable, true));
}
