//! The model of the guest that this launcher runs, kept beside its sockets.

use std::io;
use std::path::{Path, PathBuf};

use hypervisor::guest::Guest;
use hypervisor::qmp::commands::QomGet;
use hypervisor::qmp::{Qmp, QmpError};

use crate::whole_file;

/// Where it is kept, in the guest's own directory.
pub const FILE: &str = "guest.json";

/// Why a model could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It could not be written.
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The same guest, with what QEMU has made of what means something else on the next node: `q35` is one board in this release and
/// another one in the next, and the ROM of a device is whatever its node has.
pub(crate) async fn settle(mut guest: Guest, qmp: &Qmp) -> Result<Guest, QmpError> {
    let board = qmp.execute(QomGet { path: "/machine".to_owned(), property: "type" }).await?;
    // The type's name in QEMU's object model.
    if let Some(name) = board.as_str().and_then(|name| name.strip_suffix("-machine")) {
        guest.board.type_ = name.to_owned();
    }
    for (id, device) in guest.devices.iter_mut().filter(|(_, device)| device.kind.has_rom()) {
        let size = QomGet { path: format!("/machine/peripheral/{id}"), property: "romsize" };
        // A device without a ROM has no size, or the largest number there is.
        let size = qmp.execute(size).await.ok().and_then(|size| u32::try_from(size.as_u64()?).ok());
        device.rom_bytes = size.filter(|size| size.is_power_of_two());
    }
    Ok(guest)
}

/// Writes it such that it is there after a crash: a file of this name is always one that can be read.
pub(crate) fn store(folder: &Path, guest: &Guest) -> Result<(), ModelError> {
    let path = folder.join(FILE);
    let failed = |source| ModelError::Write { path: path.clone(), source };
    let text = serde_json::to_vec_pretty(guest).map_err(|error| failed(error.into()))?;
    whole_file::replace(folder, FILE, &text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::vmi::VirtualMachineInstance;
    use hypervisor::accelerator::Accelerator;
    use hypervisor::guest::build::{Before, build};
    use serde_json::json;

    #[test]
    fn what_is_kept_is_read_again_and_is_the_owners_alone() {
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" },
            "spec": { "domain": { "devices": {}, "memory": { "guest": "64Mi" } } },
        });
        let vmi = api::decode::object::<VirtualMachineInstance>(vmi).unwrap().object;
        let guest = build(&vmi, Accelerator::Tcg, Before::Nothing).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            store(folder.path(), &guest).unwrap();
            let file = folder.path().join(FILE);
            assert_eq!(serde_json::from_slice::<Guest>(&std::fs::read(&file).unwrap()).unwrap(), guest);
            let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
