//! How guests are reached. In one process, virt-handler is asked directly; on Kubernetes it is asked over TLS ([`super::remote`]),
//! by another implementation of the same trait.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

/// Which guest is meant: an instance, and no other of its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestName {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The node that it is on.
    pub node: String,
}

/// What a guest is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Question {
    /// To hold its vCPUs.
    Pause,
    /// To let them go on.
    Unpause,
    /// To begin anew, as by the reset button.
    Reset,
    /// To reboot.
    SoftReboot,
    /// To hold its file systems, for no longer than this.
    Freeze {
        /// Until it is thawed by itself; the launcher's own limit, if nobody says.
        thaw_after: Option<Duration>,
    },
    /// To let writes go on.
    Unfreeze,
    /// What its agent tells of it: a `VirtualMachineInstanceGuestAgentInfo`.
    Info,
    /// Who is logged in: a `VirtualMachineInstanceGuestOSUserList`.
    Users,
    /// What is mounted: a `VirtualMachineInstanceFileSystemList`.
    Filesystems,
    /// What is on its screen, as a PNG.
    Screenshot,
    /// The same, after its pointer was moved: a screen that sleeps is drawn then. A question of its own, since nodes of an earlier
    /// release know only the other.
    MovedScreenshot,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It is done.
    Done,
    Object(Value),
    Picture(Bytes),
}

/// A way into a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Way {
    /// Its first serial port.
    Console {
        /// Begins with what the guest wrote last.
        replay: bool,
    },
    /// Its screen, keyboard and mouse.
    Vnc {
        /// Fails if somebody else is there, instead of sending them away.
        preserve: bool,
    },
    /// A TCP port, dialled from within its pod.
    Port { port: u16 },
    /// A UDP port, the same way: each read of the connection is a datagram, and so is each write.
    Datagrams { port: u16 },
}

/// Why a guest did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum GuestError {
    /// Nobody here knows it.
    #[error("{0}")]
    Unknown(String),
    /// It is not in a state for that.
    #[error("{0}")]
    Refused(String),
    /// It, or what runs it, failed.
    #[error("{0}")]
    Failed(String),
}

/// Bytes to and from a guest. An error of a read is why the connection has ended; its words are for the client.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that is open.
pub type Connection = Box<dyn Stream>;

/// An answer that is on its way.
pub type Answering<T> = Pin<Box<dyn Future<Output = Result<T, GuestError>> + Send>>;

/// Guests of all nodes.
pub trait Guests: Send + Sync {
    /// Asks one of them.
    fn ask(&self, guest: GuestName, question: Question) -> Answering<Reply>;

    /// Opens a way into one of them.
    fn open(&self, guest: GuestName, way: Way) -> Answering<Connection>;
}
