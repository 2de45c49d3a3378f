//! What a pod may ask for that concerns its own safety or others', and that nobody here acts on: it is refused by its path,
//! since a container without it would be another than was asked for.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod, PodSpec, SeccompProfile};

/// As pods named profiles of `AppArmor` before there was a field for it.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The first such field, with its path.
pub(super) fn unsupported(pod: &Pod, spec: &PodSpec, container: &Container) -> Option<String> {
    let flags = [
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
        ("hostUsers: false", spec.host_users == Some(false)),
        ("shareProcessNamespace", spec.share_process_namespace == Some(true)),
    ];
    if let Some((name, _)) = flags.into_iter().find(|(_, asked)| *asked) {
        return Some(format!("spec.{name}"));
    }
    if let Some(context) = &spec.security_context {
        let field = seccomp(context.seccomp_profile.as_ref()).or_else(|| app_armor(context.app_armor_profile.as_ref()));
        let sysctls = || Some("sysctls").filter(|_| context.sysctls.as_ref().is_some_and(|all| !all.is_empty()));
        if let Some(field) = field.or_else(sysctls) {
            return Some(format!("spec.securityContext.{field}"));
        }
    }
    let annotations = pod.metadata.annotations.iter().flatten();
    let named = |key: &str| key.strip_prefix(ANNOTATION) == Some(container.name.as_str());
    if let Some((key, _)) = annotations.into_iter().find(|(key, value)| named(key) && *value != "unconfined") {
        return Some(format!("metadata.annotations[{key}]"));
    }
    let context = container.security_context.as_ref()?;
    let proc_mount = || Some("procMount").filter(|_| context.proc_mount.as_ref().is_some_and(|kind| kind != "Default"));
    let field = seccomp(context.seccomp_profile.as_ref()).or_else(|| app_armor(context.app_armor_profile.as_ref()));
    let field = field.or_else(proc_mount)?;
    Some(format!("securityContext.{field} of container {:?}", container.name))
}

/// Profiles that somebody has put onto the node.
fn seccomp(profile: Option<&SeccompProfile>) -> Option<&'static str> {
    profile.filter(|profile| profile.type_ == "Localhost").map(|_| "seccompProfile.type: Localhost")
}

fn app_armor(profile: Option<&AppArmorProfile>) -> Option<&'static str> {
    profile.filter(|profile| profile.type_ != "Unconfined").map(|_| "appArmorProfile")
}
