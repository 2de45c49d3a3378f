//! Every field that the schema of an instance has, put into a small instance with values that mean something somewhere.

use api::vmi::VirtualMachineInstance;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// Words of the API, in whatever field they stand, and some that are none.
const WORDS: &[&str] = &[
    "",
    "root",
    "default",
    "v",
    "a,b",
    "a b",
    "a\nb",
    "/a/b",
    "0000:01:02.0",
    "a.b/c",
    "plugin",
    "virtio",
    "sata",
    "scsi",
    "usb",
    "ide",
    "none",
    "writethrough",
    "writeback",
    "native",
    "threads",
    "stop",
    "report",
    "ignore",
    "enospace",
    "open",
    "closed",
    "tablet",
    "keyboard",
    "poweroff",
    "reset",
    "shutdown",
    "hyperv",
    "isa",
    "pvpanic",
    "vga",
    "bochs",
    "cirrus",
    "ramfb",
    "ich9",
    "ac97",
    "e1000",
    "e1000e",
    "rtl8139",
    "up",
    "down",
    "absent",
    "02:00:00:00:00:01",
    "01-00-00-00-00-01",
    "TCP",
    "UDP",
    "10.1.0.0/24",
    "fd00::/64",
    "10.1.0.0/31",
    "q35",
    "q35x",
    "pc",
    "pc-q35-7.2",
    "pc-i440fx-7.2",
    "virt",
    "amd64",
    "arm64",
    "s390x",
    "host-model",
    "host-passthrough",
    "Haswell",
    "qemu64,+vmx",
    "vmx",
    "force",
    "require",
    "optional",
    "disable",
    "forbid",
    "delay",
    "catchup",
    "merge",
    "discard",
    "guest",
    "wall",
    "UTC",
    "Europe/Berlin",
    "5d307ca9-b3ef-428c-8861-06e72d69f223",
    "2Mi",
    "Paused",
    "None",
    "LiveMigrate",
    "Disk",
    "DiskOrCreate",
    "Always",
    "shared",
    "auto",
    "supplementalPool",
    "dXNlcg==",
    "MemoryDump",
];
const AMOUNTS: &[&str] = &["0", "1", "1000000", "1M", "1Mi", "64Mi", "1Gi", "2Gi", "17Ti", "12E", "100m", "-1"];
const NUMBERS: &[i64] = &[0, 1, 2, 3, 4, 5, 17, 80, 255, 256, 512, 4096, 65536, 70000, 2_097_152, 86_401];

/// Fields of which an object has one at most.
const EXCLUSIVE: &[(&str, &[&str])] = &[
    ("/spec/domain/devices/disks/0", &["disk", "cdrom", "lun"]),
    (
        "/spec/domain/devices/interfaces/0",
        &["masquerade", "bridge", "sriov", "passtBinding", "binding", "slirp", "passt", "macvtap"],
    ),
    ("/spec/networks/0", &["pod", "multus", "resourceClaim"]),
    (
        "/spec/volumes/0",
        &[
            "cloudInitConfigDrive",
            "cloudInitNoCloud",
            "configMap",
            "containerDisk",
            "containerPath",
            "dataVolume",
            "downwardAPI",
            "downwardMetrics",
            "emptyDisk",
            "ephemeral",
            "hostDisk",
            "memoryDump",
            "persistentVolumeClaim",
            "secret",
            "serviceAccount",
            "sysprep",
        ],
    ),
    ("/spec/domain/firmware/bootloader", &["bios", "efi"]),
    ("/spec/domain/clock", &["timezone", "utc"]),
];

/// A value for one field.
#[derive(Clone, Debug)]
pub(crate) struct Graft {
    path: Vec<String>,
    value: Value,
}

/// Up to three fields with values, or one that is there many times.
pub(crate) fn grafts() -> BoxedStrategy<Vec<Graft>> {
    let schema = api::schema::structural::<VirtualMachineInstance>();
    let mut fields = Vec::new();
    below(&schema["properties"]["spec"], &mut vec!["spec".to_owned()], &mut fields);
    let one = select(fields)
        .prop_flat_map(|(path, schema)| values(&schema, 2).prop_map(move |value| Graft { path: path.clone(), value }));
    prop_oneof![4 => prop::collection::vec(one, 1..=3), 1 => crowds().prop_map(|graft| vec![graft])].boxed()
}

