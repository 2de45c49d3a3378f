use bytes::Bytes;
use proptest::prelude::*;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::life::SILENCE;
use super::*;

type Client = WebSocketStream<DuplexStream>;

/// A stream under way, the client's end and the guest's.
async fn opened(lasting: Option<Lasting>) -> (Client, DuplexStream, JoinHandle<()>) {
    let (client, served) = tokio::io::duplex(512);
    let (guest, ours) = tokio::io::duplex(512);
    let copying = tokio::spawn(between(served, ours, lasting));
    (WebSocketStream::from_raw_socket(client, Role::Client, None).await, guest, copying)
}

/// All bytes until the close frame, and that.
async fn rest(client: &mut Client) -> (Vec<u8>, Option<CloseFrame>) {
    let mut bytes = Vec::new();
    while let Some(Ok(message)) = client.next().await {
        match message {
            Message::Binary(more) => bytes.extend_from_slice(&more),
            Message::Close(frame) => return (bytes, frame),
            _ => {}
        }
    }
    (bytes, None)
}

fn said(frame: Option<CloseFrame>) -> (u16, String) {
    let frame = frame.unwrap();
    (frame.code.into(), frame.reason.to_string())
}

#[tokio::test]
async fn what_a_guest_said_before_it_hung_up_arrives() {
    let (mut client, mut guest, copying) = opened(None).await;
    guest.write_all(b"last words").await.unwrap();
    drop(guest);
    let (bytes, frame) = rest(&mut client).await;
    assert_eq!((bytes.as_slice(), said(frame)), (&b"last words"[..], (1000, String::new())));
    drop(client);
    copying.await.unwrap();
}

#[tokio::test]
async fn what_a_client_said_before_it_closed_arrives_and_text_is_ignored() {
    let (mut client, mut guest, copying) = opened(None).await;
    client.send(Message::Text("not for the guest".into())).await.unwrap();
    client.send(Message::Binary(Bytes::from_static(b"one "))).await.unwrap();
    client.send(Message::Ping(Bytes::new())).await.unwrap();
    client.send(Message::Binary(Bytes::from_static(b"two"))).await.unwrap();
    client.close(None).await.unwrap();
    let mut all = Vec::new();
    guest.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"one two");
    while client.next().await.is_some() {}
    copying.await.unwrap();
}

/// What is sent at once: so many bytes that follow from a number.
const BLOCK: usize = 512 << 10;

fn block(number: u64) -> Bytes {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(BLOCK / 8).flatten().collect()
}

/// 16 MiB each way at the same time; a gigabyte with `ORLOP_SOAK=64`.
#[tokio::test]
async fn many_megabytes_arrive_as_they_were_sent() {
    let blocks = u64::try_from(testkit::soak::rounds(32)).unwrap();
    let (client, served) = tokio::io::duplex(PIECE);
    let (guest, ours) = tokio::io::duplex(PIECE);
    let copying = tokio::spawn(between(served, ours, None));
    let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let (mut to_guest, mut from_guest) = client.split();
    let (mut from_client, mut to_client) = tokio::io::split(guest);
    let say = async {
        for number in 0..blocks {
            to_guest.send(Message::Binary(block(number))).await.unwrap();
        }
    };
    let hear = async {
        let mut heard = vec![0; BLOCK];
        for number in 0..blocks {
            from_client.read_exact(&mut heard).await.unwrap();
            assert!(heard == block(number), "block {number} came to the guest as another");
        }
    };
    let answer = async {
        for number in 0..blocks {
            to_client.write_all(&block(!number)).await.unwrap();
        }
    };
    let listen = async {
        let mut heard = BytesMut::new();
        for number in 0..blocks {
            while heard.len() < BLOCK {
                if let Message::Binary(bytes) = from_guest.next().await.unwrap().unwrap() {
                    heard.extend_from_slice(&bytes);
                }
            }
            assert!(heard.split_to(BLOCK) == block(!number), "block {number} came to the client as another");
        }
        assert!(heard.is_empty());
    };
    tokio::join!(say, hear, answer, listen);
    drop((to_guest, from_guest));
    copying.await.unwrap();
}

/// A guest whose connection breaks with a reason.
struct Breaking;

impl AsyncRead for Breaking {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let reason = "another console took over: ".to_owned() + &"ä".repeat(100);
        std::task::Poll::Ready(Err(std::io::Error::other(reason)))
    }
}

