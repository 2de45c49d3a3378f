//! What clients are told about the group: its versions, its resources and its paths.

use http::Method;
use serde_json::{Map, Value, json};

use super::routes::{ROUTES, Route, Scope};

/// The group.
pub const GROUP: &str = "subresources.kubevirt.io";
/// Its versions, the preferred one first. They are the same.
pub const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];
/// The release of KubeVirt whose API this is.
const RELEASE: &str = "v1.7.0";

/// The entries of discovery's `APIResourceList`. As KubeVirt's they have no verbs: nothing of them can be listed or deleted, and
/// clients that look for such kinds pass them over.
#[must_use]
pub fn resources() -> Vec<Value> {
    let mut names: Vec<(String, bool)> = Vec::new();
    for route in &ROUTES {
        let name = match route.scope {
            Scope::Version | Scope::Namespace => route.subresource(),
            Scope::Vm => format!("virtualmachines/{}", route.subresource()),
            Scope::Instance => format!("virtualmachineinstances/{}", route.subresource()),
        };
        let entry = (name, route.scope != Scope::Version);
        if !names.contains(&entry) {
            names.push(entry);
        }
    }
    let entry = |(name, namespaced): (String, bool)| json!({ "name": name, "singularName": "", "namespaced": namespaced, "kind": "", "verbs": [] });
    names.into_iter().map(entry).collect()
}

/// The paths of a version, as OpenAPI has them.
#[must_use]
pub fn paths(version: &str) -> Map<String, Value> {
    ROUTES.iter().map(|route| (route.full_path(version), route.operations())).collect()
}

impl Route {
    /// With what varies in braces.
    pub(super) fn full_path(&self, version: &str) -> String {
        let base = format!("/apis/{GROUP}/{version}");
        match self.scope {
            Scope::Version => format!("{base}/{}", self.path),
            Scope::Namespace => format!("{base}/namespaces/{{namespace}}/{}", self.path),
            Scope::Vm => format!("{base}/namespaces/{{namespace}}/virtualmachines/{{name}}/{}", self.path),
            Scope::Instance => {
                format!("{base}/namespaces/{{namespace}}/virtualmachineinstances/{{name}}/{}", self.path)
            }
        }
    }

    fn operations(&self) -> Value {
        let path = self.full_path("");
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameters: Vec<Value> = names
            .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
            .collect();
        let operation = json!({
            "parameters": parameters,
            "responses": { "200": { "description": "OK" }, "401": { "description": "Unauthorized" } },
        });
        let method = if self.method == Method::PUT { "put" } else { "get" };
        [(method.to_owned(), operation)].into_iter().collect()
    }
}

/// The release of KubeVirt whose API this is, and ours.
#[must_use]
pub fn release() -> String {
    format!("{RELEASE}+orlop.{}", env!("CARGO_PKG_VERSION"))
}

/// What `virtctl version` shows of the server.
pub(super) fn version() -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "gitVersion": release(),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{architecture}", std::env::consts::OS),
    })
}
