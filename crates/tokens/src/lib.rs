//! Signed tokens of service accounts: the keys that sign them, and JSON web tokens as Kubernetes makes and checks them.
//!
//! Absent on purpose: what tokens say. Whoever makes one knows what it claims, and whoever opens one what to believe.

pub mod jwt;
pub mod signer;

pub use signer::{Key, KeyError, SignError, Signer};
