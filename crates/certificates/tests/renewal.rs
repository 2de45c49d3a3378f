//! Certificates that are renewed, and authorities that take over from each other, while connections go on.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use certificates::tls::{self, Clients};
use certificates::{Keeper, Leaf, Renewing, Request, Terms};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const TERMS: Terms = Terms {
    authority: SignedDuration::from_hours(1000),
    leaf: SignedDuration::from_hours(10),
    renewed: SignedDuration::from_hours(7),
    spread: SignedDuration::from_hours(3),
};

/// TLS looks at the machine's clock; certificates are good from a day before they are made, and no test lasts that long.
#[expect(clippy::disallowed_methods, reason = "TLS has the machine's clock")]
fn begin() -> Timestamp {
    Timestamp::now()
}

fn hours(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count)
}

struct Served {
    folder: TempDir,
    keeper: Arc<Keeper>,
    renewing: Arc<Renewing>,
    begun: Timestamp,
}

impl Served {
    fn new() -> Self {
        let (folder, begun) = (tempfile::tempdir().unwrap(), begin());
        let keeper = Arc::new(Keeper::open(folder.path(), "test", TERMS, begun).unwrap());
        let request = Request::server("server", &["localhost"], &[]);
        let renewing = Renewing::new(keeper.clone(), request, Clients::Known, &["echo"], begun).unwrap();
        Self { folder, keeper, renewing: Arc::new(renewing), begun }
    }

    fn trusted(&self) -> String {
        self.keeper.trusted().borrow().clone()
    }

    /// A connection of a client that trusts these, whose bytes come back.
    async fn connect(&self, trusted: &str, own: Option<&Leaf>) -> std::io::Result<TlsStream<DuplexStream>> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let acceptor = TlsAcceptor::from(self.renewing.config());
        tokio::spawn(async move {
            let Ok(mut stream) = acceptor.accept(far).await else { return };
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() && stream.write_all(&byte).await.is_ok() {}
        });
        let mut config = tls::client(tls::roots(trusted).unwrap(), own).unwrap();
        config.alpn_protocols = vec![b"echo".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, near).await?;
        // What a server thinks of a client's certificate is known after the handshake.
        echo(&mut stream).await?;
        Ok(stream)
    }
}

async fn echo(stream: &mut TlsStream<DuplexStream>) -> std::io::Result<()> {
    stream.write_all(b"x").await?;
    let mut byte = [0];
    stream.read_exact(&mut byte).await.map(drop)
}

