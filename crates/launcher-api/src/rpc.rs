//! The protocol between a launcher and virt-handler; see `proto/launcher.proto`.
#![expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated; the protocol file documents it"
)]

tonic::include_proto!("orlop.launcher.v1");
