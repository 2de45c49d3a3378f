//! Defaults for what a manifest may leave out, because there is no admission.

use api::devices::{Disk, DiskBus, DiskTarget};
use api::networks::{Interface, InterfaceMasquerade, Network, PodNetwork};
use api::vmi::VirtualMachineInstance;

/// The name of the network that an instance without networks gets.
const DEFAULT_NETWORK: &str = "default";

/// Fills in what users expect: a disk for every volume, and a network.
pub(super) fn complete(vmi: &mut VirtualMachineInstance) {
    let spec = &mut vmi.spec;
    let disks = spec.domain.devices.disks.get_or_insert_default();
    for volume in spec.volumes.iter().flatten() {
        if !disks.iter().any(|disk| disk.name == volume.name) {
            let disk = Some(DiskTarget { bus: Some(DiskBus::Virtio), ..DiskTarget::default() });
            disks.push(Disk { name: volume.name.clone(), disk, ..Disk::default() });
        }
    }
    let wanted = spec.domain.devices.autoattach_pod_interface != Some(false);
    let interfaces = spec.domain.devices.interfaces.get_or_insert_default();
    if interfaces.is_empty() && wanted {
        let masquerade = Some(InterfaceMasquerade {});
        interfaces.push(Interface { name: DEFAULT_NETWORK.to_owned(), masquerade, ..Interface::default() });
        let networks = spec.networks.get_or_insert_default();
        if networks.is_empty() {
            let pod = Some(PodNetwork::default());
            networks.push(Network { name: DEFAULT_NETWORK.to_owned(), pod, ..Network::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use api::volumes::Volume;

    use super::*;

    #[test]
    fn a_volume_without_a_disk_gets_one() {
        let mut vmi = VirtualMachineInstance::default();
        vmi.spec.volumes = Some(vec![Volume { name: "root".into(), ..Volume::default() }]);
        complete(&mut vmi);
        complete(&mut vmi);
        let disks = vmi.spec.domain.devices.disks.unwrap();
        assert_eq!(disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["root"]);
    }

    #[test]
    fn an_instance_without_networks_gets_one_unless_it_says_no() {
        let mut vmi = VirtualMachineInstance::default();
        complete(&mut vmi);
        assert_eq!(vmi.spec.domain.devices.interfaces.as_ref().map(Vec::len), Some(1));

        let mut vmi = VirtualMachineInstance::default();
        vmi.spec.domain.devices.autoattach_pod_interface = Some(false);
        complete(&mut vmi);
        assert_eq!(vmi.spec.domain.devices.interfaces.as_ref().map(Vec::len), Some(0));
    }
}
