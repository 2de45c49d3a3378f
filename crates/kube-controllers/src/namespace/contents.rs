//! What can be in a namespace, and how it is deleted.

use std::collections::BTreeSet;

use kube::core::ApiResource;
use kube::discovery::verbs;

use crate::discovery::Groups;

/// A kind of object that can be in a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Content {
    pub(super) resource: ApiResource,
    /// Whether all of them can be deleted by one request.
    pub(super) as_collection: bool,
}

/// Each resource once, in the version that the server prefers; pods first.
pub(super) fn contents(groups: &Groups) -> Vec<Content> {
    let mut contents = Vec::new();
    for group in groups.iter() {
        let name = group.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default();
        let mut seen = BTreeSet::new();
        for version in &group.versions {
            let number = version.version.as_deref().unwrap_or_default();
            for found in &version.resources {
                let plural = found.resource.as_deref().unwrap_or_default();
                let can = |verb: &str| found.verbs.iter().any(|one| one == verb);
                if found.scope.as_deref() != Some("Namespaced") || !can(verbs::LIST) || !can(verbs::DELETE) {
                    continue;
                }
                if !seen.insert(plural) {
                    continue;
                }
                let kind = found.response_kind.as_ref().and_then(|kind| kind.kind.clone()).unwrap_or_default();
                let api_version = if name.is_empty() { number.to_owned() } else { format!("{name}/{number}") };
                let (group, version, plural) = (name.to_owned(), number.to_owned(), plural.to_owned());
                let resource = ApiResource { group, version, api_version, kind, plural };
                contents.push(Content { resource, as_collection: can(verbs::DELETE_COLLECTION) });
            }
        }
    }
    contents.sort_by_key(|content| !super::is_pods(&content.resource));
    contents
}

#[cfg(test)]
mod tests {
    use kube::core::discovery::v2::APIGroupDiscovery;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_resource_of_a_namespace_is_emptied_once_in_its_preferred_version() {
        let resource =
            |plural: &str, scope: &str, verbs: &[&str]| json!({ "resource": plural, "scope": scope, "verbs": verbs });
        let all = &["delete", "deletecollection", "list"];
        let groups: Vec<APIGroupDiscovery> = serde_json::from_value(json!([
            { "metadata": {}, "versions": [{ "version": "v1", "resources": [
                resource("services", "Namespaced", &["delete", "list"]),
                resource("nodes", "Cluster", all),
                resource("pods", "Namespaced", all),
                resource("bindings", "Namespaced", &["create"]),
            ] }] },
            { "metadata": { "name": "example.com" }, "versions": [
                { "version": "v2", "resources": [resource("foos", "Namespaced", all)] },
                { "version": "v1", "resources": [resource("foos", "Namespaced", all), resource("bars", "Namespaced", all)] },
            ] },
        ]))
        .unwrap();
        let found: Vec<_> = contents(&groups.into())
            .into_iter()
            .map(|one| (one.resource.api_version, one.resource.plural, one.as_collection))
            .collect();
        let content =
            |version: &str, plural: &str, as_collection| (version.to_owned(), plural.to_owned(), as_collection);
        assert_eq!(
            found,
            [
                content("v1", "pods", true),
                content("v1", "services", false),
                content("example.com/v2", "foos", true),
                content("example.com/v1", "bars", true),
            ]
        );
    }
}
