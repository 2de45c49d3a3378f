use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tokio::io::DuplexStream;
use tokio::sync::oneshot;

use super::*;
use crate::subresources::Answering;

/// A node with one guest, whose ways lead here.
#[derive(Default)]
struct Node {
    asked: Mutex<Vec<Question>>,
    ways: Mutex<Vec<(Way, DuplexStream)>>,
}

impl Guests for Node {
    fn ask(&self, _: GuestName, question: Question) -> Answering<Reply> {
        self.asked.lock().unwrap().push(question);
        let reply = match question {
            Question::Info => Ok(Reply::Object(serde_json::json!({ "hostname": "anna" }))),
            Question::Screenshot => Ok(Reply::Picture(vec![7; 300_000].into())),
            Question::Unfreeze => Err(GuestError::Refused("VMI is not frozen".to_owned())),
            _ => Ok(Reply::Done),
        };
        Box::pin(async move { reply })
    }

    fn open(&self, _: GuestName, way: Way) -> Answering<Connection> {
        // Datagrams of the guest are whole, whatever the network between both programs does to them.
        let (near, far) = tokio::io::duplex(if matches!(way, Way::Datagrams { .. }) { PIECE } else { 700 });
        self.ways.lock().unwrap().push((way, far));
        Box::pin(async move { Ok(Box::new(near) as Connection) })
    }
}

fn guest(node: &str) -> GuestName {
    let text = |text: &str| text.to_owned();
    GuestName { namespace: text("default"), name: text("v"), uid: text("1"), node: text(node) }
}

/// A connection to the node `red`, and what ends its program.
fn connected(node: &Arc<Node>) -> (DuplexStream, oneshot::Sender<()>) {
    let (near, far) = tokio::io::duplex(900);
    let (stop, stopped) = oneshot::channel();
    let node = node.clone();
    tokio::spawn(async move {
        // A sender that is dropped stops nothing.
        let stopping = async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        serve(far, "red", node.as_ref(), stopping).await
    });
    (near, stop)
}

async fn opened(node: &Arc<Node>, way: Way) -> (Connection, DuplexStream, oneshot::Sender<()>) {
    let (stream, stop) = connected(node);
    let connection = open(stream, guest("red"), way).await.ok().unwrap();
    let (asked, far) = node.ways.lock().unwrap().pop().unwrap();
    assert_eq!(asked, way);
    (connection, far, stop)
}

#[tokio::test]
async fn questions_and_replies_come_through_as_they_are() {
    let node = Arc::new(Node::default());
    let thaw_after = Some(Duration::from_millis(90_500));
    for (question, expected) in [
        (Question::Pause, Ok(Reply::Done)),
        (Question::Freeze { thaw_after }, Ok(Reply::Done)),
        (Question::Info, Ok(Reply::Object(serde_json::json!({ "hostname": "anna" })))),
        (Question::Screenshot, Ok(Reply::Picture(vec![7; 300_000].into()))),
        (Question::Unfreeze, Err(GuestError::Refused("VMI is not frozen".to_owned()))),
    ] {
        assert_eq!(ask(connected(&node).0, guest("red"), question).await, expected);
        assert_eq!(node.asked.lock().unwrap().pop(), Some(question));
    }
}

#[tokio::test]
async fn a_node_does_nothing_to_guests_of_another() {
    let node = Arc::new(Node::default());
    let why = GuestError::Unknown("VMI default/v is on node \"blue\", not on \"red\"".to_owned());
    assert_eq!(ask(connected(&node).0, guest("blue"), Question::Pause).await, Err(why.clone()));
    assert_eq!(open(connected(&node).0, guest("blue"), Way::Console { replay: false }).await.err(), Some(why));
    assert!(node.asked.lock().unwrap().is_empty() && node.ways.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_was_said_before_an_end_arrives_in_both_directions() {
    let node = Arc::new(Node::default());
    let (mut connection, mut far, _stop) = opened(&node, Way::Port { port: 22 }).await;
    connection.write_all(b"last question").await.unwrap();
    connection.shutdown().await.unwrap();
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"last question");
    // It hung up only one way.
    far.write_all(b"last answer").await.unwrap();
    drop(far);
    heard.clear();
    connection.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"last answer");
}

