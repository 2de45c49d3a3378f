//! One look at a container: a command in it, a connection to it, a request to it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Subject;

/// So much of an answer is shown in an event.
const MOST_SHOWN: usize = 1024;

/// Whether it passes; why not, otherwise.
pub(super) async fn check(subject: &Subject, probe: &Probe, patience: Duration) -> Result<(), String> {
    if let Some(exec) = &probe.exec {
        return command(subject, exec.command.as_deref().unwrap_or_default(), patience).await;
    }
    over_network(&subject.container, subject.address, probe, patience).await
}

async fn over_network(
    container: &Container,
    address: Option<IpAddr>,
    probe: &Probe,
    patience: Duration,
) -> Result<(), String> {
    let late = || format!("no answer within {} s", patience.as_secs());
    if let Some(get) = &probe.http_get {
        let url = url(container, get, address)?;
        return timeout(patience, request(get, &url, patience)).await.unwrap_or_else(|_| Err(late()));
    }
    if let Some(tcp) = &probe.tcp_socket {
        let port = port(container, &tcp.port)?;
        let host = host(tcp.host.as_deref(), address)?;
        let connected = timeout(patience, TcpStream::connect((host.as_str(), port))).await;
        return connected.map_err(|_| late())?.map(drop).map_err(|error| format!("dial tcp {host}:{port}: {error}"));
    }
    Err("gRPC probes are not supported; use httpGet, tcpSocket or exec".to_owned())
}

async fn command(subject: &Subject, command: &[String], patience: Duration) -> Result<(), String> {
    let executed = subject.shim.exec(&subject.container.name, command, patience).await.map_err(|error| error.0)?;
    if executed.timed_out {
        return Err(format!("command {command:?} timed out after {} s", patience.as_secs()));
    }
    if executed.exit_code == 0 {
        return Ok(());
    }
    let shown = executed.output.get(..MOST_SHOWN).unwrap_or(&executed.output);
    Err(String::from_utf8_lossy(shown).into_owned())
}

async fn request(get: &HTTPGetAction, url: &str, patience: Duration) -> Result<(), String> {
    let client = client(patience)?;
    let mut request = client.get(url).header("User-Agent", "kube-probe/1.36").header("Accept", "*/*");
    for header in get.http_headers.iter().flatten() {
        request = request.header(&header.name, &header.value);
    }
    let answer = request.send().await.map_err(|error| crate::agent::parts::Failure::of(&error).0)?;
    let code = answer.status().as_u16();
    if (200..400).contains(&code) { Ok(()) } else { Err(format!("HTTP probe failed with statuscode: {code}")) }
}

fn client(patience: Duration) -> Result<reqwest::Client, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(patience)
        .build()
        .map_err(|error| error.to_string())
}

/// A probe asks whether somebody answers, not who: a pod's certificate is its own affair.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn url(container: &Container, get: &HTTPGetAction, address: Option<IpAddr>) -> Result<String, String> {
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_ascii_lowercase();
    let host = host(get.host.as_deref(), address)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let path = get.path.as_deref().unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(format!("{scheme}://{host}:{}{slash}{path}", port(container, &get.port)?))
}

fn host(asked: Option<&str>, address: Option<IpAddr>) -> Result<String, String> {
    let asked = asked.filter(|host| !host.is_empty()).map(str::to_owned);
    asked.or_else(|| address.map(|address| address.to_string())).ok_or_else(|| "the pod has no address".to_owned())
}

fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let ports = container.ports.iter().flatten();
            let named = ports.into_iter().find(|port| port.name.as_deref() == Some(name));
            let number = named.map(|port| port.container_port).or_else(|| name.parse().ok());
            number.ok_or_else(|| format!("container has no port named {name:?}"))?
        }
    };
    u16::try_from(number).map_err(|_| format!("{number} is not a valid port"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container() -> Container {
        let value = json!({ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn requests_go_to_the_pod_unless_a_host_is_named() {
        let of = |value: serde_json::Value, address: &str| {
            url(&container(), &serde_json::from_value(value).unwrap(), address.parse().ok())
        };
        assert_eq!(of(json!({ "port": "web", "path": "x" }), "10.0.0.1").unwrap(), "http://10.0.0.1:8080/x");
        assert_eq!(of(json!({ "port": 1, "scheme": "HTTPS" }), "fd00::1").unwrap(), "https://[fd00::1]:1/");
        assert_eq!(of(json!({ "port": 1, "host": "h" }), "").unwrap(), "http://h:1/");
        assert!(of(json!({ "port": "absent" }), "10.0.0.1").is_err());
        assert!(of(json!({ "port": 70000 }), "10.0.0.1").is_err());
        assert!(of(json!({ "port": 1 }), "").is_err());
    }

    /// Somebody who answers every request with a status, or with nothing; tells what was asked.
    async fn answering(status: Option<&'static str>) -> (u16, tokio::sync::mpsc::UnboundedReceiver<String>) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = vec![0; 1024];
                let length = stream.read(&mut asked).await.unwrap();
                tell.send(String::from_utf8_lossy(&asked[..length]).into_owned()).unwrap();
                match status {
                    Some(status) => {
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nlocation: /no\r\n\r\n");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                    None => silent.push(stream),
                }
            }
        });
        (port, told)
    }

    async fn ask(probe: serde_json::Value) -> Result<(), String> {
        let (probe, address) = (serde_json::from_value(probe).unwrap(), "127.0.0.1".parse().ok());
        over_network(&container(), address, &probe, Duration::from_secs(1)).await
    }

    #[tokio::test]
    async fn a_request_passes_by_its_status_and_carries_its_headers() {
        for (status, passes) in [("200 OK", true), ("302 Found", true), ("404 Not Found", false), ("503 No", false)] {
            let (port, mut told) = answering(Some(status)).await;
            let header = json!({ "name": "X-Who", "value": "probe" });
            let asked = ask(json!({ "httpGet": { "port": port, "path": "/p?q=1", "httpHeaders": [header] } })).await;
            assert_eq!(asked.is_ok(), passes, "{status}: {asked:?}");
            let told = told.recv().await.unwrap().to_lowercase();
            assert!(told.starts_with("get /p?q=1 http/1.1") && told.contains("x-who: probe"), "{told}");
        }
    }

    #[tokio::test]
    async fn who_does_not_answer_in_time_fails() {
        let (port, _told) = answering(None).await;
        assert!(ask(json!({ "httpGet": { "port": port } })).await.is_err());
    }

    #[tokio::test]
    async fn a_connection_passes_when_somebody_takes_it() {
        let (port, _told) = answering(None).await;
        assert_eq!(ask(json!({ "tcpSocket": { "port": port } })).await, Ok(()));
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let refused = ask(json!({ "tcpSocket": { "port": free } })).await.unwrap_err();
        assert!(refused.starts_with(&format!("dial tcp 127.0.0.1:{free}: ")), "{refused}");
    }
}
