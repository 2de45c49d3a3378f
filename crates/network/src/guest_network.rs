//! The masquerade binding: a guest's network behind a pod's address, made in the pod's namespace.
//!
//! ```text
//! set_up ── plan, namespace ──> child: enters the namespace, makes links, rules and sockets
//!        <── result, sockets ──
//! ```
//! The child is a process of its own, since who enters a namespace should do nothing else; it ends after its answer.
//!
//! # Guarantees
//! - What was begun and cut off is finished by the next call; what was finished is answered from the record.
//! - A record is never applied to another namespace than the one that it was made for.
//! - A guest sends in its own name alone, and reaches nothing that its pod keeps to itself.

mod child;
mod error;
mod guard;
mod layout;
mod rules;
mod sockets;
mod state;
mod steps;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

pub use crate::attached::{Attached, AttachedInterface, Sockets};
use crate::mac::Mac;
use crate::namespace::Namespace;
use crate::{kernel, wire};
use child::{Answer, Request};
pub use child::{ChildError, child, child_that_ends_after};
pub use error::{FinalError, RetryableError, SetUpError};
pub(crate) use layout::BRIDGE_MAC;
use state::{Progress, State};

/// The child needs some ten milliseconds, and `nft` on a busy machine seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a pod's namespace shall have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// One bridge and one tap each.
    pub interfaces: Vec<Interface>,
}

/// One interface of the guest, bound by masquerade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The interface's name in the instance.
    pub name: String,
    /// The pod's link, such as `eth0`.
    pub pod_link: String,
    /// The guest's Ethernet address.
    pub mac: Mac,
    /// What is let through to the guest. None: everything.
    pub ports: Vec<Port>,
    /// Who may open the tap.
    pub owner: Owner,
    /// The guest's network instead of 10.0.2.0/24: its first address is the router's, its second the guest's.
    pub cidr4: Option<(Ipv4Addr, u8)>,
    /// The guest's network instead of fd10:0:2::/120.
    pub cidr6: Option<(Ipv6Addr, u8)>,
    /// Queues of the tap.
    pub queues: u16,
}

/// A port of the guest that others may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Makes what the plan says in a namespace, or answers what was made there before, with new sockets.
///
/// `program` is run as `PROGRAM network-setup` and shall call [`child`] at once; `state` is the file that remembers
/// how far it came, one for each namespace. One call at a time for a namespace.
///
/// # Errors
/// As [`SetUpError`] says. After a [`RetryableError`], the next call goes on where this one stopped.
pub async fn set_up(program: &Path, netns: BorrowedFd<'_>, state: &Path, plan: &Plan) -> Result<Attached, SetUpError> {
    let namespace = Namespace::of(netns).map_err(RetryableError::Namespace)?;
    let recorded = state::read(state).await?;
    if recorded.as_ref().is_some_and(|recorded| recorded.namespace != namespace) {
        return Err(FinalError::OtherNamespace(state.to_owned()).into());
    }
    if let Some(State { progress: Progress::Finished(interfaces), .. }) = recorded {
        return ask(program, netns, &Request::Reopen(interfaces)).await;
    }
    if recorded.is_none() {
        state::write(state, State { namespace: namespace.clone(), progress: Progress::Started }).await?;
    }
    let attached = ask(program, netns, &Request::SetUp(plan.clone())).await?;
    state::write(state, State { namespace, progress: Progress::Finished(attached.interfaces.clone()) }).await?;
    Ok(attached)
}

async fn ask(program: &Path, netns: BorrowedFd<'_>, request: &Request) -> Result<Attached, SetUpError> {
    match tokio::time::timeout(TIMEOUT, exchange(program, netns, request)).await {
        Ok(answered) => answered,
        Err(_) => Err(RetryableError::TimedOut.into()),
    }
}

async fn exchange(program: &Path, netns: BorrowedFd<'_>, request: &Request) -> Result<Attached, SetUpError> {
    let failed = |source| SetUpError::from(RetryableError::Child { program: program.to_owned(), source });
    let (ours, theirs) = wire::pair().map_err(failed)?;
    // Its input is the socket: the one descriptor that a process can be given without leaking it to others.
    let mut command = Command::new(program);
    command.arg("network-setup").stdin(Stdio::from(theirs)).stdout(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    drop(command);
    let socket = nonblocking(ours).map_err(failed)?;
    let bytes = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
    // A child that ended early says more by how it ended than by a broken pipe.
    let sent = wire::send_async(&socket, &bytes, &[netns]).await;
    let (answer, sockets) = match sent {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => (Vec::new(), Vec::new()),
        Err(error) => return Err(failed(error)),
        Ok(()) => match wire::receive_async(&socket).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => (Vec::new(), Vec::new()),
            received => received.map_err(failed)?,
        },
    };
    let status = child.wait().await.map_err(failed)?;
    if answer.is_empty() {
        return Err(RetryableError::NoAnswer(status).into());
    }
    match serde_json::from_slice(&answer).map_err(|error| failed(error.into()))? {
        Answer::Refused(why) => Err(FinalError::Refused(why).into()),
        Answer::Failed(why) => Err(RetryableError::Failed(why).into()),
        Answer::Done(interfaces) => Attached::join(interfaces, sockets)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error))),
    }
}

/// As [`set_up`], in this process and in the namespace that it is in.
#[cfg(test)]
pub(crate) async fn set_up_here(plan: &Plan) -> Result<Attached, steps::StepError> {
    steps::set_up(plan, steps::Steps::new(|_| {})).await
}

fn nonblocking(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = rustix::fs::fcntl_getfl(socket.as_fd())?;
    rustix::fs::fcntl_setfl(socket.as_fd(), flags | rustix::fs::OFlags::NONBLOCK)?;
    kernel::watched(socket)
}
