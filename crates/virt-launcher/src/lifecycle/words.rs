//! What goes into a life and what comes out of it: requests, what QEMU told, and actions.

use std::time::Duration;

use crate::domain::{Pause, Progress};
use crate::grant::{Grant, GrantError};

/// What somebody wants of a guest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// Stop the vCPUs.
    Pause,
    /// Let the vCPUs run on.
    Unpause,
    /// Press the reset button.
    Reset,
    /// Ask the guest to power off by its button, and start it again when it has.
    Reboot,
    /// Ask the guest to power off, and kill it when the time is over.
    Shutdown {
        /// How long the guest may take.
        grace: Duration,
    },
    /// End it at once.
    Kill,
    /// Send the guest to another launcher, while it runs.
    Leave { to: String },
    /// The guest is stopped, and the last of it is about to be sent.
    Part { to: String },
    /// The connection broke after the guest had parted.
    Cut { to: String },
    /// The guest is not sent after all, for this reason.
    Stay { to: String, why: String },
    /// Give up sending the guest.
    Cancel { to: String },
    /// Stop the guest, so that sending it comes to an end.
    Halt { to: String },
    /// How much was sent.
    Progress(Progress),
    /// Promise the guest to another launcher, where its state has gone.
    Give { to: String },
    /// Let the guest go on here: another launcher has promised it, or is gone for good.
    Take {
        from: String,
        /// It was paused, and stays so.
        paused: Option<Pause>,
    },
    /// Give up for good a guest that was awaited, and end.
    Renounce,
    /// Let the guest run here again: another launcher has renounced it.
    Returned { by: String },
}

/// Why a request was not taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Denied {
    /// QEMU is not up yet.
    #[error("the guest is still being started")]
    Starting,
    /// It was told to power off.
    #[error("the guest is shutting down")]
    Stopping,
    /// It powered off to start again.
    #[error("the guest is rebooting")]
    Rebooting,
    /// It cannot see a button.
    #[error("the guest is paused")]
    Paused,
    /// Its memory is being sent.
    #[error("the guest is being migrated")]
    Migrating,
    /// It is gone.
    #[error("the guest has ended")]
    Ended,
    /// Its state is on the way from one launcher to another.
    #[error("the guest is being handed over between two launchers")]
    Away,
    /// Its state has not gone anywhere.
    #[error("the guest is not being handed over between two launchers")]
    Here,
    /// Another migration is under way, or none.
    #[error("the guest is not on its way with migration {0}")]
    OtherMigration(String),
    /// Its grant says otherwise.
    #[error(transparent)]
    Grant(#[from] GrantError),
}

/// Something that QEMU told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Told {
    /// The vCPUs run.
    Resumed,
    /// The vCPUs are stopped.
    Stopped,
    /// A disk failed, in these words, and the guest was stopped for it.
    IoError(String),
    /// The guest was reset.
    Reset,
    /// The guest's kernel panicked.
    Panicked,
    /// QEMU stopped the guest for good, by an error that is not the guest's.
    InternalError {
        /// It happened under KVM and soon after the start.
        kvm_is_suspect: bool,
    },
    /// QEMU is about to end, for this reason.
    Shutdown(String),
    /// A guest agent opened or closed its channel.
    Agent(bool),
    /// The vCPUs are stopped so that the last of the guest can be sent.
    StoppedToPart,
    /// The guest's state has come or gone, whole.
    Migrated,
    /// QEMU has given up sending the guest's state.
    NotMigrated,
}

/// What the driver is to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Let the vCPUs run.
    Continue,
    /// Stop the vCPUs.
    Stop,
    /// Press the reset button.
    Reset,
    /// Ask the guest to power off.
    PressPower,
    /// Press the power button, and hold the guest when it has powered off, so that it can start again.
    PowerCycle,
    /// Let QEMU end when the guest powers off, as usual.
    LetPowerOff,
    /// Kill QEMU.
    Kill,
    /// Give up sending the guest's state, wherever that is.
    Abort,
    /// Serve this guest's disks to nobody any more.
    StopExports,
    /// Tell the guest what time it is: its clock stood still on the way.
    SetClock,
    /// Write down who may write. If that fails, nothing that follows is done.
    Keep(Grant),
    /// Tell everyone what the domain is like now.
    Publish,
}
