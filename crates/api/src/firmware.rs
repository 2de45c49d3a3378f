//! Firmware: BIOS or EFI, direct kernel boot, ACPI tables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::volumes::PullPolicy;

/// What the guest boots with and how SMBIOS names it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Firmware {
    /// Extra ACPI tables, such as Windows licence keys.
    pub acpi: Option<ACPI>,
    /// BIOS or UEFI; BIOS on x86 if unset.
    pub bootloader: Option<Bootloader>,
    /// Boots a kernel directly, without a bootloader.
    pub kernel_boot: Option<KernelBoot>,
    /// System serial number in the guest's DMI data.
    pub serial: Option<String>,
    /// System UUID in the guest's DMI data; generated if unset.
    pub uuid: Option<String>,
}

/// Firmware flavour; set either one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Bootloader {
    /// SeaBIOS, the legacy x86 firmware.
    pub bios: Option<BIOS>,
    /// UEFI firmware from OVMF or AAVMF.
    pub efi: Option<EFI>,
}

/// SeaBIOS options.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BIOS {
    /// Sends firmware output to the serial console.
    pub use_serial: Option<bool>,
}

/// UEFI options.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EFI {
    /// Keeps NVRAM variables across restarts; off by default.
    pub persistent: Option<bool>,
    /// Runs signed code only; needs SMM, on by default.
    pub secure_boot: Option<bool>,
}

/// Direct boot from a kernel in a container image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelBoot {
    /// Image that carries the kernel and initrd.
    pub container: Option<KernelBootContainer>,
    /// Kernel command line; only valid with a kernel.
    pub kernel_args: Option<String>,
}

/// Container image with boot artifacts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelBootContainer {
    /// Reference of the image that holds the files.
    pub image: String,
    /// Always, IfNotPresent or Never.
    pub image_pull_policy: Option<PullPolicy>,
    /// Secret with registry credentials, same namespace.
    pub image_pull_secret: Option<String>,
    /// Absolute path of the initrd inside the image.
    pub initrd_path: Option<String>,
    /// Absolute path of the kernel inside the image.
    pub kernel_path: Option<String>,
}

/// Custom ACPI tables, each read from a secret volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ACPI {
    /// Volume with the MSDM table (Windows OEM key).
    pub msdm_name_ref: Option<String>,
    /// Volume with the SLIC table (older Windows licences).
    pub slic_name_ref: Option<String>,
}
