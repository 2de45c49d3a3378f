//! The protocol between a kubelet and the device plugins of its node (`v1beta1`): messages, clients and servers of both sides, and the
//! few names that both must agree on.

mod short;
pub mod v1beta1;

pub use short::Short;

/// The version that a plugin names when it registers.
pub const VERSION: &str = "v1beta1";
/// A device that may be used.
pub const HEALTHY: &str = "Healthy";
/// A device that is there and may not be used.
pub const UNHEALTHY: &str = "Unhealthy";
/// The directory of all sockets, below a kubelet's root directory.
pub const FOLDER: &str = "device-plugins";
/// The kubelet's own socket in it.
pub const SOCKET: &str = "kubelet.sock";
