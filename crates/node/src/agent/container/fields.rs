//! What a pod may ask about itself: its fields, and its containers' resources.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use api::quantity::Amount;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What the answers come from.
#[derive(Clone, Copy)]
pub(in crate::agent) struct Facts<'a> {
    pub(in crate::agent) pod: &'a Pod,
    pub(in crate::agent) addresses: &'a [IpAddr],
    pub(in crate::agent) node_addresses: &'a [IpAddr],
    /// What a container without a limit is limited by.
    pub(in crate::agent) allocatable: &'a BTreeMap<String, Amount>,
    /// Where pods reach the API.
    pub(in crate::agent) api_server: Option<SocketAddr>,
}

/// The value of a field; none if there is no such field.
pub(in crate::agent) fn field(facts: &Facts<'_>, path: &str) -> Option<String> {
    let metadata = &facts.pod.metadata;
    let spec = facts.pod.spec.as_ref();
    let text = |value: &Option<String>| Some(value.clone().unwrap_or_default());
    let join = |list: &[IpAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let first = |list: &[IpAddr]| list.first().map(ToString::to_string).unwrap_or_default();
    match path {
        "metadata.name" => text(&metadata.name),
        "metadata.namespace" => text(&metadata.namespace),
        "metadata.uid" => text(&metadata.uid),
        "metadata.labels" => Some(lines(metadata.labels.as_ref())),
        "metadata.annotations" => Some(lines(metadata.annotations.as_ref())),
        "spec.nodeName" => text(&spec?.node_name),
        "spec.serviceAccountName" => text(&spec?.service_account_name),
        "status.podIP" => Some(first(facts.addresses)),
        "status.podIPs" => Some(join(facts.addresses)),
        "status.hostIP" => Some(first(facts.node_addresses)),
        "status.hostIPs" => Some(join(facts.node_addresses)),
        _ => {
            let of = |map: Option<&BTreeMap<String, String>>, key: &str| {
                map.and_then(|map| map.get(key)).cloned().unwrap_or_default()
            };
            let inside = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
            inside("metadata.labels")
                .map(|key| of(metadata.labels.as_ref(), key))
                .or_else(|| inside("metadata.annotations").map(|key| of(metadata.annotations.as_ref(), key)))
        }
    }
}

/// One line per entry, as `name="value"`.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let mut out = String::new();
    for (key, value) in map.into_iter().flatten() {
        let _infallible = writeln!(out, "{key}={value:?}");
    }
    out
}

/// The amount of a resource in units of the divisor, rounded up; none if there is no such resource.
pub(in crate::agent) fn resource(
    facts: &Facts<'_>,
    container: &Container,
    asked: &ResourceFieldSelector,
) -> Option<String> {
    let (kind, name) = asked.resource.split_once('.')?;
    let of = |list: Option<&BTreeMap<String, Quantity>>| {
        list.and_then(|list| list.get(name)).and_then(|quantity| quantity.0.parse::<Amount>().ok())
    };
    let resources = container.resources.as_ref();
    let limit = of(resources.and_then(|resources| resources.limits.as_ref()));
    let amount = match kind {
        "limits" => limit.or_else(|| facts.allocatable.get(name).copied())?,
        "requests" => of(resources.and_then(|resources| resources.requests.as_ref())).or(limit).unwrap_or_default(),
        _ => return None,
    };
    let divisor = asked.divisor.as_ref().and_then(|divisor| divisor.0.parse::<Amount>().ok());
    let divisor = divisor.map(Amount::milli_units).filter(|divisor| *divisor > 0).unwrap_or(1000);
    let amount = amount.milli_units();
    Some(((amount + divisor - 1) / divisor).to_string())
}
