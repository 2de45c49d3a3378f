//! Authorities, the certificates that they issue, and how both are renewed while connections go on.
//!
//! ```text
//! keeper     an authority in a directory, and its successor while one takes over from the other
//!   rotation   when that happens: announced, then signing, then alone; pure
//!   authority  signs
//! leaf       what is signed: a server, a client, or both
//! renewing   a server's certificate that is renewed in time, and what clients it trusts
//! tls        both as rustls takes them; a handshake takes what is good at its moment
//! files      read within bounds, written whole or not at all
//! following  what is made of files that somebody else renews
//! ```
//! Guarantees:
//! - Whoever has heard of the authorities within [`Terms::spread`] trusts every certificate that is in use.
//! - A certificate is replaced before it ends, and a connection goes on with the one that it began with.
//! - A key is readable by its owner alone, and never there in half.
//!
//! Time comes in from outside. Absent on purpose: revocation (certificates end soon instead), and who may have one.

mod authority;
mod error;
pub mod files;
mod following;
mod keeper;
mod leaf;
mod renewing;
pub mod rotation;
pub mod tls;

pub use authority::{Authority, new_key, self_signed};
pub use error::CertificateError;
pub use following::Following;
pub use keeper::Keeper;
pub use leaf::{Leaf, Request, Use};
pub use renewing::Renewing;
pub use rotation::Terms;
