//! What Kubernetes asks of a pod's containers: their names, mounts, environment and ports.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::rules::{Problems, items, text};

const VARIABLE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
const HIGHEST_ID: i64 = 2_147_483_647;

/// Checks all containers of a pod, which may use these volumes. No two of them have the same name.
pub(super) fn check(spec: &Value, volumes: &BTreeSet<&str>, problems: &mut Problems) {
    let mut names = BTreeSet::new();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (index, container) in items(&spec[list]) {
            let path = format!("spec.{list}[{index}]");
            let name = container["name"].as_str().unwrap_or_default();
            problems.own_name(&format!("{path}.name"), name, &mut names);
            check_image(&format!("{path}.image"), &container["image"], problems);
            check_mounts(&path, container, volumes, problems);
            check_environment(&path, container, problems);
            check_ports(&path, container, problems);
            for field in ["runAsUser", "runAsGroup"] {
                let value = &container["securityContext"][field];
                problems.between(&format!("{path}.securityContext.{field}"), value, 0, HIGHEST_ID);
            }
            if let Some(mount) = text(&container["securityContext"]["procMount"]) {
                problems.one_of(&format!("{path}.securityContext.procMount"), mount, &["Default", "Unmasked"]);
            }
            if let Some(target) = text(&container["targetContainerName"]).filter(|target| !names.contains(target)) {
                problems.not_found(&format!("{path}.targetContainerName"), target);
            }
        }
    }
}

fn check_image(field: &str, image: &Value, problems: &mut Problems) {
    match text(image) {
        None => problems.required(field),
        Some(image) if image.trim() != image => {
            problems.invalid_text(field, image, "must not have leading or trailing whitespace");
        }
        Some(_) => {}
    }
}

fn check_mounts(path: &str, container: &Value, volumes: &BTreeSet<&str>, problems: &mut Problems) {
    let mut places = BTreeSet::new();
    for (list, target) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
        for (index, mount) in items(&container[list]) {
            let path = format!("{path}.{list}[{index}]");
            match text(&mount["name"]) {
                None => problems.required(&format!("{path}.name")),
                Some(name) if !volumes.contains(name) => problems.not_found(&format!("{path}.name"), name),
                Some(_) => {}
            }
            let field = format!("{path}.{target}");
            match text(&mount[target]) {
                None => problems.required(&field),
                Some(place) if !places.insert(place) => problems.invalid_text(&field, place, "must be unique"),
                Some(place) if list == "volumeDevices" => problems.no_backsteps(&field, place),
                Some(_) => {}
            }
            check_part(&path, mount, problems);
        }
    }
}

/// The part of a volume that is mounted, by name or by expression.
fn check_part(path: &str, mount: &Value, problems: &mut Problems) {
    let (plain, expression) = (text(&mount["subPath"]), text(&mount["subPathExpr"]));
    if let Some(part) = plain {
        problems.descending(&format!("{path}.subPath"), part);
    }
    if let Some(part) = expression {
        let field = format!("{path}.subPathExpr");
        if plain.is_some() {
            problems.invalid_text(&field, part, "subPathExpr and subPath are mutually exclusive");
        }
        problems.descending(&field, part);
    }
    if let Some(propagation) = text(&mount["mountPropagation"]) {
        let supported = ["Bidirectional", "HostToContainer", "None"];
        problems.one_of(&format!("{path}.mountPropagation"), propagation, &supported);
    }
}

fn check_environment(path: &str, container: &Value, problems: &mut Problems) {
    for (index, variable) in items(&container["env"]) {
        let field = format!("{path}.env[{index}].name");
        match text(&variable["name"]) {
            None => problems.required(&field),
            Some(name) if !name.chars().all(|c| (' '..='~').contains(&c) && c != '=') => {
                problems.invalid_text(&field, name, VARIABLE);
            }
            Some(_) => {}
        }
    }
}

fn check_ports(path: &str, container: &Value, problems: &mut Problems) {
    let mut names = BTreeSet::new();
    for (index, port) in items(&container["ports"]) {
        let path = format!("{path}.ports[{index}]");
        if let Some(name) = text(&port["name"]) {
            let field = format!("{path}.name");
            for problem in port_name(name) {
                problems.invalid_text(&field, name, problem);
            }
            if !names.insert(name) {
                problems.duplicate(&field, name);
            }
        }
        match port["containerPort"].as_i64().unwrap_or_default() {
            0 => problems.required(&format!("{path}.containerPort")),
            _ => problems.between(&format!("{path}.containerPort"), &port["containerPort"], 1, 65_535),
        }
        problems.between(&format!("{path}.hostPort"), &port["hostPort"], 0, 65_535);
        if let Some(protocol) = port["protocol"].as_str() {
            problems.one_of(&format!("{path}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        }
        if let Some(address) = text(&port["hostIP"]).filter(|address| address.parse::<IpAddr>().is_err()) {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            problems.invalid_text(&format!("{path}.hostIP"), address, why);
        }
    }
}

/// What is wrong with the name of a port.
fn port_name(name: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.contains(|c: char| c.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen");
    }
    problems
}
