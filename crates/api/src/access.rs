//! Credentials brought into the guest: SSH keys and passwords.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A login to put into the guest; exactly one field is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessCredential {
    /// SSH keys to authorize.
    pub ssh_public_key: Option<SSHPublicKeyAccessCredential>,
    /// Passwords to set for guest users.
    pub user_password: Option<UserPasswordAccessCredential>,
}

/// SSH public keys and how the guest gets them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SSHPublicKeyAccessCredential {
    /// cloud-init at boot, or the guest agent at any time.
    pub propagation_method: SSHPublicKeyAccessCredentialPropagationMethod,
    /// Where the public keys are read from.
    pub source: SSHPublicKeyAccessCredentialSource,
}

/// Where SSH public keys are stored.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SSHPublicKeyAccessCredentialSource {
    /// Secret in which every value is a public key.
    pub secret: Option<AccessCredentialSecretSource>,
}

/// How SSH keys reach the guest; choose one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SSHPublicKeyAccessCredentialPropagationMethod {
    /// Through cloud-init ConfigDrive metadata at boot.
    pub config_drive: Option<ConfigDriveSSHPublicKeyAccessCredentialPropagation>,
    /// Through cloud-init NoCloud metadata at boot.
    pub no_cloud: Option<NoCloudSSHPublicKeyAccessCredentialPropagation>,
    /// Written live to authorized_keys by the guest agent.
    pub qemu_guest_agent: Option<QemuGuestAgentSSHPublicKeyAccessCredentialPropagation>,
}

/// User passwords and how the guest gets them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserPasswordAccessCredential {
    /// How passwords are set; only qemuGuestAgent exists.
    pub propagation_method: UserPasswordAccessCredentialPropagationMethod,
    /// Where the passwords are read from.
    pub source: UserPasswordAccessCredentialSource,
}

/// Where user passwords are stored.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct UserPasswordAccessCredentialSource {
    /// Secret with user names as keys, passwords as values.
    pub secret: Option<AccessCredentialSecretSource>,
}

/// How passwords reach the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserPasswordAccessCredentialPropagationMethod {
    /// Set live by the guest agent, also after changes.
    pub qemu_guest_agent: Option<QemuGuestAgentUserPasswordAccessCredentialPropagation>,
}

/// Points to a Secret with credentials.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessCredentialSecretSource {
    /// Secret in the namespace of the VMI.
    pub secret_name: String,
}

/// Keys via ConfigDrive; needs a cloudInitConfigDrive volume.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ConfigDriveSSHPublicKeyAccessCredentialPropagation {}

/// Keys via NoCloud; needs a cloudInitNoCloud volume.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct NoCloudSSHPublicKeyAccessCredentialPropagation {}

/// Keys via the guest agent, updated while running.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct QemuGuestAgentSSHPublicKeyAccessCredentialPropagation {
    /// Existing guest users that get the keys.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub users: Vec<String>,
}

/// Passwords via the guest agent; has no settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct QemuGuestAgentUserPasswordAccessCredentialPropagation {}
