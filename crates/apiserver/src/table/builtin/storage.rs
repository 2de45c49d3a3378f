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

const STATUS: Cell = Cell::text("Status", "Whether it is bound, or going.", |object, _| match is_deleted(object) {
    true => "Terminating".into(),
    false => text(object, "/status/phase"),
});
const CLASS: Cell = Cell::text("StorageClass", "Its storage class.", |object, _| {
    // The annotation is older, and still goes before the field.
    let old = annotation(object, "volume.beta.kubernetes.io/storage-class");
    old.map_or_else(|| text(object, "/spec/storageClassName"), Value::from)
});
const ATTRIBUTES_CLASS: Cell = Cell::text("VolumeAttributesClass", "Its class of attributes.", |object, _| {
    // Empty is a choice, absent is none.
    match has(object, "/spec/volumeAttributesClassName") {
        true => text(object, "/spec/volumeAttributesClassName"),
        false => "<unset>".into(),
    }
});
const MODE: Cell = Cell::text("VolumeMode", "Whether it is a file system or a disk.", |object, _| {
    or(object, "/spec/volumeMode", "<unset>").into()
})
.wide();

pub(super) const VOLUMES: &[Cell] = &[
    NAME,
    Cell::text("Capacity", "How large it is.", |object, _| or(object, "/spec/capacity/storage", "0").into()),
    Cell::text("Access Modes", "Who may mount it.", |object, _| modes(object, "/spec/accessModes").into()),
    Cell::text("Reclaim Policy", "What happens when its claim is gone.", |object, _| {
        text(object, "/spec/persistentVolumeReclaimPolicy")
    }),
    STATUS,
    Cell::text("Claim", "Whose it is.", |object, _| claim(object).into()),
    CLASS,
    ATTRIBUTES_CLASS,
    Cell::text("Reason", "Why it is in this state.", |object, _| text(object, "/status/reason")),
    AGE,
    MODE,
];

pub(super) const CLAIMS: &[Cell] = &[
    NAME,
    STATUS,
    Cell::text("Volume", "The volume it has.", |object, _| text(object, "/spec/volumeName")),
    Cell::text("Capacity", "How large that is.", |object, _| match at(object, "/spec/volumeName") {
        "" => "".into(),
        _ => or(object, "/status/capacity/storage", "0").into(),
    }),
    Cell::text("Access Modes", "Who may mount it.", |object, _| match at(object, "/spec/volumeName") {
        "" => "".into(),
        _ => modes(object, "/status/accessModes").into(),
    }),
    CLASS,
    ATTRIBUTES_CLASS,
    AGE,
    MODE,
];

const CLASSES: &[Cell] = &[
    Cell::text("Name", "The object's name.", |object, _| {
        let keys = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        name_or_default(object, &keys)
    })
    .named(),
    Cell::text("Provisioner", "Who makes its volumes.", |object, _| text(object, "/provisioner")),
    Cell::text("ReclaimPolicy", "What happens to a volume whose claim is gone.", |object, _| {
        or(object, "/reclaimPolicy", "Delete").into()
    }),
    Cell::text("VolumeBindingMode", "When a claim gets its volume.", |object, _| {
        or(object, "/volumeBindingMode", "Immediate").into()
    }),
    Cell::text("AllowVolumeExpansion", "Whether volumes may grow.", |object, _| {
        flag(object, "/allowVolumeExpansion", false).into()
    }),
    AGE,
];

const ATTRIBUTES_CLASSES: &[Cell] =
    &[NAME, Cell::text("DriverName", "Whose attributes they are.", |object, _| text(object, "/driverName")), AGE];

const ATTACHMENTS: &[Cell] = &[
    NAME,
    Cell::text("Attacher", "Who attaches.", |object, _| text(object, "/spec/attacher")).named(),
    Cell::text("PV", "The volume.", |object, _| text(object, "/spec/source/persistentVolumeName")),
    Cell::text("Node", "Where to.", |object, _| text(object, "/spec/nodeName")),
    Cell::boolean("Attached", "Whether it is.", |object, _| flag(object, "/status/attached", false).into()),
    AGE,
];

const DRIVER_NODES: &[Cell] =
    &[NAME, Cell::integer("Drivers", "How many drivers it has.", |object, _| size(object, "/spec/drivers")), AGE];

const DRIVERS: &[Cell] = &[
    NAME,
    Cell::boolean("AttachRequired", "Whether its volumes are attached first.", |object, _| {
        flag(object, "/spec/attachRequired", true).into()
    }),
    Cell::boolean("PodInfoOnMount", "Whether it is told for which pod.", |object, _| {
        flag(object, "/spec/podInfoOnMount", false).into()
    }),
    Cell::boolean("StorageCapacity", "Whether it tells how much room it has.", |object, _| {
        flag(object, "/spec/storageCapacity", false).into()
    }),
    Cell::text("TokenRequests", "For whom it gets tokens.", |object, _| match has(object, "/spec/tokenRequests") {
        true => joined(object, "/spec/tokenRequests", "/audience"),
        false => "<unset>".into(),
    }),
    Cell::boolean("RequiresRepublish", "Whether it is called again and again.", |object, _| {
        flag(object, "/spec/requiresRepublish", false).into()
    }),
    Cell::text("Modes", "What lives of its volumes it supports.", |object, _| {
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
