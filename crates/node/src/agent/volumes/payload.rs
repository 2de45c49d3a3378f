//! The files of a volume that comes from the API.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Secret, ServiceAccountTokenProjection};

use super::VolumeError;
use super::token::Token;
use crate::agent::container::fields::{Facts, field, resource};
use crate::agent::view;

const MODE: u32 = 0o644;

/// Files by their path in the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) files: BTreeMap<String, File>,
    /// When they have to be made again.
    pub(super) refresh: Option<Timestamp>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
}

impl Payload {
    /// Adds a file. No path leads out of the volume, or into what the volume keeps for itself.
    pub(super) fn add(&mut self, path: &str, bytes: Vec<u8>, mode: u32) -> Result<(), VolumeError> {
        let normal = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || !normal || path.starts_with("..") {
            return Err(VolumeError::Escapes(path.to_owned()));
        }
        self.files.insert(path.to_owned(), File { bytes, mode: mode & 0o777 });
        Ok(())
    }

    pub(super) fn config_map(
        &mut self,
        name: &str,
        map: Option<&ConfigMap>,
        items: Option<&[KeyToPath]>,
        mode: Option<i32>,
        optional: Option<bool>,
    ) -> Result<(), VolumeError> {
        let text = map.iter().flat_map(|map| map.data.iter().flatten());
        let text = text.map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let binary = map.iter().flat_map(|map| map.binary_data.iter().flatten());
        let binary = binary.map(|(key, value)| (key.clone(), value.0.clone()));
        self.keys(("configmap", name), &text.chain(binary).collect(), items, mode, optional)
    }

    pub(super) fn secret(
        &mut self,
        name: &str,
        secret: Option<&Secret>,
        items: Option<&[KeyToPath]>,
        mode: Option<i32>,
        optional: Option<bool>,
    ) -> Result<(), VolumeError> {
        let data = secret.iter().flat_map(|secret| secret.data.iter().flatten());
        let data = data.map(|(key, value)| (key.clone(), value.0.clone())).collect();
        self.keys(("secret", name), &data, items, mode, optional)
    }

    /// All keys, or those that are named.
    fn keys(
        &mut self,
        (kind, name): (&'static str, &str),
        data: &BTreeMap<String, Vec<u8>>,
        items: Option<&[KeyToPath]>,
        mode: Option<i32>,
        optional: Option<bool>,
    ) -> Result<(), VolumeError> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            return data.iter().try_for_each(|(key, bytes)| self.add(key, bytes.clone(), bits(mode)));
        };
        for item in items {
            match data.get(&item.key) {
                Some(bytes) => self.add(&item.path, bytes.clone(), bits(item.mode.or(mode)))?,
                None if optional == Some(true) => {}
                None => {
                    return Err(VolumeError::NoKey { kind, name: name.to_owned(), key: item.key.clone() });
                }
            }
        }
        Ok(())
    }

    pub(super) fn downward(
        &mut self,
        facts: &Facts<'_>,
        items: &[DownwardAPIVolumeFile],
        mode: Option<i32>,
    ) -> Result<(), VolumeError> {
        for item in items {
            let text = if let Some(reference) = &item.field_ref {
                field(facts, &reference.field_path).ok_or_else(|| VolumeError::Field(reference.field_path.clone()))?
            } else if let Some(reference) = &item.resource_field_ref {
                let name = reference.container_name.as_deref().unwrap_or_default();
                let spec = facts.pod.spec.as_ref();
                let container = spec.and_then(|spec| view::containers(spec).find(|one| one.name == name));
                let value = container.and_then(|container| resource(facts, container, reference));
                value.ok_or_else(|| VolumeError::Field(reference.resource.clone()))?
            } else {
                return Err(VolumeError::Field(item.path.clone()));
            };
            self.add(&item.path, text.into_bytes(), bits(item.mode.or(mode)))?;
        }
        Ok(())
    }

    /// A token is renewed when four fifths of its time are over.
    pub(super) fn token(
        &mut self,
        source: &ServiceAccountTokenProjection,
        token: &Token,
        mode: Option<i32>,
        now: Timestamp,
    ) -> Result<(), VolumeError> {
        let life = Duration::try_from(token.expires.duration_since(now)).unwrap_or_default();
        let renewal = now + life.mul_f64(0.8);
        self.refresh = Some(self.refresh.map_or(renewal, |known| known.min(renewal)));
        self.add(&source.path, token.text.clone().into_bytes(), bits(mode))
    }
}

fn bits(mode: Option<i32>) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(MODE)
}
