//! A cluster, virt-api in front of it, and a front proxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apiserver::{ApiServer, Identity, Place};
use bytes::Bytes;
use certificates::{Authority, Following, Leaf, Request as Wanted, Use, tls};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use manager::context::Chance;
use manager::serving::Pages;
use manager::stopping::Stopping;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use virt_extension::{Extension, Guests, Handlers};
use virt_handler::{Door, DoorSettings};
use virt_server::Component;

/// What these tests need: schemas take their time.
const KINDS: [&str; 5] = [
    "KubeVirt",
    "VirtualMachine",
    "VirtualMachineInstance",
    "VirtualMachineInstancePreset",
    "VirtualMachineInstancetype",
];
pub(crate) const VMIS: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub(crate) const VMS: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines";
pub(crate) const SERVICE: &str = "virt-api.kubevirt.svc";
pub(crate) const VIRT_API: &str = "kubevirt.io:system:client:virt-api";

#[expect(clippy::disallowed_methods, reason = "TLS has the machine's clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

pub(crate) fn authority(name: &str) -> Authority {
    Authority::make(name, now(), SignedDuration::from_hours(24)).unwrap()
}

pub(crate) fn issue(by: &Authority, wanted: &Wanted) -> Leaf {
    by.issue(wanted, now(), SignedDuration::from_hours(1)).unwrap()
}

/// Writes a certificate and its key as a kubelet renews a secret: each file whole.
pub(crate) fn write(folder: &Path, name: &str, leaf: &Leaf) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    for (path, text) in [(&key, &leaf.key), (&certificate, &leaf.certificate)] {
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, path).unwrap();
    }
    (certificate, key)
}

