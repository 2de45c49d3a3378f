//! The built-in resources: the table of facts, and the little that it does not tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Content, Resource, Subresource, Version, table_name};
use crate::facts::{ResourceFact, facts};
use crate::names::NameRule;
use crate::store::FieldPath;
use crate::strategy;

/// Subresources that stream to or from a node: whoever runs nodes serves them.
const ELSEWHERE: [&str; 7] =
    ["nodes/proxy", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy", "pods/resize"];

/// Reads that answer from elsewhere than the store.
const VIRTUAL: [&str; 1] = ["componentstatuses"];

/// Kinds whose generation counts changes of their spec.
const WITH_GENERATION: [&str; 26] = [
    "apiservices",
    "controllerrevisions",
    "csidrivers",
    "customresourcedefinitions",
    "cronjobs",
    "daemonsets",
    "deployments",
    "endpointslices",
    "flowschemas",
    "ingressclasses",
    "ingresses",
    "jobs",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "networkpolicies",
    "poddisruptionbudgets",
    "pods",
    "priorityclasses",
    "prioritylevelconfigurations",
    "replicasets",
    "replicationcontrollers",
    "resourceslices",
    "statefulsets",
    "validatingadmissionpolicies",
    "validatingwebhookconfigurations",
];

/// What can be selected by, besides name and namespace. The first of namespaces is what the writer looks at.
const FIELDS: [(&str, &[&str]); 12] = [
    ("certificatesigningrequests", &["spec.signerName"]),
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("jobs", &["status.successful"]),
    ("namespaces", &["status.phase"]),
    ("nodes", &["spec.unschedulable"]),
    (
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    ("replicasets", &["status.replicas"]),
    ("replicationcontrollers", &["status.replicas"]),
    ("resourceslices", &["spec.driver", "spec.nodeName"]),
    ("secrets", &["type"]),
    ("services", &["spec.clusterIP", "spec.type"]),
    ("deployments", &[]),
];

const PATH_SEGMENT: [&str; 6] =
    ["clusterrolebindings", "clusterroles", "rolebindings", "roles", "certificatesigningrequests", "apiservices"];

pub(super) fn resources() -> Vec<Resource> {
    let mut all: BTreeMap<(&str, &str), (Resource, Vec<Version>)> = BTreeMap::new();
    for fact in &facts().resources {
        let (plural, sub) = fact.name.split_once('/').map_or((fact.name, None), |(plural, sub)| (plural, Some(sub)));
        if ELSEWHERE.contains(&fact.name) || VIRTUAL.contains(&plural) {
            continue;
        }
        match sub {
            None => add(&mut all, fact),
            Some(sub) => {
                let versions = all.get_mut(&(fact.group, plural)).map(|(_, versions)| versions);
                let version = versions.and_then(|all| all.iter_mut().find(|version| version.name == fact.version));
                if let Some(version) = version {
                    version.subresources.push(subresource(sub, fact));
                }
            }
        }
    }
    let complete = |(resource, versions): (Resource, Vec<Version>)| {
        let versions = versions.into_iter().map(Arc::new).collect();
        Resource { versions, ..resource }
    };
    all.into_values().map(complete).collect()
}

fn add(all: &mut BTreeMap<(&'static str, &'static str), (Resource, Vec<Version>)>, fact: &ResourceFact) {
    let Some(id) = facts().of_kind(fact.group, fact.version, fact.kind) else { return };
    let version = Version {
        name: fact.version.to_owned(),
        content: Content::BuiltIn(id),
        subresources: Vec::new(),
        deprecation: deprecation(fact),
    };
    if let Some((known, versions)) = all.get_mut(&(fact.group, fact.name)) {
        // Later versions come later in the table; they are preferred, and can hold all that earlier ones can.
        known.storage_version.clone_from(&version.name);
        versions.insert(0, version);
        return;
    }
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    let resource = Resource {
        group: fact.group.to_owned(),
        plural: fact.name.to_owned(),
        singular: fact.singular.to_owned(),
        kind: fact.kind.to_owned(),
        list_kind: format!("{}List", fact.kind),
        short_names: owned(&fact.short_names),
        categories: owned(&fact.categories),
        namespaced: fact.namespaced,
        verbs: fact.verbs.clone(),
        table: shared_table(fact),
        versions: Vec::new(),
        storage_version: fact.version.to_owned(),
        fields: fields(fact),
        name_rule: name_rule(fact.name),
        generation: WITH_GENERATION.contains(&fact.name),
        strategy: strategy::of(fact.group, fact.name),
        since: 0,
        definition: None,
        fingerprint: None,
    };
    all.insert((fact.group, fact.name), (resource, vec![version]));
}

/// Events are one kind with two faces.
fn shared_table(fact: &ResourceFact) -> crate::store::Table {
    match (fact.group, fact.name) {
        ("events.k8s.io", "events") => "events".into(),
        (group, name) => table_name(group, name),
    }
}

fn subresource(name: &str, fact: &ResourceFact) -> Subresource {
    let of = fact.of.map(|(group, version)| (group.to_owned(), version.to_owned()));
    Subresource { name: name.to_owned(), kind: fact.kind.to_owned(), of, verbs: fact.verbs.clone() }
}

fn fields(fact: &ResourceFact) -> Arc<[FieldPath]> {
    let found = FIELDS.iter().find(|(name, _)| *name == fact.name);
    let paths = found.map_or(&[][..], |(_, paths)| paths);
    paths
        .iter()
        .map(|path| match *path {
            "source" => FieldPath::new("source.component").called("source").or("reportingComponent"),
            "spec.hostNetwork" | "spec.unschedulable" => FieldPath::new(path).absent_as("false"),
            "status.successful" | "status.replicas" => FieldPath::new(path).absent_as("0"),
            path => FieldPath::new(path),
        })
        .collect()
}

fn name_rule(plural: &str) -> NameRule {
    match plural {
        "namespaces" => NameRule::Label,
        "services" => NameRule::Dns1035,
        other if PATH_SEGMENT.contains(&other) => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

fn deprecation(fact: &ResourceFact) -> Option<String> {
    match (fact.group, fact.name) {
        ("", "endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned())
        }
        _ => None,
    }
}