fn shown(stream: &TlsStream<DuplexStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_made_anew_before_it_ends_for_ever() {
    let served = Served::new();
    let (started, begun) = (Instant::now(), served.begun);
    let now = move || begun + SignedDuration::try_from(started.elapsed()).unwrap();
    let running = served.renewing.clone();
    let made = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = made.clone();
    tokio::spawn(async move {
        let count = || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        running.run(now, count).await;
    });
    // Longer than any authority lives.
    for _ in 0..3000 {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let leaf = served.renewing.leaf();
        assert!(leaf.ends > now() + hours(2), "there is time left to try again");
        assert!(leaf.made + hours(8) >= now());
    }
    let made = made.load(std::sync::atomic::Ordering::Relaxed);
    assert!((3000 / 8..3000 / 6).contains(&made), "{made}");
}

#[tokio::test]
async fn connections_go_on_and_new_ones_see_the_new_certificate() {
    let served = Served::new();
    let mut old = served.connect(&served.trusted(), None).await.unwrap();
    assert!(!served.renewing.look(served.begun + hours(6)).unwrap(), "it is young");
    assert!(served.renewing.look(served.begun + hours(7)).unwrap());
    let new = served.connect(&served.trusted(), None).await.unwrap();
    assert_ne!(shown(&new), shown(&old));
    echo(&mut old).await.unwrap();
}

#[tokio::test]
async fn both_sides_are_trusted_while_one_authority_takes_over_from_the_other() {
    let served = Served::new();
    let old = served.trusted();
    let request = Request::client("somebody", &["people"]);
    let own = served.keeper.issue(&request, served.begun).unwrap();
    let mut open = served.connect(&old, Some(&own)).await.unwrap();
    served.keeper.rotate(served.begun).unwrap();
    served.renewing.look(served.begun).unwrap();
    let both = served.trusted();
    assert_eq!(tls::chain(&both).unwrap().len(), 2);
    // Announced: whoever has not heard of the new one yet is served, and believed.
    for trusted in [&old, &both] {
        served.connect(trusted, Some(&own)).await.unwrap();
    }
    let signed = served.keeper.signs();
    served.renewing.look(served.begun + TERMS.spread).unwrap();
    assert_ne!(served.keeper.signs(), signed);
    // The new one signs: whoever has heard of it is served, with a certificate of either.
    let new = served.keeper.issue(&request, served.begun + TERMS.spread).unwrap();
    for own in [&own, &new] {
        served.connect(&both, Some(own)).await.unwrap();
    }
    assert!(served.connect(&old, None).await.is_err(), "it had time enough to hear of it");
    echo(&mut open).await.unwrap();
    served.renewing.look(served.begun + TERMS.spread + TERMS.leaf).unwrap();
    let alone = served.trusted();
    assert_eq!(tls::chain(&alone).unwrap().len(), 1);
    served.connect(&alone, Some(&new)).await.unwrap();
    assert!(served.connect(&alone, Some(&own)).await.is_err(), "what the old one signed has ended");
    echo(&mut open).await.unwrap();
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// However a process ends, the next one finds the same authorities, and one of them signs.
#[test]
fn every_step_survives_a_crash_after_any_write() {
    let served = Served::new();
    let folder = served.folder.path();
    let spread = served.begun + TERMS.spread;
    let steps = [(served.begun, true), (spread, false), (spread + TERMS.leaf, false)];
    for (now, by_hand) in steps {
        let before = ["ca.crt", "ca.key"].map(|name| read(folder, name));
        match by_hand {
            true => served.keeper.rotate(now).unwrap(),
            false => served.keeper.look(now).unwrap(),
        }
        let (signs, trusted) = (served.keeper.signs(), served.trusted());
        // All was written, or only the record of it.
        for restored in [&[][..], &["ca.crt"], &["ca.crt", "ca.key"]] {
            if folder.join("rotation.json").exists() {
                for (name, text) in ["ca.crt", "ca.key"].into_iter().zip(&before) {
                    if restored.contains(&name) {
                        std::fs::write(folder.join(name), text).unwrap();
                    }
                }
            }
            let again = Keeper::open(folder, "test", TERMS, now).unwrap();
            assert_eq!((again.signs(), again.trusted().borrow().clone()), (signs.clone(), trusted.clone()));
        }
        assert_eq!(read(folder, "ca.crt"), trusted);
    }
    assert!(!folder.join("rotation.json").exists());
}

#[test]
fn keys_are_their_owners_alone_and_an_authority_without_its_key_is_none() {
    let served = Served::new();
    served.keeper.rotate(served.begun).unwrap();
    let folder = served.folder.path();
    for name in ["ca.key", "rotation.json"] {
        let mode = std::fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    std::fs::remove_file(folder.join("ca.key")).unwrap();
    std::fs::remove_file(folder.join("rotation.json")).unwrap();
    let error = Keeper::open(folder, "test", TERMS, served.begun).err().unwrap();
    assert!(error.to_string().ends_with("ca.key does not"), "{error}");
}

#[test]
fn nothing_outlives_its_authority() {
    let served = Served::new();
    let late = served.begun + TERMS.authority - hours(1);
    let leaf = served.keeper.issue(&Request::client("somebody", &[]), late).unwrap();
    assert!(leaf.ends <= late + hours(1));
}
