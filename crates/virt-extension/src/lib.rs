//! virt-api as a program of its own: an extension API server behind that of Kubernetes, and its webhooks.
//!
//! ```text
//! kube-apiserver ──TLS──> serving ──> admission/mutate, admission/validate ──> webhooks ──> virt-server's rules
//!                            │                                                   └ facts: what the rules look up
//!                            └──> front_proxy: who asks ──> documents: discovery, OpenAPI
//!                                                      └──> virt-api's service ──> handlers ──TLS──> virt-handler
//! ```
//! Watches: the KubeVirt object, presets, and the config map that says who the front proxy is. Owns nothing. Emits: answers, and
//! metrics on pages of their own.
//!
//! # Guarantees
//! - Nobody is believed to be the front proxy without a certificate of the cluster's front-proxy authority, for a name that the
//!   cluster allows, as both are at that moment. Whoever is not is refused, whatever the headers say.
//! - Streams take no place from webhooks: a cluster whose users look at many consoles can still write objects.
//!
//! Absent on purpose: the rules (`virt-api`, `virt-rules`), and who makes certificates and installs manifests.

mod documents;
mod facts;
mod front_proxy;
mod handlers;
pub mod manifests;
mod metrics;
mod serving;
mod streams;
mod webhooks;

pub use handlers::{Handlers, Nowhere};
pub use serving::{Extension, Listening, StartError};
pub use virt_api::subresources::Guests;
