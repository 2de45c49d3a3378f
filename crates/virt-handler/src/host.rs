//! What stands between virt-handler and a machine: how launchers are reached and spoken to, and what is prepared for their guests.
//!
//! ```text
//! decide ──> act ──> Host:    disks, network, devices, clean-up        machine: for real
//!                └─> Speaker: sync, shut down, kill, let go, ...       hollow:  simulated, in this process
//! ```
//! Nothing is decided here. So the decisions that are simulated are those that ship.

pub(crate) mod machine;
pub(crate) mod speaking;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use launcher_api::Outcome;
use launcher_api::rpc::{
    Accelerator, Domain, GuestModel, Incoming, LocalDisks, MigrateRequest, MigrationName, TakeRequest,
};
use tokio::net::UnixStream;
use tonic::Status;

use crate::launchers::{Entry, LauncherId};
use crate::networks::Link;
use crate::relay::{Channel, Question, RelayError, Reply, Target};

pub(crate) use machine::{Machine, Reached};

/// Something that takes its time.
pub(crate) type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The machine that launchers are on. All that it does may be repeated: what is there stays.
pub(crate) trait Host: Send + Sync {
    /// Connects to a launcher and passes on what it says, until it is gone.
    fn keep(self: Arc<Self>, entry: Arc<Entry>, patience: Duration) -> Doing<'static, ()>;

    /// Brings disks from containers to the launcher, where the node does not mount images itself.
    fn bring_disks<'a>(&'a self, id: &'a LauncherId, vmi: &'a VirtualMachineInstance)
    -> Doing<'a, Result<(), Outcome>>;

    /// Makes the guest's network and hands it to the launcher.
    fn connect_network<'a>(
        &'a self,
        id: &'a LauncherId,
        vmi: &'a VirtualMachineInstance,
    ) -> Doing<'a, Result<Vec<Link>, Outcome>>;

    /// Makes the devices in the launcher's container its own.
    fn give_devices(&self, id: &LauncherId) -> io::Result<()>;

    /// Removes what was prepared for a launcher.
    fn clean_up(&self, id: &LauncherId) -> io::Result<()>;

    /// Where the handlers of other nodes reach this one; none where no guest can come or go.
    fn reached_at(&self) -> Option<SocketAddr>;

    /// Whether a claim belongs to the one launcher that has it, so that no other could use it at the same time.
    fn isolates_claims(&self) -> bool;

    /// Has the addresses of a guest come to the launcher that is to go on with it; what it is reached at then. None where addresses stay
    /// with their pods.
    fn claim_addresses<'a>(&'a self, id: &'a LauncherId) -> Doing<'a, Result<Option<Vec<IpAddr>>, String>>;

    /// Asks the handler of another node about a launcher that a guest is to come to.
    fn ask<'a>(&'a self, target: &'a Target, question: Question) -> Doing<'a, Result<Reply, RelayError>>;

    /// Carries a channel from a launcher here to another node, until one of the two ends it. Returns when it has begun.
    fn carry<'a>(
        &'a self,
        id: &'a LauncherId,
        target: &'a Target,
        channel: Channel,
    ) -> Doing<'a, Result<(), RelayError>>;

    /// Connects to what a launcher here awaits.
    fn arriving<'a>(&'a self, id: &'a LauncherId, channel: &'a Channel) -> Doing<'a, io::Result<UnixStream>>;
}

/// A launcher that can be spoken to.
pub(crate) trait Speaker: Send + Sync {
    /// Makes the guest what is wanted. The domain is there if the launcher told one.
    fn sync<'a>(&'a self, wanted: Wanted<'a>) -> Doing<'a, (Option<Domain>, Outcome)>;
    /// What the guest sees.
    fn get_guest(&self) -> Doing<'_, Result<GuestModel, Status>>;
    /// Lets a paused guest go on.
    fn unpause(&self) -> Doing<'_, Result<Domain, Status>>;
    /// Asks the guest to power off, and kills it when the time is over.
    fn shut_down(&self, grace: Duration) -> Doing<'_, Result<Domain, Status>>;
    /// Ends the guest now.
    fn kill(&self) -> Doing<'_, Result<Domain, Status>>;
    /// Ends the launcher after its guest has ended.
    fn delete(&self) -> Doing<'_, Result<(), Status>>;

    /// The guest as it is now.
    fn get_domain(&self) -> Doing<'_, Result<Domain, Status>>;
    /// The disks that only this pod has.
    fn get_local_disks(&self) -> Doing<'_, Result<LocalDisks, Status>>;
    /// Lets the guest leave.
    fn migrate(&self, request: MigrateRequest) -> Doing<'_, Result<Domain, Status>>;
    /// Asks to give that up.
    fn cancel_migration(&self, name: MigrationName) -> Doing<'_, Result<Domain, Status>>;
    /// Promises the guest to the target, which has all of it.
    fn give(&self, name: MigrationName) -> Doing<'_, Result<Domain, Status>>;
    /// Lets the guest go on here that was to leave.
    fn returned(&self, name: MigrationName) -> Doing<'_, Result<Domain, Status>>;
    /// Lets the guest go on here that has come.
    fn take(&self, request: TakeRequest) -> Doing<'_, Result<Domain, Status>>;
    /// Refuses for good a guest that was awaited.
    fn renounce(&self) -> Doing<'_, Result<Domain, Status>>;
}

/// What a launcher is asked to make of its guest.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) vmi: &'a VirtualMachineInstance,
    /// What runs guests on this node, if that is known.
    pub(crate) accelerator: Accelerator,
    /// The guest comes from another launcher.
    pub(crate) incoming: Option<Incoming>,
    /// What the domain tells once it is done.
    pub(crate) mark: u64,
}