#[tokio::test]
async fn an_end_has_its_reason_and_a_lost_connection_is_not_taken_for_one() {
    let node = Arc::new(Node::default());
    let (mut connection, mut far, stop) = opened(&node, Way::Console { replay: false }).await;
    far.write_all(b"login: ").await.unwrap();
    let mut heard = [0; 7];
    connection.read_exact(&mut heard).await.unwrap();
    stop.send(()).unwrap();
    let error = connection.read_u8().await.unwrap_err();
    assert_eq!((&heard, error.to_string().as_str()), (b"login: ", "virt-handler stops"));
    assert!(far.read_u8().await.is_err(), "the guest's end is closed");

    let (stream, lost) = tokio::io::duplex(900);
    let opening = tokio::spawn(open(stream, guest("red"), Way::Console { replay: false }));
    let mut lost = lost;
    let asked: Asked = read(&mut lost, LONGEST_QUESTION).await.unwrap();
    assert_eq!(asked.guest(), &guest("red"));
    write(&mut lost, &Answer::Opened).await.unwrap();
    drop(lost);
    let error = opening.await.unwrap().ok().unwrap().read_u8().await.unwrap_err();
    assert_eq!(error.to_string(), "the connection to the node was lost");
}

#[tokio::test]
async fn a_viewer_that_goes_without_a_word_leaves_the_guests_end_closed() {
    let node = Arc::new(Node::default());
    let (connection, mut far, _stop) = opened(&node, Way::Vnc { preserve: true }).await;
    drop(connection);
    assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn datagrams_stay_whole_in_both_directions() {
    let node = Arc::new(Node::default());
    // The connection between both carries fewer bytes at once than the longest datagram has.
    let (mut connection, mut far, _stop) = opened(&node, Way::Datagrams { port: 53 }).await;
    let mut buffer = vec![0; PIECE];
    for length in [1, 899, 900, 1500, 65_507] {
        let sent: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
        pass_on(&sent, &mut connection).await.unwrap();
        let read = far.read(&mut buffer).await.unwrap();
        assert!(buffer[..read] == sent, "{read} of {length} bytes came in");
        pass_on(&sent, &mut far).await.unwrap();
        let read = connection.read(&mut buffer).await.unwrap();
        assert!(buffer[..read] == sent, "{read} of {length} bytes came out");
    }
}

proptest! {
    /// Whatever arrives in whatever pieces, both sides hear all of it in order.
    #[test]
    fn bytes_arrive_as_they_were_sent(
        out in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3000), 0..12),
        back in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3000), 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (heard, answered) = runtime.block_on(async {
            let node = Arc::new(Node::default());
            let (connection, far, _stop) = opened(&node, Way::Port { port: 1 }).await;
            tokio::join!(spoken(far, &back), spoken(connection, &out))
        });
        prop_assert_eq!(heard, out.concat());
        prop_assert_eq!(answered, back.concat());
    }

    /// Bytes that are no frames end in an error, and never in a panic or in more than was sent.
    #[test]
    fn strange_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut heard, mut reading) = (Vec::new(), Reading::new(bytes.as_slice()));
        let read = runtime.block_on(reading.read_to_end(&mut heard));
        let is_ended = bytes.contains(&1);
        prop_assert!(read.is_err() || is_ended);
        prop_assert!(heard.len() <= bytes.len());
    }
}

/// Says all of this, then hears all of the other side.
async fn spoken(stream: impl AsyncRead + AsyncWrite + Unpin, pieces: &[Vec<u8>]) -> Vec<u8> {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut heard = Vec::new();
    let say = async {
        for piece in pieces {
            pass_on(piece, &mut to).await.unwrap();
        }
        to.shutdown().await.unwrap();
    };
    let ((), read) = tokio::join!(say, from.read_to_end(&mut heard));
    read.unwrap();
    heard
}
