//! A Kubernetes API server, small enough to be embedded: `kubectl`, informers and the usual clients work on it unmodified.
//!
//! ```text
//! Request --> authenticate (TLS, or an extension) --> authorize --> route
//!                                                                    |
//!        discovery, OpenAPI, health, metrics  <----------------------+---->  another service (a group of its own)
//!                                                                    |
//!   verbs: decode, default, admit, validate  <-----------------------+
//!     |  writes           |  reads
//!     v                   v
//!   store: one writer --> snapshots, histories
//! ```
//!
//! It owns the state of all objects and the registry of what is served; it watches its own table of CRDs. It knows nothing
//! about virtual machines, runs no controllers beyond what a CRD needs, and has no opinion on what pods do.
//!
//! [`ApiServer`] is a [`tower::Service`]: a client may sit on it in the same process, or [`serve`](serve::serve) puts it
//! behind TLS.

mod accounts;
mod audit;
mod authority;
mod body;
mod bootstrap;
mod bounds;
mod clock;
mod convert;
mod crds;
mod directories;
mod discovery;
mod expiry;
mod facts;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod impersonation;
mod json;
mod jsonpath;
pub mod logs;
mod meta;
mod metrics;
mod names;
mod negotiate;
mod openapi;
mod places;
mod protobuf;
mod rbac;
mod registry;
mod render;
mod request;
mod route;
mod selector;
pub mod serve;
mod served;
mod server;
mod signal;
mod status;
mod store;
mod strategy;
mod table;
mod tokens;
mod verbs;

pub use accounts::ServiceAccounts;
pub use audit::AuditLog;
pub use body::{Body, BrokenOff};
pub use clock::Clock;
pub use directories::make_directory;
pub use identity::{Admission, Attributes, Authorizer, Decision, Eviction, Identity, MASTERS, Review, Stored};
pub use route::{Delegate, Delegation, RequestBody, StreamPlace};
pub use server::{ApiServer, Builder, Check, InProcess};
pub use status::Status;
pub use store::{OpenError, Place, Size as StoreSize, backup};

/// The Kubernetes version whose API this is.
pub const VERSION: &str = "v1.36.3";
