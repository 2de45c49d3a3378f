//! Manifests and indexes, as far as a pull needs them.

use serde::Deserialize;

use super::Digest;

/// More layers than any runtime can stack.
const MAX_LAYERS: usize = 512;
/// Each of an index's entries is for one platform.
const MAX_PLATFORMS: usize = 1024;
/// The most bytes of a manifest; what registries accept.
pub(super) const MAX_MANIFEST: usize = 4 << 20;

/// What to ask a registry for.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is no manifest.
    #[error("malformed")]
    Json(#[source] serde_json::Error),
    /// It is neither an image nor an index, or claims to be both.
    #[error("neither an image nor an index of images; manifests of schema version 1 are not supported")]
    Kind,
    /// It has more parts than any image.
    #[error("{0} entries are too many")]
    Parts(usize),
    /// There is no image for this machine.
    #[error("no image for {wanted}; the available images are for {found}")]
    Platform {
        /// The platform that was looked for.
        wanted: String,
        /// The platforms that are there.
        found: String,
    },
    /// An index leads to another index.
    #[error("an index inside an index is not supported")]
    Nested,
    /// It does not name a configuration.
    #[error("it has no configuration")]
    Config,
    /// A layer is in a form that cannot be read.
    #[error("layers of type {0:?} are not supported")]
    MediaType(String),
}

/// Names a blob.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) platform: Option<Platform>,
    #[serde(default)]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Platform {
    os: String,
    architecture: String,
}

#[derive(Debug)]
pub(super) enum Parsed {
    Image(Manifest),
    Index(Index),
}

#[derive(Debug)]
pub(super) struct Manifest {
    /// The lowest first.
    pub(super) layers: Vec<Descriptor>,
    /// Container disks can do without.
    pub(super) config: Option<Descriptor>,
}

#[derive(Debug)]
pub(super) struct Index {
    pub(super) manifests: Vec<Descriptor>,
}

/// Reads either kind. A document with the lists of both is refused: two readers could see two images in it.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, ManifestError> {
    #[derive(Deserialize)]
    struct Either {
        layers: Option<Vec<Descriptor>>,
        config: Option<Descriptor>,
        manifests: Option<Vec<Descriptor>>,
    }

    let either: Either = serde_json::from_slice(bytes).map_err(ManifestError::Json)?;
    match (either.layers, either.manifests) {
        (Some(layers), None) => {
            if layers.len() > MAX_LAYERS {
                return Err(ManifestError::Parts(layers.len()));
            }
            if let Some(layer) = layers.iter().find(|layer| !is_tar(&layer.media_type)) {
                return Err(ManifestError::MediaType(layer.media_type.chars().take(100).collect()));
            }
            Ok(Parsed::Image(Manifest { layers, config: either.config }))
        }
        (None, Some(manifests)) if manifests.len() <= MAX_PLATFORMS => Ok(Parsed::Index(Index { manifests })),
        (None, Some(manifests)) => Err(ManifestError::Parts(manifests.len())),
        _ => Err(ManifestError::Kind),
    }
}

/// Docker's and OCI's names for an archive; which compression it has is told from its first bytes.
fn is_tar(media_type: &str) -> bool {
    let base = media_type.split_once('+').map_or(media_type, |(base, _)| base);
    !media_type.ends_with("+encrypted") && (base.ends_with(".tar") || base.ends_with(".tar.gzip"))
}

impl Index {
    pub(super) fn for_this_machine(&self) -> Result<Digest, ManifestError> {
        self.for_platform("linux", this_architecture())
    }

    fn for_platform(&self, os: &str, architecture: &str) -> Result<Digest, ManifestError> {
        let fits = |platform: &Platform| platform.os == os && platform.architecture == architecture;
        let chosen = self.manifests.iter().find(|entry| entry.platform.as_ref().is_some_and(fits));
        match (chosen, self.manifests.as_slice()) {
            (Some(entry), _) => Ok(entry.digest),
            // Who writes one image and no platform means it for everyone.
            (None, [only]) if only.platform.is_none() => Ok(only.digest),
            _ => Err(ManifestError::Platform { wanted: format!("{os}/{architecture}"), found: self.platforms() }),
        }
    }

