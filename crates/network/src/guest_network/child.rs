//! The short-lived process that enters a pod's namespace.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Signal, getpid, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::steps::{self, StepError, Steps};
use super::{Attached, AttachedInterface, Plan};
use crate::links::LinkError;
use crate::wire;

/// What the child is asked for; the namespace comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    SetUp(Plan),
    /// Only the sockets.
    Reopen(Vec<AttachedInterface>),
}

/// What the child answers; the sockets come with it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done(Vec<AttachedInterface>),
    /// A retry would end the same way; with the chain of causes.
    Refused(String),
    /// A retry may succeed; with the chain of causes.
    Failed(String),
}

/// Why the child could not even answer.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// Its input is not what [`super::set_up`] gives it.
    #[error("cannot talk to the process that started this one")]
    Talk(#[source] io::Error),
    /// The namespace cannot be entered.
    #[error("cannot enter the pod's network namespace")]
    Enter(#[source] io::Error),
    /// There is no runtime.
    #[error("cannot start a runtime")]
    Runtime(#[source] io::Error),
}

/// What `PROGRAM network-setup` runs, before it has started any thread.
///
/// # Errors
/// When its parent cannot be talked to; all other errors are told to the parent.
pub fn child() -> Result<(), ChildError> {
    run(Steps::new(|_| {}))
}

/// As [`child`], killed after a number of steps: for tests of what happens when it is cut off.
#[doc(hidden)]
pub fn child_that_ends_after(last: usize) -> Result<(), ChildError> {
    run(Steps::new(move |done| {
        if done == last {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }))
}

fn run(steps: Steps<impl FnMut(usize)>) -> Result<(), ChildError> {
    let socket = io::stdin();
    let (bytes, mut descriptors) = wire::receive(socket.as_fd()).map_err(ChildError::Talk)?;
    let request: Request = serde_json::from_slice(&bytes).map_err(|error| ChildError::Talk(error.into()))?;
    let missing =
        || ChildError::Talk(io::Error::new(io::ErrorKind::InvalidData, "the request has no network namespace"));
    enter(&descriptors.pop().ok_or_else(missing)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ChildError::Runtime)?;
    let done = runtime.block_on(carry_out(request, steps));
    let (answer, attached) = match done {
        Ok(attached) => (Answer::Done(attached.interfaces.clone()), Some(attached)),
        Err(error) => (failure(&error), None),
    };
    let bytes = serde_json::to_vec(&answer).map_err(|error| ChildError::Talk(error.into()))?;
    let sockets = attached.as_ref().map(Attached::descriptors).unwrap_or_default();
    wire::send(socket.as_fd(), &bytes, &sockets).map_err(ChildError::Talk)
}

async fn carry_out(request: Request, steps: Steps<impl FnMut(usize)>) -> Result<Attached, StepError> {
    match request {
        Request::SetUp(plan) => steps::set_up(&plan, steps).await,
        Request::Reopen(interfaces) => steps::reopen(interfaces).await,
    }
}

fn enter(netns: &OwnedFd) -> Result<(), ChildError> {
    move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| ChildError::Enter(error.into()))
}

fn failure(error: &StepError) -> Answer {
    let why = chain(error);
    match error {
        StepError::Plan(_) | StepError::Gone(_) | StepError::Link(LinkError::OtherKind { .. }) => Answer::Refused(why),
        StepError::Link(_)
        | StepError::Rules(_)
        | StepError::NoPodLink(_)
        | StepError::Tap { .. }
        | StepError::Sysctl { .. }
        | StepError::Sockets { .. } => Answer::Failed(why),
    }
}

/// The chain of causes on one line.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        None => error.to_string(),
        Some(source) => format!("{error}: {}", chain(source)),
    }
}
