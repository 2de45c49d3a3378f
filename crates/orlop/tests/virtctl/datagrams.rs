//! `virtctl port-forward udp/`: datagrams to a program in a real guest, and back.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::Virtctl;
use super::ways::{line, with_key};

/// Sends each datagram back. It is in the background once it listens.
const ECHO: &str = r#"
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    static char bytes[65536];
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(9000) };
    int socket_ = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(socket_, (struct sockaddr *)&at, sizeof at) || daemon(0, 0))
        return 1;
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        ssize_t size = recvfrom(socket_, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length);
        if (size >= 0)
            sendto(socket_, bytes, size, 0, (struct sockaddr *)&from, length);
    }
}
"#;
/// Before a datagram is sent again: any may be lost.
const AGAIN: Duration = Duration::from_secs(2);
const TRIES: usize = 200;

/// Two clients at once, each of whom hears its own datagrams, one by one; and a port that nobody listens on.
pub(crate) fn port_forward_udp(virtctl: &Virtctl<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (source, program) = (folder.path().join("echo.c"), folder.path().join("echo"));
    std::fs::write(&source, ECHO)?;
    e2e::output(Command::new("cc").args(["-static", "-O1", "-o"]).arg(&program).arg(&source))?;
    let program = program.display().to_string();
    e2e::output(&mut with_key(virtctl, "scp", &[&program, "root@vmi/v:/tmp/echo"])?)?;
    e2e::output(&mut with_key(virtctl, "ssh", &["root@vmi/v", "--command", "chmod +x /tmp/echo && /tmp/echo"])?)?;

    let mut forwarding = virtctl.spawn(&["port-forward", "vm/v", "udp/19000:9000", "udp/19001:9001"])?;
    line(&mut forwarding.errors, "forwarding udp 127.0.0.1:19001 to 9001")?;
    let to: SocketAddr = "127.0.0.1:19000".parse()?;
    let clients = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    // virtctl itself cuts what is longer than 1500 bytes.
    for length in [1, 512, 1400] {
        for (client, letter) in clients.iter().zip([b'a', b'b']) {
            let sent = vec![letter; length];
            let heard = answer(client, to, &sent)?;
            ensure!(heard == sent, "{} bytes came back of {length}", heard.len());
        }
    }
    clients[0].send_to(b"hello", ("127.0.0.1", 19001))?;
    line(&mut forwarding.errors, "dialing VM: port 9001: Connection refused").map(drop)
}

/// What comes back of a datagram, which is none that was sent before.
fn answer(client: &UdpSocket, to: SocketAddr, sent: &[u8]) -> Result<Vec<u8>> {
    client.set_read_timeout(Some(AGAIN))?;
    let mut heard = vec![0; 2048];
    for _ in 0..TRIES {
        client.send_to(sent, to)?;
        while let Ok((length, _)) = client.recv_from(&mut heard) {
            // The answer to one that was sent twice may come later.
            if length == sent.len() {
                heard.truncate(length);
                return Ok(heard);
            }
        }
    }
    bail!("no answer to a datagram of {} bytes", sent.len())
}
