//! Volumes, claims on them, and the storage group.

use serde_json::Value;

use super::parts::{annotation, at, flag, has, is_deleted, items, joined, name_or_default, or, size, text, texts};
use super::{AGE, Cell, NAME};

pub(super) fn of(plural: &str) -> Option<&'static [Cell]> {
    Some(match plural {
        "csidrivers" => DRIVERS,
        "csinodes" => DRIVER_NODES,
        "storageclasses" => CLASSES,
        "volumeattachments" => ATTACHMENTS,
        "volumeattributesclasses" => ATTRIBUTES_CLASSES,
        _ => return None,
    })
}

const STATUS: Cell = Cell::text("Status", "Phase, or Terminating.", |object, _| match is_deleted(object) {
    true => "Terminating".into(),
    false => text(object, "/status/phase"),
});
const CLASS: Cell = Cell::text("StorageClass", "Storage class.", |object, _| {
    // The annotation is older, and still goes before the field.
    let old = annotation(object, "volume.beta.kubernetes.io/storage-class");
    old.map_or_else(|| text(object, "/spec/storageClassName"), Value::from)
});
const ATTRIBUTES_CLASS: Cell = Cell::text("VolumeAttributesClass", "Volume attributes class.", |object, _| {
    // Empty is a choice, absent is none.
    match has(object, "/spec/volumeAttributesClassName") {
        true => text(object, "/spec/volumeAttributesClassName"),
        false => "<unset>".into(),
    }
});
const MODE: Cell =
    Cell::text("VolumeMode", "Filesystem or Block.", |object, _| or(object, "/spec/volumeMode", "<unset>").into())
        .wide();

pub(super) const VOLUMES: &[Cell] = &[
    NAME,
    Cell::text("Capacity", "Capacity.", |object, _| or(object, "/spec/capacity/storage", "0").into()),
    Cell::text("Access Modes", "Access modes.", |object, _| modes(object, "/spec/accessModes").into()),
    Cell::text("Reclaim Policy", "What happens to the volume when its claim is deleted.", |object, _| {
        text(object, "/spec/persistentVolumeReclaimPolicy")
    }),
    STATUS,
    Cell::text("Claim", "Claim that is bound to it.", |object, _| claim(object).into()),
    CLASS,
    ATTRIBUTES_CLASS,
    Cell::text("Reason", "Reason of its phase.", |object, _| text(object, "/status/reason")),
    AGE,
    MODE,
];

pub(super) const CLAIMS: &[Cell] = &[
    NAME,
    STATUS,
    Cell::text("Volume", "Volume that is bound to it.", |object, _| text(object, "/spec/volumeName")),
    Cell::text("Capacity", "Capacity of the volume.", |object, _| match at(object, "/spec/volumeName") {
        "" => "".into(),
        _ => or(object, "/status/capacity/storage", "0").into(),
    }),
    Cell::text("Access Modes", "Access modes.", |object, _| match at(object, "/spec/volumeName") {
        "" => "".into(),
        _ => modes(object, "/status/accessModes").into(),
    }),
    CLASS,
    ATTRIBUTES_CLASS,
    AGE,
    MODE,
];

const CLASSES: &[Cell] = &[
    Cell::text("Name", "Name of the object.", |object, _| {
        let keys = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        name_or_default(object, &keys)
    })
    .named(),
    Cell::text("Provisioner", "Provisioner of its volumes.", |object, _| text(object, "/provisioner")),
    Cell::text("ReclaimPolicy", "What happens to a volume when its claim is deleted.", |object, _| {
        or(object, "/reclaimPolicy", "Delete").into()
    }),
    Cell::text("VolumeBindingMode", "When volumes are bound to claims.", |object, _| {
        or(object, "/volumeBindingMode", "Immediate").into()
    }),
    Cell::text("AllowVolumeExpansion", "Whether volumes can be expanded.", |object, _| {
        flag(object, "/allowVolumeExpansion", false).into()
    }),
    AGE,
];

const ATTRIBUTES_CLASSES: &[Cell] =
    &[NAME, Cell::text("DriverName", "Driver of the attributes.", |object, _| text(object, "/driverName")), AGE];

const ATTACHMENTS: &[Cell] = &[
    NAME,
    Cell::text("Attacher", "Driver that attaches the volume.", |object, _| text(object, "/spec/attacher")).named(),
    Cell::text("PV", "Volume that is attached.", |object, _| text(object, "/spec/source/persistentVolumeName")),
    Cell::text("Node", "Node that the volume is attached to.", |object, _| text(object, "/spec/nodeName")),
    Cell::boolean("Attached", "Whether the volume is attached.", |object, _| {
        flag(object, "/status/attached", false).into()
    }),
    AGE,
];

const DRIVER_NODES: &[Cell] =
    &[NAME, Cell::integer("Drivers", "Number of drivers.", |object, _| size(object, "/spec/drivers")), AGE];

const DRIVERS: &[Cell] = &[
    NAME,
    Cell::boolean("AttachRequired", "Whether its volumes must be attached.", |object, _| {
        flag(object, "/spec/attachRequired", true).into()
    }),
    Cell::boolean("PodInfoOnMount", "Whether it gets information about the pod on mount.", |object, _| {
        flag(object, "/spec/podInfoOnMount", false).into()
    }),
    Cell::boolean("StorageCapacity", "Whether it reports its storage capacity.", |object, _| {
        flag(object, "/spec/storageCapacity", false).into()
    }),
    Cell::text("TokenRequests", "Audiences of the tokens that it gets.", |object, _| {
        match has(object, "/spec/tokenRequests") {
            true => joined(object, "/spec/tokenRequests", "/audience"),
            false => "<unset>".into(),
        }
    }),
    Cell::boolean("RequiresRepublish", "Whether it is asked to republish periodically.", |object, _| {
        flag(object, "/spec/requiresRepublish", false).into()
    }),
    Cell::text("Modes", "Volume lifecycle modes that it supports.", |object, _| {
        let modes = texts(items(object, "/spec/volumeLifecycleModes"), "");
        if modes.is_empty() { "<none>".into() } else { modes.join(",").into() }
    }),
    AGE,
];

fn modes(object: &Value, pointer: &str) -> String {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let modes = items(object, pointer);
    let short = SHORT.iter().filter(|(mode, _)| modes.iter().any(|found| found == mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}

fn claim(object: &Value) -> String {
    let claim = &object["spec"]["claimRef"];
    if claim.is_null() { String::new() } else { format!("{}/{}", at(claim, "/namespace"), at(claim, "/name")) }
}
