//! What a hostile image does not get.

use std::path::Path;

use serde_json::{Value, json};
use storage::image::Reference;
use storage::pull::{Digest, Limits, PullError, Registries, UnpackError, Wanted, open};
use storage::qcow2::{self, Format};
use tar::EntryType;

use super::build::{Compression, Layer, Layout, chain, disk, fetch};

async fn refused(layer: Layer) -> UnpackError {
    match disk(&Layout::of(vec![layer])).await.unwrap_err() {
        PullError::Unpack { source, .. } => source,
        other => panic!("{}", chain(&other)),
    }
}

fn good() -> Layer {
    Layer::new().file("disk/good", b"good")
}

#[tokio::test]
async fn names_that_lead_upwards_are_refused() {
    for name in ["../disk/evil", "disk/../../etc/passwd", "a/b/..", ".."] {
        let error = refused(good().raw(name, EntryType::Regular, 1, b"x")).await;
        assert!(matches!(&error, UnpackError::Name(found) if found == name), "{error:?}");
    }
}

#[tokio::test]
async fn absolute_names_are_refused() {
    let error = refused(good().raw("/disk/evil", EntryType::Regular, 1, b"x")).await;
    assert!(matches!(&error, UnpackError::Name(found) if found == "/disk/evil"), "{error:?}");
}

#[tokio::test]
async fn links_and_devices_are_no_disks() {
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let error = refused(Layer::new().raw("disk/evil", kind, 0, b"")).await;
        assert!(matches!(&error, UnpackError::Kind { path, .. } if path == "disk/evil"), "{kind:?}: {error:?}");
        // Nor does the named path lead through one.
        let layout = Layout::of(vec![Layer::new().raw("boot", kind, 0, b"").file("boot/vmlinuz", b"x")]);
        let error =
            fetch(&layout.reference(), Wanted::File("boot/vmlinuz".into()), Limits::default()).await.unwrap_err();
        assert!(chain(&error).contains("/boot is "), "{kind:?}: {}", chain(&error));
    }
    let error = refused(Layer::new().raw("disk", EntryType::Symlink, 0, b"")).await;
    assert!(matches!(error, UnpackError::Kind { found: "a symbolic link", .. }), "{error:?}");
    let layout = Layout::of(vec![Layer::new().folder("boot/vmlinuz")]);
    let error = fetch(&layout.reference(), Wanted::File("boot/vmlinuz".into()), Limits::default()).await.unwrap_err();
    assert!(chain(&error).contains("a directory"), "{}", chain(&error));
}

#[tokio::test]
async fn a_bomb_is_stopped_at_the_limit() {
    let limits = Limits { max_disk_bytes: 100_000, max_unpacked_bytes: 400_000, ..Limits::default() };
    let large = Layout::of(vec![Layer::new().file("disk/bomb", &vec![0; 100_001])]);
    let error = fetch(&large.reference(), Wanted::Disk(None), limits).await.unwrap_err();
    assert!(chain(&error).contains("/disk/bomb is larger than 100000 bytes"), "{}", chain(&error));
    // What is not wanted is skipped, but not for ever; nor is it when it comes in many layers.
    for layers in [
        vec![good().file("etc/bomb", &vec![0; 800_000])],
        (0..5).map(|index| Layer::new().file(&format!("etc/{index}"), &vec![0; 100_000])).collect(),
    ] {
        let error = fetch(&Layout::of(layers).reference(), Wanted::Disk(None), limits).await.unwrap_err();
        assert!(chain(&error).contains("unpack to more than 400000 bytes"), "{}", chain(&error));
    }
}

#[tokio::test]
async fn a_header_that_states_a_wrong_size_is_found_out() {
    let short = Layer::new().raw("disk/lie", EntryType::Regular, 1 << 20, b"x");
    assert!(matches!(refused(short).await, UnpackError::Archive(_)));
    let skipped = Layer::new().raw("etc/lie", EntryType::Regular, 1 << 20, b"x");
    assert!(matches!(refused(skipped).await, UnpackError::Archive(_)));
    let absurd = Layer::new().raw("disk/lie", EntryType::Regular, 1 << 60, b"x");
    assert!(matches!(refused(absurd).await, UnpackError::FileSize { .. }));
}

