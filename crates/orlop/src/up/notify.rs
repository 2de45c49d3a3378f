//! Notifies systemd when everything is up, and of the health.

use std::convert::Infallible;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::report::Reporter;

/// Between two looks at how everything is; the line is read by people.
const LOOK: Duration = Duration::from_secs(5);

/// The same as long as it starts, when somebody waits for it.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// After this it is called up with what is wrong with it: systemd would end it, and nobody could ask the API why.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells systemd that everything is up, and how it is from then on; without systemd it tells nobody.
pub(super) async fn systemd(reporter: &Reporter) -> Infallible {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").and_then(|name| open(name.as_bytes())) else {
        return std::future::pending().await;
    };
    let begun = Instant::now();
    let mut told = String::new();
    let mut is_up = false;
    loop {
        let report = reporter.report();
        let line = report.line();
        let comes_up = !is_up && (report.is_healthy() || begun.elapsed() >= PATIENCE);
        if comes_up || line != told {
            let ready = if comes_up { "READY=1\n" } else { "" };
            // systemd may be busy; the next look tells it.
            match socket.send(format!("{ready}STATUS={line}\n").as_bytes()) {
                Ok(_) => (is_up, told) = (is_up || comes_up, line),
                Err(error) => tracing::debug!(%error, "cannot notify systemd"),
            }
        }
        sleep(if is_up { LOOK } else { FIRST_LOOK }).await;
    }
}

fn open(name: &[u8]) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    let address = match name.strip_prefix(b"@") {
        Some(hidden) => SocketAddr::from_abstract_name(hidden),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
    };
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let named = UnixDatagram::bind(&path).unwrap();
        let hidden = format!("orlop-test-{}", std::process::id());
        let unnamed = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&hidden).unwrap()).unwrap();
        for (name, socket) in [(path.to_str().unwrap().to_owned(), named), (format!("@{hidden}"), unnamed)] {
            open(name.as_bytes()).unwrap().send(b"READY=1").unwrap();
            let mut buffer = [0; 16];
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1");
        }
        assert!(open(b"/nowhere/notify").is_none());
    }
}
