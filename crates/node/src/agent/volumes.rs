//! A pod's volumes, where a kubelet has them: `pods/UID/volumes/kubernetes.io~KIND/NAME`.
//!
//! Preparing is repeatable: what is there is left alone, and files of config maps, secrets and the pod's own fields are brought up
//! to date, all of a volume at once.

mod atomic;
mod claim;
mod host_path;
pub(super) mod mounting;
mod owner;
mod payload;
pub(super) mod sub_path;
mod token;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret, Volume};
use kube::{Api, Client};

use super::container::fields::Facts;
use super::parts::Held;
use super::record;
use super::segment::{NoSegment, Segment};
use super::view;
use owner::Owner;
use payload::Payload;

/// Why a volume is not there.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    /// An object that it comes from is missing.
    #[error("{kind} {name:?} not found")]
    Missing { kind: &'static str, name: String },
    /// A key that it names is missing.
    #[error("{kind} {name:?} has no key {key:?}")]
    NoKey { kind: &'static str, name: String, key: String },
    /// A name that cannot be a part of a path.
    #[error(transparent)]
    Name(#[from] NoSegment),
    /// A path that leads out of its volume.
    #[error("{0:?} points outside the volume")]
    Escapes(String),
    /// What a hostPath volume says it is, it is not.
    #[error("hostPath type check failed: {path} is not a {expected}")]
    HostPath {
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// A field that a pod may not ask for.
    #[error("unsupported field {0:?}")]
    Field(String),
    /// A claim without a volume.
    #[error("persistentvolumeclaim {0:?} is not bound")]
    NotBound(String),
    /// A claim whose volume is somebody else's.
    #[error("persistentvolume {volume:?} does not belong to persistentvolumeclaim {claim:?}")]
    NotItsOwn {
        /// The volume that the claim names.
        volume: String,
        claim: String,
    },
    /// A kind of volume that this node cannot do.
    #[error("{0} is not supported on this node")]
    Unsupported(String),
    /// The API server did not answer as hoped.
    #[error("the API server did not answer")]
    Api(#[source] kube::Error),
    /// The disk did not take it.
    #[error("{path}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl VolumeError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// A volume that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prepared {
    /// A directory, a file or a device.
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
}

/// All volumes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct All {
    pub(super) volumes: BTreeMap<String, Prepared>,
    /// When some of them have to be brought up to date, whatever else happens.
    pub(super) refresh: Option<Timestamp>,
}

/// What volumes are made from.
pub(super) struct Preparing<'a> {
    pub(super) client: &'a Client,
    /// The kubelet's root directory.
    pub(super) root: &'a Path,
    pub(super) facts: Facts<'a>,
    pub(super) spec: &'a PodSpec,
    /// The pod's own user, if it has one.
    pub(super) user: Option<u32>,
    /// Whether its claims were given to that user, or to its group, already: what others change in them afterwards is theirs.
    pub(super) given: bool,
    /// Images that are held for volumes.
    pub(super) images: &'a BTreeMap<String, Held>,
    pub(super) now: Timestamp,
}

impl Preparing<'_> {
    /// Makes all of them, or brings them up to date.
    pub(super) async fn all(&self) -> Result<All, VolumeError> {
        let mut all = All::default();
        for volume in self.spec.volumes.iter().flatten() {
            let (prepared, refresh) = self.one(volume).await?;
            all.volumes.insert(volume.name.clone(), prepared);
            all.refresh = [all.refresh, refresh].into_iter().flatten().min();
        }
        Ok(all)
    }

    /// Brings up to date what comes from the API; all else stays as it was made. Tells when to do so again.
    pub(super) async fn renew(&self) -> Result<Option<Timestamp>, VolumeError> {
        let mut next = None;
        for volume in self.spec.volumes.iter().flatten() {
            if let Some((_, refresh)) = self.written(volume).await? {
                next = [next, refresh].into_iter().flatten().min();
            }
        }
        Ok(next)
    }

    async fn one(&self, volume: &Volume) -> Result<(Prepared, Option<Timestamp>), VolumeError> {
        if let Some(empty) = &volume.empty_dir {
            let path = self.path("empty-dir", &volume.name)?;
            let memory = empty.medium.as_deref() == Some("Memory");
            let limit = empty.size_limit.as_ref().and_then(|limit| limit.0.parse::<api::quantity::Amount>().ok());
            let limit = limit.and_then(|limit| u64::try_from(limit.units()).ok());
            mounting::folder(&path, 0o777)?;
            if memory {
                mounting::tmpfs(&path, limit, 0o777)?;
            }
            self.owner().give_top(&path)?;
            return Ok((Prepared { path, read_only: false }, None));
        }
        if let Some(host_path) = &volume.host_path {
            let path = host_path::prepare(host_path)?;
            return Ok((Prepared { path, read_only: false }, None));
        }
        if volume.image.is_some() {
            let key = view::volume_key(&volume.name);
            let held = self.images.get(&key);
            let held = held.ok_or_else(|| VolumeError::Missing { kind: "image of volume", name: key })?;
            return Ok((Prepared { path: held.root.clone(), read_only: true }, None));
        }
        if let Some(claim) = claim::name(volume, &self.facts) {
            let prepared = claim::prepare(self.client, self.namespace(), &claim.0, claim.1).await?;
            if !prepared.read_only && !self.given {
                let (owner, path) = (self.owner(), prepared.path.clone());
                let walk = tokio::task::spawn_blocking(move || owner.give_all(&path)).await;
                walk.map_err(|error| VolumeError::io(&prepared.path)(error.into()))??;
            }
            return Ok((prepared, None));
        }
        if let Some(written) = self.written(volume).await? {
            return Ok(written);
        }
        Err(VolumeError::Unsupported(format!("volume {:?}: its kind of source", volume.name)))
    }

    /// A volume of files that come from the API, written.
    async fn written(&self, volume: &Volume) -> Result<Option<(Prepared, Option<Timestamp>)>, VolumeError> {
        let Some((kind, payload)) = self.files(volume).await? else { return Ok(None) };
        let path = self.path(kind, &volume.name)?;
        mounting::folder(&path, 0o755)?;
        // What is secret is not written to a disk.
        if matches!(kind, "secret" | "projected") {
            mounting::tmpfs(&path, None, 0o755)?;
        }
        atomic::write(&path, &payload, &self.owner(), self.now)?;
        Ok(Some((Prepared { path, read_only: true }, payload.refresh)))
    }

    /// Files that come from the API.
    async fn files(&self, volume: &Volume) -> Result<Option<(&'static str, Payload)>, VolumeError> {
        let mut payload = Payload::default();
        if let Some(source) = &volume.config_map {
            let map = self.config_map(&source.name, source.optional).await?;
            payload.config_map(
                &source.name,
                map.as_ref(),
                source.items.as_deref(),
                source.default_mode,
                source.optional,
            )?;
            return Ok(Some(("configmap", payload)));
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.clone().unwrap_or_default();
            let secret = self.secret(&name, source.optional).await?;
            payload.secret(&name, secret.as_ref(), source.items.as_deref(), source.default_mode, source.optional)?;
            return Ok(Some(("secret", payload)));
        }
        if let Some(source) = &volume.downward_api {
            payload.downward(&self.facts, source.items.as_deref().unwrap_or_default(), source.default_mode)?;
            return Ok(Some(("downward-api", payload)));
        }
        let Some(projected) = &volume.projected else { return Ok(None) };
        let mode = projected.default_mode;
        for source in projected.sources.iter().flatten() {
            if let Some(source) = &source.config_map {
                let map = self.config_map(&source.name, source.optional).await?;
                payload.config_map(&source.name, map.as_ref(), source.items.as_deref(), mode, source.optional)?;
            } else if let Some(source) = &source.secret {
                let secret = self.secret(&source.name, source.optional).await?;
                payload.secret(&source.name, secret.as_ref(), source.items.as_deref(), mode, source.optional)?;
            } else if let Some(source) = &source.downward_api {
                payload.downward(&self.facts, source.items.as_deref().unwrap_or_default(), mode)?;
            } else if let Some(source) = &source.service_account_token {
                let token = token::request(self, source).await?;
                payload.token(source, &token, mode, self.now)?;
            } else {
                return Err(VolumeError::Unsupported(format!("volume {:?}: a projected source", volume.name)));
            }
        }
        Ok(Some(("projected", payload)))
    }

    async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<Option<ConfigMap>, VolumeError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace());
        required("configmap", name, optional, api.get_opt(name).await)
    }

    async fn secret(&self, name: &str, optional: Option<bool>) -> Result<Option<Secret>, VolumeError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace());
        required("secret", name, optional, api.get_opt(name).await)
    }

    fn namespace(&self) -> &str {
        self.facts.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn path(&self, kind: &str, name: &str) -> Result<PathBuf, VolumeError> {
        let uid = Segment::new(self.facts.pod.metadata.uid.as_deref().unwrap_or_default())?;
        let folder = self.root.join("pods").join(uid).join("volumes").join(format!("kubernetes.io~{kind}"));
        Ok(folder.join(Segment::new(name)?))
    }

    fn owner(&self) -> Owner {
        let context = self.spec.security_context.as_ref();
        let group = context.and_then(|context| context.fs_group).and_then(|group| u32::try_from(group).ok());
        let only_root = context.and_then(|context| context.fs_group_change_policy.as_deref()) == Some("OnRootMismatch");
        match self.user {
            Some(user) => Owner { uid: Some(user), gid: Some(user), only_root: false },
            None => Owner { uid: None, gid: group, only_root },
        }
    }
}

fn required<T>(
    kind: &'static str,
    name: &str,
    optional: Option<bool>,
    found: Result<Option<T>, kube::Error>,
) -> Result<Option<T>, VolumeError> {
    match found.map_err(VolumeError::Api)? {
        None if optional != Some(true) => Err(VolumeError::Missing { kind, name: name.to_owned() }),
        found => Ok(found),
    }
}

/// Removes all volumes of a pod: unmounts what is mounted, and deletes the directories that belong to the pod. Claims, host
/// paths and images do not belong to it.
pub(super) fn remove(root: &Path, uid: &str) -> Result<(), VolumeError> {
    let folder = record::folder(root, uid);
    mounting::unmount_below(&folder)?;
    for name in ["volumes", "volume-subpaths", "containers"] {
        mounting::remove_folder(&folder.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
