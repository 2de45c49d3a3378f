//! Where the data of a DataVolume comes from, as far as it is supported.

use api::cdi::DataSource;
use api::data_volume::{
    DataVolumeContentType, DataVolumeSource, DataVolumeSourceHTTP, DataVolumeSourceRegistry, DataVolumeSpec,
};

/// How many names for names are followed.
const DEEPEST: usize = 4;

/// Where the data comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Nowhere: the disk is empty.
    Blank,
    /// The claim's own `dataSource`, which the node's volumes know.
    Claim,
    /// Another claim.
    Copy { namespace: String, name: String },
    /// A VolumeSnapshot.
    Snapshot { namespace: String, name: String },
    /// A file of a web server.
    Web(DataVolumeSourceHTTP),
    /// A container disk of a registry.
    Registry(DataVolumeSourceRegistry),
}

impl Origin {
    /// Whether a pod brings the data.
    #[must_use]
    pub fn is_imported(&self) -> bool {
        matches!(self, Self::Web(_) | Self::Registry(_))
    }
}

/// Why there is no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// It is not supported, or makes no sense. Only another DataVolume helps.
    #[error("{field} {problem}")]
    Refused {
        /// The field, from the object.
        field: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// What is named does not exist yet.
    #[error("the DataSource {namespace}/{name} does not exist")]
    Missing {
        /// Where it should be.
        namespace: String,
        /// What it is called.
        name: String,
    },
}

fn refused<T>(field: &'static str, problem: impl Into<String>) -> Result<T, OriginError> {
    Err(OriginError::Refused { field, problem: problem.into() })
}

/// Says where the data of a DataVolume in a namespace comes from. `find` knows DataSources by namespace and name.
///
/// # Errors
/// When it is not supported, or names what does not exist.
pub fn origin(
    spec: &DataVolumeSpec,
    namespace: &str,
    find: impl Fn(&str, &str) -> Option<DataSource>,
) -> Result<Origin, OriginError> {
    if spec.content_type == Some(DataVolumeContentType::Archive) {
        return refused("spec.contentType", "archive is not supported; import a disk image");
    }
    if spec.checkpoints.as_ref().is_some_and(|all| !all.is_empty()) || spec.final_checkpoint.is_some() {
        return refused("spec.checkpoints", "is not supported; import the disk in one step");
    }
    if spec.pvc.is_some() == spec.storage.is_some() {
        return refused("spec.storage", "or spec.pvc is required, and only one of them");
    }
    let own = match (&spec.pvc, &spec.storage) {
        (Some(claim), _) => claim.data_source.is_some() || claim.data_source_ref.is_some(),
        (_, Some(storage)) => storage.data_source.is_some() || storage.data_source_ref.is_some(),
        (None, None) => false,
    };
    let origin = match (&spec.source, &spec.source_ref, own) {
        (None, None, true) => return Ok(Origin::Claim),
        (Some(source), None, false) => of_source(source)?,
        (None, Some(reference), false) => {
            if reference.kind != "DataSource" {
                return refused(
                    "spec.sourceRef.kind",
                    format!("{:?} is not supported; use DataSource", reference.kind),
                );
            }
            let near = reference.namespace.as_deref().filter(|text| !text.is_empty()).unwrap_or(namespace);
            of_name(near, &reference.name, &find, DEEPEST)?
        }
        (None, None, false) => return refused("spec.source", "is required; set one source"),
        _ => return refused("spec.source", "cannot be combined with sourceRef or a dataSource of the claim; keep one"),
    };
    match &origin {
        // Who may copy is a right of its own in CDI, which nobody asks about here yet.
        Origin::Copy { namespace: other, .. } if other != namespace => {
            refused("spec.source.pvc.namespace", elsewhere("claim", other, namespace))
        }
        Origin::Snapshot { namespace: other, .. } if other != namespace => {
            refused("spec.source.snapshot.namespace", elsewhere("snapshot", other, namespace))
        }
        _ => Ok(origin),
    }
}

fn elsewhere(what: &str, other: &str, namespace: &str) -> String {
    format!(
        "{other:?} is another namespace than {namespace:?}, which is not supported yet; copy a {what} of the same one"
    )
}

