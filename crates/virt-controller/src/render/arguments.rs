//! What the launcher is told on its command line. The instance itself comes later, over its socket.

use launcher_api::names::LAUNCHER_SOCKET;

use super::mounts::Mounts;
use super::{Input, launcher_grace};

/// The socket on which the launcher serves virt-handler.
pub(super) fn socket(input: &Input<'_>) -> String {
    format!("{}/{LAUNCHER_SOCKET}", sockets(input))
}

/// The folder of the launcher's socket: a volume of its own, so that virt-handler finds it by the volume's name.
pub(super) fn sockets(input: &Input<'_>) -> String {
    format!("{}/sockets", input.launcher.directories.share)
}

/// The arguments of `orlop virt-launcher`.
pub(super) fn arguments(input: &Input<'_>, mounts: &Mounts) -> Vec<String> {
    let directories = &input.launcher.directories;
    let mut arguments = Vec::new();
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    flag("name", input.name().to_owned());
    flag("uid", input.uid().to_owned());
    flag("namespace", input.namespace_name().to_owned());
    flag("socket", socket(input));
    flag("network-socket", format!("{}/network-sock", sockets(input)));
    // A folder of its own below the volume: the volume's root belongs to the node.
    flag("runtime-dir", format!("{}/{}", directories.private, input.uid()));
    flag("ephemeral-disk-dir", directories.ephemeral_disks.clone());
    flag("cache-dir", format!("{}/cache", directories.ephemeral_disks));
    flag("grace-period-seconds", launcher_grace(input.vmi).to_string());
    let places = [
        ("claim", &mounts.claims),
        ("secret", &mounts.secrets),
        ("config-map", &mounts.config_maps),
        ("host-disk", &mounts.host_disks),
        ("container-disk", &mounts.container_disks),
    ];
    for (name, places) in places {
        for (key, path) in places {
            flag(name, format!("{key}={path}"));
        }
    }
    if let Some(path) = &mounts.kernel_boot {
        flag("kernel-boot", path.clone());
    }
    let architecture = input.config.architecture(input.vmi.spec.architecture.as_deref());
    if let Some(path) = architecture.ovmf_path {
        flag("ovmf-path", path.to_owned());
    }
    if let Some(qemu) = &input.launcher.qemu {
        flag("qemu", qemu.clone());
    }
    if input.is_emulated() {
        arguments.push("--use-emulation".to_owned());
    }
    if logs_console(input) {
        arguments.push("--log-serial-console".to_owned());
    }
    arguments
}

/// Whether the launcher copies the guest's console to its own log; no container is needed for that.
pub(super) fn logs_console(input: &Input<'_>) -> bool {
    let devices = &input.vmi.spec.domain.devices;
    devices.autoattach_serial_console != Some(false)
        && devices.log_serial_console.unwrap_or(input.config.logs_serial_console())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::json;

    fn of(bench: &Bench, spec: serde_json::Value) -> String {
        arguments(&bench.input(&vmi(spec)), &Mounts::default()).join(" ")
    }

    #[test]
    fn the_launcher_is_told_who_and_where_it_is() {
        let uid = "db6109f4-73dc-4a04-9e56-7fe0ea823806";
        assert_eq!(
            of(&Bench::default(), json!({})),
            format!(
                "--name vm --uid {uid} --namespace ns --socket /var/run/kubevirt/sockets/launcher-sock \
                 --network-socket /var/run/kubevirt/sockets/network-sock --runtime-dir /var/run/kubevirt-private/{uid} \
                 --ephemeral-disk-dir /var/run/kubevirt-ephemeral-disks \
                 --cache-dir /var/run/kubevirt-ephemeral-disks/cache --grace-period-seconds 45 --log-serial-console"
            )
        );
    }

    #[test]
    fn switches_follow_the_instance_then_the_cluster() {
        let bench = Bench::configured(&json!({
            "developerConfiguration": { "useEmulation": true }, "ovmfPath": "/ovmf",
            "virtualMachineOptions": { "disableSerialConsoleLog": {} },
        }));
        assert!(of(&bench, json!({})).ends_with("--ovmf-path /ovmf --use-emulation"));
        let mut own = Bench::default();
        own.launcher.qemu = Some("/opt/qemu/bin/qemu".to_owned());
        assert!(of(&own, json!({})).contains(" --qemu /opt/qemu/bin/qemu "));
        let loud = of(&bench, json!({ "domain": { "devices": { "logSerialConsole": true } } }));
        assert!(loud.ends_with("--log-serial-console"));
        let without =
            json!({ "domain": { "devices": { "logSerialConsole": true, "autoattachSerialConsole": false } } });
        assert!(!of(&bench, without).contains("--log-serial-console"));
    }
}
