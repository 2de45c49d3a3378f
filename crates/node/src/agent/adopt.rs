//! Takes over what an earlier agent has left: running pods, ended pods, and what belongs to no pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::parts::Failure;
use super::record::{self, Kept, Record};
use super::{Shared, Which, pod, volumes};

/// Takes over the shims that run, and disconnects what nobody knows.
pub(super) async fn adopt(shared: &Arc<Shared>) -> Result<(), Failure> {
    for (sandbox, shim) in shared.settings.runtime.existing().await? {
        let which =
            Which { namespace: sandbox.namespace.clone(), name: sandbox.name.clone(), uid: sandbox.uid.clone() };
        let state = shim.states().borrow().clone();
        let mut written = Record {
            namespace: sandbox.namespace,
            name: sandbox.name,
            uid: sandbox.uid,
            boot: shared.machine.boot_id.clone(),
            sandbox: true,
            ..Record::default()
        };
        let known = shared.entries().get(&which).cloned();
        let entry = match known {
            Some(entry) => entry,
            None => {
                // Its record is lost, but not the pod: what the shim tells is all there is.
                written.containers = state
                    .containers
                    .iter()
                    .map(|(name, state)| (name.clone(), Kept { attempt: state.attempt(), ..Kept::default() }))
                    .collect();
                shared.know(written);
                let made = shared.entries().get(&which).cloned();
                let Some(made) = made else { continue };
                made
            }
        };
        pod::follow(shared, &which, &mut *entry.lock().await, shim);
    }
    let living: BTreeSet<String> = shared.entries().keys().map(|which| which.uid.clone()).collect();
    if let Some(network) = &shared.settings.network {
        network.retain(&living).await?;
    }
    shared.devices.retain(&living);
    remove_strangers(shared, &living);
    Ok(())
}

/// Removes directories of pods without a record: their agent ended before anything of them ran, or after all was gone.
fn remove_strangers(shared: &Shared, living: &BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(shared.settings.root.join("pods")) else { return };
    for entry in entries.flatten() {
        let uid = entry.file_name().to_string_lossy().into_owned();
        if living.contains(&uid) {
            continue;
        }
        let folder = record::folder(&shared.settings.root, &uid);
        let removed =
            volumes::remove(&shared.settings.root, &uid).and_then(|()| volumes::mounting::remove_folder(&folder));
        if let Err(error) = removed {
            tracing::warn!(uid, error = Failure::of(&error).0, "cannot remove a directory that belongs to no pod");
        }
    }
}

/// Looks at every pod that was here, also at those that are gone from the API.
pub(super) fn enqueue_all(shared: &Shared) {
    let all: Vec<Which> = shared.entries().keys().cloned().collect();
    all.into_iter().for_each(|which| shared.queue.add(which));
}
