//! The networking and discovery groups.

use serde_json::Value;

use super::parts::{at, first_of, items, name_or_default, or, text, texts};
use super::selectors::selector;
use super::services::balancers;
use super::{AGE, Cell, NAME};

pub(super) fn of(plural: &str) -> Option<&'static [Cell]> {
    Some(match plural {
        "endpointslices" => SLICES,
        "ingressclasses" => INGRESS_CLASSES,
        "ingresses" => INGRESSES,
        "ipaddresses" => ADDRESSES,
        "networkpolicies" => POLICIES,
        "servicecidrs" => RANGES,
        _ => return None,
    })
}

const INGRESSES: &[Cell] = &[
    NAME,
    Cell::text("Class", "Controller that implements it.", |object, _| {
        or(object, "/spec/ingressClassName", "<none>").into()
    }),
    Cell::text("Hosts", "Host names that it serves.", |object, _| hosts(object).into()),
    Cell::text("Address", "Address of the load balancer.", |object, _| {
        balancers(object).into_iter().collect::<Vec<_>>().join(",").into()
    }),
    Cell::text("Ports", "Ports that it serves.", |object, _| match items(object, "/spec/tls") {
        [] => "80".into(),
        _ => "80, 443".into(),
    }),
    AGE,
];

const INGRESS_CLASSES: &[Cell] = &[
    Cell::text("Name", "Name of the object.", |object, _| {
        name_or_default(object, &["ingressclass.kubernetes.io/is-default-class"])
    })
    .named(),
    Cell::text("Controller", "Controller that implements it.", |object, _| text(object, "/spec/controller")),
    Cell::text("Parameters", "Parameters of the class.", |object, _| parameters(object).into()),
    AGE,
];

const POLICIES: &[Cell] = &[
    NAME,
    Cell::text("Pod-Selector", "Labels of the pods that it applies to.", |object, _| {
        selector(object, "/spec/podSelector")
    }),
    AGE,
];

const RANGES: &[Cell] = &[
    NAME,
    Cell::text("CIDRs", "Address ranges for services.", |object, _| {
        texts(items(object, "/spec/cidrs"), "").join(",").into()
    }),
    AGE,
];

const ADDRESSES: &[Cell] =
    &[NAME, Cell::text("ParentRef", "Object that has the address.", |object, _| parent(object).into())];

const SLICES: &[Cell] = &[
    NAME,
    Cell::text("AddressType", "Type of the addresses.", |object, _| text(object, "/addressType")),
    Cell::text("Ports", "Ports of the endpoints.", |object, _| {
        let port = |port: &Value| or(port, "/port", at(port, "/name"));
        some(&items(object, "/ports").iter().map(port).collect::<Vec<_>>()).into()
    }),
    Cell::text("Endpoints", "Addresses of the endpoints.", |object, _| {
        let endpoints = items(object, "/endpoints").iter();
        let addresses = endpoints.flat_map(|endpoint| texts(items(endpoint, "/addresses"), ""));
        some(&addresses.map(str::to_owned).collect::<Vec<_>>()).into()
    }),
    AGE,
];

fn some(all: &[String]) -> String {
    let text = first_of(all, 3, ",");
    if text.is_empty() { "<unset>".to_owned() } else { text }
}

/// Three names at most; what is more is counted in rules, with or without a name, as Kubernetes does.
fn hosts(object: &Value) -> String {
    const MOST: usize = 3;
    let rules = items(object, "/spec/rules");
    let named = rules.iter().enumerate().filter(|(_, rule)| !at(rule, "/host").is_empty());
    let shown: Vec<_> = named.take(MOST).map(|(index, rule)| (index, at(rule, "/host"))).collect();
    let names = shown.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(",");
    match shown.last() {
        None => "*".to_owned(),
        Some((index, _)) if shown.len() == MOST && index + 1 < rules.len() => {
            format!("{names} + {} more...", rules.len() - MOST)
        }
        Some(_) => names,
    }
}

fn parameters(object: &Value) -> String {
    let parameters = &object["spec"]["parameters"];
    if parameters.is_null() {
        return "<none>".to_owned();
    }
    let (kind, name) = (at(parameters, "/kind"), at(parameters, "/name"));
    match at(parameters, "/apiGroup") {
        "" => format!("{kind}/{name}"),
        group => format!("{kind}.{group}/{name}"),
    }
}

fn parent(object: &Value) -> String {
    let parent = &object["spec"]["parentRef"];
    if parent.is_null() {
        return "<none>".to_owned();
    }
    let text = match (at(parent, "/resource"), at(parent, "/group")) {
        (resource, "") => resource.to_lowercase(),
        (resource, group) => format!("{resource}.{group}").to_lowercase(),
    };
    let parts = [at(parent, "/namespace"), at(parent, "/name")];
    parts.into_iter().filter(|part| !part.is_empty()).fold(text, |text, part| format!("{text}/{part}"))
}