fn of_source(source: &DataVolumeSource) -> Result<Origin, OriginError> {
    let DataVolumeSource { blank, gcs, http, imageio, pvc, registry, s3, snapshot, upload, vddk } = source;
    const INSTEAD: &str = "is not supported; use http, registry, pvc, snapshot or blank";
    let unsupported = [
        ("spec.source.gcs", gcs.is_some()),
        ("spec.source.imageio", imageio.is_some()),
        ("spec.source.s3", s3.is_some()),
        ("spec.source.upload", upload.is_some()),
        ("spec.source.vddk", vddk.is_some()),
    ];
    if let Some((field, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
        return refused(field, INSTEAD);
    }
    match (blank, http, pvc, registry, snapshot) {
        (Some(_), None, None, None, None) => Ok(Origin::Blank),
        (None, Some(http), None, None, None) => web(http),
        (None, None, Some(pvc), None, None) => {
            Ok(Origin::Copy { namespace: pvc.namespace.clone(), name: pvc.name.clone() })
        }
        (None, None, None, Some(registry), None) => image(registry),
        (None, None, None, None, Some(snapshot)) => {
            Ok(Origin::Snapshot { namespace: snapshot.namespace.clone(), name: snapshot.name.clone() })
        }
        (None, None, None, None, None) => refused("spec.source", "has no source; set one"),
        _ => refused("spec.source", "has more than one source; keep one"),
    }
}

fn web(http: &DataVolumeSourceHTTP) -> Result<Origin, OriginError> {
    if !http.url.starts_with("http://") && !http.url.starts_with("https://") {
        return refused("spec.source.http.url", format!("{:?} is not valid; use http:// or https://", http.url));
    }
    if let Some(text) = http.checksum.as_deref().filter(|text| !is_checksum(text)) {
        let problem = format!("{text:?} is not valid; use md5:, sha1:, sha256: or sha512: and the hexadecimal digits");
        return refused("spec.source.http.checksum", problem);
    }
    Ok(Origin::Web(http.clone()))
}

/// The importer reads it with the same rule; what it would refuse is refused before anything is made.
fn is_checksum(text: &str) -> bool {
    let Some((name, digits)) = text.split_once(':') else { return false };
    let length = match name.to_ascii_lowercase().as_str() {
        "md5" => 32,
        "sha1" => 40,
        "sha256" => 64,
        "sha512" => 128,
        _ => return false,
    };
    digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn image(registry: &DataVolumeSourceRegistry) -> Result<Origin, OriginError> {
    if registry.image_stream.is_some() {
        return refused("spec.source.registry.imageStream", "is not supported; use url");
    }
    // The node's runtime would pull it with the machine's rights, not with those of a pod.
    if registry.pull_method.as_deref() == Some("node") {
        return refused("spec.source.registry.pullMethod", "node is not supported; use pod");
    }
    if registry.platform.as_ref().is_some_and(|platform| platform.architecture.is_some()) {
        return refused("spec.source.registry.platform", "is not supported; the machine's own is used");
    }
    let url = registry.url.as_deref().unwrap_or_default();
    if !url.starts_with("docker://") {
        return refused("spec.source.registry.url", format!("{url:?} is not supported; use docker://"));
    }
    Ok(Origin::Registry(registry.clone()))
}

/// What a DataSource stands for.
fn of_name(
    namespace: &str,
    name: &str,
    find: &impl Fn(&str, &str) -> Option<DataSource>,
    deepest: usize,
) -> Result<Origin, OriginError> {
    let missing = || OriginError::Missing { namespace: namespace.to_owned(), name: name.to_owned() };
    let source = find(namespace, name).ok_or_else(missing)?.spec.source;
    match (source.pvc, source.snapshot, source.data_source) {
        (Some(pvc), None, None) => Ok(Origin::Copy { namespace: pvc.namespace, name: pvc.name }),
        (None, Some(snapshot), None) => Ok(Origin::Snapshot { namespace: snapshot.namespace, name: snapshot.name }),
        (None, None, Some(_)) if deepest == 0 => {
            refused("spec.sourceRef", "names a DataSource that names others, too many times over")
        }
        (None, None, Some(next)) => of_name(&next.namespace, &next.name, find, deepest - 1),
        // It may be filled in later.
        (None, None, None) => Err(missing()),
        _ => refused("spec.sourceRef", "names a DataSource with more than one source; keep one"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(mut spec: Value) -> Result<Origin, OriginError> {
        if spec["pvc"].is_null() {
            spec["storage"] = json!({ "resources": { "requests": { "storage": "1Gi" } } });
        }
        let spec = serde_json::from_value(spec).unwrap();
        origin(&spec, "here", |namespace, name| {
            let source = match (namespace, name) {
                ("here", "golden") => json!({ "pvc": { "namespace": "here", "name": "disk" } }),
                ("here", "alias") => json!({ "dataSource": { "namespace": "here", "name": "golden" } }),
                ("here", "circle") => json!({ "dataSource": { "namespace": "here", "name": "circle" } }),
                ("there", "golden") => json!({ "snapshot": { "namespace": "there", "name": "disk" } }),
                _ => return None,
            };
            Some(DataSource {
                spec: serde_json::from_value(json!({ "source": source })).unwrap(),
                ..DataSource::default()
            })
        })
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_field() {
        let url = "http://a/b";
        let refused = [
            (json!({ "source": { "s3": { "url": url } } }), "spec.source.s3"),
            (json!({ "source": { "gcs": { "url": url } } }), "spec.source.gcs"),
            (json!({ "source": { "upload": {} } }), "spec.source.upload"),
            (json!({ "source": { "vddk": {} } }), "spec.source.vddk"),
            (json!({ "source": { "imageio": { "url": url, "diskId": "d" } } }), "spec.source.imageio"),
            (json!({ "source": { "http": { "url": "ftp://a/b" } } }), "spec.source.http.url"),
            (json!({ "source": { "http": { "url": url, "checksum": "crc:1" } } }), "spec.source.http.checksum"),
            (json!({ "source": { "registry": { "url": "oci-archive://a" } } }), "spec.source.registry.url"),
            (json!({ "source": { "registry": { "imageStream": "a" } } }), "spec.source.registry.imageStream"),
            (
                json!({ "source": { "registry": { "url": "docker://a", "pullMethod": "node" } } }),
                "spec.source.registry.pullMethod",
            ),
            (json!({ "source": { "pvc": { "namespace": "there", "name": "a" } } }), "spec.source.pvc.namespace"),
            (
                json!({ "sourceRef": { "kind": "DataSource", "namespace": "there", "name": "golden" } }),
                "spec.source.snapshot.namespace",
            ),
            (json!({ "sourceRef": { "kind": "DataSource", "name": "circle" } }), "spec.sourceRef"),
            (json!({ "sourceRef": { "kind": "Secret", "name": "golden" } }), "spec.sourceRef.kind"),
            (json!({ "source": { "blank": {}, "http": { "url": url } } }), "spec.source"),
            (json!({ "source": {} }), "spec.source"),
            (json!({}), "spec.source"),
            (json!({ "source": { "blank": {} }, "contentType": "archive" }), "spec.contentType"),
        ];
        for (spec, expected) in refused {
            match of(spec.clone()) {
                Err(OriginError::Refused { field, .. }) => assert_eq!(field, expected, "{spec}"),
                other => panic!("{spec}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_name_stands_for_its_data() {
        let copy = Origin::Copy { namespace: "here".to_owned(), name: "disk".to_owned() };
        for name in ["golden", "alias"] {
            assert_eq!(of(json!({ "sourceRef": { "kind": "DataSource", "name": name } })), Ok(copy.clone()));
        }
        let missing = of(json!({ "sourceRef": { "kind": "DataSource", "name": "later" } }));
        assert!(matches!(missing, Err(OriginError::Missing { .. })));
        assert_eq!(of(json!({ "source": { "blank": {} } })), Ok(Origin::Blank));
        let own = json!({ "pvc": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "a" } } });
        assert_eq!(of(own), Ok(Origin::Claim));
    }
}
