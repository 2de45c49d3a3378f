//! What a good image gives.

use std::os::unix::fs::MetadataExt;

use serde_json::json;
use storage::pull::{self, Digest, Limits, Registries, Wanted};
use storage::qcow2::{self, Format};

use super::build::{Compression, Layer, Layout, chain, disk, fetch, gzip, zstd};

/// Something that does not compress to nothing and spans several chunks.
fn content() -> Vec<u8> {
    (0..50_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

#[tokio::test]
async fn every_compression_gives_the_same_disk() {
    let content = content();
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let layer = Layer::new().folder("./disk/").file("./disk/disk.img", &content).file("etc/other", b"x");
        let layout = Layout::new().image("v1", compression, vec![layer]);
        let (pulled, bytes) = disk(&layout).await.unwrap();
        assert_eq!((pulled.format, pulled.virtual_size, pulled.bytes), (Format::Raw, 200_000, 200_000));
        assert!(bytes == content);
    }
}

#[tokio::test]
async fn compressed_streams_may_have_several_parts() {
    let archive = Layer::new().file("disk/a", &content()).bytes();
    let (head, tail) = archive.split_at(archive.len() / 2);
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(head), &zstd(tail)].concat();
    for bytes in [[gzip(head), gzip(tail)].concat(), [zstd(head), zstd(tail)].concat(), skipped] {
        let mut layout = Layout::new();
        let layer = layout.blob("application/vnd.oci.image.layer.v1.tar", &bytes);
        let manifest = layout.manifest(&[layer]);
        layout.tag("v1", manifest);
        assert!(disk(&layout).await.unwrap().1 == content());
    }
}

#[tokio::test]
async fn a_qcow2_disk_is_told_from_a_raw_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.qcow2");
    qcow2::create_empty(&path, 10 << 30).unwrap();
    let layout = Layout::of(vec![Layer::new().file("disk/disk.qcow2", &std::fs::read(&path).unwrap())]);
    let (pulled, _) = disk(&layout).await.unwrap();
    assert_eq!((pulled.format, pulled.virtual_size), (Format::Qcow2, 10 << 30));
    // A kernel is whatever it is.
    let (file, _) =
        fetch(&layout.reference(), Wanted::File("/disk/disk.qcow2".into()), Limits::default()).await.unwrap();
    assert_eq!(file.format, Format::Raw);
}

#[tokio::test]
async fn zeros_become_holes() {
    let mut content = vec![0; 4 << 20];
    content[2 << 20] = 1;
    let layout = Layout::new().image("v1", Compression::None, vec![Layer::new().file("disk/a", &content)]);
    let target = tempfile::NamedTempFile::new().unwrap();
    let image = pull::open(&layout.reference(), &Registries::default()).await.unwrap();
    image.fetch(&Wanted::Disk(None), &Limits::default(), target.as_file(), &()).await.unwrap();
    let metadata = target.as_file().metadata().unwrap();
    assert_eq!(metadata.len(), 4 << 20);
    assert!(metadata.blocks() * 512 <= 256 << 10, "{} blocks", metadata.blocks());
    assert!(std::fs::read(target.path()).unwrap() == content);
}

#[tokio::test]
async fn the_later_layer_and_the_later_entry_win() {
    let layers = vec![
        Layer::new().file("disk/a", b"lowest, and longer than the others"),
        Layer::new().file("disk/a", b"first").file("disk/a", b"last"),
        Layer::new().file("etc/motd", b"hello"),
    ];
    assert_eq!(disk(&Layout::of(layers)).await.unwrap().1, b"last");
}

#[tokio::test]
async fn markers_hide_lower_layers_only() {
    let below = || Layer::new().file("disk/old", b"old").file("disk/new", b"wrong").file("boot/vmlinuz", b"old kernel");
    for markers in [
        vec!["disk/.wh.old"],
        vec!["disk/.wh..wh..opq"],
        vec![".wh.disk"],
        vec![".wh..wh..opq"],
        vec!["disk/.wh..wh.plnk", "disk/.wh.old"],
    ] {
        let mut top = Layer::new();
        for marker in &markers {
            top = top.file(marker, b"");
        }
        let layout = Layout::of(vec![below(), top.file("disk/new", b"new")]);
        assert_eq!(disk(&layout).await.unwrap().1, b"new", "{markers:?}");
    }
    for marker in ["boot/.wh.vmlinuz", ".wh.boot", "boot/.wh..wh..opq"] {
        let layout = Layout::of(vec![below(), Layer::new().file(marker, b"")]);
        let error =
            fetch(&layout.reference(), Wanted::File("boot/vmlinuz".into()), Limits::default()).await.unwrap_err();
        assert!(chain(&error).contains("there is no file /boot/vmlinuz"), "{marker}: {}", chain(&error));
    }
}

