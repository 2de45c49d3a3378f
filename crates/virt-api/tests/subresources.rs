//! No route of KubeVirt's is missing.
//!
//! The contract (`../shared/api`) is not part of the project. Where it is absent, this test reports as ignored.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde_json::Value;
use testkit::{Harness, Need, needs, tests};
use virt_api::subresources::{GROUP, VERSIONS, paths};

fn main() -> ExitCode {
    Harness::default().needing(&[Need::Shared("api")]).run(tests![every_route_of_kubevirt_is_there])
}

fn every_route_of_kubevirt_is_there() {
    let text = std::fs::read_to_string(needs::shared("api").join("subresources.json")).unwrap();
    let contract: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let routes = |of: &serde_json::Map<String, Value>| -> BTreeSet<(String, String)> {
        let below = |path: &&String| VERSIONS.iter().any(|one| path.starts_with(&format!("/apis/{GROUP}/{one}/")));
        let named = of.iter().filter(|(path, _)| below(path) && !path.ends_with('/'));
        named
            .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|verb| (path.clone(), verb.clone())))
            .collect()
    };
    let ours: BTreeSet<(String, String)> = VERSIONS.iter().flat_map(|version| routes(&paths(version))).collect();
    assert_eq!(ours, routes(&contract));
}
