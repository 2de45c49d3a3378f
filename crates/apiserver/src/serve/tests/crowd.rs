//! Strangers, who take up no more than their share of connections.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stranger_that_does_not_say_who_it_is_does_not_stay() {
    let served = Served::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "reader", "namespace": "default" } });
    served.post(accounts, &account).await;
    let wanted =
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": [] } });
    let granted = served.post(&format!("{accounts}/reader/token"), &wanted).await;
    let token = granted["status"]["token"].as_str().unwrap().to_owned();
    for shows in [None, Some(token)] {
        let (stream, serving) = served.connect_to("h2", served.open_to(Some(Known::default()))).await;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let started = Instant::now();
        let mut request = http::Request::get("https://localhost/readyz");
        if let Some(token) = &shows {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
        if shows.is_none() {
            lasts(serving).await;
            assert!((strangers::UNKNOWN..strangers::UNKNOWN + SLOWEST_END).contains(&started.elapsed()));
        } else {
            sleep(Duration::from_secs(600)).await;
            assert!(!serving.is_finished(), "who is known may be quiet");
        }
    }
}

/// Whether a server answers who comes from one address to another.
async fn is_answered(from: Ipv4Addr, to: SocketAddr) -> bool {
    use tokio::io::AsyncReadExt as _;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    // No TLS, which is answered by an alert.
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    matches!(stream.read(&mut [0; 16]).await, Ok(1..))
}

#[tokio::test]
async fn one_stranger_does_not_take_the_connections_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
    let further = Ipv4Addr::new(127, 0, 0, 2);
    let addresses = Addresses { further: vec![further.into()], ..SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into() };
    let listening = Listening::on(addresses, folder.path(), &server).await.unwrap();
    let own = listening.address();
    let door = SocketAddr::from((further, own.port()));
    let (hostile, other) = (Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 4));
    let crowd = async {
        let full = async {
            loop {
                let mut held = Vec::new();
                for _ in 0..strangers::MOST_OF_ONE {
                    let socket = TcpSocket::new_v4().unwrap();
                    socket.bind((hostile, 0).into()).unwrap();
                    held.push(socket.connect(door).await.unwrap());
                }
                // Those that are held were accepted before this one, which the server ends at once; unless this machine was so
                // slow that the first of them have been ended for their silence.
                if !is_answered(hostile, door).await {
                    return held;
                }
            }
        };
        let held = timeout(Duration::from_secs(300), full).await.unwrap();
        assert!(is_answered(other, door).await && is_answered(hostile, own).await);
        drop(held);
        timeout(Duration::from_secs(300), async { while !is_answered(hostile, door).await {} }).await.unwrap();
    };
    listening.run(server, crowd).await;
}
