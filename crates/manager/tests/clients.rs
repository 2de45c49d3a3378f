//! The clients of controllers: their names, their tokens, and the limit that they share.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{ApiServer, Identity, Place};
use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config};
use manager::clients::Clients;
use manager::rate::{Limit, RateLimitLayer, RateLimiter};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower::Layer as _;

/// What a server was asked: method, path, agent, proof.
type Asked = Arc<Mutex<Vec<[String; 4]>>>;

/// A server that gives tokens `t1`, `t2`, ... and takes only the last one for a config map.
#[derive(Default)]
struct Tokens {
    account: bool,
    given: u32,
    /// The token is not known any more.
    forgotten: bool,
}

async fn serve(asked: Asked, tokens: Arc<Mutex<Tokens>>) -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (asked, tokens) = (asked.clone(), tokens.clone());
            let answer = hyper::service::service_fn(move |request: Request<Incoming>| {
                let answer = answer(&request, &asked, &tokens);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    Config::new(format!("http://{address}").parse().unwrap())
}

fn answer(request: &Request<Incoming>, asked: &Asked, tokens: &Mutex<Tokens>) -> Response<Full<Bytes>> {
    let text = |headers: &HeaderMap, name| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let (path, proof) = (request.uri().path().to_owned(), text(request.headers(), AUTHORIZATION));
    let agent = text(request.headers(), USER_AGENT);
    asked.lock().unwrap().push([request.method().to_string(), path.clone(), agent, proof.clone()]);
    let mut tokens = tokens.lock().unwrap();
    let status = |code: u16| (code, json!({ "kind": "Status", "status": "Failure", "code": code, "message": "no" }));
    let (code, body) = if path.ends_with("/token") {
        if tokens.account {
            tokens.given += 1;
            let token = format!("t{}", tokens.given);
            (
                201,
                json!({ "spec": { "audiences": [], "expirationSeconds": 3600 }, "status": { "token": token, "expirationTimestamp": null } }),
            )
        } else {
            status(404)
        }
    } else if path.ends_with("/serviceaccounts") {
        tokens.account = true;
        (201, json!({ "metadata": { "name": "x" } }))
    } else if std::mem::take(&mut tokens.forgotten) || proof != format!("Bearer t{}", tokens.given) {
        status(401)
    } else {
        (200, json!({ "metadata": { "name": "m" } }))
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}

#[tokio::test]
async fn a_controller_has_its_own_name_and_its_own_token() {
    let (asked, tokens) = (Asked::default(), Arc::<Mutex<Tokens>>::default());
    let config = serve(asked.clone(), tokens.clone()).await;
    let clients = Clients::of_server(config, "kube-controller-manager", Limit { qps: 0.0, burst: 0 }, true);
    let maps: Api<ConfigMap> =
        Api::default_namespaced(clients.controller("deployment-controller", "the-account").unwrap());
    maps.get("m").await.unwrap();
    maps.get("m").await.unwrap();
    let paths = || -> Vec<String> {
        let lines = std::mem::take(&mut *asked.lock().unwrap());
        assert!(lines.iter().all(|[_, _, agent, _]| agent.starts_with("kube-controller-manager/")
            && agent.contains("orlop/deployment-controller")));
        lines.into_iter().map(|[method, path, _, proof]| format!("{method} {path} {proof}")).collect()
    };
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    let token = format!("POST {accounts}/the-account/token ");
    let get = |number: u32| format!("GET /api/v1/namespaces/default/configmaps/m Bearer t{number}");
    assert_eq!(paths(), [token.clone(), format!("POST {accounts} "), token.clone(), get(1), get(1)]);
    // A token that is not known any more is renewed with the next request.
    tokens.lock().unwrap().forgotten = true;
    assert!(maps.get("m").await.is_err());
    maps.get("m").await.unwrap();
    assert_eq!(paths(), [get(1), token, get(2)]);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_running_client_can_be_changed() {
    let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
    let limiter = RateLimiter::new(Limit { qps: 1.0, burst: 1 });
    let limited = RateLimitLayer(limiter.clone()).layer(server.for_identity(Identity::admin()));
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(limited, "default"));
    let ten = async || {
        let started = Instant::now();
        for _ in 0..10 {
            maps.get_opt("m").await.unwrap();
        }
        started.elapsed()
    };
    assert_eq!(ten().await, Duration::from_secs(9));
    limiter.set(Limit { qps: 10.0, burst: 1 });
    assert_eq!(ten().await, Duration::from_secs(1));
    limiter.set(Limit { qps: 0.0, burst: 0 });
    assert_eq!(ten().await, Duration::ZERO);
}
