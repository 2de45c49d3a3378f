//! Directories, files and devices of the machine.

use std::fs::{self, FileType};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use super::VolumeError;

/// Checks that it is what the pod says, and makes it where the pod says so.
pub(super) fn prepare(source: &HostPathVolumeSource) -> Result<PathBuf, VolumeError> {
    let path = PathBuf::from(&source.path);
    let is = |test: fn(&FileType) -> bool| fs::metadata(&path).is_ok_and(|metadata| test(&metadata.file_type()));
    let expected: &'static str = match source.type_.as_deref().unwrap_or_default() {
        "" => return Ok(path),
        "DirectoryOrCreate" => {
            if fs::metadata(&path).is_err() {
                fs::create_dir_all(&path).map_err(VolumeError::io(&path))?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(VolumeError::io(&path))?;
            }
            if is(FileType::is_dir) { "" } else { "directory" }
        }
        "FileOrCreate" => {
            if fs::metadata(&path).is_err() {
                let made = fs::OpenOptions::new().write(true).create_new(true).open(&path);
                made.map_err(VolumeError::io(&path))?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).map_err(VolumeError::io(&path))?;
            }
            if is(FileType::is_file) { "" } else { "file" }
        }
        "Directory" if !is(FileType::is_dir) => "directory",
        "File" if !is(FileType::is_file) => "file",
        "Socket" if !is(FileType::is_socket) => "socket file",
        "CharDevice" if !is(FileType::is_char_device) => "character device",
        "BlockDevice" if !is(FileType::is_block_device) => "block device",
        "Directory" | "File" | "Socket" | "CharDevice" | "BlockDevice" => "",
        unknown => return Err(VolumeError::Unsupported(format!("hostPath type {unknown:?}"))),
    };
    if expected.is_empty() { Ok(path) } else { Err(VolumeError::HostPath { path, expected }) }
}
