//! Configuration disks for cloud-init: inline, in base64, or from a secret.

use std::path::Path;

use api::vmi::VirtualMachineInstance;
use api::volumes::{CloudInitConfigDriveSource, CloudInitNoCloudSource, Volume};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hypervisor::wiring::Source;
use k8s_openapi::api::core::v1::LocalObjectReference;
use storage::cloud_init::{CloudInit, DataSource};

use super::{VolumeError, VolumePaths, image};

/// The keys under which a secret holds the data; both spellings are in use.
const USER_DATA: [&str; 2] = ["userdata", "userData"];
const NETWORK_DATA: [&str; 2] = ["networkdata", "networkData"];

/// Takes one of the two sources apart into user and network data; they are different types with the same fields.
macro_rules! data {
    ($source:ident, $config:expr) => {{
        let $source {
            network_data,
            network_data_base64,
            network_data_secret_ref,
            secret_ref,
            user_data,
            user_data_base64,
        } = $config;
        let user = Data { inline: user_data, base64: user_data_base64, secret: secret_ref, keys: USER_DATA };
        let secret = network_data_secret_ref;
        (user, Data { inline: network_data, base64: network_data_base64, secret, keys: NETWORK_DATA })
    }};
}

pub(super) fn no_cloud(
    path: &str,
    config: &CloudInitNoCloudSource,
    vmi: &VirtualMachineInstance,
    file: &Path,
    places: &VolumePaths,
) -> Result<Source, VolumeError> {
    let (user, network) = data!(CloudInitNoCloudSource, config);
    write(path, DataSource::NoCloud, &user, &network, vmi, file, places)
}

pub(super) fn config_drive(
    path: &str,
    config: &CloudInitConfigDriveSource,
    vmi: &VirtualMachineInstance,
    file: &Path,
    places: &VolumePaths,
) -> Result<Source, VolumeError> {
    let (user, network) = data!(CloudInitConfigDriveSource, config);
    write(path, DataSource::ConfigDrive, &user, &network, vmi, file, places)
}

/// The three ways to give one piece of data.
struct Data<'a> {
    inline: &'a Option<String>,
    base64: &'a Option<String>,
    secret: &'a Option<LocalObjectReference>,
    keys: [&'static str; 2],
}

fn write(
    path: &str,
    source: DataSource,
    user: &Data<'_>,
    network: &Data<'_>,
    vmi: &VirtualMachineInstance,
    file: &Path,
    places: &VolumePaths,
) -> Result<Source, VolumeError> {
    let name = vmi.metadata.name.as_deref().unwrap_or("guest");
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or("default");
    let config = CloudInit {
        // The same for every run of the same instance: a guest must not redo its first boot at each start.
        instance_id: format!("{name}.{namespace}"),
        hostname: vmi.spec.hostname.as_deref().unwrap_or(name).to_owned(),
        instance_type: None,
        user_data: read(path, user, places)?.unwrap_or_default(),
        network_data: read(path, network, places)?,
        public_keys: Vec::new(),
    };
    config.write(file, source).map_err(|source| VolumeError::Iso { path: path.to_owned(), source })?;
    Ok(image(file.to_owned()))
}

/// Whether a volume for cloud-init gives each piece of data in one way, and inline data can be read.
pub(super) fn check(path: &str, volume: &Volume) -> Result<(), VolumeError> {
    if let Some(config) = &volume.cloud_init_no_cloud {
        let (user, network) = data!(CloudInitNoCloudSource, config);
        let path = format!("{path}.cloudInitNoCloud");
        user.given(&path)?;
        network.given(&path)?;
    }
    if let Some(config) = &volume.cloud_init_config_drive {
        let (user, network) = data!(CloudInitConfigDriveSource, config);
        let path = format!("{path}.cloudInitConfigDrive");
        user.given(&path)?;
        network.given(&path)?;
    }
    Ok(())
}

/// A piece of data, or where it is.
enum Given<'a> {
    Nothing,
    Inline(Vec<u8>),
    Secret(&'a str),
}

impl<'a> Data<'a> {
    /// What the instance itself tells of it. Something empty is nothing.
    fn given(&self, path: &str) -> Result<Given<'a>, VolumeError> {
        let Self { inline, base64, secret, keys } = *self;
        let inline = inline.as_deref().filter(|text| !text.is_empty());
        let base64 = base64.as_deref().filter(|text| !text.is_empty());
        let secret = secret.as_ref().map(|secret| secret.name.as_str()).filter(|name| !name.is_empty());
        match (inline, base64, secret) {
            (None, None, None) => Ok(Given::Nothing),
            (Some(text), None, None) => Ok(Given::Inline(text.as_bytes().to_vec())),
            (None, Some(text), None) => STANDARD.decode(text.trim()).map(Given::Inline).map_err(|error| {
                VolumeError::refused(format!("{path}.{}Base64", keys[1]), format!("is not base64: {error}"))
            }),
            (None, None, Some(name)) => Ok(Given::Secret(name)),
            _ => Err(VolumeError::refused(path, format!("sets {} in several ways; keep one", keys[1]))),
        }
    }
}

fn read(path: &str, data: &Data<'_>, places: &VolumePaths) -> Result<Option<Vec<u8>>, VolumeError> {
    let name = match data.given(path)? {
        Given::Nothing => return Ok(None),
        Given::Inline(bytes) => return Ok(Some(bytes)),
        Given::Secret(name) => name,
    };
    let keys = &data.keys;
    let Some(folder) = places.secrets.get(name) else {
        return Err(VolumeError::refused(path, format!("secret {name:?} does not exist on this machine")));
    };
    let found = keys.iter().map(|key| folder.join(key)).find(|file| file.is_file());
    let Some(file) = found else {
        return Err(VolumeError::refused(path, format!("the secret {name:?} has no key {}", keys[0])));
    };
    let read = std::fs::read(&file);
    read.map(Some).map_err(|source| VolumeError::Read { path: path.to_owned(), file, source })
}
