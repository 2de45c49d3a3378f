//! Pods with a real OCI runtime: needs root, runc and cgroups.

mod ends;
mod image;
mod lives;
mod roots;
mod support;
