//! This machine: launchers in pods of its kubelet, networks in their namespaces, disks in their containers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use kube::Client;
use launcher_api::names::{
    DISKS_SOCKET, LEAVING_SOCKET, MEMORY_CHANNEL, MEMORY_SOCKET, NETWORK_SOCKET, PRIVATE, SOCKETS, disk_channel,
};
use launcher_api::{Greeting, Outcome};
use manager::errors::chain;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use super::{Doing, Host};
use crate::container_disks;
use crate::folders;
use crate::identity;
use crate::isolation::Peer;
use crate::launchers::{Entry, LauncherId, connection};
use crate::networks::{Addresses, Link, Networks, Place};
use crate::ownership;
use crate::relay::{Channel, Question, Relay, RelayError, Reply, Target};

/// The machine that this process runs on.
pub(crate) struct Machine {
    /// The kubelet's directory of pods.
    pods: PathBuf,
    /// Where the state of networks is kept.
    networks_state: PathBuf,
    client: Client,
    networks: Arc<dyn Networks>,
    /// How guests come and go, and where the handlers of other nodes reach this one.
    relay: Option<(Relay, SocketAddr)>,
    /// Lets addresses come along with guests.
    addresses: Option<Arc<dyn Addresses>>,
    /// A claim belongs to the launcher that has it.
    isolates_claims: bool,
    /// The launchers that can be spoken to, by pod.
    reached: Mutex<BTreeMap<String, Arc<Reached>>>,
}

/// A launcher that can be spoken to.
pub(crate) struct Reached {
    /// The UID of its instance.
    pub(crate) instance: String,
    /// The UID of its pod.
    pub(crate) pod: String,
    /// Who is behind its socket.
    pub(crate) peer: Peer,
    pub(crate) client: launcher_api::client::Client,
    pub(crate) greeting: Greeting,
}

impl Machine {
    pub(crate) fn new(pods: PathBuf, networks_state: PathBuf, client: Client, networks: Arc<dyn Networks>) -> Self {
        let (relay, addresses, isolates_claims) = (None, None, false);
        Self { pods, networks_state, client, networks, relay, addresses, isolates_claims, reached: Mutex::default() }
    }

    /// Whether a claim belongs to the one launcher that has it.
    pub(crate) fn isolating_claims(self, isolates_claims: bool) -> Self {
        Self { isolates_claims, ..self }
    }

    /// Guests come and go by this relay, which listens there, and their addresses with them.
    pub(crate) fn with_relay(self, relay: Option<(Relay, SocketAddr)>, addresses: Option<Arc<dyn Addresses>>) -> Self {
        Self { relay, addresses, ..self }
    }

    /// Connects to a socket in the folder that a launcher has for its guest, such that the launcher cannot lead us elsewhere.
    async fn join(&self, id: &LauncherId, name: &str) -> io::Result<UnixStream> {
        if !folders::is_plain(&id.pod) || !folders::is_plain(&id.uid) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let pods = folders::open_own(&self.pods)?;
        let folder = folders::open_beneath(&pods, &folders::volume_path(&id.pod, PRIVATE).join(&id.uid))?;
        let socket = folders::open_socket(&folder, name)?;
        UnixStream::connect(folders::by_descriptor(socket.as_fd())).await
    }

    async fn leave(&self, id: &LauncherId, target: &Target, channel: Channel) -> Result<(), RelayError> {
        let (relay, _) = self.relay.as_ref().ok_or(RelayError::Absent)?;
        let joined = async {
            let mut near = self.join(id, LEAVING_SOCKET).await?;
            let name = match &channel {
                Channel::Disk(device) => disk_channel(device),
                Channel::Memory | Channel::Words => MEMORY_CHANNEL.to_owned(),
            };
            near.write_all(format!("{name}\n").as_bytes()).await?;
            Ok(near)
        };
        let near =
            joined.await.map_err(|error: io::Error| RelayError::Refused(format!("{LEAVING_SOCKET}: {error}")))?;
        relay.carry(target, channel, near).await
    }

    /// The kubelet's directory of pods.
    pub(crate) fn pods(&self) -> PathBuf {
        self.pods.clone()
    }

    /// The launcher of a pod can be spoken to.
    pub(crate) fn reached(&self, launcher: Reached) {
        self.launchers().insert(launcher.pod.clone(), Arc::new(launcher));
    }

    /// It cannot, for now or any more.
    pub(crate) fn lost(&self, pod: &str) {
        self.launchers().remove(pod);
    }

    fn launchers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Reached>>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launcher(&self, pod: &str) -> Option<Arc<Reached>> {
        self.launchers().get(pod).cloned()
    }

    /// The launcher of an instance on this node. A second one of the same instance is always on another node.
    pub(crate) fn launcher_of(&self, instance: &str) -> Option<Arc<Reached>> {
        self.launchers().values().find(|launcher| launcher.instance == instance).cloned()
    }

