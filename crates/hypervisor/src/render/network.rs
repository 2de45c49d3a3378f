//! Network interfaces, and what they are attached to.

use serde_json::{Map, Value, json};

use super::{Part, set};
use crate::guest::{DeviceId, Interface};
use crate::keyval::Keyval;
use crate::refusal::Refusals;
use crate::wiring::{Attachment, Forward};

const PATH: &str = "spec.domain.devices.interfaces";

pub(super) fn interface(
    refusals: &mut Refusals,
    parts: &mut Vec<Part>,
    properties: &mut Map<String, Value>,
    (id, name): (&DeviceId, &str),
    interface: &Interface,
    attachment: Option<&Attachment>,
) -> Option<()> {
    let Some(attachment) = attachment else {
        refusals.refuse(PATH, format!("network {name:?} does not exist"));
        return None;
    };
    parts.push(backend(refusals, id, interface.is_virtio, attachment)?);
    let driver = if interface.is_virtio { "virtio-net-pci" } else { "e1000" };
    set(
        properties,
        [("driver", driver.into()), ("netdev", id.as_str().into()), ("mac", interface.mac.as_str().into())],
    );
    match interface.boot_order {
        // Without a boot order no ROM is loaded: it would cost a second of every boot.
        None => set(properties, [("romfile", "".into())]),
        Some(order) => set(properties, [("bootindex", order.into())]),
    }
    Some(())
}

fn backend(refusals: &mut Refusals, id: &DeviceId, is_virtio: bool, attachment: &Attachment) -> Option<Part> {
    Some(match attachment {
        Attachment::Tap { device, vhost } => {
            let device = refusals.text(PATH, device)?;
            let tap = Keyval::of("tap").set("id", id.as_str()).set("ifname", &device);
            let mut tap = tap.set("script", "no").set("downscript", "no");
            let mut call = json!({
                "type": "tap", "id": id, "ifname": device, "script": "no", "downscript": "no",
            });
            // A kernel that turns out not to carry them is no reason not to start: QEMU does so itself then.
            if *vhost && is_virtio {
                tap = tap.set("vhost", "on");
                call["vhost"] = true.into();
            }
            Part::Network(tap.into_string(), call)
        }
        Attachment::User { forwards } => {
            let mut user = Keyval::of("user").set("id", id.as_str());
            let rules =
                forwards.iter().map(|Forward { address, host, guest }| format!("tcp:{address}:{host}-:{guest}"));
            let rules: Vec<String> = rules.collect();
            for rule in &rules {
                user = user.set("hostfwd", rule);
            }
            let rules: Vec<Value> = rules.into_iter().map(|rule| json!({ "str": rule })).collect();
            Part::Network(user.into_string(), json!({ "type": "user", "id": id, "hostfwd": rules }))
        }
    })
}
