//! The cache: one copy, shared, safe against crashes.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use storage::cache::{Cache, CacheError, CachedFile, PullPolicy, Usage};
use storage::image::Reference;
use storage::pull::{Limits, Registries};
use storage::qcow2::Format;

use super::build::{Compression, Layer, Layout, chain, tree};
use super::server::{Registry, Scripted, from_layout};

fn open(folder: &Path) -> Cache {
    Cache::open(folder, Limits::default()).unwrap()
}

async fn disk(
    cache: &Cache,
    image: &Reference,
    policy: PullPolicy,
    with: &Registries,
) -> Result<CachedFile, CacheError> {
    cache.disk(image, None, policy, with, &()).await
}

fn image(tag: &str, content: &[u8]) -> Layout {
    Layout::new().image(tag, Compression::Gzip, vec![Layer::new().file("disk/disk.img", content)])
}

fn content(file: &CachedFile) -> Vec<u8> {
    std::fs::read(file.path()).unwrap()
}

#[tokio::test]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn the_policy_says_when_the_registry_is_asked() {
    let mut registry = Registry::start().await;
    let (folder, registries) = (tempfile::tempdir().unwrap(), registry.registries());
    let cache = open(folder.path());
    let reference = registry.reference("disk:v1");
    registry.push(&image("v1", b"one"), "v1", "disk:v1");

    let absent = disk(&cache, &reference, PullPolicy::Never, &registries).await.unwrap_err();
    assert!(matches!(absent, CacheError::Absent(_)) && !absent.is_retryable());
    assert_eq!(registry.requests(&[]).await, 0, "Never asks nobody");

    let one = disk(&cache, &reference, PullPolicy::IfNotPresent, &registries).await.unwrap();
    assert_eq!(content(&one), b"one");
    registry.push(&image("v1", b"two"), "v1", "disk:v1");
    let asked = registry.requests(&[]).await;
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Never] {
        assert_eq!(content(&disk(&cache, &reference, policy, &registries).await.unwrap()), b"one");
    }
    assert_eq!(registry.requests(&[]).await, asked, "what is there is not asked for");

    let two = disk(&cache, &reference, PullPolicy::Always, &registries).await.unwrap();
    assert_eq!(content(&two), b"two");
    let blobs = registry.requests(&["/blobs/"]).await;
    disk(&cache, &reference, PullPolicy::Always, &registries).await.unwrap();
    assert_eq!(registry.requests(&["/blobs/"]).await, blobs, "content that is there is not pulled again");

    registry.stop();
    let offline = open(folder.path());
    let again = disk(&offline, &reference, PullPolicy::IfNotPresent, &registries).await.unwrap();
    assert_eq!(content(&again), b"two");
    let error = disk(&offline, &reference, PullPolicy::Always, &registries).await.unwrap_err();
    assert!(error.is_retryable(), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs docker-registry and skopeo: make test"]
async fn many_who_want_one_image_pull_it_once() {
    let registry = Registry::start().await;
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    registry.push(&image("v1", &bytes), "v1", "disk:v1");
    let folder = tempfile::tempdir().unwrap();
    for (policy, manifests) in [(PullPolicy::IfNotPresent, 1), (PullPolicy::Always, 8)] {
        let before = registry.requests(&["/manifests/"]).await;
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                // Locks belong to open files, so that each cache is to the others what another process would be.
                let cache = open(folder.path());
                let (reference, registries) = (registry.reference("disk:v1"), registry.registries());
                tokio::spawn(async move { disk(&cache, &reference, policy, &registries).await })
            })
            .collect();
        for task in tasks {
            let file = task.await.unwrap().unwrap();
            assert!(content(&file) == bytes);
        }
        assert_eq!(registry.requests(&["/manifests/"]).await - before, manifests);
        assert_eq!(registry.requests(&["/blobs/"]).await, 1);
        open(folder.path()).clean(u64::MAX).unwrap();
    }
}

#[tokio::test]
async fn a_file_is_read_only_and_its_format_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let layout = image("v1", &[1; 1000]);
    let file = disk(&cache, &layout.reference(), PullPolicy::IfNotPresent, &Registries::default()).await.unwrap();
    let metadata = std::fs::metadata(file.path()).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o444, 1000));
    assert_eq!((file.format(), file.virtual_size()), (Format::Raw, 1000));
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file.path().with_extension("json")).unwrap()).unwrap();
    assert_eq!(record["format"], "raw");
    assert_eq!(record["reference"], layout.reference().to_string());
    assert_eq!(record["manifest"], file.manifest().to_string());
}

#[tokio::test]
async fn a_layout_that_changes_is_seen_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let layout = image("v1", b"one");
    let get = async || disk(&cache, &layout.reference(), PullPolicy::IfNotPresent, &Registries::default()).await;
    assert_eq!(content(&get().await.unwrap()), b"one");
    for (path, bytes) in tree(image("v1", b"two").path()) {
        let name = path.iter().rev().take(if bytes.starts_with(b"{\"man") { 1 } else { 3 }).collect::<Vec<_>>();
        let target: PathBuf = name.iter().rev().collect();
        if target.ends_with("index.json") || target.starts_with("blobs") {
            std::fs::write(layout.path().join(target), bytes).unwrap();
        }
    }
    assert_eq!(content(&get().await.unwrap()), b"two");
}