impl AsyncWrite for Breaking {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_break_is_told_with_as_much_of_its_reason_as_fits() {
    let (client, served) = tokio::io::duplex(512);
    let copying = tokio::spawn(between(served, Breaking, None));
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let (code, reason) = said(rest(&mut client).await.1);
    assert_eq!((code, reason.len()), (1011, 123));
    assert!(reason.starts_with("another console took over: ä"));
    drop(client);
    copying.await.unwrap();
}

#[tokio::test]
async fn a_server_that_stops_takes_leave() {
    let (stop, stopping) = watch::channel(false);
    let lasting = Lasting::until(move || {
        let mut stopping = stopping.clone();
        Box::pin(async move { drop(stopping.wait_for(|stopping| *stopping).await) })
    });
    let (mut client, mut guest, copying) = opened(Some(lasting)).await;
    client.send(Message::Binary(Bytes::from_static(b"x"))).await.unwrap();
    assert_eq!(guest.read_u8().await.unwrap(), b'x');
    stop.send(true).unwrap();
    assert_eq!(said(rest(&mut client).await.1), (1001, "the server stops".to_owned()));
    drop(client);
    copying.await.unwrap();
    // What is kept while a stream lasts is let go of with it.
    assert_eq!(stop.receiver_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_nothing_is_given_up_and_one_that_does_is_not() {
    let (client, guest, copying) = opened(None).await;
    // It holds the connection and reads nothing.
    copying.await.unwrap();
    drop((client, guest));
    let (mut client, _guest, copying) = opened(None).await;
    let awake = tokio::time::timeout(SILENCE * 3, async { while client.next().await.is_some() {} }).await;
    assert!(awake.is_err() && !copying.is_finished(), "a client that answers pings was given up");
}

/// A guest that always has something to say, and takes everything.
fn talkative() -> impl AsyncRead + AsyncWrite + Unpin + Send + 'static {
    tokio::io::join(tokio::io::repeat(b'x'), tokio::io::sink())
}

#[tokio::test(start_paused = true)]
async fn a_client_is_asked_for_a_sign_of_life_also_while_a_guest_always_has_data() {
    let (client, served) = tokio::io::duplex(512);
    let copying = tokio::spawn(between(served, talkative(), None));
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let asked = tokio::time::timeout(PING * 3, async {
        while !matches!(client.next().await, Some(Ok(Message::Ping(_)))) {
            // The clock goes on while everybody waits.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    asked.await.unwrap();
    drop(client);
    copying.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_and_says_nothing_is_not_given_up_and_one_that_takes_nothing_is() {
    let (mut client, served) = tokio::io::duplex(512);
    let copying = tokio::spawn(between(served, talkative(), None));
    let end = Instant::now() + SILENCE * 3;
    while Instant::now() < end {
        tokio::time::sleep(SILENCE / 4).await;
        client.read_exact(&mut [0; 64]).await.unwrap();
    }
    assert!(!copying.is_finished(), "a client that still reads was given up");
    tokio::time::timeout(SILENCE * 3, copying).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_takes_nothing_for_long_ends_no_upload() {
    let (mut client, mut guest, copying) = opened(None).await;
    let sent = block(1);
    let message = sent.clone();
    let sending = tokio::spawn(async move {
        client.send(Message::Binary(message)).await.unwrap();
        client
    });
    tokio::time::sleep(SILENCE * 3).await;
    assert!(!copying.is_finished(), "a client that waits for the guest was given up");
    let mut heard = vec![0; BLOCK];
    guest.read_exact(&mut heard).await.unwrap();
    assert!(heard == sent);
    // From now on the client can be asked again, and this one is silent.
    let client = sending.await.unwrap();
    tokio::time::timeout(SILENCE * 3, copying).await.unwrap().unwrap();
    drop(client);
}

#[tokio::test]
async fn a_message_that_is_too_long_is_told_as_the_reason() {
    let (client, guest, copying) = opened(None).await;
    let (mut to_guest, mut from_guest) = client.split();
    let sending = to_guest.send(Message::Binary(vec![7; LONGEST + 1].into()));
    let hearing = async {
        loop {
            if let Message::Close(frame) = from_guest.next().await.unwrap().unwrap() {
                return frame;
            }
        }
    };
    let (sent, frame) = tokio::join!(sending, hearing);
    sent.unwrap();
    assert_eq!(said(frame), (1009, "a message has 1048577 bytes; at most 1048576 are taken at once".to_owned()));
    drop((to_guest, from_guest, guest));
    copying.await.unwrap();
}

fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2000), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(40)))]

    /// Whatever is sent in whatever pieces, in both directions at once: it arrives in its order, and all of it.
    #[test]
    fn bytes_arrive_as_they_were_sent(up in pieces(), down in pieces()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, guest, copying) = opened(None).await;
            let (mut send, receive) = client.split();
            let (mut from, mut to) = tokio::io::split(guest);
            let expected = (up.concat(), down.concat());
            let sizes = (expected.0.len(), expected.1.len());
            let sending = async {
                for piece in &up {
                    send.send(Message::Binary(Bytes::copy_from_slice(piece))).await.unwrap();
                }
            };
            let writing = async {
                for piece in &down {
                    to.write_all(piece).await.unwrap();
                }
            };
            let reading = async {
                let mut all = vec![0; sizes.0];
                from.read_exact(&mut all).await.unwrap();
                all
            };
            let receiving = async {
                let mut receive = receive;
                let mut all = Vec::new();
                while all.len() < sizes.1 {
                    if let Message::Binary(bytes) = receive.next().await.unwrap().unwrap() {
                        all.extend_from_slice(&bytes);
                    }
                }
                (all, receive)
            };
            let ((), (), read, (received, receive)) = tokio::join!(sending, writing, reading, receiving);
            assert_eq!((read, received), expected);
            drop((send, receive, from, to));
            copying.await.unwrap();
        });
    }
}
