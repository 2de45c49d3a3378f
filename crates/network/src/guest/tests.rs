//! A guest behind a real tap, which sees what QEMU would see.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use dhcproto::v4::{self, DhcpOption, MessageType};
use dhcproto::{Decodable, Decoder, Encodable, Encoder};
use rustix::io::Errno;
use testkit::namespace::Namespace;
use testkit::waiting::within;
use tokio::io::unix::AsyncFd;

use super::{Settings, serve};
use crate::guest_network::{Interface, Owner, Plan, set_up_here};
use crate::kernel;
use crate::mac::Mac;

/// What stands before each packet: flags, and where a checksum is missing, if the first flag is set.
const VIRTIO_HEADER: usize = 10;

fn mac() -> Mac {
    Mac::stable("uid", "default")
}

/// A broadcast with a DHCP message, from nobody to everybody, without checksum.
fn frame(message: &v4::Message) -> Vec<u8> {
    let mut payload = Vec::new();
    message.encode(&mut Encoder::new(&mut payload)).unwrap();
    let length = |extra: usize| u16::try_from(payload.len() + extra).unwrap().to_be_bytes();
    let mut ip = vec![0x45, 0];
    ip.extend(length(28));
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut bytes = vec![0; VIRTIO_HEADER];
    bytes.extend([0xff; 6]);
    bytes.extend(mac().octets());
    bytes.extend([8, 0]);
    bytes.extend(ip);
    bytes.extend([0, 68, 0, 67]);
    bytes.extend(length(8));
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

/// The next DHCP answer, with its virtio header's flags and its UDP checksum.
async fn answer(tap: &AsyncFd<OwnedFd>) -> (u8, u16, v4::Message) {
    let mut buffer = [0; 4096];
    loop {
        let mut guard = tap.readable().await.unwrap();
        let Ok(read) = guard.try_io(|tap| rustix::io::read(tap.get_ref(), &mut buffer).map_err(io::Error::from)) else {
            continue;
        };
        let bytes = &buffer[..read.unwrap()];
        let packet = &bytes[VIRTIO_HEADER..];
        if packet.len() > 42 && packet[12..14] == [8, 0] && packet[23] == 17 && packet[36..38] == [0, 68] {
            let checksum = u16::from_be_bytes([packet[40], packet[41]]);
            return (bytes[0], checksum, v4::Message::decode(&mut Decoder::new(&packet[42..])).unwrap());
        }
    }
}

async fn exchange() {
    let interface = Interface {
        name: "default".to_owned(),
        pod_link: "eth0".to_owned(),
        mac: mac(),
        ports: Vec::new(),
        owner: Owner { uid: 0, gid: 0 },
        cidr4: Some((Ipv4Addr::new(10, 8, 0, 0), 16)),
        cidr6: None,
        queues: 1,
    };
    let mut attached = set_up_here(&Plan { interfaces: vec![interface] }).await.unwrap();
    let tap = kernel::watched(kernel::open_tap("tap0", false).unwrap()).unwrap();
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = v4::Message::new_with_id(7, none, none, none, none, &mac().octets());
    message.opts_mut().insert(DhcpOption::MessageType(MessageType::Discover));
    let frame = frame(&message);
    let ask = async {
        // The bridge hears its port some moments after the tap has a user.
        loop {
            match rustix::io::write(tap.get_ref(), &frame) {
                Ok(_) | Err(Errno::IO) => {}
                Err(error) => panic!("{error}"),
            }
            let patience = std::time::Duration::from_millis(200);
            if let Ok(answered) = tokio::time::timeout(patience, answer(&tap)).await {
                return answered;
            }
        }
    };
    let settings = Settings { dns: vec![IpAddr::from([10, 96, 0, 10])], ..Settings::default() };
    let sockets = attached.sockets.remove(0);
    let (flags, checksum, offer) = tokio::select! {
        biased;
        answered = within("an answer", ask) => answered,
        ended = serve(&attached.interfaces[0], sockets, &settings) => panic!("{ended:?}"),
    };
    assert_eq!((flags, checksum), (0, 0), "nothing is left for the guest's card to fill in");
    assert_eq!(offer.yiaddr(), Ipv4Addr::new(10, 8, 0, 2));
    assert_eq!(offer.opts().msg_type(), Some(MessageType::Offer));
}

#[test]
#[ignore = "needs root: make test"]
fn an_answer_reaches_the_tap_complete() {
    let (pod, peer) = (Namespace::new(), Namespace::new());
    pod.connect("eth0", &peer, "up0");
    pod.ip("addr add 172.30.0.2/24 dev eth0");
    pod.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(exchange());
    });
}
