//! DataVolumes where nobody else serves them: with `orlop up`. On Kubernetes the Containerized Data Importer (CDI) does all of this.
//!
//! ```text
//! DataVolume ──> volume ──> claim ──> (the node's volumes: empty, or copied from a claim or a snapshot)
//!                  │  └───> importer pod ──> disk.img in the claim
//!                  └──────> status: phase, progress, conditions
//! DataSource ──> data_source: status        StorageClass ──> profile ──> StorageProfile
//!                                                       └───> config ──> CDIConfig
//! ```
//! Watches: DataVolumes, their claims and pods, DataSources, StorageClasses, StorageProfiles, CDIConfig. Owns: claims and importer
//! pods of DataVolumes, StorageProfiles, the CDIConfig. Emits: see each controller.
//! Absent on purpose: how data is imported (`importer`), and how claims are made and copied (the node's provisioner).

pub mod config;
pub mod data_source;
mod names;
mod overhead;
mod pod;
pub mod profile;
pub mod source;
mod table;
pub mod volume;

pub use names::{DONE, REFUSED};
pub use pod::is_importer;
pub use table::{Asking, DESCRIPTORS, Settings};
