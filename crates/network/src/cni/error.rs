//! Why a pod's network is not as it should be.

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
    #[error("{0:?} cannot be the name of a bridge")]
    Bridge(String),
    /// There is a gateway at least, and a few pods.
    #[error("the network {0} has no room for pods, or is no network")]
    Subnet(String),
    /// Another link has these addresses.
    #[error("the network {network} for pods is in use: {link} has {address}; choose another for pods")]
    Taken {
        /// The pods' network.
        network: String,
        /// Who has it.
        link: String,
        /// With which address.
        address: String,
    },
    /// It could not be a file's name, or a plugin would not take it.
    #[error("{0:?} cannot be a pod's id")]
    Id(String),
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
    Sysctl {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The network that is to go has pods.
    #[error("pods still run in the network of {bridge}, {pods} of them; stop them before another takes its place")]
    InUse {
        /// Its bridge.
        bridge: String,
        /// How many.
        pods: usize,
    },
    /// The records cannot be used.
    #[error("cannot {action} the records of pods' networks")]
    Records {
        /// What was tried.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The pod's namespace is not there.
    #[error("cannot look at the network namespace {}", path.display())]
    Namespace {
        /// Where it should be.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A plugin went its own way.
    #[error("the pod got the addresses {got:?} instead of {wanted:?}")]
    OtherAddresses {
        /// What was asked for.
        wanted: Vec<IpAddr>,
        /// What was given.
        got: Vec<IpAddr>,
    },
}
