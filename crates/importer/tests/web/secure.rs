//! Imports over HTTPS from a server that an authority of its owner's has signed, as `certConfigMap` has it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;

use certificates::{Authority, Request, tls};
use importer::{ImportError, Reach, Web};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Server, assert_is_content, content, import, read};

/// From 1970 on, whenever a test runs.
const LIFE: SignedDuration = SignedDuration::from_hours(200 * 366 * 24);

/// A server at `https://127.0.0.1`, and the root that its certificate goes back to.
fn secure(answer: impl Fn(&mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static) -> (Web, String) {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let root = Authority::make("a test", Timestamp::UNIX_EPOCH, LIFE).unwrap();
    let leaf = root.issue(&Request::server("a server", &[], &[local]), Timestamp::UNIX_EPOCH, LIFE).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
    let config = Arc::new(tls::server(chain, key, tls::Clients::Any, &[]).unwrap());
    let listener = TcpListener::bind((local, 0)).unwrap();
    let url = format!("https://{}/file", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            // Who does not trust it hangs up before it asks.
            if read(&mut stream).starts_with("get ") {
                let _ = answer(&mut stream);
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    (Web { url, reach: Reach::default().and(local), ..Web::default() }, root.certificate().to_owned())
}

fn disk() -> impl Fn(&mut dyn Write) -> std::io::Result<()> + Send + Sync {
    |stream| {
        let file = content();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len())?;
        stream.write_all(&file)
    }
}

#[tokio::test]
async fn a_server_is_trusted_by_the_roots_that_come_with_its_import() {
    let (mut web, root) = secure(disk());
    web.certificates = root.into_bytes();
    assert_is_content(&import(web).await.unwrap());
}

#[tokio::test]
async fn a_server_that_goes_back_to_another_root_is_not_trusted() {
    let (web, _) = secure(disk());
    let (_, other) = secure(disk());
    for certificates in [Vec::new(), other.into_bytes()] {
        let refused = import(Web { certificates, ..web.clone() }).await.unwrap_err();
        // A machine may have no roots at all.
        assert!(matches!(refused, ImportError::Http { .. } | ImportError::Tls(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn roots_that_are_no_certificates_are_refused() {
    let (web, _) = secure(disk());
    let refused = import(Web { certificates: b"no root".to_vec(), ..web }).await.unwrap_err();
    assert!(matches!(refused, ImportError::Certificate), "{refused:?}");
}

#[tokio::test]
async fn nothing_is_followed_from_https_to_plain_http() {
    let plain = Server::of(content());
    let location = plain.web().url;
    let (mut web, root) =
        secure(move |stream| write!(stream, "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"));
    web.certificates = root.into_bytes();
    let refused = import(web).await.unwrap_err();
    assert_eq!(refused.to_string(), "the server redirects from HTTPS to plain HTTP");
    assert!(plain.asked.lock().unwrap().is_empty(), "it was asked");
}
