//! Who keeps an instance's addresses when it starts again: its VM, as the API server knows it.
//!
//! Whoever may write an instance writes its owner references, too. They say where to look, and nothing else: a VM has an instance
//! of its own name in its own namespace, and is who it is by its UID.

use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client, Resource as _};

/// The UID of the VM that an instance belongs to; none if it is on its own, whatever it says.
///
/// # Errors
/// When the server does not answer. A server that does not let its VMs be read leaves every instance on its own.
pub async fn vm_of(client: &Client, vmi: &VirtualMachineInstance) -> Result<Option<String>, kube::Error> {
    let Some((claimed, namespace)) = claimed(vmi).zip(vmi.metadata.namespace.as_deref()) else { return Ok(None) };
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    match vms.get_opt(&claimed.name).await {
        Ok(vm) => Ok(vm.and_then(|vm| vm.metadata.uid).filter(|uid| *uid == claimed.uid)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            tracing::warn!(%status, "an instance keeps no address because its VM cannot be read");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The owner that an instance names, if it could be its VM.
fn claimed(vmi: &VirtualMachineInstance) -> Option<&OwnerReference> {
    let is_vm = |owner: &&OwnerReference| {
        owner.controller == Some(true)
            && owner.kind == VirtualMachine::kind(&())
            && owner.api_version.split('/').next() == Some(&*VirtualMachine::group(&()))
            && Some(&owner.name) == vmi.metadata.name.as_ref()
    };
    vmi.metadata.owner_references.iter().flatten().find(is_vm)
}
