//! Kernel calls that no safe crate offers.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl};
use tokio::io::unix::AsyncFd;

/// The longest name of a link, without its final zero.
pub(crate) const MAX_NAME: usize = 15;

const TUNSETIFF: Opcode = 0x4004_54ca;
const TUNSETPERSIST: Opcode = 0x4004_54cb;
const TUNSETOWNER: Opcode = 0x4004_54cc;
const TUNSETGROUP: Opcode = 0x4004_54ce;

const IFF_TAP: u16 = 0x0002;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;

/// The kernel's `struct ifreq`: a name, and here flags.
type Request = [u8; 40];

/// Makes a tap that stays when nobody has it open, or finds it; who may open it is set in both cases.
pub(crate) fn persistent_tap(name: &str, multi_queue: bool, uid: u32, gid: u32) -> io::Result<()> {
    let tap = open_tap(name, multi_queue)?;
    set_integer::<TUNSETOWNER>(tap.as_fd(), uid)?;
    set_integer::<TUNSETGROUP>(tap.as_fd(), gid)?;
    set_integer::<TUNSETPERSIST>(tap.as_fd(), 1)
}

/// A queue of a tap, which is made if there is none of this name.
pub(crate) fn open_tap(name: &str, multi_queue: bool) -> io::Result<OwnedFd> {
    let tun = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | if multi_queue { IFF_MULTI_QUEUE } else { 0 };
    if name.len() > MAX_NAME {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut request: Request = [0; 40];
    request.iter_mut().zip(name.bytes()).for_each(|(byte, of_name)| *byte = of_name);
    request.iter_mut().skip(MAX_NAME + 1).zip(flags.to_ne_bytes()).for_each(|(byte, flag)| *byte = flag);
    attach(tun.as_fd(), request)?;
    Ok(tun.into())
}

#[expect(unsafe_code, reason = "no safe crate makes persistent taps; the request is as large as the kernel's")]
fn attach(tun: BorrowedFd<'_>, request: Request) -> io::Result<()> {
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which is 40 bytes of any contents, and keeps no pointer to it.
    unsafe { Ok(ioctl(tun, Setter::<TUNSETIFF, Request>::new(request))?) }
}

#[expect(unsafe_code, reason = "no safe crate makes persistent taps; these requests take a number, not a pointer")]
fn set_integer<const OPCODE: Opcode>(tun: BorrowedFd<'_>, value: u32) -> io::Result<()> {
    // SAFETY: the callers' requests take their argument by value.
    unsafe { Ok(ioctl(tun, IntegerSetter::<OPCODE>::new_usize(value as usize))?) }
}

/// Sends UDP without a checksum. One that is left to the device is wrong for programs in the guest that read whole
/// packets, as DHCP clients do; none at all is right for all.
pub(crate) fn without_checksum(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, &1i32.to_ne_bytes())
}

/// Lets only one type of ICMPv6 message in.
pub(crate) fn receive_only(socket: BorrowedFd<'_>, icmp6_type: u8) -> io::Result<()> {
    const SOL_ICMPV6: i32 = 58;
    const ICMPV6_FILTER: i32 = 1;
    // One bit per type, in words of the machine; a bit that is set keeps messages out.
    let word = |index: u8| if icmp6_type / 32 == index { !(1u32 << (icmp6_type % 32)) } else { u32::MAX };
    let filter: Vec<u8> = (0..8).flat_map(|index| word(index).to_ne_bytes()).collect();
    set_option(socket, SOL_ICMPV6, ICMPV6_FILTER, &filter)
}

#[expect(unsafe_code, reason = "safe crates have functions for single options, and not for these")]
fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the pointer and the length are those of one slice, which the kernel only reads.
    let answer = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the runtime watch a socket that does not block.
#[expect(unsafe_code, reason = "tokio asks for a promise that an owned descriptor keeps by itself")]
pub(crate) fn watched(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open and the same for as long as it is owned, which is as long as the result
    // lives; nobody asks that one for mutable access.
    unsafe { Ok(AsyncFd::register(socket)?) }
}
