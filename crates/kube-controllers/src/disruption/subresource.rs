//! The scale subresource of kinds that no cache knows: a kind of the user's own may have one.

use http::Request;
use k8s_openapi::api::autoscaling::v1::Scale as ScaleObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;

use super::Scale;
use crate::discovery::{Discovery, Groups};

/// Asks for scales.
pub(super) struct Scales {
    client: Client,
    discovery: Discovery,
}

/// What is served of a kind.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    NotServed,
    WithoutScale { resource: String },
    Scaled { plural: String },
}

impl Scales {
    pub(super) fn new(client: Client) -> Self {
        Self { discovery: Discovery::new(client.clone()), client }
    }

    /// The scale of an object, or why it has none.
    pub(super) async fn ask(&self, namespace: &str, reference: &OwnerReference) -> Result<Scale, kube::Error> {
        let OwnerReference { api_version, kind, name, uid, .. } = reference;
        let plural = match served(&self.discovery.groups().await?, api_version, kind) {
            Kind::Scaled { plural } => plural,
            Kind::NotServed => {
                return Ok(Scale::Failed(format!("no matches for kind \"{kind}\" in version \"{api_version}\"")));
            }
            Kind::WithoutScale { resource } => {
                return Ok(Scale::Failed(format!("{resource} does not implement the scale subresource")));
            }
        };
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let path = format!("/{root}/{api_version}/namespaces/{namespace}/{plural}/{name}/scale");
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        match self.client.request::<ScaleObject>(request).await {
            Ok(scale) if scale.metadata.uid.as_ref() == Some(uid) => {
                let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
                Ok(Scale::Known { owner: uid.clone(), replicas })
            }
            Ok(_) => Ok(Scale::NotFound),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Scale::NotFound),
            Err(error) => Err(error),
        }
    }
}

fn served(groups: &Groups, api_version: &str, kind: &str) -> Kind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_group = |name: Option<&String>| name.map_or("", String::as_str) == group;
    let groups =
        groups.iter().filter(|one| is_group(one.metadata.as_ref().and_then(|metadata| metadata.name.as_ref())));
    let versions = groups.flat_map(|one| &one.versions).filter(|one| one.version.as_deref() == Some(version));
    let found = versions
        .flat_map(|one| &one.resources)
        .find(|resource| resource.response_kind.as_ref().is_some_and(|found| found.kind.as_deref() == Some(kind)));
    let Some(resource) = found else { return Kind::NotServed };
    let plural = resource.resource.clone().unwrap_or_default();
    if resource.subresources.iter().any(|one| one.subresource.as_deref() == Some("scale")) {
        return Kind::Scaled { plural };
    }
    let resource = if group.is_empty() { plural } else { format!("{plural}.{group}") };
    Kind::WithoutScale { resource }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_found_by_group_version_and_kind() {
        let group = json!({
            "metadata": { "name": "example.com" },
            "versions": [{
                "version": "v1",
                "resources": [
                    {
                        "resource": "fleets", "scope": "Namespaced", "singularResource": "fleet", "verbs": ["get"],
                        "responseKind": { "group": "example.com", "version": "v1", "kind": "Fleet" },
                        "subresources": [{
                            "subresource": "scale", "verbs": ["get"],
                            "responseKind": { "group": "autoscaling", "version": "v1", "kind": "Scale" },
                        }],
                    },
                    {
                        "resource": "ships", "scope": "Namespaced", "singularResource": "ship", "verbs": ["get"],
                        "responseKind": { "group": "example.com", "version": "v1", "kind": "Ship" },
                    },
                ],
            }],
        });
        let groups = Groups::from(vec![serde_json::from_value(group).unwrap()]);
        let found = |version: &str, kind: &str| served(&groups, version, kind);
        assert_eq!(found("example.com/v1", "Fleet"), Kind::Scaled { plural: "fleets".to_owned() });
        assert_eq!(found("example.com/v1", "Ship"), Kind::WithoutScale { resource: "ships.example.com".to_owned() });
        assert_eq!(found("example.com/v2", "Fleet"), Kind::NotServed);
        assert_eq!(found("v1", "Fleet"), Kind::NotServed);
    }
}
