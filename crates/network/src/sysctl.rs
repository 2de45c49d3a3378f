//! Kernel settings of the namespace that the calling thread is in.

use std::io;
use std::path::PathBuf;

/// Sets one, such as `net/ipv4/ip_forward`, unless it has the value already.
pub(crate) fn set(name: &str, value: &str) -> io::Result<()> {
    if get(name)? == value {
        return Ok(());
    }
    std::fs::write(path(name), value)
}

/// The value of one.
pub(crate) fn get(name: &str) -> io::Result<String> {
    Ok(std::fs::read_to_string(path(name))?.trim().to_owned())
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name)
}
