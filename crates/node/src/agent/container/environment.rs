//! A container's own variables.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Secret};

use super::MakeError;
use super::expand::expand;
use super::fields::{Facts, field, resource};

/// Config maps and secrets that containers name; those that do not exist are not there.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct Sources {
    pub(in crate::agent) config_maps: BTreeMap<String, ConfigMap>,
    pub(in crate::agent) secrets: BTreeMap<String, Secret>,
}

/// Names of config maps, and of secrets, that a container's variables come from.
pub(in crate::agent) fn references(container: &Container) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    for from in container.env_from.iter().flatten() {
        maps.extend(from.config_map_ref.iter().map(|one| one.name.clone()));
        secrets.extend(from.secret_ref.iter().map(|one| one.name.clone()));
    }
    for from in container.env.iter().flatten().filter_map(|one| one.value_from.as_ref()) {
        maps.extend(from.config_map_key_ref.iter().map(|one| one.name.clone()));
        secrets.extend(from.secret_key_ref.iter().map(|one| one.name.clone()));
    }
    (maps, secrets)
}

/// How programs in a pod find the API. What the pod itself says comes later, and counts more.
fn of_api_server(address: SocketAddr) -> impl Iterator<Item = (String, String)> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    [("HOST", host), ("PORT", port.clone()), ("PORT_HTTPS", port)]
        .map(|(what, value)| (format!("KUBERNETES_SERVICE_{what}"), value))
        .into_iter()
}

/// Its variables, in order: whole maps first, then one by one, later ones over earlier ones.
pub(in crate::agent) fn environment(
    container: &Container,
    sources: &Sources,
    facts: &Facts<'_>,
) -> Result<Vec<(String, String)>, MakeError> {
    let mut env: Vec<(String, String)> = facts.api_server.into_iter().flat_map(of_api_server).collect();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(map) = &from.config_map_ref {
            let found = sources.config_maps.get(&map.name);
            require("configmap", &map.name, map.optional, found.is_some())?;
            let data = found.iter().flat_map(|map| map.data.iter().flatten());
            data.for_each(|(key, value)| set(&mut env, format!("{prefix}{key}"), value.clone()));
        }
        if let Some(secret) = &from.secret_ref {
            let found = sources.secrets.get(&secret.name);
            require("secret", &secret.name, secret.optional, found.is_some())?;
            let data = found.iter().flat_map(|secret| secret.data.iter().flatten());
            data.for_each(|(key, value)| set(&mut env, format!("{prefix}{key}"), text(&value.0)));
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            Some(from) => value_from(&variable.name, from, container, sources, facts)?,
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &env)),
        };
        if let Some(value) = value {
            set(&mut env, variable.name.clone(), value);
        }
    }
    Ok(env)
}

/// None: it is optional, and not there.
fn value_from(
    name: &str,
    from: &EnvVarSource,
    container: &Container,
    sources: &Sources,
    facts: &Facts<'_>,
) -> Result<Option<String>, MakeError> {
    if let Some(reference) = &from.field_ref {
        let unknown = || MakeError::Field { name: name.to_owned(), path: reference.field_path.clone() };
        return field(facts, &reference.field_path).ok_or_else(unknown).map(Some);
    }
    if let Some(reference) = &from.resource_field_ref {
        let unknown = || MakeError::Resource { name: name.to_owned(), resource: reference.resource.clone() };
        return resource(facts, container, reference).ok_or_else(unknown).map(Some);
    }
    if let Some(reference) = &from.config_map_key_ref {
        let map = sources.config_maps.get(&reference.name);
        let value = map.and_then(|map| map.data.as_ref()).and_then(|data| data.get(&reference.key)).cloned();
        return key("configmap", &reference.name, &reference.key, reference.optional, map.is_some(), value);
    }
    if let Some(reference) = &from.secret_key_ref {
        let secret = sources.secrets.get(&reference.name);
        let value = secret.and_then(|secret| secret.data.as_ref()).and_then(|data| data.get(&reference.key));
        let value = value.map(|bytes| text(&bytes.0));
        return key("secret", &reference.name, &reference.key, reference.optional, secret.is_some(), value);
    }
    Err(MakeError::Field { name: name.to_owned(), path: "valueFrom".to_owned() })
}

fn key(
    kind: &'static str,
    name: &str,
    key: &str,
    optional: Option<bool>,
    there: bool,
    value: Option<String>,
) -> Result<Option<String>, MakeError> {
    require(kind, name, optional, there)?;
    if value.is_none() && optional != Some(true) {
        return Err(MakeError::NoKey { kind, name: name.to_owned(), key: key.to_owned() });
    }
    Ok(value)
}

fn require(kind: &'static str, name: &str, optional: Option<bool>, there: bool) -> Result<(), MakeError> {
    if there || optional == Some(true) { Ok(()) } else { Err(MakeError::NoSource { kind, name: name.to_owned() }) }
}

fn set(env: &mut Vec<(String, String)>, name: String, value: String) {
    match env.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => env.push((name, value)),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
