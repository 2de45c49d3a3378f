//! A real plugin on a real socket.

use device_plugin::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use device_plugin::v1beta1::registration_client::RegistrationClient;
use device_plugin::v1beta1::{
    AllocateRequest, AllocateResponse, Device as Offered, DevicePluginOptions, DeviceSpec, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

struct Fake {
    lists: Mutex<Option<mpsc::Receiver<Result<ListAndWatchResponse, Status>>>>,
}

#[tonic::async_trait]
impl DevicePlugin for Fake {
    type ListAndWatchStream = ReceiverStream<Result<ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = self.lists.lock().unwrap().take().ok_or_else(|| Status::internal("once only"))?;
        Ok(Response::new(ReceiverStream::new(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("not offered"))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let answer = |ids: Vec<String>| ContainerAllocateResponse {
            envs: [("IDS".to_owned(), ids.join(","))].into(),
            devices: vec![DeviceSpec {
                container_path: "/dev/kvm".to_owned(),
                host_path: "/dev/null".to_owned(),
                permissions: "rw".to_owned(),
            }],
            ..ContainerAllocateResponse::default()
        };
        let requests = request.into_inner().container_requests;
        let container_responses = requests.into_iter().map(|request| answer(request.devices_ids)).collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

fn list(devices: &[(&str, &str)]) -> Result<ListAndWatchResponse, Status> {
    let device =
        |(id, health): &(&str, &str)| Offered { id: (*id).to_owned(), health: (*health).to_owned(), topology: None };
    Ok(ListAndWatchResponse { devices: devices.iter().map(device).collect() })
}

async fn register(folder: &Path, version: &str, endpoint: &str) -> Result<(), Status> {
    let socket = folder.join(device_plugin::SOCKET);
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint_of_kubelet = tonic::transport::Endpoint::from_static("http://localhost");
    let channel = endpoint_of_kubelet.connect_with_connector(connector).await;
    let mut client = RegistrationClient::new(channel.map_err(|error| Status::unavailable(error.to_string()))?);
    let request = RegisterRequest {
        version: version.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: "devices.kubevirt.io/kvm".to_owned(),
        options: None,
    };
    client.register(request).await.map(drop)
}

fn container() -> Container {
    let limits = json!({ "devices.kubevirt.io/kvm": "1", "memory": "1Gi" });
    serde_json::from_value(json!({ "name": "compute", "resources": { "limits": limits } })).unwrap()
}

#[tokio::test]
async fn a_plugin_registers_offers_and_is_asked() {
    let root = tempfile::tempdir().unwrap();
    let devices = Devices::new(root.path());
    let folder = root.path().join(device_plugin::FOLDER);
    std::fs::create_dir_all(&folder).unwrap();
    let (send, lists) = mpsc::channel(4);
    let listener = UnixListener::bind(folder.join("kvm.sock")).unwrap();
    let fake = Fake { lists: Mutex::new(Some(lists)) };
    let plugin = tonic::transport::Server::builder()
        .add_service(DevicePluginServer::new(fake))
        .serve_with_incoming(UnixListenerStream::new(listener));
    let plugin = tokio::spawn(plugin);
    let server = tokio::spawn({
        let devices = devices.clone();
        async move { devices.serve().await }
    });
    while !folder.join(device_plugin::SOCKET).exists() {
        tokio::task::yield_now().await;
    }
    let refused = register(&folder, "v1alpha1", "kvm.sock").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(register(&folder, device_plugin::VERSION, "../kvm.sock").await.is_err());
    assert!(devices.allocate("u", &container()).await.is_err(), "nobody offers it yet");

    let mut changes = devices.changes();
    register(&folder, device_plugin::VERSION, "kvm.sock").await.unwrap();
    send.send(list(&[("a", "Healthy"), ("b", "Unhealthy")])).await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(devices.amounts()["devices.kubevirt.io/kvm"], (2, 1));
    let given = devices.allocate("u", &container()).await.unwrap();
    assert_eq!(given.env, [("IDS".to_owned(), "a".to_owned())]);
    assert_eq!(given.devices[0].target, "/dev/kvm");
    let short = devices.allocate("v", &container()).await.unwrap_err();
    assert!(short.0.contains("Requested: 1, Available: 0"), "{short}");

    // The next agent knows who has what, and frees what nobody has any more.
    let next = Devices::new(root.path());
    assert_eq!(next.state().table.pods().collect::<Vec<_>>(), ["u"]);
    next.retain(&BTreeSet::new());
    assert_eq!(Devices::new(root.path()).state().table.pods().count(), 0);

    drop(send);
    changes.changed().await.unwrap();
    assert_eq!(devices.amounts()["devices.kubevirt.io/kvm"], (2, 0));
    server.abort();
    plugin.abort();
}
