//! Requests that mean harm, sent by somebody who may send them. Whatever one of them is answered: meanwhile other clients
//! are answered, afterwards all that it left can be deleted, and the server starts again on the same data.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "hostile/crowd.rs"]
mod crowd;
#[path = "hostile/deep.rs"]
mod deep;
#[path = "hostile/definitions.rs"]
mod definitions;
#[path = "hostile/long.rs"]
mod long;
#[path = "hostile/odd.rs"]
mod odd;
#[path = "hostile/pods.rs"]
mod pods;
#[path = "hostile/scene.rs"]
mod scene;
#[path = "hostile/store.rs"]
mod store;
#[path = "api/support.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod support;
