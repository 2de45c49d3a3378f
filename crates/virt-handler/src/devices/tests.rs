use std::sync::Mutex;

use device_plugin::v1beta1::device_plugin_client::DevicePluginClient;
use device_plugin::v1beta1::registration_server::{Registration, RegistrationServer};
use device_plugin::v1beta1::{AllocateRequest, ContainerAllocateRequest, Empty, RegisterRequest};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::*;

/// A kubelet that takes every device; ends when it is dropped.
struct Kubelet {
    registered: Arc<Mutex<Vec<RegisterRequest>>>,
    serving: JoinHandle<()>,
    socket: PathBuf,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

struct Register(Arc<Mutex<Vec<RegisterRequest>>>);

#[tonic::async_trait]
impl Registration for Register {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Empty {}))
    }
}

impl Kubelet {
    fn start(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let socket = folder.join(device_plugin::SOCKET);
        let registered = Arc::<Mutex<Vec<RegisterRequest>>>::default();
        let listener = UnixListener::bind(&socket).unwrap();
        let service = RegistrationServer::new(Register(registered.clone()));
        let server = tonic::transport::Server::builder().add_service(service);
        let serving = tokio::spawn(async move {
            server.serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap();
        });
        Self { registered, serving, socket }
    }

    fn names(&self) -> Vec<String> {
        self.registered.lock().unwrap().iter().map(|one| one.resource_name.clone()).collect()
    }
}

async fn connect(path: PathBuf) -> DevicePluginClient<Channel> {
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    DevicePluginClient::new(Endpoint::from_static("http://plugin").connect_with_connector(connector).await.unwrap())
}

/// Devices of a test's own: a file is a device as far as a plugin can tell.
fn devices(folder: &Path, device: &Path) -> Devices {
    let plugins = vec![Arc::new(Plugin::new("tun", device, 3))];
    Devices { kubelet: folder.to_owned(), plugins, registered: watch::Sender::new(false) }
}

#[tokio::test]
async fn devices_are_offered_to_each_kubelet_that_comes() {
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("device");
    std::fs::write(&device, "").unwrap();
    let sockets = folder.path().join("device-plugins");
    let devices = devices(&sockets, &device);
    let mut registered = devices.registered();
    let running = devices.clone();
    let task = tokio::spawn(async move { running.run().await });
    let first = Kubelet::start(&sockets);
    registered.wait_for(|all| *all).await.unwrap();
    assert_eq!(first.names(), ["devices.kubevirt.io/tun"]);
    drop(first);
    registered.wait_for(|all| !*all).await.unwrap();
    let second = Kubelet::start(&sockets);
    registered.wait_for(|all| *all).await.unwrap();
    assert_eq!(second.names(), ["devices.kubevirt.io/tun"]);
    task.abort();
}

#[tokio::test]
async fn a_device_is_healthy_while_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("device");
    std::fs::write(&device, "").unwrap();
    let sockets = folder.path().join("device-plugins");
    let _kubelet = Kubelet::start(&sockets);
    let devices = devices(&sockets, &device);
    let mut registered = devices.registered();
    let task = tokio::spawn(async move { devices.run().await });
    registered.wait_for(|all| *all).await.unwrap();
    let mut client = connect(sockets.join("kubevirt-tun.sock")).await;
    let mut lists = client.list_and_watch(Empty {}).await.unwrap().into_inner();
    let health = |list: &device_plugin::v1beta1::ListAndWatchResponse| {
        list.devices.iter().map(|one| one.health.clone()).collect::<Vec<_>>()
    };
    assert_eq!(health(&lists.message().await.unwrap().unwrap()), ["Healthy"; 3]);
    std::fs::remove_file(&device).unwrap();
    assert_eq!(health(&lists.message().await.unwrap().unwrap()), ["Unhealthy"; 3]);
    std::fs::write(&device, "").unwrap();
    assert_eq!(health(&lists.message().await.unwrap().unwrap()), ["Healthy"; 3]);
    let one = ContainerAllocateRequest { devices_ids: vec!["tun1".into()] };
    let answer = client.allocate(AllocateRequest { container_requests: vec![one] }).await.unwrap().into_inner();
    let given = &answer.container_responses[0].devices[0];
    assert_eq!((given.host_path.as_str(), given.permissions.as_str()), (device.to_str().unwrap(), "mrw"));
    task.abort();
}

#[test]
fn only_devices_that_exist_are_offered() {
    let root = tempfile::tempdir().unwrap();
    let offered = |has_kvm| {
        let all = Devices::new(Path::new("/nowhere"), 1000, &present_below(root.path()), has_kvm);
        all.plugins.iter().map(|plugin| format!("{plugin:?}")).collect::<Vec<_>>()
    };
    let is_of = |plugin: &str, path: &str| plugin.contains(&format!("{path:?}"));
    assert_eq!(offered(true), Vec::<String>::new());
    std::fs::create_dir_all(root.path().join("dev/net")).unwrap();
    std::fs::write(root.path().join("dev/net/tun"), "").unwrap();
    let [tun] = &offered(true)[..] else { panic!("{:?}", offered(true)) };
    assert!(is_of(tun, "/dev/net/tun"), "{tun}");
    // A module may be loaded at any time; and where KVM does not work, its device is of no use.
    std::fs::write(root.path().join("dev/kvm"), "").unwrap();
    let [kvm, tun] = &offered(true)[..] else { panic!("{:?}", offered(true)) };
    assert!(is_of(kvm, "/dev/kvm") && is_of(tun, "/dev/net/tun"), "{kvm} {tun}");
    let [tun] = &offered(false)[..] else { panic!("{:?}", offered(false)) };
    assert!(is_of(tun, "/dev/net/tun"), "{tun}");
}
