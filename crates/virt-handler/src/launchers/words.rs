//! What a guest says of itself, cut to a size that fits into its instance's status. A guest says what it likes; whoever
//! has taken over a launcher, too.

use std::net::IpAddr;

use launcher_api::rpc::{GuestInfo, Interface, OperatingSystem};

/// The longest text, in characters.
const LONGEST: usize = 256;
/// The most interfaces, and the most addresses of each.
const INTERFACES: usize = 64;
const ADDRESSES: usize = 32;

/// The same, bounded: texts of one line, addresses that are addresses.
pub(crate) fn bounded(said: GuestInfo) -> GuestInfo {
    let GuestInfo { agent_version, hostname, timezone, os, interfaces, freeze_status } = said;
    GuestInfo {
        agent_version: text(&agent_version),
        hostname: text(&hostname),
        timezone: text(&timezone),
        os: os.map(operating_system),
        interfaces: interfaces.into_iter().take(INTERFACES).map(interface).collect(),
        freeze_status: text(&freeze_status),
    }
}

fn operating_system(os: OperatingSystem) -> OperatingSystem {
    let OperatingSystem { id, name, pretty_name, version, version_id, kernel_release, kernel_version, machine } = os;
    OperatingSystem {
        id: text(&id),
        name: text(&name),
        pretty_name: text(&pretty_name),
        version: text(&version),
        version_id: text(&version_id),
        kernel_release: text(&kernel_release),
        kernel_version: text(&kernel_version),
        machine: text(&machine),
    }
}

fn interface(interface: Interface) -> Interface {
    let Interface { name, mac, addresses } = interface;
    let addresses = addresses.into_iter().filter(|address| is_address(address)).take(ADDRESSES);
    Interface { name: text(&name), mac: text(&mac), addresses: addresses.collect() }
}

/// With or without the length of its network.
fn is_address(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    address.parse::<IpAddr>().is_ok() && length.parse::<u8>().is_ok_and(|length| length <= 128)
}

fn text(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_guest_is_told_as_it_is() {
        let honest = GuestInfo {
            agent_version: "7.2.0".to_owned(),
            hostname: "anna".to_owned(),
            timezone: "Europe/Berlin, CET".to_owned(),
            os: Some(OperatingSystem {
                pretty_name: "Debian GNU/Linux 12 (bookworm)".to_owned(),
                ..Default::default()
            }),
            interfaces: vec![Interface {
                name: "eth0".to_owned(),
                mac: "02:00:00:00:00:01".to_owned(),
                addresses: ["10.0.2.2/24", "fe80::1/64", "10.0.2.3"].map(str::to_owned).to_vec(),
            }],
            freeze_status: "thawed".to_owned(),
        };
        assert_eq!(bounded(honest.clone()), honest);
    }

    #[test]
    fn a_guest_that_tells_too_much_is_cut_short() {
        let long = "x\n".repeat(1 << 10);
        let addresses: Vec<String> = (0..100)
            .map(|index| if index % 2 == 0 { long.clone() } else { format!("10.0.{}.1", index % 256) })
            .collect();
        let one = Interface { name: long.clone(), mac: long.clone(), addresses };
        let os = OperatingSystem { name: long.clone(), ..Default::default() };
        let said = GuestInfo { hostname: long, os: Some(os), interfaces: vec![one; 65], ..Default::default() };
        let told = bounded(said);
        assert_eq!((told.interfaces.len(), told.interfaces[0].addresses.len()), (64, 32));
        assert!(told.interfaces[0].addresses.iter().all(|address| address.starts_with("10.0.")));
        for text in [&told.hostname, &told.os.unwrap().name, &told.interfaces[0].name, &told.interfaces[0].mac] {
            assert_eq!(*text, "x".repeat(256));
        }
    }
}
