//! An interface and settings for tests.

use std::net::Ipv6Addr;

use super::Settings;
use crate::attached::AttachedInterface;
use crate::mac::Mac;

pub(super) fn interface() -> AttachedInterface {
    AttachedInterface {
        name: "default".to_owned(),
        pod_link: "eth0".to_owned(),
        tap: "tap0".to_owned(),
        bridge: "k6t-eth0".to_owned(),
        mac: Mac::stable("uid", "default"),
        mtu: 1440,
        queues: 1,
        guest4: [10, 0, 2, 2].into(),
        gateway4: [10, 0, 2, 1].into(),
        prefix4: 24,
        guest6: "fd10:0:2::2".parse().ok(),
        gateway6: "fd10:0:2::1".parse().ok(),
        prefix6: Some(120),
        pod_addresses: Vec::new(),
    }
}

pub(super) fn settings() -> Settings {
    Settings {
        hostname: "vm".to_owned(),
        search: vec!["a.example".to_owned(), "example".to_owned()],
        dns: vec![[10, 96, 0, 10].into(), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10).into()],
        ..Settings::default()
    }
}
