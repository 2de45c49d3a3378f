//! Messages and services; see `proto/v1beta1.proto`.
#![expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated; the protocol file documents it"
)]

tonic::include_proto!("v1beta1");
