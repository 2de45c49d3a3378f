use std::collections::BTreeSet;

use super::*;
use crate::subresources::says::{paths, resources};

fn found(method: &Method, path: &str) -> Result<Matched, u16> {
    find(method, path).map_err(|problem| problem.into_response().status().as_u16())
}

/// Every route is found by its own path, in both versions, and by no other method.
#[test]
fn every_route_leads_to_itself() {
    for version in VERSIONS {
        for route in &ROUTES {
            let path = route.full_path(version).replace("{namespace}", "n").replace("{name}", "v");
            let path = path.replace("{port}", "22").replace("{protocol}", "tcp");
            let found_here = found(&route.method, &path).unwrap();
            assert_eq!((found_here.action, found_here.scope), (route.action, route.scope), "{path}");
            assert_eq!(found_here.subresource, route.subresource(), "{path}");
            let other = if route.method == Method::PUT { Method::GET } else { Method::PUT };
            assert_eq!(found(&other, &path).unwrap_err(), 405, "{path}");
            assert_eq!(found(&route.method, &format!("{path}/more/and/more")).unwrap_err(), 404, "{path}");
        }
    }
}

#[test]
fn what_varies_is_taken_out_of_the_path() {
    let base = "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b%2Dc";
    let found_here = found(&Method::GET, &format!("{base}/portforward/8080/tcp")).unwrap();
    assert_eq!((found_here.namespace.as_str(), found_here.name.as_str()), ("a", "b-c"));
    assert_eq!(
        (found_here.subresource.as_str(), found_here.values),
        ("portforward", vec!["8080".into(), "tcp".into()])
    );
    let found_here = found(&Method::GET, &format!("{base}/vnc/screenshot")).unwrap();
    assert_eq!(found_here.subresource, "vnc/screenshot");
}

#[test]
fn what_is_not_there_is_not_found() {
    for path in [
        "/apis/subresources.kubevirt.io/v2/version",
        "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines/v",
        "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines//start",
        "/apis/subresources.kubevirt.io/v1/namespaces/n/pods/p/start",
        "/apis/kubevirt.io/v1/version",
        "/apis/subresources.kubevirt.io/v1/%ff",
        "/",
    ] {
        assert_eq!(found(&Method::GET, path).unwrap_err(), 404, "{path}");
    }
}

#[test]
fn discovery_names_each_once() {
    let names: Vec<String> = resources().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    let unique: BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    for name in ["virtualmachines/start", "virtualmachineinstances/vnc/screenshot", "expand-vm-spec", "version"] {
        assert!(unique.contains(&name.to_owned()), "{name}");
    }
    assert_eq!(paths("v1").len(), ROUTES.len());
}