/// An image whose layer's descriptor is changed by `edit`, and whose blob by `garble`.
fn edited(edit: impl FnOnce(&mut Value), garble: impl FnOnce(&mut Vec<u8>)) -> Layout {
    let mut layout = Layout::new();
    let mut layer = layout.layer(&good().bytes(), Compression::None);
    let digest: Digest = serde_json::from_value(layer["digest"].clone()).unwrap();
    let path = layout.blob_path(&digest);
    let mut bytes = std::fs::read(&path).unwrap();
    garble(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    edit(&mut layer);
    let manifest = layout.manifest(&[layer]);
    layout.tag("v1", manifest);
    layout
}

#[tokio::test]
async fn a_descriptor_that_states_a_wrong_size_is_found_out() {
    let more = edited(|_| (), |bytes| bytes.extend([0; 512]));
    let fewer = edited(|_| (), |bytes| bytes.truncate(bytes.len() - 512));
    let lies = edited(|layer| layer["size"] = json!(1), |_| ());
    for layout in [more, fewer, lies] {
        let error = disk(&layout).await.unwrap_err();
        assert!(matches!(error, PullError::Length { .. }), "{}", chain(&error));
    }
}

#[tokio::test]
async fn content_that_is_not_what_its_digest_says_is_refused() {
    // Behind the archive's end, where no other check looks.
    let padding = edited(|_| (), |bytes| *bytes.last_mut().unwrap() = 1);
    let content = edited(|_| (), |bytes| bytes[512] = b'b');
    for layout in [padding, content] {
        let error = disk(&layout).await.unwrap_err();
        assert!(matches!(error, PullError::Digest { .. }), "{}", chain(&error));
    }
    let layout = Layout::of(vec![good()]);
    let index: Value = serde_json::from_slice(&std::fs::read(layout.path().join("index.json")).unwrap()).unwrap();
    let digest: Digest = serde_json::from_value(index["manifests"][0]["digest"].clone()).unwrap();
    std::fs::write(layout.blob_path(&digest), br#"{"layers": []}"#).unwrap();
    let error = disk(&layout).await.unwrap_err();
    assert!(matches!(error, PullError::Digest { expected, .. } if expected == digest), "{}", chain(&error));
}

#[tokio::test]
async fn broken_compression_is_refused() {
    for magic in
        [&[0x1f, 0x8b, 8, 0][..], &[0x28, 0xb5, 0x2f, 0xfd], &[0x50, 0x2a, 0x4d, 0x18, 255, 255, 255, 255], b"garbage"]
    {
        let mut layout = Layout::new();
        let layer = layout.blob("application/vnd.oci.image.layer.v1.tar", &[magic, &[7; 600]].concat());
        let manifest = layout.manifest(&[layer]);
        layout.tag("v1", manifest);
        let error = disk(&layout).await.unwrap_err();
        assert!(matches!(error, PullError::Unpack { source: UnpackError::Archive(_), .. }), "{}", chain(&error));
    }
}

#[tokio::test]
async fn several_candidates_and_none_are_refused() {
    let error = refused(good().file("disk/other", b"x")).await;
    assert!(matches!(error, UnpackError::Several { .. }), "{error:?}");
    let layered = Layout::of(vec![good(), Layer::new().file("disk/deep/other", b"x")]);
    assert!(chain(&disk(&layered).await.unwrap_err()).contains("both /disk/deep/other and /disk/good"));
    for empty in [Layer::new(), Layer::new().folder("disk"), Layer::new().file("diskette/a", b"x")] {
        let error = refused(empty).await;
        assert_eq!(error.to_string(), "there is no file below /disk/");
    }
    for path in ["", "/", "../x", "disk/../x"] {
        let layout = Layout::of(vec![good()]);
        let error = fetch(&layout.reference(), Wanted::Disk(Some(path.into())), Limits::default()).await.unwrap_err();
        assert!(chain(&error).contains("is not a valid file path"), "{path}");
    }
}

fn qcow2_image(edit: impl FnOnce(&mut Vec<u8>)) -> Layout {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    qcow2::create_empty(&path, 1 << 30).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    edit(&mut bytes);
    Layout::of(vec![Layer::new().file("disk/disk.qcow2", &bytes)])
}

#[tokio::test]
async fn a_qcow2_that_reaches_outside_itself_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overlay");
    qcow2::create_overlay(&path, Path::new("/etc/shadow"), Format::Raw, 1 << 20).unwrap();
    let overlay = Layout::of(vec![Layer::new().file("disk/a", &std::fs::read(&path).unwrap())]);
    let data_file = qcow2_image(|bytes| bytes[79] |= 1 << 2);
    let encrypted = qcow2_image(|bytes| bytes[35] = 1);
    let corrupt = qcow2_image(|bytes| bytes[79] |= 1 << 1);
    for (layout, expected) in [
        (overlay, "it has a backing file"),
        (data_file, "its data is in another file"),
        (encrypted, "it is encrypted"),
        (corrupt, "it is marked as corrupt"),
    ] {
        let error = disk(&layout).await.unwrap_err();
        assert!(chain(&error).contains(expected), "{}", chain(&error));
    }
}

#[tokio::test]
async fn a_qcow2_of_absurd_size_is_refused() {
    let layout = qcow2_image(|_| ());
    let limits = Limits { max_virtual_size: (1 << 30) - 1, ..Limits::default() };
    let error = fetch(&layout.reference(), Wanted::Disk(None), limits).await.unwrap_err();
    assert!(chain(&error).contains("its virtual size is 1073741824 bytes"), "{}", chain(&error));
    let lying = qcow2_image(|bytes| bytes[24..32].copy_from_slice(&u64::MAX.to_be_bytes()));
    assert!(matches!(disk(&lying).await, Err(PullError::Inspect { .. })));
}

#[tokio::test]
async fn a_layout_without_its_files_says_which() {
    let layout = Layout::of(vec![good()]);
    std::fs::write(layout.path().join("index.json"), vec![b' '; 5 << 20]).unwrap();
    assert!(chain(&disk(&layout).await.unwrap_err()).contains("the manifest is too long"));
    std::fs::remove_file(layout.path().join("index.json")).unwrap();
    assert!(chain(&disk(&layout).await.unwrap_err()).contains("index.json"));
}

#[tokio::test]
async fn an_image_comes_from_no_folder_but_those_that_are_allowed() {
    let (layout, others) = (Layout::of(vec![good()]), tempfile::tempdir().unwrap());
    let mut registries = Registries::default();
    let opened = async |reference: &Reference, registries: &Registries| open(reference, registries).await.map(drop);
    opened(&layout.reference(), &registries).await.unwrap();
    for folders in [vec![], vec![others.path().to_owned()], vec!["/nowhere".into()]] {
        registries.allow_directories(folders);
        let refused = opened(&layout.reference(), &registries).await.unwrap_err();
        assert!(matches!(refused, PullError::Folder(_)), "{}", chain(&refused));
    }
    // A link in a directory that is allowed leads to one that is not.
    registries.allow_directories(vec![others.path().to_owned()]);
    let link = others.path().join("link");
    std::os::unix::fs::symlink(layout.path(), &link).unwrap();
    let linked = format!("oci:{}", link.display()).parse().unwrap();
    assert!(matches!(opened(&linked, &registries).await, Err(PullError::Folder(_))));
    registries.allow_directories(vec![layout.path().parent().unwrap().to_owned()]);
    opened(&linked, &registries).await.unwrap();
}
