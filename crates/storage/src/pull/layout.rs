//! OCI layouts: a registry's content as a directory.

use std::path::PathBuf;

use tokio::io::AsyncReadExt;

use super::manifest::{self, MAX_MANIFEST, Parsed};
use super::transfer::Blob;
use super::{Digest, ManifestError, PullError};
use crate::image::Reference;

/// Where a layout keeps the name of an image.
const NAME: &str = "org.opencontainers.image.ref.name";

pub(super) struct Layout {
    folder: PathBuf,
}

impl Layout {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The image with that tag, or the only one.
    pub(super) async fn find(&self, image: &Reference, tag: Option<&str>) -> Result<Digest, PullError> {
        let refused = |source| PullError::Manifest { image: image.to_string(), source };
        let bytes = self.read(self.folder.join("index.json")).await?;
        let Parsed::Index(index) = manifest::parse(&bytes).map_err(refused)? else {
            return Err(refused(ManifestError::Kind));
        };
        let fits = |name: Option<&String>| tag.is_none_or(|tag| name.is_some_and(|name| name == tag));
        let found: Vec<_> = index.manifests.iter().filter(|entry| fits(entry.annotations.get(NAME))).collect();
        match found.as_slice() {
            [only] => Ok(only.digest),
            _ => {
                Err(PullError::LayoutTag { folder: self.folder.clone(), image: image.to_string(), found: found.len() })
            }
        }
    }

    pub(super) async fn manifest(&self, digest: Digest) -> Result<Vec<u8>, PullError> {
        self.read(self.path(digest)).await
    }

    pub(super) async fn blob(&self, digest: Digest) -> Result<Blob, PullError> {
        let path = self.path(digest);
        match tokio::fs::File::open(&path).await {
            Ok(file) => Ok(Blob::File { file, path }),
            Err(source) => Err(PullError::Layout { path, source }),
        }
    }

    /// A digest is hexadecimal and nothing else, so that the path stays in the directory.
    fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join("blobs").join("sha256").join(digest.hex())
    }

    async fn read(&self, path: PathBuf) -> Result<Vec<u8>, PullError> {
        let read = async {
            let mut bytes = Vec::new();
            let file = tokio::fs::File::open(&path).await?;
            file.take(MAX_MANIFEST as u64 + 1).read_to_end(&mut bytes).await?;
            if bytes.len() > MAX_MANIFEST {
                return Err(std::io::Error::other("the manifest is too long"));
            }
            Ok(bytes)
        };
        let result = read.await;
        result.map_err(|source| PullError::Layout { path, source })
    }
}
