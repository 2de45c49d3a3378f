//! What Kubernetes asks of a pod's spec, as far as somebody makes a path, an argument, a mount or a rule of a firewall of it.
//! Whatever runs a pod may rely on it: a name that is a DNS label leads to no other directory.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use structural::{FieldError, Reason};

use super::containers;
use crate::bounds::{MOST_TOLD, cut};
use crate::names::{self, NameRule};

const BACKSTEPS: &str = "must not contain '..'";
const HIGHEST_ID: i64 = 2_147_483_647;
const HIGHEST_MODE: i64 = 0o777;
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// What is wrong with a pod's spec.
pub(super) fn check(spec: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let volumes = check_volumes(&spec["volumes"], &mut problems);
    containers::check(spec, &volumes, &mut problems);
    for (field, rule) in [
        ("hostname", NameRule::Label),
        ("subdomain", NameRule::Label),
        ("nodeName", NameRule::Subdomain),
        ("serviceAccountName", NameRule::Subdomain),
    ] {
        if let Some(name) = text(&spec[field]) {
            problems.name(&format!("spec.{field}"), rule, name);
        }
    }
    check_security(&spec["securityContext"], &mut problems);
    check_hosts(spec, &mut problems);
    problems.0
}

/// Problems as they are found; of many the first.
#[derive(Default)]
pub(super) struct Problems(Vec<FieldError>);

impl Problems {
    fn add(&mut self, field: &str, reason: Reason, message: String) {
        if self.0.len() < MOST_TOLD {
            self.0.push(FieldError { field: field.to_owned(), reason, message });
        }
    }

    pub(super) fn required(&mut self, field: &str) {
        self.add(field, Reason::Required, "Required value".to_owned());
    }

    pub(super) fn invalid(&mut self, field: &str, value: impl Into<Value>, problem: &str) {
        self.add(field, Reason::Invalid, format!("Invalid value: {}: {problem}", value.into()));
    }

    /// The same of a text, which may be long.
    pub(super) fn invalid_text(&mut self, field: &str, value: &str, problem: &str) {
        self.invalid(field, cut(value), problem);
    }

    pub(super) fn duplicate(&mut self, field: &str, value: &str) {
        self.add(field, Reason::Duplicate, format!("Duplicate value: {}", Value::from(cut(value))));
    }

    pub(super) fn not_found(&mut self, field: &str, value: &str) {
        self.add(field, Reason::NotFound, format!("Not found: {}", Value::from(cut(value))));
    }

    pub(super) fn forbidden(&mut self, field: &str, why: &str) {
        self.add(field, Reason::Forbidden, format!("Forbidden: {why}"));
    }

    pub(super) fn one_of(&mut self, field: &str, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            let all: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
            let message =
                format!("Unsupported value: {}: supported values: {}", Value::from(cut(value)), all.join(", "));
            self.add(field, Reason::NotSupported, message);
        }
    }

    pub(super) fn name(&mut self, field: &str, rule: NameRule, name: &str) {
        for problem in names::name(rule, name) {
            self.invalid_text(field, name, &problem);
        }
    }

    /// A name that must be there, be a label, and be the only one of its kind.
    pub(super) fn own_name<'a>(&mut self, field: &str, name: &'a str, taken: &mut BTreeSet<&'a str>) {
        if name.is_empty() {
            return self.required(field);
        }
        self.name(field, NameRule::Label, name);
        if !taken.insert(name) {
            self.duplicate(field, name);
        }
    }

    /// A path below a directory that is not the client's.
    pub(super) fn descending(&mut self, field: &str, path: &str) {
        if path.starts_with('/') {
            self.invalid_text(field, path, "must be a relative path");
        }
        self.no_backsteps(field, path);
    }

    pub(super) fn no_backsteps(&mut self, field: &str, path: &str) {
        if path.split('/').any(|part| part == "..") {
            self.invalid_text(field, path, BACKSTEPS);
        }
    }

    pub(super) fn between(&mut self, field: &str, value: &Value, least: i64, most: i64) {
        if let Some(number) = value.as_i64().filter(|number| !(least..=most).contains(number)) {
            self.invalid(field, number, &format!("must be between {least} and {most}, inclusive"));
        }
    }
}

/// A text that is there.
pub(super) fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

/// Gives the names that mounts may use.
fn check_volumes<'a>(volumes: &'a Value, problems: &mut Problems) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in items(volumes) {
        let path = format!("spec.volumes[{index}]");
        problems.own_name(&format!("{path}.name"), volume["name"].as_str().unwrap_or_default(), &mut names);
        let kinds: Vec<&String> = volume.as_object().into_iter().flatten().map(|(key, _)| key).collect();
        let mut kinds = kinds.into_iter().filter(|key| *key != "name");
        match kinds.next() {
            None => problems.required(&path),
            Some(kind) => check_source(&format!("{path}.{kind}"), kind, &volume[kind], problems),
        }
        for more in kinds {
            problems.forbidden(&format!("{path}.{more}"), "may not specify more than 1 volume type");
        }
    }
    names
}

