//! Registries to pull from: a real one, and one that answers as a test says.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use storage::image::Reference;
use storage::pull::Registries;
use testkit::waiting::eventually;

use super::build::Layout;

/// `user` with the password `correct horse`.
const USERS: &str = "user:$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2\n";

/// Debian's `docker-registry` on a port of its own; ends with the test.
pub(crate) struct Registry {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
    markers: AtomicUsize,
}

impl Registry {
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    /// One that asks for `user` and `correct horse`.
    pub(crate) async fn start_with_password() -> Self {
        Self::start_with("auth: {htpasswd: {realm: test, path: FOLDER/users}}").await
    }

    /// One that speaks TLS with a certificate of its own, and that certificate.
    pub(crate) async fn start_with_tls() -> (Self, Vec<u8>) {
        let extra = "  tls: {certificate: FOLDER/cert.pem, key: FOLDER/key.pem}";
        let registry = Self::start_with(extra).await;
        let certificate = std::fs::read(registry.folder.path().join("cert.pem")).unwrap();
        (registry, certificate)
    }

    async fn start_with(extra: &str) -> Self {
        let port = testkit::ports::free();
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display().to_string();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {place}/data}}}}\n\
             http:\n  addr: '127.0.0.1:{port}'\n{}\n",
            extra.replace("FOLDER", &place)
        );
        std::fs::write(folder.path().join("config.yml"), config).unwrap();
        std::fs::write(folder.path().join("users"), USERS).unwrap();
        if extra.contains("cert.pem") {
            make_certificate(folder.path());
        }
        let log = File::create(folder.path().join("log")).unwrap();
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "docker-registry", "serve"])
            .arg(folder.path().join("config.yml"))
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .expect("setpriv and docker-registry are needed by these tests; Debian has packages of these names");
        let listens = async || {
            if child.try_wait().unwrap().is_some() {
                panic!("docker-registry ended: {}", std::fs::read_to_string(folder.path().join("log")).unwrap());
            }
            TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).ok()
        };
        eventually("docker-registry listens", listens).await;
        Self { child, port, folder, markers: AtomicUsize::new(0) }
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn reference(&self, name: &str) -> Reference {
        format!("{}/{name}", self.host()).parse().unwrap()
    }

    /// The settings by which this registry can be reached.
    pub(crate) fn registries(&self) -> Registries {
        let mut registries = Registries::default();
        registries.set_insecure(&self.host()).unwrap();
        registries
    }

    pub(crate) fn push(&self, layout: &Layout, tag: &str, name: &str) {
        let output = Command::new("skopeo")
            .args(["copy", "--quiet", "--insecure-policy", "--all", "--dest-tls-verify=false"])
            .args(["--dest-creds", "user:correct horse"])
            .arg(format!("oci:{}:{tag}", layout.path().display()))
            .arg(format!("docker://{}/{name}", self.host()))
            .output()
            .expect("skopeo is needed by these tests; Debian has a package of that name");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// How many requests by this crate had these words in their line of the log.
    pub(crate) async fn requests(&self, words: &[&str]) -> usize {
        // A line is written when a client has its answer already. One more request, whose line is waited for, makes
        // sure that those of the earlier ones are there.
        let marker = format!("/v2/marker-{}", self.markers.fetch_add(1, Ordering::Relaxed));
        let mut stream = TcpStream::connect(self.host()).unwrap();
        write!(stream, "GET {marker} HTTP/1.1\r\nHost: registry\r\nConnection: close\r\n\r\n").unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        let path = self.folder.path().join("log");
        let read = async || std::fs::read_to_string(&path).ok().filter(|log| log.contains(&format!("{marker} ")));
        let log = eventually("the marker in the log", read).await;
        let ours = log.lines().filter(|line| line.contains("\"orlop/"));
        ours.filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    pub(crate) fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

fn make_certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args([
            "-subj",
            "/CN=test",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(folder)
        .output()
        .expect("openssl is needed by these tests; Debian has a package of that name");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A request as the scripted registry sees it.
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

/// A registry that says whatever a test wants: from a request to all bytes of the answer.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
}

impl Scripted {
    pub(crate) fn start(answer: impl Fn(&Request, SocketAddr) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Ends with the process: nothing is left behind, and there are but a few of them.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                if let Some(request) = read_request(&stream) {
                    // A client may hang up on an answer it does not like.
                    let _ = stream.write_all(&answer(&request, address));
                }
            }
        });
        Self { address }
    }

    pub(crate) fn reference(&self, name: &str) -> Reference {
        format!("{}/{name}", self.address).parse().unwrap()
    }

    pub(crate) fn registries(&self) -> Registries {
        let mut registries = Registries::default();
        registries.set_insecure(&self.address.to_string()).unwrap();
        registries
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut authorization = None;
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            return Some(Request { path, authorization });
        }
        if let Some(value) = line.to_lowercase().strip_prefix("authorization: ") {
            authorization = Some(line[line.len() - value.len()..].to_owned());
        }
    }
    None
}

/// An answer, after which the connection is closed.
pub(crate) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// What a plain registry would answer from a layout: blobs and manifests by digest, and the tag `v1`.
pub(crate) fn from_layout(folder: &Path, path: &str) -> Vec<u8> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let digest = match name.strip_prefix("sha256:") {
        Some(hex) => hex.to_owned(),
        None => {
            let index: serde_json::Value =
                serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
            index["manifests"][0]["digest"].as_str().unwrap().replace("sha256:", "")
        }
    };
    match std::fs::read(folder.join("blobs/sha256").join(digest)) {
        Ok(bytes) => answer("200 OK", "", &bytes),
        Err(_) => answer("404 Not Found", "", b""),
    }
}
