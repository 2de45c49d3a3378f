//! Ports of a guest, dialled from within its pod's network namespace.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::thread::LinkNameSpaceType;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::oneshot;

/// How long a guest may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects to a TCP port.
pub(super) async fn stream(namespace: OwnedFd, port: u16) -> io::Result<TcpStream> {
    let connect = move || std::net::TcpStream::connect_timeout(&at(port), PATIENCE);
    let stream = within(namespace, connect).await?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream)
}

/// Opens a way to a UDP port. Nobody can tell whether somebody listens there before the first datagram.
pub(super) async fn datagrams(namespace: OwnedFd, port: u16) -> io::Result<Datagrams> {
    let connect = move || {
        let socket = std::net::UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        socket.connect(at(port))?;
        Ok(socket)
    };
    let socket = within(namespace, connect).await?;
    socket.set_nonblocking(true)?;
    let socket = Arc::new(UdpSocket::from_std(socket)?);
    Ok(Datagrams { refused: Box::pin(refusal(socket.clone())), socket, port })
}

/// Resolves when a socket has an error, such as that of a port that nobody listens on. To whoever waits for something to read,
/// an error alone is no news.
async fn refusal(socket: Arc<UdpSocket>) -> io::Error {
    loop {
        if let Err(error) = socket.ready(Interest::ERROR).await {
            return error;
        }
        let taken = || socket.take_error()?.ok_or_else(|| io::ErrorKind::WouldBlock.into());
        match socket.try_io(Interest::ERROR, taken) {
            Ok(error) => return error,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return error,
        }
    }
}

/// The pod's own address, behind which its guest is: no address that a guest tells is trusted.
fn at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Makes a socket from within a network namespace, on a thread that ends there.
async fn within<T: Send + 'static>(
    namespace: OwnedFd,
    make: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (answer, made) = oneshot::channel();
    std::thread::Builder::new().name("dial".to_owned()).spawn(move || {
        let socket = rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(io::Error::from)
            .and_then(|()| make());
        // Whoever asked may have gone.
        let _ = answer.send(socket);
    })?;
    made.await.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?
}

/// Datagrams as a stream: each read is one, and so is each write.
pub(super) struct Datagrams {
    socket: Arc<UdpSocket>,
    refused: BoxFuture<'static, io::Error>,
    port: u16,
}

impl Datagrams {
    /// That nobody listens is found out by what comes back.
    fn told(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("dialing VM: port {}: {error}", self.port))
    }
}

impl AsyncRead for Datagrams {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        while let Poll::Ready(read) = self.socket.poll_recv(context, to) {
            read.map_err(|error| self.told(&error))?;
            // An empty one would be taken for the end.
            if to.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        let error = ready!(self.refused.as_mut().poll(context));
        Poll::Ready(Err(self.told(&error)))
    }
}

impl AsyncWrite for Datagrams {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match ready!(self.socket.poll_send(context, bytes)) {
            Ok(_) => Poll::Ready(Ok(bytes.len())),
            // One that no network carries is lost, as datagrams are.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                Poll::Ready(Ok(bytes.len()))
            }
            Err(error) => Poll::Ready(Err(self.told(&error))),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The namespace that the test is in.
    fn own() -> OwnedFd {
        File::open("/proc/self/ns/net").unwrap().into()
    }

    #[tokio::test]
    async fn each_read_and_each_write_is_a_datagram() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut near = datagrams(own(), far.local_addr().unwrap().port()).await.unwrap();
        near.write_all(b"one").await.unwrap();
        near.write_all(&[7; 66_000]).await.unwrap();
        near.write_all(b"three").await.unwrap();
        let mut buffer = vec![0; 70_000];
        let (length, from) = far.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"one");
        let length = far.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"three", "one that is too long is lost, and nothing else");
        for answer in [&b""[..], b"first", &[9; 2000]] {
            far.send_to(answer, from).await.unwrap();
        }
        assert_eq!(near.read(&mut buffer).await.unwrap(), 5);
        assert_eq!(near.read(&mut buffer).await.unwrap(), 2000);
    }

    #[tokio::test]
    async fn a_port_that_nobody_listens_on_is_found_out_by_one_datagram() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // Nobody but this test is given it before that.
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut near = datagrams(own(), port).await.unwrap();
        let reading = tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(&mut near);
            let mut buffer = [0; 16];
            let read = reader.read(&mut buffer);
            let wrote = async {
                drop(taken);
                writer.write_all(b"hello").await
            };
            tokio::join!(read, wrote).0
        });
        let error = reading.await.unwrap().unwrap_err();
        assert!(error.to_string().starts_with(&format!("dialing VM: port {port}: Connection refused")), "{error}");
    }
}
