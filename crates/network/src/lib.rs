//! Networks: a pod's on its machine, and a guest's in its pod.
//!
//! ```text
//!  machine                 pod's namespace                                          guest
//!  bridge ── veth ──────── eth0 ── nftables (DNAT, masquerade) ── k6t-eth0 ── tap0 ── NIC
//!    cni                          guest_network                              │
//!                                                   guest: DHCPv4, DHCPv6, router advertisements
//!
//!  virt-handler: guest_network::set_up ── handover::send ──> virt-launcher: handover::receive ── guest::serve
//! ```
//!
//! - Owns: the bridge and the tables of [`cni`] on the machine; a bridge, a tap and a table per pod ([`guest_network`]).
//! - Emits: what was attached, with sockets that the launcher could not open itself, as it has no capability.
//!
//! # Guarantees
//! - Every step may be cut off and asked for again; what is on record is answered, not done twice.
//! - Nothing is left behind: what a CNI plugin forgets, [`cni::Cni::remove`] removes.
//! - Whatever a guest sends, its servers go on.
//!
//! Deliberately absent: instances and pods (callers pass interfaces and names), and programs other than `nft` and the
//! CNI plugins.

pub mod attached;
pub mod cni;
mod files;
pub mod guest;
pub mod guest_network;
pub mod handover;
pub mod host;
mod kernel;
mod links;
pub mod mac;
mod namespace;
mod nft;
pub mod resolv;
mod sysctl;
mod wire;
