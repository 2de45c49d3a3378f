//! Downloads over real HTTPS.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::Path;

use certificates::tls;
use certificates::{Authority, Request};
use exporter::proxy::{ServerOfExport, ask};
use exporter::{Content, Export, Listening, TOKEN, Volume};
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

const HOST: &str = "virt-export-e.n.svc";
/// More than what waits for a slow client.
const SIZE: usize = (3 << 20) + 123;

struct Bench {
    folder: TempDir,
    address: SocketAddr,
    authority: String,
    client: Client,
    _stop: oneshot::Sender<()>,
}

fn disk() -> Vec<u8> {
    (0..SIZE).map(|at| if at < 1 << 20 { 0 } else { u8::try_from(at * 7 % 251).unwrap() }).collect()
}

impl Bench {
    /// A server with a disk and a directory.
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("disk")).unwrap();
        std::fs::create_dir_all(at("files/sub")).unwrap();
        std::fs::write(at("disk/disk.img"), disk()).unwrap();
        std::fs::write(at("files/a b"), "one").unwrap();
        std::fs::write(at("files/sub/two"), "two").unwrap();
        std::fs::write(at("secret"), "not for you").unwrap();
        symlink("../secret", at("files/out")).unwrap();
        std::fs::write(at("token"), "t0ken").unwrap();
        let manifests = json!({ "internal": [{ "kind": "A" }, { "kind": "B" }], "external": null });
        std::fs::write(at("manifests.json"), manifests.to_string()).unwrap();

        let life = SignedDuration::from_hours(1);
        #[expect(clippy::disallowed_methods, reason = "a real handshake needs a certificate of now")]
        let now = Timestamp::now();
        let authority = Authority::make("test", now, life).unwrap();
        let leaf = authority.issue(&Request::server(HOST, &[HOST], &[]), now, life).unwrap();
        std::fs::write(at("tls.crt"), &leaf.certificate).unwrap();
        std::fs::write(at("tls.key"), &leaf.key).unwrap();
        let volume = |name: &str, content| Volume { name: name.to_owned(), path: at(name), content };
        let export = Export {
            name: "e".to_owned(),
            volumes: vec![volume("disk", Content::Disk), volume("files", Content::Files)],
            token: at("token"),
            manifests: Some(at("manifests.json")),
        };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listening = Listening::on(any, &at("tls.crt"), &at("tls.key"), export).await.unwrap();
        let address = listening.address();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(listening.run(async move { drop(stopped.await) }));
        let authority = authority.certificate().to_owned();
        let config = tls::client(tls::roots(&authority).unwrap(), None).unwrap();
        let client = Client::builder().tls_backend_preconfigured(config).no_proxy().resolve(HOST, address);
        let client = client.redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { folder, address, authority, client, _stop: stop }
    }

    async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.client.get(format!("https://{HOST}:{}{path}", self.address.port()));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.get_with(path, &[(TOKEN, "t0ken")]).await
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }
}

fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut content).unwrap();
    content
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_sent_whole_in_parts_and_compressed() {
    let bench = Bench::start().await;
    let disk = disk();
    let whole = bench.get("/volumes/disk/disk.img").await;
    assert_eq!(whole.headers()["content-length"], SIZE.to_string());
    let mark = whole.headers()["etag"].to_str().unwrap().to_owned();
    assert!(whole.bytes().await.unwrap() == disk);

    let token = (TOKEN, "t0ken");
    for (range, part) in [
        ("bytes=0-9", &disk[..10]),
        ("bytes=2000000-2000009", &disk[2_000_000..2_000_010]),
        ("bytes=-5", &disk[SIZE - 5..]),
        ("bytes=3145000-", &disk[3_145_000..]),
    ] {
        let answer = bench.get_with("/volumes/disk/disk.img", &[token, ("range", range), ("if-range", &mark)]).await;
        assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT, "{range}");
        assert!(answer.bytes().await.unwrap() == part, "{range}");
    }
    let beyond = bench.get_with("/volumes/disk/disk.img", &[token, ("range", "bytes=99999999-")]).await;
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(beyond.headers()["content-range"], format!("bytes */{SIZE}"));
    let changed = [token, ("range", "bytes=0-9"), ("if-range", "\"other\"")];
    assert_eq!(bench.get_with("/volumes/disk/disk.img", &changed).await.status(), StatusCode::OK);

    let compressed = bench.get("/volumes/disk/disk.img.gz").await.bytes().await.unwrap();
    assert!(compressed.len() < SIZE && unzipped(&compressed) == disk);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_anything_without_the_token() {
    let bench = Bench::start().await;
    let paths = [
        "/volumes/disk/disk.img",
        "/volumes/disk/disk.img.gz",
        "/volumes/files/dir/",
        "/volumes/files/disk.tar.gz",
        "/internal/manifests/all",
        "/external/manifests/secret",
    ];
    for path in paths {
        for headers in [&[][..], &[(TOKEN, "")], &[(TOKEN, "t0keN")], &[(TOKEN, "t0ken0")]] {
            let answer = bench.get_with(path, headers).await;
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path} {headers:?}");
            assert!(answer.bytes().await.unwrap().is_empty(), "{path}");
        }
    }
    let query = bench.get_with("/volumes/files/dir/sub/two?x-kubevirt-export-token=t0ken", &[]).await;
    assert_eq!(query.text().await.unwrap(), "two");
    assert_eq!(bench.get_with("/exportready", &[]).await.status(), StatusCode::OK);
    assert_eq!(bench.get("/volumes/none/disk.img").await.status(), StatusCode::NOT_FOUND);
    // A token that was changed counts at once, and an empty one is nobody's.
    std::fs::write(bench.path("token"), "new").unwrap();
    assert_eq!(bench.get(paths[2]).await.status(), StatusCode::UNAUTHORIZED);
    std::fs::write(bench.path("token"), "").unwrap();
    assert_eq!(bench.get_with(paths[2], &[(TOKEN, "")]).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let url = format!("https://{HOST}:{}{}", bench.address.port(), paths[0]);
    let posted = bench.client.post(url).send().await.unwrap();
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_sent_by_file_and_as_an_archive_and_links_are_not_followed() {
    let bench = Bench::start().await;
    let list = bench.get("/volumes/files/dir/").await.text().await.unwrap();
    assert!(list.contains("<a href=\"a%20b\">a b</a>") && list.contains("<a href=\"sub/\">sub/</a>"), "{list}");
    assert_eq!(bench.get("/volumes/files/dir/a%20b").await.text().await.unwrap(), "one");
    let moved = bench.get("/volumes/files/dir").await;
    assert_eq!(
        (moved.status(), moved.headers()["location"].to_str().unwrap()),
        (StatusCode::MOVED_PERMANENTLY, "dir/")
    );
    for path in ["out", "%2e%2e/secret", "sub/none", "sub/..%2f..%2fsecret"] {
        let answer = bench.get(&format!("/volumes/files/dir/{path}")).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let archive = bench.get("/volumes/files/disk.tar.gz").await.bytes().await.unwrap();
    let target = tempfile::tempdir().unwrap();
    tar::Archive::new(GzDecoder::new(&archive[..])).unpack(target.path()).unwrap();
    let read = |path: &str| std::fs::read_to_string(target.path().join(path)).unwrap();
    assert_eq!((read("a b"), read("sub/two")), ("one".to_owned(), "two".to_owned()));
    assert_eq!(std::fs::read_link(target.path().join("out")).unwrap(), Path::new("../secret"));
    assert!(!unzipped(&archive).windows(11).any(|part| part == b"not for you"));

    // Neither is the image of a disk.
    std::fs::remove_file(bench.path("disk/disk.img")).unwrap();
    symlink("../secret", bench.path("disk/disk.img")).unwrap();
    assert_eq!(bench.get("/volumes/disk/disk.img").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(bench.get("/volumes/disk/disk.img.gz").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_whole_is_broken_off() {
    let bench = Bench::start().await;
    // Sparse: it costs nothing, and is more than any buffer holds.
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("disk/disk.img")).unwrap();
    file.set_len(4 << 30).unwrap();
    let mut answer = bench.get("/volumes/disk/disk.img").await;
    answer.chunk().await.unwrap().unwrap();
    file.set_len(1).unwrap();
    let ended = loop {
        match answer.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    assert!(ended.is_err(), "a part was taken for the whole");
    // A client that goes in the middle is in nobody's way.
    file.set_len(4 << 30).unwrap();
    for _ in 0..3 {
        let mut answer = bench.get("/volumes/disk/disk.img.gz").await;
        answer.chunk().await.unwrap().unwrap();
    }
    assert_eq!(bench.get("/volumes/files/dir/sub/two").await.text().await.unwrap(), "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_come_as_a_list_or_as_documents() {
    let bench = Bench::start().await;
    let list: Value = serde_json::from_str(&bench.get("/internal/manifests/all").await.text().await.unwrap()).unwrap();
    assert_eq!((&list["kind"], &list["items"]), (&json!("List"), &json!([{ "kind": "A" }, { "kind": "B" }])));
    let yaml = [(TOKEN, "t0ken"), ("accept", "application/yaml")];
    let text = bench.get_with("/internal/manifests/all", &yaml).await.text().await.unwrap();
    assert_eq!(text, "kind: A\n---\nkind: B\n---\n");
    assert_eq!(bench.get("/external/manifests/all").await.status(), StatusCode::NOT_FOUND);
    let secret = bench.get("/internal/manifests/secret").await.text().await.unwrap();
    let secret: Value = serde_json::from_str(&secret).unwrap();
    assert_eq!(secret["items"][0]["metadata"]["name"], "header-secret-e");
    assert_eq!(secret["items"][0]["stringData"]["token"], "x-kubevirt-export-token:t0ken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_led_to_the_server_that_has_the_certificate() {
    let bench = Bench::start().await;
    let server = |name: &str, authority: &str| ServerOfExport {
        address: bench.address,
        name: name.to_owned(),
        authority: authority.to_owned(),
    };
    let mut headers = HeaderMap::new();
    headers.insert(TOKEN, HeaderValue::from_static("t0ken"));
    headers.insert("range", HeaderValue::from_static("bytes=0-9"));
    let path = "/volumes/disk/disk.img";
    let right = server(HOST, &bench.authority);
    let answer = ask(&right, &Method::GET, path, &headers).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(answer.headers()["content-range"], format!("bytes 0-9/{SIZE}"));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), &disk()[..10]);

    assert!(ask(&server("virt-export-other.n.svc", &bench.authority), &Method::GET, path, &headers).await.is_err());
    #[expect(clippy::disallowed_methods, reason = "a real handshake needs a certificate of now")]
    let other = Authority::make("other", Timestamp::now(), SignedDuration::from_hours(1)).unwrap();
    assert!(ask(&server(HOST, other.certificate()), &Method::GET, path, &headers).await.is_err());

    // What breaks off there breaks off here.
    headers.remove("range");
    let mut file = std::fs::OpenOptions::new().write(true).open(bench.path("disk/disk.img")).unwrap();
    file.write_all(b"x").unwrap();
    file.set_len(4 << 30).unwrap();
    let answer = ask(&right, &Method::GET, path, &headers).await.unwrap();
    let mut body = answer.into_body();
    body.frame().await.unwrap().unwrap();
    file.set_len(1).unwrap();
    let broken = loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(broken, "a part was passed on as the whole");
}
