//! The protocol between virt-handler and its launchers.
//!
//! Both sides depend on this crate and not on each other: a node's agent is replaced while launchers of the release before still run
//! their guests.
//!
//! - [`rpc`]: the protocol, as `proto/launcher.proto` has it.
//! - [`greeting`]: which release speaks, and what it can do.
//! - [`outcome`]: what came of a request, and whether a retry helps.
//! - [`client`]: a connection to one launcher.
//! - [`names`]: sockets and volumes that both sides and whoever makes the pod must agree on.

pub mod client;
pub mod greeting;
pub mod names;
pub mod outcome;
pub mod rpc;

pub use greeting::{Feature, Greeting};
pub use outcome::{Outcome, Refusal};