#[tokio::test]
async fn a_folder_in_place_of_a_file_hides_the_file() {
    let layers =
        vec![Layer::new().file("disk/a", b"a file once"), Layer::new().folder("disk/a").file("disk/a/b", b"now")];
    assert_eq!(disk(&Layout::of(layers)).await.unwrap().1, b"now");
    let layers = vec![Layer::new().file("disk/a/b", b"in a folder once"), Layer::new().file("disk/a", b"now")];
    assert_eq!(disk(&Layout::of(layers)).await.unwrap().1, b"now");
}

#[tokio::test]
async fn a_named_file_is_found_beside_others() {
    let layer = Layer::new().file("disk/a", b"a").file("disk/b", b"b").file("boot/vmlinuz", b"kernel");
    let layout = Layout::of(vec![layer]);
    for (wanted, expected) in [
        (Wanted::Disk(Some("/disk/b".into())), &b"b"[..]),
        (Wanted::Disk(Some("disk/a".into())), b"a"),
        (Wanted::File("/boot/vmlinuz".into()), b"kernel"),
    ] {
        assert_eq!(fetch(&layout.reference(), wanted, Limits::default()).await.unwrap().1, expected);
    }
}

#[tokio::test]
async fn layers_below_the_file_are_not_even_asked_for() {
    let mut layout = Layout::new();
    let lower = layout.layer(&Layer::new().file("etc/x", b"x").bytes(), Compression::Gzip);
    let upper = layout.layer(&Layer::new().file("boot/vmlinuz", b"kernel").bytes(), Compression::Gzip);
    let digest: Digest = serde_json::from_value(lower["digest"].clone()).unwrap();
    let manifest = layout.manifest(&[lower, upper]);
    layout.tag("v1", manifest);
    std::fs::remove_file(layout.blob_path(&digest)).unwrap();
    let found = fetch(&layout.reference(), Wanted::File("boot/vmlinuz".into()), Limits::default()).await;
    assert_eq!(found.unwrap().1, b"kernel");
}

#[tokio::test]
async fn an_index_leads_to_this_machines_image() {
    let mut layout = Layout::new();
    let mut entries = Vec::new();
    for (os, architecture) in [("linux", "amd64"), ("linux", "arm64"), ("windows", "amd64")] {
        let layer = Layer::new().file("disk/a", format!("{os}/{architecture}").as_bytes());
        let layer = layout.layer(&layer.bytes(), Compression::Gzip);
        let mut manifest = layout.manifest(&[layer]);
        manifest["platform"] = json!({"os": os, "architecture": architecture});
        entries.push(manifest);
    }
    let index = json!({"schemaVersion": 2, "manifests": entries});
    let index = layout.blob("application/vnd.oci.image.index.v1+json", index.to_string().as_bytes());
    layout.tag("v1", index);
    let expected = if cfg!(target_arch = "aarch64") { "linux/arm64" } else { "linux/amd64" };
    assert_eq!(disk(&layout).await.unwrap().1, expected.as_bytes());
}

#[tokio::test]
async fn a_layout_of_several_images_needs_a_tag() {
    let layout = Layout::new().image("one", Compression::Gzip, vec![Layer::new().file("disk/a", b"1")]).image(
        "two",
        Compression::Gzip,
        vec![Layer::new().file("disk/a", b"2")],
    );
    let tagged = |tag| format!("{}:{tag}", layout.reference()).parse().unwrap();
    let (_, bytes) = fetch(&tagged("two"), Wanted::Disk(None), Limits::default()).await.unwrap();
    assert_eq!(bytes, b"2");
    assert!(chain(&disk(&layout).await.unwrap_err()).contains("has 2 images"));
    let missing = fetch(&tagged("three"), Wanted::Disk(None), Limits::default()).await.unwrap_err();
    assert!(chain(&missing).contains("has 0 images"));
}
