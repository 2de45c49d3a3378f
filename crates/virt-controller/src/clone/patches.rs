//! What a clone changes of the VM: labels and annotations by filters, MAC addresses, the firmware's numbers, and the user's own.

use std::collections::BTreeMap;

use api::clone::VirtualMachineCloneSpec;
use api::names::annotation;
use api::vm::VirtualMachineSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

const INTERFACES: &str = "/spec/template/spec/domain/devices/interfaces";
const FIRMWARE: &str = "/spec/template/spec/domain/firmware";
/// What a restored VM never has, or always.
const NOT_FILTERED: [&str; 2] = [annotation::LAST_RESTORE_UID, annotation::GUEST];

/// JSON patch operations, each a text, in the order in which they are applied.
#[must_use]
pub fn of(clone: &VirtualMachineCloneSpec, metadata: &ObjectMeta, spec: &VirtualMachineSpec) -> Vec<String> {
    let mut patches = Vec::new();
    addresses(clone, spec, &mut patches);
    firmware(clone, spec, &mut patches);
    let none = BTreeMap::new();
    let annotations: BTreeMap<String, String> = metadata.annotations.clone().unwrap_or_default();
    let annotations = annotations.into_iter().filter(|(name, _)| !NOT_FILTERED.contains(&name.as_str())).collect();
    let template = spec.template.metadata.as_ref();
    let filters = clone.template.as_ref();
    for (all, filters, path) in [
        (metadata.labels.as_ref(), clone.label_filters.as_ref(), "/metadata/labels"),
        (Some(&annotations), clone.annotation_filters.as_ref(), "/metadata/annotations"),
        (
            template.and_then(|template| template.labels.as_ref()),
            filters.and_then(|filters| filters.label_filters.as_ref()),
            "/spec/template/metadata/labels",
        ),
        (
            template.and_then(|template| template.annotations.as_ref()),
            filters.and_then(|filters| filters.annotation_filters.as_ref()),
            "/spec/template/metadata/annotations",
        ),
    ] {
        let Some(filters) = filters else { continue };
        let gone = all.unwrap_or(&none).keys().filter(|name| !passes(name, filters));
        patches.extend(gone.map(|name| json!({ "op": "remove", "path": format!("{path}/{}", escaped(name)) })));
    }
    let own = clone.patches.iter().flatten().cloned();
    patches.iter().map(Value::to_string).chain(own).collect()
}

/// Whether a name is kept. Filters that exclude have the last word.
#[must_use]
pub fn passes(name: &str, filters: &[String]) -> bool {
    let (excluding, including): (Vec<&String>, Vec<&String>) = filters.iter().partition(|one| one.starts_with('!'));
    including.iter().any(|filter| matches(name, filter))
        && !excluding.iter().any(|filter| matches(name, filter.trim_start_matches('!')))
}

/// Each `*` stands for any text.
fn matches(name: &str, filter: &str) -> bool {
    let mut parts = filter.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Two guests never share an address: those without a new one get another when they start.
fn addresses(clone: &VirtualMachineCloneSpec, spec: &VirtualMachineSpec, patches: &mut Vec<Value>) {
    let devices = spec.template.spec.as_ref().map(|spec| &spec.domain.devices);
    let interfaces = devices.and_then(|devices| devices.interfaces.as_deref()).unwrap_or_default();
    for (index, interface) in interfaces.iter().enumerate() {
        let path = format!("{INTERFACES}/{index}/macAddress");
        let new = clone.new_mac_addresses.as_ref().and_then(|all| all.get(&interface.name));
        match new {
            Some(new) => patches.push(json!({ "op": "add", "path": path, "value": new })),
            None if interface.mac_address.is_some() => patches.push(json!({ "op": "remove", "path": path })),
            None => {}
        }
    }
}

fn firmware(clone: &VirtualMachineCloneSpec, spec: &VirtualMachineSpec, patches: &mut Vec<Value>) {
    let Some(firmware) = spec.template.spec.as_ref().and_then(|spec| spec.domain.firmware.as_ref()) else { return };
    let path = format!("{FIRMWARE}/serial");
    match &clone.new_sm_bios_serial {
        Some(serial) => patches.push(json!({ "op": "add", "path": path, "value": serial })),
        None if firmware.serial.is_some() => patches.push(json!({ "op": "remove", "path": path })),
        None => {}
    }
    if firmware.uuid.is_some() {
        patches.push(json!({ "op": "remove", "path": format!("{FIRMWARE}/uuid") }));
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn filters_include_and_exclude() {
        let table: [(&[&str], &str, bool); 9] = [
            (&["*"], "any/thing", true),
            (&[], "any", false),
            (&["some*"], "someone", true),
            (&["some*"], "awesome", false),
            (&["*", "!some/*"], "some/key", false),
            (&["*", "!some/*"], "other/key", true),
            (&["!some/*"], "other/key", false),
            (&["exact"], "exact", true),
            (&["exact"], "exactly", false),
        ];
        for (filters, name, kept) in table {
            let filters: Vec<String> = filters.iter().map(|&one| one.to_owned()).collect();
            assert_eq!(passes(name, &filters), kept, "{filters:?} {name}");
        }
    }

    proptest! {
        #[test]
        fn what_is_excluded_is_never_kept(name in "[a-c/]{0,8}", filters in prop::collection::vec("!?[a-c/*]{0,4}", 0..5)) {
            let excluded = filters.iter().filter_map(|one| one.strip_prefix('!')).any(|one| one == "*" || one == name);
            prop_assert!(!(excluded && passes(&name, &filters)));
            prop_assert!(matches(&name, "*") && matches(&name, &name));
        }
    }
}
