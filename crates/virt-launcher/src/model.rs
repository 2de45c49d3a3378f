//! The model of the guest that this launcher runs, kept beside its sockets.

mod cpu;

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
    guest.cpu.found = cpu::found(qmp).await?;
    for (id, device) in guest.devices.iter_mut().filter(|(_, device)| device.kind.has_rom()) {
        let size = QomGet { path: format!("/machine/peripheral/{id}"), property: "romsize" };
        // A device without a ROM has no size, or the largest number there is.
        let size = qmp.execute(size).await.ok().and_then(|size| u32::try_from(size.as_u64()?).ok());
        device.rom_bytes = size.filter(|size| size.is_power_of_two());
    }
    Ok(guest)
}

/// Whether a guest that comes from another launcher has the CPUs here that it found there. One whose launcher did not look may come.
pub(crate) async fn has_its_cpu(guest: &Guest, qmp: &Qmp) -> Result<bool, QmpError> {
    match &guest.cpu.found {
        Some(known) => Ok(cpu::found(qmp).await?.as_ref() == Some(known)),
        None => Ok(true),
    }
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
    use crate::fake_qmp::{FakeQemu, answering};
    use api::vmi::VirtualMachineInstance;
    use hypervisor::accelerator::Accelerator;
    use hypervisor::guest::build::{Before, Next, build, next};
    use hypervisor::step::difference;
    use serde_json::{Value, json};

    fn instance() -> VirtualMachineInstance {
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" },
            "spec": { "domain": { "devices": {}, "memory": { "guest": "64Mi" } } },
        });
        api::decode::object::<VirtualMachineInstance>(vmi).unwrap().object
    }

    fn first() -> Guest {
        build(&instance(), Accelerator::Tcg, Before::Nothing).unwrap()
    }

    /// The features of a leaf.
    fn word(register: &str, features: u64) -> Value {
        json!({ "cpuid-register": register, "cpuid-input-eax": 1, "features": features })
    }

    /// A QEMU whose first CPU is of this model and has these features; none says nothing of them.
    async fn qemu(model: u64, words: Option<&[Value]>) -> Qmp {
        let words = words.map(<[Value]>::to_vec);
        let answer = move |request: &Value| {
            let arguments = &request["arguments"];
            match (request["execute"].as_str()?, arguments["property"].as_str()) {
                ("query-cpus-fast", _) => Some(json!([
                    { "cpu-index": 1, "thread-id": 8, "qom-path": "/machine/other" },
                    { "cpu-index": 0, "thread-id": 7, "qom-path": "/machine/unattached/device[0]" },
                ])),
                (_, Some("type")) => Some("pc-q35-7.2-machine".into()),
                _ if arguments["path"] != "/machine/unattached/device[0]" => None,
                (_, Some("feature-words")) => words.clone().map(Value::from),
                (_, Some("vendor")) => Some("AuthenticAMD".into()),
                (_, Some("model")) => Some(model.into()),
                _ => Some(1.into()),
            }
        };
        answering(FakeQemu::new(answer)).await
    }

    #[tokio::test]
    async fn a_guest_comes_only_to_the_cpu_that_it_found_at_its_start() {
        let words = [word("EDX", 5), word("ECX", 6)];
        let there = qemu(42, Some(&words)).await;
        let guest = settle(first(), &there).await.unwrap();
        assert!(has_its_cpu(&guest, &there).await.unwrap());
        // A newer QEMU lists more, in another order. What the CPU does not have makes no difference.
        let same = [word("EBX", 0), word("ECX", 6), word("EDX", 5)];
        assert!(has_its_cpu(&guest, &qemu(42, Some(&same)).await).await.unwrap());
        for (model, words) in [
            (43, Some(words.to_vec())),
            (42, Some(vec![word("EDX", 5), word("ECX", 7)])),
            (42, Some(vec![word("EDX", 5)])),
            (42, Some(vec![word("EDX", 5), word("ECX", 6), word("EBX", 1)])),
            (42, None),
        ] {
            let other = qemu(model, words.as_deref()).await;
            assert!(!has_its_cpu(&guest, &other).await.unwrap(), "{model} {words:?}");
        }
    }

    #[tokio::test]
    async fn a_guest_whose_launcher_did_not_look_at_its_cpu_may_come() {
        assert!(has_its_cpu(&first(), &qemu(1, Some(&[])).await).await.unwrap());
        // Nor is it looked for where there is nothing to see.
        assert_eq!(settle(first(), &qemu(1, None).await).await.unwrap().cpu.found, None);
    }

    #[tokio::test]
    async fn a_qemu_that_speaks_of_its_cpus_in_another_way_keeps_no_guest_from_starting() {
        let odd = answering(FakeQemu::new(|request| match request["execute"].as_str() {
            Some("qom-get") => Some("pc-q35-7.2-machine".into()),
            _ => Some(json!({})),
        }));
        assert_eq!(settle(first(), &odd.await).await.unwrap().cpu.found, None);
    }

    #[tokio::test]
    async fn a_guest_that_runs_keeps_the_cpu_that_it_found_and_the_next_start_looks_again() {
        let settled = settle(first(), &qemu(42, Some(&[word("EDX", 5)])).await).await.unwrap();
        assert!(settled.cpu.found.is_some());
        let stored = Guest::from_stored(settled.to_stored().unwrap().as_bytes()).unwrap();
        assert_eq!(stored, settled);
        let Next { guest, .. } = next(&instance(), Accelerator::Tcg, &settled).unwrap();
        assert!(difference(&settled, &guest).is_empty());
        let again = build(&instance(), Accelerator::Tcg, Before::Stopped(&settled)).unwrap();
        assert_eq!(again.cpu.found, None);
    }

    #[test]
    fn what_is_kept_is_read_again_and_is_the_owners_alone() {
        let guest = first();
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
