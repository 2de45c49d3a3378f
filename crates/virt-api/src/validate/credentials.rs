//! Keys and passwords for the guest: one source and one way each.

use api::access::{AccessCredential, AccessCredentialSecretSource, SSHPublicKeyAccessCredential};
use api::vmi::VirtualMachineInstanceSpec;

use super::volumes;
use crate::denial::Problems;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    for (index, credential) in spec.access_credentials.iter().flatten().enumerate() {
        let field = format!("spec.accessCredentials[{index}]");
        match credential {
            AccessCredential { ssh_public_key: Some(key), user_password: None } => {
                check_key(spec, key, &format!("{field}.sshPublicKey"), problems);
            }
            AccessCredential { ssh_public_key: None, user_password: Some(password) } => {
                let source = password.source.secret.as_ref();
                check_secret(source, &format!("{field}.userPassword.source.secret"), problems);
                if password.propagation_method.qemu_guest_agent.is_none() {
                    let field = format!("{field}.userPassword.propagationMethod");
                    problems.required(field, "is required; set qemuGuestAgent");
                }
            }
            AccessCredential { .. } => problems.invalid(field, "must be exactly one of sshPublicKey and userPassword"),
        }
    }
}

fn check_secret(source: Option<&AccessCredentialSecretSource>, field: &str, problems: &mut Problems) {
    match source {
        Some(secret) => volumes::check_name(&secret.secret_name, format!("{field}.secretName"), problems),
        None => problems.required(field, "name the secret"),
    }
}

fn check_key(
    spec: &VirtualMachineInstanceSpec,
    key: &SSHPublicKeyAccessCredential,
    field: &str,
    problems: &mut Problems,
) {
    check_secret(key.source.secret.as_ref(), &format!("{field}.source.secret"), problems);
    let method = &key.propagation_method;
    let field = format!("{field}.propagationMethod");
    let ways = [method.no_cloud.is_some(), method.config_drive.is_some(), method.qemu_guest_agent.is_some()];
    if ways.iter().filter(|set| **set).count() != 1 {
        problems.invalid(field.clone(), "must be exactly one of noCloud, configDrive and qemuGuestAgent");
    }
    let volumes = || spec.volumes.iter().flatten();
    if method.no_cloud.is_some() && !volumes().any(|volume| volume.cloud_init_no_cloud.is_some()) {
        problems.invalid(format!("{field}.noCloud"), "needs a cloudInitNoCloud volume; add one");
    }
    if method.config_drive.is_some() && !volumes().any(|volume| volume.cloud_init_config_drive.is_some()) {
        problems.invalid(format!("{field}.configDrive"), "needs a cloudInitConfigDrive volume; add one");
    }
    if method.qemu_guest_agent.as_ref().is_some_and(|agent| agent.users.is_empty()) {
        problems.required(format!("{field}.qemuGuestAgent.users"), "is empty; name the users that get the keys");
    }
}
