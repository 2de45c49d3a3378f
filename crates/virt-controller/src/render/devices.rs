//! Devices that the compute container gets from its node's device plugins.

use std::collections::BTreeMap;

use api::networks::Interface;

use super::Input;

/// Devices of virt-handler's own plugins.
const PREFIX: &str = "devices.kubevirt.io/";

/// How many of which device.
pub(super) fn devices(input: &Input<'_>) -> BTreeMap<String, i64> {
    let domain = &input.vmi.spec.domain;
    let devices = &domain.devices;
    let interfaces = || devices.interfaces.iter().flatten();
    let emulated = input.is_emulated();
    let vhost_net = !emulated && input.launcher.nodes.vhost_net;
    let security = domain.launch_security.as_ref();
    let reservations = devices.disks.iter().flatten().filter_map(|disk| disk.lun.as_ref());
    let mut wanted = BTreeMap::new();
    for (name, needed) in [
        ("kvm", !emulated),
        ("tun", devices.autoattach_pod_interface != Some(false) || interfaces().any(has_tap)),
        // Emulated guests are slow anyway, and their nodes may lack the device as they lack KVM.
        ("vhost-net", vhost_net && interfaces().any(|interface| has_tap(interface) && is_virtio(interface))),
        ("vhost-vsock", devices.autoattach_vsock == Some(true)),
        ("sev", security.is_some_and(|security| security.sev.is_some() || security.snp.is_some())),
        ("tdx", security.is_some_and(|security| security.tdx.is_some())),
        ("pr-helper", reservations.into_iter().any(|lun| lun.reservation == Some(true))),
    ] {
        if needed {
            wanted.insert(format!("{PREFIX}{name}"), 1);
        }
    }
    let gpus = devices.gpus.iter().flatten().filter_map(|gpu| gpu.device_name.as_ref());
    let others = devices.host_devices.iter().flatten().filter_map(|device| device.device_name.as_ref());
    for name in gpus.chain(others).filter(|name| !name.is_empty()) {
        *wanted.entry(name.clone()).or_default() += 1;
    }
    wanted
}

/// Whether the interface reaches the guest through a tap; a virtual function does not.
fn has_tap(interface: &Interface) -> bool {
    interface.sriov.is_none()
}

fn is_virtio(interface: &Interface) -> bool {
    matches!(interface.model.as_deref(), None | Some("" | "virtio"))
}

#[cfg(test)]
mod tests {
    use super::super::Nodes;
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::{Value, json};

    fn names(bench: &Bench, devices: &Value) -> String {
        let vmi = vmi(json!({ "domain": { "devices": devices } }));
        let wanted = super::devices(&bench.input(&vmi));
        let short = wanted.iter().map(|(name, count)| format!("{}={count}", name.trim_start_matches(PREFIX)));
        short.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_guest_asks_for_what_it_uses() {
        let bench = Bench::default();
        assert_eq!(names(&bench, &json!({})), "kvm=1 tun=1");
        assert_eq!(names(&bench, &json!({ "autoattachPodInterface": false })), "kvm=1");
        let masquerade = json!({ "interfaces": [{ "name": "a", "masquerade": {} }] });
        assert_eq!(names(&bench, &masquerade), "kvm=1 tun=1 vhost-net=1");
        let e1000 = json!({ "interfaces": [{ "name": "a", "masquerade": {}, "model": "e1000" }] });
        assert_eq!(names(&bench, &e1000), "kvm=1 tun=1");
        assert_eq!(names(&bench, &json!({ "autoattachVSOCK": true })), "kvm=1 tun=1 vhost-vsock=1");
        let lun = json!({ "disks": [{ "name": "d", "lun": { "reservation": true } }] });
        assert_eq!(names(&bench, &lun), "kvm=1 pr-helper=1 tun=1");
    }

    #[test]
    fn emulation_does_without_the_kernel() {
        let bench = Bench::configured(&json!({ "developerConfiguration": { "useEmulation": true } }));
        assert_eq!(names(&bench, &json!({ "interfaces": [{ "name": "a", "bridge": {} }] })), "tun=1");
    }

    #[test]
    fn what_the_nodes_lack_is_not_asked_for_unless_a_person_does() {
        let interfaces = json!({ "interfaces": [{ "name": "a", "masquerade": {} }] });
        let asked = |nodes: Nodes, configuration: &Value| {
            let mut bench = Bench::configured(configuration);
            bench.launcher.nodes = nodes;
            names(&bench, &interfaces)
        };
        let nothing = Nodes { kvm: false, vhost_net: false };
        assert_eq!(asked(nothing, &json!({})), "tun=1");
        assert_eq!(asked(Nodes { kvm: true, ..nothing }, &json!({})), "kvm=1 tun=1");
        assert_eq!(asked(Nodes { kvm: false, vhost_net: true }, &json!({})), "tun=1");
        let emulate = |holds: bool| json!({ "developerConfiguration": { "useEmulation": holds } });
        assert_eq!(asked(Nodes::default(), &emulate(true)), "tun=1");
        assert_eq!(asked(nothing, &emulate(false)), "kvm=1 tun=1");
    }

    #[test]
    fn devices_of_one_name_are_counted() {
        let gpu = |name: &str| json!({ "name": name, "deviceName": "nvidia.com/T4" });
        let wanted = names(&Bench::default(), &json!({ "gpus": [gpu("a"), gpu("b")], "hostDevices": [gpu("c")] }));
        assert_eq!(wanted, "kvm=1 tun=1 nvidia.com/T4=3");
    }
}