    /// The launcher's network namespace, and the user and group that it runs as.
    fn namespace(&self, pod: &str) -> Option<(OwnedFd, (u32, u32))> {
        let launcher = self.launcher(pod).filter(|launcher| launcher.peer.is_alive())?;
        Some((launcher.peer.network().ok()?, (launcher.peer.uid, launcher.peer.gid)))
    }

    fn network_socket(&self, pod: &str) -> io::Result<OwnedFd> {
        let pods = folders::open_own(&self.pods)?;
        let folder = folders::open_beneath(&pods, &folders::volume_path(pod, SOCKETS))?;
        folders::open_socket(&folder, NETWORK_SOCKET)
    }

    /// Where the state of a pod's network is kept.
    fn network_state(&self, pod: &str) -> PathBuf {
        self.networks_state.join(format!("{pod}.json"))
    }

    async fn connect(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Result<Vec<Link>, Outcome> {
        let (namespace, owner) =
            self.namespace(&id.pod).ok_or_else(|| Outcome::retry("cannot find the launcher's network namespace"))?;
        let socket =
            self.network_socket(&id.pod).map_err(|error| Outcome::retry(format!("{NETWORK_SOCKET}: {error}")))?;
        std::fs::create_dir_all(&self.networks_state).map_err(|error| Outcome::retry(error.to_string()))?;
        let vm = identity::vm_of(&self.client, vmi).await.map_err(|error| Outcome::retry(chain(&error)))?;
        let identity = vm.unwrap_or_else(|| id.uid.clone());
        // The descriptor stays open until the network is made.
        let path = folders::by_descriptor(socket.as_fd());
        let place = Place { namespace, owner, identity, state: self.network_state(&id.pod), socket: path };
        self.networks.connect(place, vmi).await.map_err(|error| error.outcome())
    }
}

impl Host for Machine {
    fn keep(self: Arc<Self>, entry: Arc<Entry>, patience: Duration) -> Doing<'static, ()> {
        Box::pin(connection::keep(self, entry, patience))
    }

    fn bring_disks<'a>(
        &'a self,
        id: &'a LauncherId,
        vmi: &'a VirtualMachineInstance,
    ) -> Doing<'a, Result<(), Outcome>> {
        Box::pin(
            async move { container_disks::mount_all(&self.pods, &id.pod, vmi).await.map_err(|error| error.outcome()) },
        )
    }

    fn connect_network<'a>(
        &'a self,
        id: &'a LauncherId,
        vmi: &'a VirtualMachineInstance,
    ) -> Doing<'a, Result<Vec<Link>, Outcome>> {
        Box::pin(self.connect(id, vmi))
    }

    fn give_devices(&self, id: &LauncherId) -> io::Result<()> {
        self.launcher(&id.pod).map_or(Ok(()), |launcher| ownership::give_devices(&launcher.peer))
    }

    fn reached_at(&self) -> Option<SocketAddr> {
        self.relay.as_ref().map(|(_, address)| *address)
    }

    fn isolates_claims(&self) -> bool {
        self.isolates_claims
    }

    fn claim_addresses<'a>(&'a self, id: &'a LauncherId) -> Doing<'a, Result<Option<Vec<IpAddr>>, String>> {
        Box::pin(async move {
            let Some(addresses) = &self.addresses else { return Ok(None) };
            addresses.claim(&id.pod).await.map(Some)
        })
    }

    fn ask<'a>(&'a self, target: &'a Target, question: Question) -> Doing<'a, Result<Reply, RelayError>> {
        Box::pin(async move {
            let (relay, _) = self.relay.as_ref().ok_or(RelayError::Absent)?;
            relay.ask(target, &question).await
        })
    }

    fn carry<'a>(
        &'a self,
        id: &'a LauncherId,
        target: &'a Target,
        channel: Channel,
    ) -> Doing<'a, Result<(), RelayError>> {
        Box::pin(self.leave(id, target, channel))
    }

    fn arriving<'a>(&'a self, id: &'a LauncherId, channel: &'a Channel) -> Doing<'a, io::Result<UnixStream>> {
        Box::pin(async move {
            match channel {
                Channel::Memory => self.join(id, MEMORY_SOCKET).await,
                Channel::Disk(_) => self.join(id, DISKS_SOCKET).await,
                Channel::Words => Err(io::ErrorKind::InvalidInput.into()),
            }
        })
    }

    fn clean_up(&self, id: &LauncherId) -> io::Result<()> {
        container_disks::unmount_all(&self.pods, &id.pod)?;
        if let Err(error) = std::fs::remove_file(self.network_state(&id.pod))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "cannot remove the state of a network");
        }
        Ok(())
    }
}
