//! The pod's volumes: what the launcher itself needs, and what the instance's volumes are made of.

mod source;

use api::volumes::Volume as GuestVolume;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, LocalObjectReference,
    PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume,
};
use launcher_api::names;
use virt_rules::names::{is_dns_label, is_dns_subdomain};

use super::mounts::{Access, Mounts};
use super::{Input, RenderError, arguments, memory};
use source::Source;

/// Folders that every launcher has, and huge pages where the guest is in them.
pub(super) fn shared_folders(input: &Input<'_>, mounts: &mut Mounts) {
    let directories = &input.launcher.directories;
    mounts.empty_dir(names::PRIVATE, &directories.private);
    mounts.empty_dir("public", &directories.share);
    mounts.empty_dir("ephemeral-disks", &directories.ephemeral_disks);
    mounts.empty_dir(names::SOCKETS, &arguments::sockets(input));
    if memory::page_size(input.vmi.spec.domain.memory.as_ref()).is_some() {
        let pages = EmptyDirVolumeSource { medium: Some("HugePages".to_owned()), size_limit: None };
        let volume = Volume { name: "hugepages".to_owned(), empty_dir: Some(pages), ..Volume::default() };
        mounts.mount(volume, "/dev/hugepages", Access::ReadWrite);
    }
}

/// Everything that the instance's volumes need mounted. Container disks are another file's.
pub(super) fn guest_volumes(input: &Input<'_>, mounts: &mut Mounts) -> Result<(), RenderError> {
    for (index, volume) in input.vmi.spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        let source = Source::of(volume).ok_or_else(|| {
            RenderError::invalid(&path, "needs exactly one source, such as containerDisk or persistentVolumeClaim")
        })?;
        if is_reserved(&volume.name) {
            let problem = format!("{:?} is reserved for the launcher; choose another name", volume.name);
            return Err(RenderError::invalid(format!("{path}.name"), problem));
        }
        if input.vmi.spec.volumes.iter().flatten().take(index).any(|other| other.name == volume.name) {
            let problem = format!("{:?} is used twice; names must be unique", volume.name);
            return Err(RenderError::invalid(format!("{path}.name"), problem));
        }
        if !is_dns_label(&volume.name) {
            let problem = format!("{:?} is not a valid volume name; use lower-case letters, digits and -", volume.name);
            return Err(RenderError::invalid(format!("{path}.name"), problem));
        }
        guest_volume(input, &path, volume, source, mounts)?;
    }
    access_credentials(input, mounts)
}

/// The name of an object that the instance refers to. It goes into arguments of the launcher, where `,` and `=` are syntax;
/// whoever made the instance may have been asked by nobody what it is.
fn object<'a>(path: &str, name: &'a str) -> Result<&'a str, RenderError> {
    if is_dns_subdomain(name) {
        return Ok(name);
    }
    Err(RenderError::invalid(
        path,
        format!("{name:?} is not a valid object name; use lower-case letters, digits, - and ."),
    ))
}

fn guest_volume(
    input: &Input<'_>,
    path: &str,
    volume: &GuestVolume,
    source: Source<'_>,
    mounts: &mut Mounts,
) -> Result<(), RenderError> {
    let name = &volume.name;
    match source {
        // Made inside the pod, or another file's, or the pod's own token.
        Source::ContainerDisk | Source::Made | Source::ServiceAccount => {}
        Source::Claim { field, name: claim, read_only } => {
            let claim = ClaimMount { path: format!("{path}.{field}"), volume: name, claim, read_only };
            claim.mount(input, mounts)?;
        }
        Source::HostDisk { path: file } => {
            let folder = format!("{}/vmi-disks/{name}", input.launcher.directories.private);
            let above = file.rsplit_once('/').map_or("", |(above, _)| above);
            if !file.starts_with('/') {
                let problem = "must be an absolute path; start it with /";
                return Err(RenderError::invalid(format!("{path}.hostDisk.path"), problem));
            }
            let host_path = HostPathVolumeSource {
                path: if above.is_empty() { "/".to_owned() } else { above.to_owned() },
                type_: Some("DirectoryOrCreate".to_owned()),
            };
            let volume = Volume { name: name.clone(), host_path: Some(host_path), ..Volume::default() };
            mounts.mount(volume, &folder, Access::ReadWrite);
            mounts.host_disks.insert(name.clone(), folder);
        }
        Source::CloudInit { user, network } => {
            for (secret, suffix) in [(user, "udata"), (network, "ndata")] {
                if let Some(secret) = secret {
                    let folder = format!("{}/secret/{name}-{suffix}", input.launcher.directories.private);
                    secret_mount(mounts, &format!("{name}-{suffix}"), object(path, secret)?, None, &folder);
                }
            }
        }
        Source::ConfigMap { name: map, optional } => {
            let folder = format!("{}/config-map/{name}", input.launcher.directories.private);
            config_map_mount(mounts, name, object(&format!("{path}.configMap.name"), map)?, optional, &folder);
        }
        Source::Secret { name: secret, optional } => {
            let folder = format!("{}/secret/{name}", input.launcher.directories.private);
            secret_mount(mounts, name, object(&format!("{path}.secret.secretName"), secret)?, optional, &folder);
        }
        Source::Sysprep { config_map, secret } => {
            let folder = format!("{}/sysprep/{name}", input.launcher.directories.private);
            let object = |name| object(&format!("{path}.sysprep"), name);
            match (config_map, secret) {
                (Some(map), _) => config_map_mount(mounts, name, object(map)?, None, &folder),
                (None, Some(secret)) => secret_mount(mounts, name, object(secret)?, None, &folder),
                (None, None) => {
                    let problem = "has neither a configMap nor a secret; set one";
                    return Err(RenderError::invalid(format!("{path}.sysprep"), problem));
                }
            }
        }
        Source::DownwardApi { items } => {
            let folder = format!("{}/downwardapi/{name}", input.launcher.directories.private);
            let downward_api = Some(DownwardAPIVolumeSource { items: items.cloned(), default_mode: None });
            let volume = Volume { name: name.clone(), downward_api, ..Volume::default() };
            mounts.mount(volume, &folder, Access::ReadOnly);
        }
    }
    Ok(())
}

