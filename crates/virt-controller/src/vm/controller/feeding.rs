//! What is news for a VM, besides itself and its instance: claims, data volumes, instancetypes, the configuration.

use std::sync::Arc;

use api::vm::VirtualMachine;
use manager::cache::Key;

use super::VmController;

impl VmController {
    pub(super) async fn feed_claims(&self) {
        let mut changes = self.claims.subscribe();
        loop {
            let key = changes.next().await.key;
            self.add_users(&key);
        }
    }

    pub(super) async fn feed_data_volumes(&self) {
        let mut changes = self.data_volumes.cache().subscribe();
        // The kind may come late: whoever said that there is none looks again.
        self.data_volumes.cache().synced().await;
        let vms = self.vms.all();
        let wants = |vm: &&Arc<VirtualMachine>| vm.spec.data_volume_templates.is_some();
        vms.iter().filter(wants).for_each(|vm| self.queue.add(Key::of(&**vm)));
        loop {
            let key = changes.next().await.key;
            self.add_users(&key);
        }
    }

    fn add_users(&self, claim: &Key) {
        for vm in self.vms.find("claim", &format!("{}/{}", claim.namespace, claim.name)) {
            self.queue.add(Key::of(&*vm));
        }
    }

    /// VMs that wait for an instancetype or preference look again when one comes or changes, and all of them when the
    /// cluster's policy does.
    pub(super) async fn feed_kinds(&self) {
        let mut instancetypes = self.kinds.instancetypes.subscribe();
        let mut cluster_instancetypes = self.kinds.cluster_instancetypes.subscribe();
        let mut preferences = self.kinds.preferences.subscribe();
        let mut cluster_preferences = self.kinds.cluster_preferences.subscribe();
        let mut configuration = self.configuration.subscribe();
        loop {
            tokio::select! {
                biased;
                _ = instancetypes.next() => {}
                _ = cluster_instancetypes.next() => {}
                _ = preferences.next() => {}
                _ = cluster_preferences.next() => {}
                () = configuration.changed() => {}
            }
            let vms = self.vms.all();
            let users = vms.iter().filter(|vm| vm.spec.instancetype.is_some() || vm.spec.preference.is_some());
            users.for_each(|vm| self.queue.add(Key::of(&**vm)));
        }
    }
}
