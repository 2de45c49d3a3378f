//! Messages with descriptors between two processes: one packet each, bounded.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::unix::AsyncFd;

/// The largest message: a plan of some hundred interfaces.
pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// Sockets of some forty interfaces. The kernel's limit for one message is 253.
const MAX_DESCRIPTORS: usize = 128;

/// A message as it arrived. No bytes: the other side is gone.
pub(crate) type Message = (Vec<u8>, Vec<OwnedFd>);

/// Two ends that keep messages apart.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message, which must not be empty.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if bytes.is_empty() || bytes.len() > MAX_BYTES || descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message. What is larger than any that [`send`] sends is an error.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Message> {
    let mut bytes = vec![0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = rights.flatten().collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too large"));
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptors))
}

/// As [`send`], on a socket that does not block.
pub(crate) async fn send_async(
    socket: &AsyncFd<OwnedFd>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    loop {
        let mut guard = socket.writable().await?;
        if let Ok(sent) = guard.try_io(|socket| send(std::os::fd::AsFd::as_fd(socket.get_ref()), bytes, descriptors)) {
            return sent;
        }
    }
}

/// As [`receive`], on a socket that does not block.
pub(crate) async fn receive_async(socket: &AsyncFd<OwnedFd>) -> io::Result<Message> {
    loop {
        let mut guard = socket.readable().await?;
        if let Ok(received) = guard.try_io(|socket| receive(std::os::fd::AsFd::as_fd(socket.get_ref()))) {
            return received;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_arrive_one_by_one_with_their_descriptors() {
        let (one, other) = pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(one.as_fd(), b"first", &[file.as_fd(), file.as_fd()]).unwrap();
        send(one.as_fd(), b"second", &[]).unwrap();
        let (bytes, descriptors) = receive(other.as_fd()).unwrap();
        assert_eq!((bytes.as_slice(), descriptors.len()), (b"first".as_slice(), 2));
        assert_eq!(receive(other.as_fd()).unwrap().0, b"second");
        drop(one);
        assert_eq!(receive(other.as_fd()).unwrap().0, b"", "the end");
    }

    #[test]
    fn what_is_too_large_is_refused_on_both_sides() {
        let (one, other) = pair().unwrap();
        let large = vec![0; MAX_BYTES + 1];
        assert_eq!(send(one.as_fd(), &large, &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        rustix::net::send(&one, &large, SendFlags::empty()).unwrap();
        assert_eq!(receive(other.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
