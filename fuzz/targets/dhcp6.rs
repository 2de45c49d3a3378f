//! DHCPv6 requests of a guest.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| network::guest::fuzzing::dhcp6(bytes));