#[tokio::test]
async fn files_by_path_and_disks_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let layers = vec![
        Layer::new().file("disk/disk.img", b"disk").file("boot/vmlinuz", b"kernel").file("boot/initrd", b"initrd"),
    ];
    let layout = Layout::new().image("v1", Compression::Gzip, layers);
    let (reference, registries) = (layout.reference(), Registries::default());
    for (path, expected) in [("/boot/vmlinuz", b"kernel"), ("boot/initrd", b"initrd"), ("boot/vmlinuz", b"kernel")] {
        let file = cache.file(&reference, path, PullPolicy::IfNotPresent, &registries, &()).await.unwrap();
        assert_eq!(content(&file), expected);
    }
    assert_eq!(cache.usage().unwrap().files, 2, "a leading slash does not matter");
    let named = cache.disk(&reference, Some("/disk/disk.img"), PullPolicy::Always, &registries, &()).await.unwrap();
    assert_eq!(content(&named), b"disk");
}

#[tokio::test]
async fn what_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let layout = Layout::of(vec![Layer::new().file("disk/a", &[1; 100_000]).file("disk/b", b"x")]);
    let result = disk(&cache, &layout.reference(), PullPolicy::IfNotPresent, &Registries::default()).await;
    assert!(chain(&result.unwrap_err()).contains("could be the disk"));
    let left: Vec<_> = tree(&folder.path().join("files")).into_keys().collect();
    assert_eq!((left, cache.usage().unwrap()), (vec![], Usage::default()));
}

#[tokio::test]
async fn a_pull_that_is_cancelled_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let layout = image("v1", b"content");
    let source = layout.path().to_owned();
    let (reached, mut blob_asked_for) = tokio::sync::mpsc::unbounded_channel();
    let (resume, resumed) = std::sync::mpsc::channel::<()>();
    let server = Scripted::start(move |request, _| {
        if request.path.contains("/blobs/") {
            reached.send(()).unwrap();
            // Until the test is over, which is an error here and as good.
            let _ = resumed.recv();
        }
        from_layout(&source, &request.path)
    });
    let (reference, registries) = (server.reference("disk:v1"), server.registries());
    {
        let mut pull = std::pin::pin!(disk(&cache, &reference, PullPolicy::IfNotPresent, &registries));
        tokio::select! {
            biased;
            _ = blob_asked_for.recv() => assert_eq!(tree(&folder.path().join("files")).len(), 1, "a pull is under way"),
            _ = &mut pull => panic!("the pull cannot end before its blob is sent"),
        }
    }
    assert!(tree(&folder.path().join("files")).is_empty());
    drop(resume);
    let again = disk(&cache, &reference, PullPolicy::IfNotPresent, &registries).await.unwrap();
    assert_eq!(content(&again), b"content", "and holds no lock");
}

#[tokio::test]
async fn leftovers_of_a_crash_are_removed_unless_someone_is_at_them() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let path = |name: &str| folder.path().join(name);
    for name in ["files/aa.tmp", "files/aa.json.tmp", "files/bb.tmp", "references/cc.tmp"] {
        std::fs::write(path(name), "half").unwrap();
    }
    let busy = File::create(path("locks/bb")).unwrap();
    busy.lock().unwrap();
    drop(open(folder.path()));
    let left: Vec<_> = tree(&path("files")).into_keys().chain(tree(&path("references")).into_keys()).collect();
    assert_eq!(left, [path("files/bb.tmp")]);
    drop(busy);
    drop(open(folder.path()));
    assert!(tree(&path("files")).is_empty());
}

#[tokio::test]
async fn a_damaged_file_is_pulled_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let layout = image("v1", b"content");
    let get = async || disk(&cache, &layout.reference(), PullPolicy::IfNotPresent, &Registries::default()).await;
    let file = get().await.unwrap();
    std::fs::write(file.path(), b"short").unwrap();
    assert_eq!(content(&get().await.unwrap()), b"content");
    std::fs::write(file.path().with_extension("json"), b"{").unwrap();
    assert_eq!(content(&get().await.unwrap()), b"content");
}

#[tokio::test]
async fn cleaning_removes_the_least_recently_used_that_is_not_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let layouts = [[1; 100_000], [2; 100_000], [3; 100_000]].map(|bytes| image("v1", &bytes));
    let mut held = Vec::new();
    for layout in &layouts {
        held.push(disk(&cache, &layout.reference(), PullPolicy::IfNotPresent, &Registries::default()).await.unwrap());
    }
    // Clocks of file systems are coarse: all three may have been used at the same time.
    for (seconds, file) in (1..).zip(&held) {
        let record = File::options().write(true).open(file.path().with_extension("json")).unwrap();
        record.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }
    let all = cache.usage().unwrap();
    assert!(all.files == 3 && all.bytes >= 300_000, "{all:?}");
    assert_eq!(cache.clean(u64::MAX).unwrap(), Usage::default(), "nothing needs to go");
    assert_eq!(cache.clean(0).unwrap(), Usage::default(), "everything is in use");

    // The first is used once more, the third still held: the second is the one to go.
    let third = held.pop().unwrap();
    held.clear();
    let first = disk(&cache, &layouts[0].reference(), PullPolicy::Never, &Registries::default()).await.unwrap();
    let first_path = first.path().to_owned();
    drop(first);
    assert_eq!(cache.clean(all.bytes - 1).unwrap().files, 1);
    assert!(first_path.exists() && third.path().exists());
    let gone = disk(&cache, &layouts[1].reference(), PullPolicy::Never, &Registries::default()).await;
    assert!(matches!(gone, Err(CacheError::Absent(_))));

    assert_eq!(cache.clean(0).unwrap().files, 1);
    assert!(!first_path.exists() && third.path().exists());
    drop(third);
    cache.clean(0).unwrap();
    assert_eq!(cache.usage().unwrap(), Usage::default());
    let left: Vec<_> = tree(folder.path()).into_keys().collect();
    assert_eq!(left, [folder.path().join("locks/references")], "records, locks and references go too");
}