fn check_source(path: &str, kind: &str, source: &Value, problems: &mut Problems) {
    let mut need = |field: &str| {
        if text(&source[field]).is_none() {
            problems.required(&format!("{path}.{field}"));
        }
    };
    match kind {
        "hostPath" => {
            need("path");
            problems.no_backsteps(&format!("{path}.path"), source["path"].as_str().unwrap_or_default());
            let kind = source["type"].as_str().unwrap_or_default();
            problems.one_of(&format!("{path}.type"), kind, &HOST_PATH_TYPES);
        }
        "persistentVolumeClaim" => need("claimName"),
        "secret" => {
            need("secretName");
            check_files(path, source, "items", problems);
        }
        "configMap" => {
            need("name");
            check_files(path, source, "items", problems);
        }
        "downwardAPI" => check_files(path, source, "items", problems),
        "projected" => check_projected(path, source, problems),
        "csi" => need("driver"),
        "nfs" => {
            need("server");
            need("path");
            let folder = source["path"].as_str().unwrap_or_default();
            if !folder.is_empty() && !folder.starts_with('/') {
                problems.invalid_text(&format!("{path}.path"), folder, "must be an absolute path");
            }
        }
        _ => {}
    }
}

/// Files that are made of keys, and their modes.
fn check_files(path: &str, source: &Value, list: &str, problems: &mut Problems) {
    check_mode(&format!("{path}.defaultMode"), &source["defaultMode"], problems);
    for (index, item) in items(&source[list]) {
        let path = format!("{path}.{list}[{index}]");
        let of_key = item.get("fieldRef").is_none() && item.get("resourceFieldRef").is_none();
        if of_key && !path.contains("downwardAPI") && text(&item["key"]).is_none() {
            problems.required(&format!("{path}.key"));
        }
        check_file(&format!("{path}.path"), &item["path"], problems);
        check_mode(&format!("{path}.mode"), &item["mode"], problems);
    }
}

/// A file's place in its volume. What begins with two dots is how the files are put there at once.
fn check_file(field: &str, path: &Value, problems: &mut Problems) {
    let Some(path) = text(path) else { return problems.required(field) };
    problems.descending(field, path);
    if path.starts_with("..") && path != ".." && !path.starts_with("../") {
        problems.invalid_text(field, path, "must not start with '..'");
    }
}

fn check_mode(field: &str, mode: &Value, problems: &mut Problems) {
    if let Some(mode) = mode.as_i64().filter(|mode| !(0..=HIGHEST_MODE).contains(mode)) {
        problems.invalid(field, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn check_projected(path: &str, source: &Value, problems: &mut Problems) {
    check_mode(&format!("{path}.defaultMode"), &source["defaultMode"], problems);
    for (index, source) in items(&source["sources"]) {
        for (kind, part) in source.as_object().into_iter().flatten() {
            let path = format!("{path}.sources[{index}].{kind}");
            match kind.as_str() {
                "secret" | "configMap" | "downwardAPI" => {
                    if kind != "downwardAPI" && text(&part["name"]).is_none() {
                        problems.required(&format!("{path}.name"));
                    }
                    check_files(&path, part, "items", problems);
                }
                "serviceAccountToken" | "clusterTrustBundle" => {
                    check_file(&format!("{path}.path"), &part["path"], problems);
                }
                _ => {}
            }
        }
    }
}

/// Whom processes run as, and what is set in their kernel's name.
fn check_security(context: &Value, problems: &mut Problems) {
    let path = "spec.securityContext";
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        problems.between(&format!("{path}.{field}"), &context[field], 0, HIGHEST_ID);
    }
    for (index, group) in items(&context["supplementalGroups"]) {
        problems.between(&format!("{path}.supplementalGroups[{index}]"), group, 0, HIGHEST_ID);
    }
    let mut names = BTreeSet::new();
    for (index, one) in items(&context["sysctls"]) {
        let field = format!("{path}.sysctls[{index}].name");
        match text(&one["name"]) {
            None => problems.required(&field),
            Some(name) if !is_sysctl(name) => problems.invalid_text(&field, name, SYSCTL),
            Some(name) if !names.insert(name) => problems.duplicate(&field, name),
            Some(_) => {}
        }
    }
}

const SYSCTL: &str = "must have at most 253 characters and match regex \
    ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn is_sysctl(name: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part = |part: &str| {
        part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || c == '-' || c == '_')
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}

/// What is written into the files by which a pod finds others.
fn check_hosts(spec: &Value, problems: &mut Problems) {
    const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    for (index, alias) in items(&spec["hostAliases"]) {
        let path = format!("spec.hostAliases[{index}]");
        let address = alias["ip"].as_str().unwrap_or_default();
        if !is_address(address) {
            problems.invalid_text(&format!("{path}.ip"), address, ADDRESS);
        }
        for (index, name) in items(&alias["hostnames"]) {
            let name = name.as_str().unwrap_or_default();
            problems.name(&format!("{path}.hostnames[{index}]"), NameRule::Subdomain, name);
        }
    }
    for (index, server) in items(&spec["dnsConfig"]["nameservers"]) {
        let server = server.as_str().unwrap_or_default();
        if !is_address(server) {
            problems.invalid_text(&format!("spec.dnsConfig.nameservers[{index}]"), server, ADDRESS);
        }
    }
    for (index, search) in items(&spec["dnsConfig"]["searches"]) {
        let search = search.as_str().unwrap_or_default();
        // The root, and names that begin at it or have parts with underscores, are good here.
        let name = search.strip_suffix('.').unwrap_or(search).replace('_', "-");
        let is_part = |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && !part.is_empty();
        if search != "." && !name.split('.').all(is_part) {
            problems.name(&format!("spec.dnsConfig.searches[{index}]"), NameRule::Subdomain, search);
        }
    }
    for (index, option) in items(&spec["dnsConfig"]["options"]) {
        if text(&option["name"]).is_none() {
            problems.required(&format!("spec.dnsConfig.options[{index}]"));
        }
    }
}