/// More devices than a guest may have room for.
fn crowds() -> impl Strategy<Value = Graft> {
    let input = |index: usize| json!({ "name": format!("i{index}"), "type": "tablet", "bus": "usb" });
    let keys = |index: usize| json!({ "name": format!("i{index}"), "type": "tablet", "bus": "virtio" });
    let panic = |_| json!({ "model": "pvpanic" });
    let crowd = move |count: usize, sort: usize| match sort {
        0 => ("inputs", (0..count).map(input).collect::<Vec<_>>()),
        1 => ("inputs", (0..count).map(keys).collect()),
        _ => ("panicDevices", (0..count).map(panic).collect()),
    };
    (0..40usize, 0..3usize).prop_map(move |(count, sort)| {
        let (field, devices) = crowd(count, sort);
        let path = ["spec", "domain", "devices", field].map(str::to_owned).to_vec();
        Graft { path, value: devices.into() }
    })
}

/// Whether there is something in it that could be acted on.
pub(crate) fn is_filled(graft: &Graft) -> bool {
    !matches!(&graft.value, Value::Null) && graft.value != json!([]) && graft.value != json!("")
}

impl Graft {
    pub(crate) fn field(&self) -> String {
        self.path.join(".")
    }

    /// Puts it into an object, in place of what it excludes. A list that it goes through has one element.
    pub(crate) fn apply(&self, object: &mut Value) {
        let mut at = object;
        let mut pointer = String::new();
        for part in &self.path {
            if let Ok(index) = part.parse::<usize>() {
                if at.as_array().is_none_or(|list| list.len() <= index) {
                    *at = json!([{ "name": "default" }]);
                }
                at = &mut at[index];
            } else {
                if !at.is_object() {
                    *at = json!({});
                }
                let others =
                    EXCLUSIVE.iter().filter(|(place, fields)| *place == pointer && fields.contains(&part.as_str()));
                for other in others.flat_map(|(_, fields)| *fields).filter(|other| **other != part) {
                    at.as_object_mut().unwrap().remove(*other);
                }
                at = &mut at[part.as_str()];
            }
            pointer.push('/');
            pointer.push_str(part);
        }
        *at = self.value.clone();
    }
}

/// Every field at or below a schema, with its own schema.
fn below(schema: &Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, Value)>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, property) in properties {
            path.push(name.clone());
            found.push((path.clone(), property.clone()));
            below(property, path, found);
            path.pop();
        }
    } else if schema["items"].is_object() {
        path.push("0".to_owned());
        below(&schema["items"], path, found);
        path.pop();
    }
}

fn values(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    if let Some(Value::Array(allowed)) = schema.get("enum") {
        return select(allowed.clone()).boxed();
    }
    if schema.get("x-kubernetes-int-or-string").is_some() {
        return select(AMOUNTS).prop_map(Value::from).boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => select(NUMBERS).prop_map(Value::from).boxed(),
        Some("string") => select(WORDS).prop_map(Value::from).boxed(),
        Some("array") => prop::collection::vec(values(&schema["items"], depth), 0..=2).prop_map(Value::from).boxed(),
        Some("object") => object(schema, depth),
        other => panic!("a schema of type {other:?}"),
    }
}

fn object(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut all = Just(json!({})).boxed();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let must = required.iter().any(|required| required == name);
        if !must && depth == 0 {
            continue;
        }
        let value = values(property, depth.saturating_sub(1));
        let value = if must { value.prop_map(Some).boxed() } else { prop::option::weighted(0.3, value).boxed() };
        let name = name.clone();
        all = (all, value)
            .prop_map(move |(mut all, value)| {
                if let Some(value) = value {
                    all[&name] = value;
                }
                all
            })
            .boxed();
    }
    all
}
