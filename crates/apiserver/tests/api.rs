//! The server in process, through `kube::Client`: one module per verb or subject.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "api/access.rs"]
mod access;
#[path = "api/audit.rs"]
mod audit;
#[path = "api/create.rs"]
mod create;
#[path = "api/definitions.rs"]
mod definitions;
#[path = "api/delegate.rs"]
mod delegate;
#[path = "api/delete.rs"]
mod delete;
#[path = "api/discovery.rs"]
mod discovery;
#[path = "api/evictions.rs"]
mod evictions;
#[path = "api/expiry.rs"]
mod expiry;
#[path = "api/forms.rs"]
mod forms;
#[path = "api/hostile.rs"]
mod hostile;
#[path = "api/list.rs"]
mod list;
#[path = "api/namespaces.rs"]
mod namespaces;
#[path = "api/patch.rs"]
mod patch;
#[path = "api/pods.rs"]
mod pods;
#[path = "api/quota.rs"]
mod quota;
#[path = "api/rbac.rs"]
mod rbac;
#[path = "api/removal.rs"]
mod removal;
#[path = "api/restart.rs"]
mod restart;
#[path = "api/scale.rs"]
mod scale;
#[path = "api/support.rs"]
mod support;
#[path = "api/tokens.rs"]
mod tokens;
#[path = "api/update.rs"]
mod update;
#[path = "api/watch.rs"]
mod watch;
