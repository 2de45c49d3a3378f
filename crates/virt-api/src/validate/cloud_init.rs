//! cloud-init data: from one place each, and small if it stands in the spec.

use api::volumes::{CloudInitConfigDriveSource, CloudInitNoCloudSource, Volume};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::LocalObjectReference;

use super::volumes;
use crate::denial::Problems;

/// More belongs into a secret: every watcher gets the whole spec with every change.
const MOST: usize = 2048;

/// One of the two documents, in its three forms.
struct Document<'a> {
    name: &'static str,
    reference_name: &'static str,
    plain: Option<&'a str>,
    encoded: Option<&'a str>,
    reference: Option<&'a LocalObjectReference>,
}

pub(super) fn check(volume: &Volume, field: &str, problems: &mut Problems) {
    let (name, documents) = match (&volume.cloud_init_no_cloud, &volume.cloud_init_config_drive) {
        (Some(source), _) => ("cloudInitNoCloud", no_cloud(source)),
        (None, Some(source)) => ("cloudInitConfigDrive", config_drive(source)),
        (None, None) => return,
    };
    let field = format!("{field}.{name}");
    let mut any = false;
    for document in documents {
        any |= document.check(&field, problems);
    }
    if !any {
        problems.required(field, "is empty; set userData, networkData or a secret");
    }
}

fn no_cloud(source: &CloudInitNoCloudSource) -> [Document<'_>; 2] {
    let CloudInitNoCloudSource {
        network_data,
        network_data_base64,
        network_data_secret_ref,
        secret_ref,
        user_data,
        user_data_base64,
    } = source;
    documents((user_data, user_data_base64, secret_ref), (network_data, network_data_base64, network_data_secret_ref))
}

fn config_drive(source: &CloudInitConfigDriveSource) -> [Document<'_>; 2] {
    let CloudInitConfigDriveSource {
        network_data,
        network_data_base64,
        network_data_secret_ref,
        secret_ref,
        user_data,
        user_data_base64,
    } = source;
    documents((user_data, user_data_base64, secret_ref), (network_data, network_data_base64, network_data_secret_ref))
}

type Forms<'a> = (&'a Option<String>, &'a Option<String>, &'a Option<LocalObjectReference>);

fn documents<'a>(user: Forms<'a>, network: Forms<'a>) -> [Document<'a>; 2] {
    [("userData", "secretRef", user), ("networkData", "networkDataSecretRef", network)].map(
        |(name, reference_name, (plain, encoded, reference))| Document {
            name,
            reference_name,
            plain: plain.as_deref().filter(|text| !text.is_empty()),
            encoded: encoded.as_deref().filter(|text| !text.is_empty()),
            reference: reference.as_ref().filter(|reference| !reference.name.is_empty()),
        },
    )
}

impl Document<'_> {
    /// Whether there is any.
    fn check(&self, field: &str, problems: &mut Problems) -> bool {
        let Self { name, reference_name, plain, encoded, reference } = self;
        let mut length = plain.map_or(0, str::len);
        if let Some(encoded) = encoded {
            match STANDARD.decode(encoded) {
                Ok(bytes) => length = length.max(bytes.len()),
                Err(_) => {
                    problems
                        .invalid(format!("{field}.{name}Base64"), "is not base64; encode it, or use the plain field");
                }
            }
        }
        if length > MOST {
            let message = format!("has {length} bytes, but the limit is {MOST}; put it into a secret and set");
            problems.invalid(format!("{field}.{name}"), format!("{message} {reference_name}"));
        }
        if let Some(reference) = reference {
            volumes::check_name(&reference.name, format!("{field}.{reference_name}.name"), problems);
        }
        let forms = [plain.is_some(), encoded.is_some(), reference.is_some()];
        let set = forms.iter().filter(|set| **set).count();
        if set > 1 {
            let message = format!("{name}, {name}Base64 and {reference_name} are mutually exclusive; keep one");
            problems.invalid(field, message);
        }
        set > 0
    }
}
