//! Services and the pods behind them: what the controllers of endpoints and of endpoint slices ask alike.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use manager::cache::{Cache, Changed, Key};

use crate::pods;

pub(crate) mod trigger;

/// On what belongs to a service without an address of its own.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// When the change happened that led to what was written last.
pub(crate) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The labels that a service's pods have; none for a service whose endpoints are somebody else's to write.
pub(crate) fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref()?;
    spec.selector.as_ref().filter(|_| spec.type_.as_deref() != Some("ExternalName"))
}

pub(crate) fn selects(service: &Service, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector(service).is_some_and(|wanted| {
        wanted.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    })
}

pub(crate) fn spec(service: &Service) -> std::borrow::Cow<'_, ServiceSpec> {
    service.spec.as_ref().map_or_else(|| std::borrow::Cow::Owned(ServiceSpec::default()), std::borrow::Cow::Borrowed)
}

/// Whether it has no address of its own.
pub(crate) fn is_headless(spec: &ServiceSpec) -> bool {
    matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"))
}

/// Whether a service may name no port: then its endpoints have none either.
pub(crate) fn has_no_ports(spec: &ServiceSpec) -> bool {
    spec.ports.as_ref().is_none_or(Vec::is_empty) && spec.cluster_ip.as_deref() == Some("None")
}

/// Whether a pod can be an endpoint at all: it has not ended, and has an address.
pub(crate) fn is_endpoint(pod: &Pod) -> bool {
    !pods::is_finished(pod) && !addresses(pod).is_empty()
}

/// The pod's addresses, as it tells them, in the form that people write.
pub(crate) fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let status = pod.status.as_ref();
    let all = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
    all.filter_map(|one| one.ip.parse().ok()).collect()
}

/// The name that the pod has in the service's domain.
pub(crate) fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let named = spec.hostname.as_ref().filter(|name| !name.is_empty())?;
    let within = spec.subdomain == service.metadata.name && pod.metadata.namespace == service.metadata.namespace;
    within.then(|| named.clone())
}

pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty())
}

/// The number that a port of the service has on a pod: a name is looked up in its containers.
pub(crate) fn target_port(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        Some(IntOrString::Int(number)) if *number != 0 => Some(*number),
        Some(IntOrString::String(name)) => named_port(name, port.protocol.as_deref().unwrap_or("TCP"), pod),
        // The API server fills in the port itself; so does this, for a server that does not.
        Some(IntOrString::Int(_)) | None => Some(port.port),
    }
}

fn named_port(name: &str, protocol: &str, pod: &Pod) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let mut all = spec.containers.iter().chain(sidecars).flat_map(ports);
    let found =
        all.find(|port| port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol);
    found.map(|port| port.container_port)
}

/// What of a pod its services are told: if this is the same, so are their endpoints.
#[derive(PartialEq)]
pub(crate) struct Visible<'a> {
    labels: Option<&'a BTreeMap<String, String>>,
    names: (Option<&'a String>, Option<&'a String>),
    node: Option<&'a str>,
    addresses: Vec<IpAddr>,
    phase: (bool, bool, bool),
    uid: Option<&'a String>,
}

impl<'a> Visible<'a> {
    pub(crate) fn of(pod: &'a Pod) -> Self {
        let spec = pod.spec.as_ref();
        Self {
            labels: pod.metadata.labels.as_ref(),
            names: (spec.and_then(|spec| spec.hostname.as_ref()), spec.and_then(|spec| spec.subdomain.as_ref())),
            node: node_name(pod),
            addresses: addresses(pod),
            phase: (pods::is_ready(pod), pods::is_finished(pod), pod.metadata.deletion_timestamp.is_some()),
            uid: pod.metadata.uid.as_ref(),
        }
    }
}

/// The services whose endpoints a change of a pod may change, by their names.
pub(crate) fn affected<'a>(
    old: Option<&Pod>,
    new: Option<&Pod>,
    services: impl Iterator<Item = &'a Service>,
) -> BTreeSet<String> {
    if let (Some(old), Some(new)) = (old, new)
        && Visible::of(old) == Visible::of(new)
    {
        return BTreeSet::new();
    }
    let concerned = |service: &&Service| [old, new].into_iter().flatten().any(|pod| selects(service, pod));
    services.filter(concerned).filter_map(|service| service.metadata.name.clone()).collect()
}

