//! Datagrams whose arrival is what a test is about.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

use testkit::namespace::Namespace;
use testkit::waiting::until;

/// What came to a socket by now, each text once.
pub(crate) fn heard(socket: &UdpSocket) -> BTreeSet<String> {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 64];
    let heard = std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()));
    heard.map(|bytes| String::from_utf8(bytes).unwrap()).collect()
}

/// What came to a socket until all of these did, which are sent as often as it takes: the kernel may lose any.
pub(crate) fn heard_with<const N: usize>(socket: &UdpSocket, expected: [&str; N], send: impl Fn()) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    until("it is heard", || {
        send();
        all.append(&mut heard(socket));
        expected.iter().all(|text| all.contains(*text))
    });
    all
}

/// Sends from an address of a namespace, by this link if the address does not say by which.
pub(crate) fn send(namespace: &Namespace, link: &str, from: &str, to: &str, text: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let index = || namespace.ip(&format!("link show {link}")).split(':').next().unwrap().trim().parse().unwrap();
    let from: SocketAddr = match from.parse().unwrap() {
        IpAddr::V6(from) if from.is_unicast_link_local() => SocketAddrV6::new(from, 0, 0, index()).into(),
        from => (from, 0).into(),
    };
    namespace.inside(|| UdpSocket::bind(from).unwrap().send_to(text.as_bytes(), to).unwrap());
}