    fn platforms(&self) -> String {
        let names = self.manifests.iter().filter_map(|entry| entry.platform.as_ref());
        let names: Vec<_> = names.take(20).map(|it| format!("{}/{}", it.os, it.architecture)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// Go's name for the architecture, which images use.
fn this_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn descriptor(content: &str, extra: &Value) -> Value {
        let mut json = json!({"digest": Digest::of(content.as_bytes()), "size": content.len(),
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"});
        json.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json
    }

    fn read(json: &Value) -> Result<Parsed, ManifestError> {
        parse(json.to_string().as_bytes())
    }

    fn platform(os: &str, architecture: &str) -> Value {
        json!({"platform": {"os": os, "architecture": architecture}})
    }

    #[test]
    fn the_machines_platform_is_chosen() {
        let entries = [("attestation", "unknown", "unknown"), ("arm", "linux", "arm64"), ("x86", "linux", "amd64")];
        let list: Vec<_> = entries.map(|(content, os, arch)| descriptor(content, &platform(os, arch))).into();
        let Parsed::Index(index) = read(&json!({"manifests": list})).unwrap() else { panic!("not an index") };
        assert_eq!(index.for_platform("linux", "amd64").unwrap(), Digest::of(b"x86"));
        assert_eq!(index.for_platform("linux", "arm64").unwrap(), Digest::of(b"arm"));
        let error = index.for_platform("linux", "s390x").unwrap_err().to_string();
        assert_eq!(
            error,
            "no image for linux/s390x; the available images are for unknown/unknown, linux/arm64, linux/amd64"
        );
    }

    #[test]
    fn a_single_image_without_a_platform_is_for_everyone() {
        let Parsed::Index(index) = read(&json!({"manifests": [descriptor("a", &json!({}))]})).unwrap() else {
            panic!("not an index")
        };
        assert_eq!(index.for_this_machine().unwrap(), Digest::of(b"a"));
    }

    #[test]
    fn what_is_no_image_is_refused() {
        assert!(matches!(parse(b"<html>"), Err(ManifestError::Json(_))));
        assert!(matches!(read(&json!({})), Err(ManifestError::Kind)));
        assert!(matches!(read(&json!({"schemaVersion": 1, "fsLayers": []})), Err(ManifestError::Kind)));
        assert!(matches!(read(&json!({"layers": [], "manifests": []})), Err(ManifestError::Kind)));
        let many = vec![descriptor("a", &json!({})); MAX_LAYERS + 1];
        assert!(matches!(read(&json!({"layers": many})), Err(ManifestError::Parts(513))));
        let wasm = descriptor("a", &json!({"mediaType": "application/wasm"}));
        assert!(matches!(read(&json!({"layers": [wasm]})), Err(ManifestError::MediaType(_))));
        let negative = descriptor("a", &json!({"size": -1}));
        assert!(matches!(read(&json!({"layers": [negative]})), Err(ManifestError::Json(_))));
        let escape = descriptor("a", &json!({"digest": "sha256:../../../etc/passwd"}));
        assert!(matches!(read(&json!({"layers": [escape]})), Err(ManifestError::Json(_))));
    }

    #[test]
    fn all_common_types_of_layers_are_read() {
        for kind in [
            "application/vnd.oci.image.layer.v1.tar",
            "application/vnd.oci.image.layer.v1.tar+gzip",
            "application/vnd.oci.image.layer.v1.tar+zstd",
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
            "application/vnd.docker.image.rootfs.diff.tar",
        ] {
            assert!(is_tar(kind), "{kind}");
        }
        assert!(!is_tar("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"));
    }

    proptest! {
        #[test]
        fn no_document_makes_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