/// The keys of the services whose endpoints a change of a pod may change.
pub(crate) fn woken(services: &Cache<Service>, change: &Changed<Pod>) -> Vec<Key> {
    let namespace = &change.key.namespace;
    let near = services.find("namespace", namespace);
    let names = affected(change.old.as_deref(), change.new.as_deref(), near.iter().map(|service| &**service));
    names.into_iter().map(|name| Key { namespace: namespace.clone(), name }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: &Value) -> Service {
        serde_json::from_value(json!({ "metadata": { "name": "s", "namespace": "n" }, "spec": spec })).unwrap()
    }

    fn pod(spec: &Value, status: &Value) -> Pod {
        let metadata = json!({ "name": "p", "namespace": "n", "labels": { "app": "web", "more": "yes" } });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
    }

    #[test]
    fn a_service_without_a_selector_selects_nothing_and_one_with_an_empty_one_everything() {
        let pod = pod(&json!({ "containers": [] }), &json!({}));
        for (spec, selected) in [
            (json!({}), false),
            (json!({ "selector": {} }), true),
            (json!({ "selector": { "app": "web" } }), true),
            (json!({ "selector": { "app": "db" } }), false),
            (json!({ "selector": { "app": "web" }, "type": "ExternalName" }), false),
        ] {
            assert_eq!(selects(&service(&spec), &pod), selected, "{spec}");
        }
    }

    #[test]
    fn a_named_port_is_that_of_a_container_or_a_sidecar_of_the_same_protocol() {
        let ports = |name: &str, number: i32, protocol: &str| json!([{ "name": name, "containerPort": number, "protocol": protocol }]);
        let pod = pod(
            &json!({
                "containers": [
                    { "name": "a", "ports": ports("web", 1, "UDP") }, { "name": "b", "ports": ports("web", 2, "TCP") },
                ],
                "initContainers": [
                    { "name": "i", "ports": ports("init", 3, "TCP") },
                    { "name": "s", "ports": ports("side", 4, "TCP"), "restartPolicy": "Always" },
                ],
            }),
            &json!({}),
        );
        let number = |target: Value| {
            let port = json!({ "port": 80, "targetPort": target, "protocol": "TCP" });
            target_port(&serde_json::from_value(port).unwrap(), &pod)
        };
        assert_eq!(number(json!("web")), Some(2));
        assert_eq!(number(json!("side")), Some(4));
        assert_eq!(number(json!("init")), None);
        assert_eq!(number(json!(8080)), Some(8080));
        assert_eq!(number(Value::Null), Some(80));
    }

    #[test]
    fn only_what_endpoints_show_is_news_to_a_service() {
        let services =
            [service(&json!({ "selector": { "app": "web" } })), service(&json!({ "selector": { "app": "x" } }))];
        let told = |old: Option<&Pod>, new: Option<&Pod>| affected(old, new, services.iter()).len();
        let status = |ready: &str| json!({ "podIPs": [{ "ip": "10.0.0.1" }], "conditions": [{ "type": "Ready", "status": ready }] });
        let (ready, unready) =
            (pod(&json!({ "containers": [] }), &status("True")), pod(&json!({ "containers": [] }), &status("False")));
        let mut annotated = ready.clone();
        annotated.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        assert_eq!(told(None, Some(&ready)), 1);
        assert_eq!(told(Some(&ready), None), 1);
        assert_eq!(told(Some(&ready), Some(&unready)), 1);
        assert_eq!(told(Some(&ready), Some(&annotated)), 0);
        let mut moved = ready.clone();
        moved.metadata.labels = Some([("app".to_owned(), "x".to_owned())].into());
        assert_eq!(affected(Some(&ready), Some(&moved), services.iter()).len(), 1, "both services have one name");
    }

    #[test]
    fn a_hostname_is_of_the_service_that_is_the_pods_domain() {
        let spec = |domain: &str| json!({ "containers": [], "hostname": "h", "subdomain": domain });
        let service = service(&json!({}));
        assert_eq!(hostname(&pod(&spec("s"), &json!({})), &service).as_deref(), Some("h"));
        assert_eq!(hostname(&pod(&spec("t"), &json!({})), &service), None);
        assert_eq!(hostname(&pod(&json!({ "containers": [], "hostname": "h" }), &json!({})), &service), None);
    }
}
