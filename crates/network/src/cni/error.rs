//! Errors of pods' networks.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

pub use super::addresses::Exhausted;
pub use super::plugins::PluginError;
pub use crate::links::LinkError;
pub use crate::nft::NftError;

/// Why a pod has no network, or has one still.
#[derive(Debug, thiserror::Error)]
pub enum CniError {
    /// The kernel has no such names.
    #[error("{0:?} is not a valid bridge name")]
    Bridge(String),
    /// There is a gateway at least, and a few pods.
    #[error("{0} is not a valid network, or is too small for pods")]
    Subnet(String),
    /// Another link has these addresses.
    #[error("the pods' network {network} is in use: {link} has {address}; choose another network")]
    Taken {
        /// The pods' network.
        network: String,
        /// Who has it.
        link: String,
        /// With which address.
        address: String,
    },
    /// It could not be a file's name, or a plugin would not take it.
    #[error("{0:?} is not a valid pod id")]
    Id(String),
    /// It was never added, or is gone.
    #[error("the pod {0} is not connected")]
    NotConnected(String),
    /// The addresses of its identity are another's by now.
    #[error("the addresses {addresses:?} belong to the pod {pod}")]
    NotItsOwn { addresses: Vec<IpAddr>, pod: String },
    /// A plugin failed.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// A link could not be made or removed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The rules could not be made or removed.
    #[error(transparent)]
    Rules(#[from] NftError),
    /// There are more pods than addresses.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// A setting could not be made.
    #[error("cannot set {name}")]
    Sysctl { name: String, source: io::Error },
    /// The network that is to go has pods.
    #[error("the network of {bridge} still has running pods ({pods}); stop them before you replace it")]
    InUse { bridge: String, pods: usize },
    /// The records cannot be used.
    #[error("cannot {action} the records of pods' networks")]
    Records { action: &'static str, source: io::Error },
    /// The pod's namespace is not there.
    #[error("cannot inspect the network namespace {}", path.display())]
    Namespace {
        /// Where it should be.
        path: PathBuf,
        source: io::Error,
    },
    /// A plugin went its own way.
    #[error("the pod got the addresses {got:?} instead of {wanted:?}")]
    OtherAddresses {
        /// What was asked for.
        wanted: Vec<IpAddr>,
        got: Vec<IpAddr>,
    },
}
