//! What the pod's processes may do: as little as a hypervisor can do with.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SELinuxOptions, SecurityContext};

use super::Input;
use virt_rules::config::Gate;

/// The user and group that QEMU runs as, known to images and storage.
const QEMU: i64 = 107;

/// The pod's security context.
pub(super) fn pod(input: &Input<'_>) -> PodSecurityContext {
    let rootless = !input.config.enabled(Gate::Root);
    PodSecurityContext {
        run_as_user: Some(user(input)),
        run_as_group: rootless.then_some(QEMU),
        run_as_non_root: rootless.then_some(true),
        fs_group: Some(QEMU),
        seccomp_profile: input.config.seccomp(),
        se_linux_options: input
            .config
            .selinux_launcher_type()
            .map(|name| SELinuxOptions { type_: Some(name.to_owned()), ..SELinuxOptions::default() }),
        ..PodSecurityContext::default()
    }
}

/// The security context of the compute container.
pub(super) fn compute(input: &Input<'_>) -> SecurityContext {
    let rootless = !input.config.enabled(Gate::Root);
    let add: &[&str] = if rootless { &["NET_BIND_SERVICE"] } else { &["NET_BIND_SERVICE", "SYS_NICE"] };
    SecurityContext {
        allow_privilege_escalation: rootless.then_some(false),
        run_as_user: Some(user(input)),
        run_as_group: rootless.then_some(QEMU),
        run_as_non_root: Some(rootless),
        capabilities: Some(Capabilities {
            // DHCP is served from a port below 1024.
            add: Some(add.iter().map(ToString::to_string).collect()),
            drop: rootless.then(|| vec!["ALL".to_owned()]),
        }),
        ..SecurityContext::default()
    }
}

/// The security context of containers that only hold or copy files.
pub(super) fn helper() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        run_as_user: Some(QEMU),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        ..SecurityContext::default()
    }
}

fn user(input: &Input<'_>) -> i64 {
    if input.config.enabled(Gate::Root) { 0 } else { QEMU }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::json;

    #[test]
    fn guests_do_not_run_as_root() {
        let (bench, vmi) = (Bench::default(), vmi(json!({})));
        let input = bench.input(&vmi);
        assert_eq!(
            serde_json::to_value(pod(&input)).unwrap(),
            json!({ "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true, "fsGroup": 107 })
        );
        assert_eq!(
            serde_json::to_value(compute(&input)).unwrap(),
            json!({
                "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
                "capabilities": { "add": ["NET_BIND_SERVICE"], "drop": ["ALL"] },
            })
        );
    }

    #[test]
    fn profiles_come_from_the_cluster() {
        let bench = Bench::configured(&json!({
            "selinuxLauncherType": "spc_t",
            "seccompConfiguration": { "virtualMachineInstanceProfile": { "customProfile": { "runtimeDefaultProfile": true } } },
        }));
        let vmi = vmi(json!({}));
        let context = pod(&bench.input(&vmi));
        assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
        assert_eq!(context.se_linux_options.unwrap().type_.as_deref(), Some("spc_t"));
    }
}
