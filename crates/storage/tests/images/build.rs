//! Writes images as OCI layouts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use storage::image::Reference;
use storage::pull::{self, Digest, Limits, PullError, Pulled, Registries, Wanted};

/// How a layer is compressed.
#[derive(Clone, Copy)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// One layer in the making.
pub(crate) struct Layer {
    builder: tar::Builder<Vec<u8>>,
}

impl Layer {
    pub(crate) fn new() -> Self {
        Self { builder: tar::Builder::new(Vec::new()) }
    }

    pub(crate) fn file(mut self, path: &str, content: &[u8]) -> Self {
        self.builder.append_data(&mut header(content.len() as u64), path, content).unwrap();
        self
    }

    pub(crate) fn folder(mut self, path: &str) -> Self {
        let mut header = header(0);
        header.set_entry_type(tar::EntryType::Directory);
        self.builder.append_data(&mut header, path, &b""[..]).unwrap();
        self
    }

    /// An entry whose name is taken as it is.
    pub(crate) fn raw(mut self, name: &str, kind: tar::EntryType, stated_size: u64, content: &[u8]) -> Self {
        let mut header = header(stated_size);
        header.set_entry_type(kind);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_link_name("/etc/shadow").unwrap();
        header.set_cksum();
        self.builder.append(&header, content).unwrap();
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.builder.into_inner().unwrap()
    }
}

fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A directory that holds images.
pub(crate) struct Layout {
    folder: tempfile::TempDir,
    manifests: Vec<Value>,
}

impl Layout {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("blobs/sha256")).unwrap();
        std::fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
        Self { folder, manifests: Vec::new() }
    }

    /// One image of these layers, the lowest first.
    pub(crate) fn of(layers: Vec<Layer>) -> Self {
        Self::new().image("latest", Compression::Gzip, layers)
    }

    pub(crate) fn image(mut self, tag: &str, compression: Compression, layers: Vec<Layer>) -> Self {
        let layers: Vec<_> = layers.into_iter().map(|layer| self.layer(&layer.bytes(), compression)).collect();
        let manifest = self.manifest(&layers);
        self.tag(tag, manifest);
        self
    }

    pub(crate) fn layer(&self, archive: &[u8], compression: Compression) -> Value {
        let (kind, bytes) = match compression {
            Compression::None => ("", archive.to_vec()),
            Compression::Gzip => ("+gzip", gzip(archive)),
            Compression::Zstd => ("+zstd", zstd(archive)),
        };
        self.blob(&format!("application/vnd.oci.image.layer.v1.tar{kind}"), &bytes)
    }

    pub(crate) fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes);
        std::fs::write(self.blob_path(&digest), bytes).unwrap();
        json!({"mediaType": kind, "digest": digest, "size": bytes.len()})
    }

    pub(crate) fn manifest(&self, layers: &[Value]) -> Value {
        let diff_ids: Vec<_> = layers.iter().map(|layer| layer["digest"].clone()).collect();
        let config = json!({"architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config, "layers": layers});
        self.blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes())
    }

    pub(crate) fn tag(&mut self, tag: &str, mut descriptor: Value) {
        descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        self.manifests.retain(|it| it["annotations"] != descriptor["annotations"]);
        self.manifests.push(descriptor);
        let index = json!({"schemaVersion": 2, "manifests": self.manifests});
        std::fs::write(self.path().join("index.json"), index.to_string()).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.path().join("blobs/sha256").join(digest.hex())
    }

    pub(crate) fn reference(&self) -> Reference {
        format!("oci:{}", self.path().display()).parse().unwrap()
    }
}

/// What a pull of the disk brings, and its bytes.
pub(crate) async fn fetch(
    reference: &Reference,
    wanted: Wanted,
    limits: Limits,
) -> Result<(Pulled, Vec<u8>), PullError> {
    let target = tempfile::NamedTempFile::new().unwrap();
    let file = File::options().read(true).write(true).open(target.path()).unwrap();
    let pulled = pull::open(reference, &Registries::default()).await?.fetch(&wanted, &limits, &file, &()).await?;
    Ok((pulled, std::fs::read(target.path()).unwrap()))
}

/// The disk of an image, with the limits that hold by default.
pub(crate) async fn disk(layout: &Layout) -> Result<(Pulled, Vec<u8>), PullError> {
    fetch(&layout.reference(), Wanted::Disk(None), Limits::default()).await
}

/// An error and all its causes, as a log shows them.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// All files below a directory with their content.
pub(crate) fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    found
}
