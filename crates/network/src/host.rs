//! The machine's own addresses.

use std::net::IpAddr;

pub use crate::links::LinkError;
use crate::links::Links;

/// Those that others can reach, in order.
///
/// # Errors
/// When the kernel does not tell.
pub async fn addresses() -> Result<Vec<IpAddr>, LinkError> {
    let networks = Links::open()?.networks().await?;
    let mut addresses: Vec<IpAddr> = networks.into_iter().map(|(_, address, _)| address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}