/// A claim behind one of the instance's volumes.
struct ClaimMount<'a> {
    path: String,
    volume: &'a str,
    claim: &'a str,
    read_only: bool,
}

impl ClaimMount<'_> {
    /// A block device appears as `/dev/NAME`, a filesystem below the launcher's private folder.
    fn mount(self, input: &Input<'_>, mounts: &mut Mounts) -> Result<(), RenderError> {
        let Self { path, volume, claim, read_only } = self;
        let claim = object(&path, claim)?;
        let Some(known) = input.claims.get(claim) else {
            return Err(RenderError::ClaimMissing { path, claim: claim.to_owned() });
        };
        let source =
            PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only: read_only.then_some(true) };
        let pod_volume = Volume { name: volume.to_owned(), persistent_volume_claim: Some(source), ..Volume::default() };
        let place = if known.block {
            let place = format!("/dev/{volume}");
            mounts.device(pod_volume, &place);
            place
        } else {
            let place = format!("{}/vmi-disks/{volume}", input.launcher.directories.private);
            mounts.mount(pod_volume, &place, if read_only { Access::ReadOnly } else { Access::ReadWrite });
            place
        };
        mounts.claims.insert(claim.to_owned(), place);
        Ok(())
    }
}

/// Keys and passwords that the launcher puts into the guest; each secret once.
fn access_credentials(input: &Input<'_>, mounts: &mut Mounts) -> Result<(), RenderError> {
    for (index, credential) in input.vmi.spec.access_credentials.iter().flatten().enumerate() {
        let key = credential.ssh_public_key.as_ref().and_then(|key| key.source.secret.as_ref());
        let password = credential.user_password.as_ref().and_then(|password| password.source.secret.as_ref());
        for secret in key.into_iter().chain(password) {
            let secret = object(&format!("spec.accessCredentials[{index}]"), &secret.secret_name)?;
            let name = format!("{secret}-access-cred");
            if !mounts.volumes.iter().any(|volume| volume.name == name) {
                let folder = format!("{}/secret/{name}", input.launcher.directories.private);
                secret_mount(mounts, &name, secret, None, &folder);
            }
        }
    }
    Ok(())
}

fn secret_mount(mounts: &mut Mounts, name: &str, secret: &str, optional: Option<bool>, folder: &str) {
    let source = SecretVolumeSource { secret_name: Some(secret.to_owned()), optional, ..SecretVolumeSource::default() };
    let volume = Volume { name: name.to_owned(), secret: Some(source), ..Volume::default() };
    mounts.mount(volume, folder, Access::ReadOnly);
    mounts.secrets.insert(secret.to_owned(), folder.to_owned());
}

fn config_map_mount(mounts: &mut Mounts, name: &str, map: &str, optional: Option<bool>, folder: &str) {
    let source = ConfigMapVolumeSource { name: map.to_owned(), optional, ..ConfigMapVolumeSource::default() };
    let volume = Volume { name: name.to_owned(), config_map: Some(source), ..Volume::default() };
    mounts.mount(volume, folder, Access::ReadOnly);
    mounts.config_maps.insert(map.to_owned(), folder.to_owned());
}

/// Names of volumes that the launcher has for itself.
fn is_reserved(name: &str) -> bool {
    const OWN: [&str; 8] = [
        names::PRIVATE,
        "public",
        "ephemeral-disks",
        names::SOCKETS,
        "hugepages",
        names::CONTAINER_DISKS,
        super::container_disks::PROGRAM_FOLDER,
        names::KERNEL_BOOT,
    ];
    // A volume of such a name could take the place of another one's secret.
    OWN.contains(&name) || ["-udata", "-ndata", "-access-cred"].iter().any(|suffix| name.ends_with(suffix))
}

/// What a named local object is called, unless it is empty.
fn local(reference: Option<&LocalObjectReference>) -> Option<&str> {
    reference.map(|reference| reference.name.as_str()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
