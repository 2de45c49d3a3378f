//! Ports for programs that must be told one before they open it.

use std::fs::File;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::fs::{FlockOperation, flock};

/// Below those that the kernel gives to whoever connects, so that no connection has one by chance.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port that nobody listens at, and that no other test on this machine is given while this process lives.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let folder = format!("/tmp/orlop-test-ports-{}", rustix::process::geteuid().as_raw());
    std::fs::create_dir_all(&folder).unwrap();
    // Processes begin at different places, or else each would ask for all that others have.
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let number = u32::from(NEXT.fetch_add(1, Ordering::Relaxed)).wrapping_add(start) % u32::from(COUNT);
        let port = FIRST + u16::try_from(number).unwrap();
        let file = File::options().create(true).append(true).open(format!("{folder}/{port}")).unwrap();
        let is_ours = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        // It is not tried by opening it: a program that is being started at that moment would hold it for a while.
        if is_ours && TcpStream::connect(("127.0.0.1", port)).is_err() {
            HELD.lock().unwrap().push(file);
            return port;
        }
    }
    panic!("every port is taken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let given: std::collections::BTreeSet<u16> = (0..20).map(|_| free()).collect();
        assert_eq!(given.len(), 20);
    }
}