pub(crate) struct Bench {
    pub(crate) server: ApiServer,
    pub(crate) folder: TempDir,
    /// Signs virt-api's serving certificate.
    pub(crate) serving: Authority,
    pub(crate) front: Authority,
    /// Signs the certificates between virt-api and nodes.
    pub(crate) inner: Authority,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) pages: Pages,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let mut settings = virt_server::Settings::new(Chance::seeded(1)).unwrap();
        settings.kinds.retain(|kind| KINDS.contains(&kind.spec.names.kind.as_str()));
        let server = virt_server::start(ApiServer::builder(Place::Memory).seed(1), settings).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (serving, front, inner) = (authority("serving"), authority("front-proxy"), authority("inner"));
        let (certificate, key) =
            write(folder.path(), "serving", &issue(&serving, &Wanted::server("virt-api", &[SERVICE], &[])));
        let admin = Client::new(server.for_identity(Identity::admin()), "default");
        let map: ConfigMap = serde_json::from_value(front_proxy(&front, &["front-proxy-client"])).unwrap();
        Api::<ConfigMap>::namespaced(admin, "kube-system").create(&PostParams::default(), &map).await.unwrap();
        // With the rights of virt-api, and none beyond.
        let client = Client::new(server.for_identity(Component::VirtApi.identity()), "default");
        let guests = Arc::new(handlers(&client, folder.path(), &inner, VIRT_API));
        let pages = Pages::new("virt-api");
        let address = "127.0.0.1:0".parse().unwrap();
        let chance = Chance::seeded(2);
        let extension = Extension { address, certificate, key, client, guests, chance, pages: pages.clone() };
        let listening = extension.bind().await.unwrap();
        let address = listening.address();
        let (stop, mut stopped) = watch::channel(false);
        let running = tokio::spawn(async move {
            listening.run(async move { drop(stopped.wait_for(|stopped| *stopped).await) }).await;
        });
        let bench = Self { server, folder, serving, front, inner, address, pages, stop, running };
        bench.until_ready().await;
        bench
    }

    /// Waits until it knows all that it has to.
    async fn until_ready(&self) {
        while !self.pages.troubles().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn admin(&self) -> Client {
        Client::new(self.server.for_identity(Identity::admin()), "default")
    }

    /// A certificate of the front proxy's.
    pub(crate) fn proxy(&self) -> Leaf {
        issue(&self.front, &Wanted::client("front-proxy-client", &[]))
    }

    pub(crate) async fn connect(&self, own: Option<&Leaf>) -> std::io::Result<TlsStream<TcpStream>> {
        let config = tls::client(tls::roots(self.serving.certificate()).unwrap(), own).unwrap();
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(SERVICE).unwrap(), stream).await
    }

    /// Asks with a connection of its own, with this certificate, in this user's name.
    pub(crate) async fn ask(
        &self,
        own: Option<&Leaf>,
        user: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<(u16, Value), String> {
        let stream = self.connect(own).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let driving = tokio::spawn(connection);
        let answer = sender.send_request(request(user, method, path, body)).await.map_err(|error| error.to_string())?;
        let read = read(answer).await;
        driving.abort();
        Ok(read)
    }

    /// Asks as the front proxy.
    pub(crate) async fn get(&self, user: &str, path: &str) -> (u16, Value) {
        self.ask(Some(&self.proxy()), user, "GET", path, &Value::Null).await.unwrap()
    }

    pub(crate) async fn put(&self, user: &str, path: &str, body: &Value) -> (u16, Value) {
        self.ask(Some(&self.proxy()), user, "PUT", path, body).await.unwrap()
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        self.admin().request::<Value>(request).await.unwrap();
    }

    /// An instance that runs on a node.
    pub(crate) async fn instance(&self, name: &str, node: &str) {
        let spec = json!({ "domain": { "devices": {}, "memory": { "guest": "64Mi" } } });
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": name }, "spec": spec,
        });
        self.create("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances", &vmi).await;
        let handler = Client::new(self.server.for_identity(Component::VirtHandler.identity()), "default");
        let api: Api<api::vmi::VirtualMachineInstance> = Api::default_namespaced(handler);
        let status = json!({ "status": { "phase": "Running", "nodeName": node } });
        api.patch(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// A node whose handler has a certificate in this name.
    pub(crate) async fn node(&self, name: &str, certified: &str, guests: Arc<dyn Guests>) -> Stopping {
        let wanted = Wanted::server(certified, &[certified], &[]);
        let (certificate, key) = write(self.folder.path(), name, &issue(&self.inner, &wanted));
        let authorities = self.folder.path().join("inner.crt");
        let settings = DoorSettings {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertised: "127.0.0.1".to_owned(),
            certificate,
            key,
            authorities,
            caller: VIRT_API.to_owned(),
        };
        let door = Door::open(settings).unwrap();
        let annotations = json!({ "orlop.dev/virt-handler": door.address() });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": annotations },
        });
        self.create("/api/v1/nodes", &node).await;
        let (stopping, name) = (Stopping::default(), name.to_owned());
        let asked = stopping.clone();
        tokio::spawn(async move { door.serve(&name, guests, &asked).await });
        stopping
    }

    /// Ends virt-api, and waits for that.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.running.await.unwrap();
    }
}

/// The way to nodes of whoever has a certificate in this name.
pub(crate) fn handlers(client: &Client, folder: &Path, inner: &Authority, name: &str) -> Handlers {
    fs::write(folder.join("inner.crt"), inner.certificate()).unwrap();
    let leaf = issue(inner, &Wanted { used: Use::Client, ..Wanted::client(name, &[]) });
    let roots = inner.certificate().to_owned();
    let make = move || -> Result<ClientConfig, certificates::CertificateError> {
        tls::client(tls::roots(&roots)?, Some(&leaf))
    };
    Handlers::new(client.clone(), Arc::new(Following::new(Vec::new(), make).unwrap()))
}

/// The config map in which a cluster says who its front proxy is.
pub(crate) fn front_proxy(by: &Authority, names: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" },
        "data": {
            "requestheader-client-ca-file": by.certificate(),
            "requestheader-allowed-names": json!(names).to_string(),
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        },
    })
}

pub(crate) fn request(user: &str, method: &str, path: &str, body: &Value) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("host", SERVICE).header("x-remote-user", user);
    let groups = if user == "admin" { "system:masters" } else { "system:authenticated" };
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    request.header("x-remote-group", groups).body(Full::new(body)).unwrap()
}

pub(crate) async fn read(answer: Response<hyper::body::Incoming>) -> (u16, Value) {
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into()))
}
