//! What tests of several crates share; no program has it.
//!
//! ```text
//! alone      tests about the whole process
//! edits      inputs for parsers that are nearly right
//! harness    runs tests, and counts as ignored what this machine cannot run, with the reason
//! needs      what a test may need: root, QEMU, the test guest, a program
//! test_host  a host of the tests' own: namespaces in which nothing of the real one can be seen or touched
//! namespace  network namespaces that stand for hosts
//! scripts    programs that tests write
//! ports      for programs that must be told one
//! soak       how long tests go on that could go on for ever
//! waiting    until something is so
//! world      an API server under a paused clock, and what controllers are given
//! ```
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, and so does what it is made of")]

pub mod alone;
pub mod edits;
pub mod harness;
pub mod namespace;
pub mod needs;
pub mod ports;
pub mod scripts;
pub mod soak;
pub mod test_host;
pub mod waiting;
#[cfg(feature = "world")]
pub mod world;

pub use alone::alone;
pub use harness::{Harness, Test};
pub use needs::Need;
pub use waiting::NEVER;
