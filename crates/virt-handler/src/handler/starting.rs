//! The start of a guest: its network, then the launcher is told the instance.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use kube::Resource as _;
use manager::errors::chain;
use manager::events::Kind;
use tokio::time::timeout;
use tonic::Code;
use virt_launcher::rpc::{Accelerator, SyncRequest};

use super::{Inner, Work};
use crate::container_disks;
use crate::decide::{Failure, start_again};
use crate::folders;
use crate::identity;
use crate::launchers::SOCKETS;
use crate::networks::{Link, Place};

/// How long a start may take: the launcher may still have disks to prepare.
const START: Duration = Duration::from_secs(600);
/// The socket on which a launcher takes its network.
const NETWORK_SOCKET: &str = "network-sock";

impl Inner {
    /// Starts a guest, and remembers how that went.
    pub(super) async fn start(&self, work: &Work, vmi: &VirtualMachineInstance) {
        let started = tokio::select! {
            biased;
            // What is to be deleted need not start.
            () = self.unwanted(work) => return,
            started = self.try_start(work, vmi) => started,
        };
        let now = (self.now)();
        match started {
            Ok(()) => {
                self.known(&work.uid, |known| {
                    let memory = &mut known.memory;
                    (memory.failures, memory.retry_at, memory.failure) = (0, None, None);
                });
                tracing::info!("the launcher has started the guest");
                self.recorder.record(vmi, Kind::Normal, "Created", "VirtualMachineInstance defined.");
            }
            Err(failure) => {
                tracing::warn!(error = failure.message, is_final = failure.is_final, "the guest was not started");
                self.recorder.record(vmi, Kind::Warning, "SyncFailed", failure.message.clone());
                self.known(&work.uid, |known| {
                    let memory = &mut known.memory;
                    memory.failures += 1;
                    memory.retry_at = Some(start_again(memory.failures, now));
                    memory.failure = Some(failure);
                });
            }
        }
    }

    async fn try_start(&self, work: &Work, vmi: &VirtualMachineInstance) -> Result<(), Failure> {
        self.bring_disks(vmi).await?;
        self.connect_network(work, vmi).await?;
        if let Err(error) = self.launchers.give_devices(&work.uid) {
            return Err(passing(chain(&error)));
        }
        let Some(mut client) = self.launchers.client(&work.uid) else {
            return Err(passing("the launcher is not there any more"));
        };
        // A list does not always say what it is a list of.
        let whole = VirtualMachineInstance {
            api_version: Some(VirtualMachineInstance::api_version(&()).into_owned()),
            kind: Some(VirtualMachineInstance::kind(&()).into_owned()),
            ..vmi.clone()
        };
        let instance = serde_json::to_vec(&whole).map_err(|error| lasting(error.to_string()))?;
        let request = SyncRequest { instance, accelerator: self.accelerator().into() };
        match timeout(START, client.sync(request)).await {
            Ok(Ok(domain)) => {
                self.launchers.heard(&work.uid, domain.into_inner());
                Ok(())
            }
            Ok(Err(status)) => {
                let is_final = matches!(status.code(), Code::InvalidArgument | Code::AlreadyExists);
                Err(Failure { message: status.message().to_owned(), is_final })
            }
            Err(_) => Err(passing("the launcher did not start the guest in time")),
        }
    }

    /// What runs guests here, for the launcher to know; it finds out itself what is not known yet.
    fn accelerator(&self) -> Accelerator {
        match self.found.borrow().offer() {
            Some(offer) if offer.is_emulated => Accelerator::Tcg,
            Some(_) => Accelerator::Kvm,
            None => Accelerator::Unspecified,
        }
    }

    /// Brings disks from containers, where the node does not mount images itself.
    async fn bring_disks(&self, vmi: &VirtualMachineInstance) -> Result<(), Failure> {
        let Some(pod) = self.pod_of(vmi) else { return Ok(()) };
        let brought = container_disks::mount_all(&self.settings.pods(), &pod, vmi).await;
        brought.map_err(|error| Failure { message: chain(&error), is_final: error.is_final() })
    }

    /// Makes the guest's network and hands it to the launcher, unless this process has done so.
    pub(super) async fn connect_network(&self, work: &Work, vmi: &VirtualMachineInstance) -> Result<(), Failure> {
        let wanted = vmi.spec.domain.devices.interfaces.as_deref().unwrap_or_default();
        if wanted.is_empty() || self.known(&work.uid, |known| known.links.is_some()) {
            return Ok(());
        }
        let pod = self.pod_of(vmi).ok_or_else(|| passing("the instance does not tell which pod is its own"))?;
        let (namespace, owner) = self
            .launchers
            .namespace(&work.uid)
            .ok_or_else(|| passing("the launcher's network namespace is not known"))?;
        let socket = self.network_socket(&pod).map_err(|error| passing(format!("{NETWORK_SOCKET}: {error}")))?;
        let state = self.network_state(&pod);
        if let Some(folder) = state.parent() {
            std::fs::create_dir_all(folder).map_err(|error| passing(error.to_string()))?;
        }
        let vm = identity::vm_of(&self.client, vmi).await.map_err(|error| passing(chain(&error)))?;
        let identity = vm.unwrap_or_else(|| work.uid.clone());
        let place = Place { namespace, owner, identity, state, socket: folders::by_descriptor(socket.as_fd()) };
        let made = self.networks.connect(place, vmi).await;
        let links: Vec<Link> = made.map_err(|error| Failure { message: error.message, is_final: error.is_final })?;
        self.known(&work.uid, |known| known.links = Some(links));
        Ok(())
    }

    fn network_socket(&self, pod: &str) -> std::io::Result<OwnedFd> {
        let pods = folders::open_own(&self.settings.pods())?;
        let folder = folders::open_beneath(&pods, &folders::volume_path(pod, SOCKETS))?;
        folders::open_socket(&folder, NETWORK_SOCKET)
    }

    /// Waits until an instance is to be deleted, or gone.
    async fn unwanted(&self, work: &Work) {
        let mut changes = self.vmis.subscribe();
        loop {
            let change = changes.next().await;
            if change.key != work.key {
                continue;
            }
            let same = change.new.filter(|vmi| vmi.metadata.uid.as_ref() == Some(&work.uid));
            if same.is_none_or(|vmi| vmi.is_marked_for_deletion() || vmi.is_final()) {
                return;
            }
        }
    }
}

fn passing(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), is_final: false }
}

fn lasting(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), is_final: true }
}
