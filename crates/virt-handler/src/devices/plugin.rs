//! One device plugin: the same device as often as there are slots.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use device_plugin::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use device_plugin::v1beta1::registration_client::RegistrationClient;
use device_plugin::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DevicePluginOptions, DeviceSpec, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest,
};
use device_plugin::{HEALTHY, Short, UNHEALTHY, VERSION};
use futures_util::stream::unfold;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::Stream;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status};

use crate::folders::{self, Watch};

/// The names of devices that launcher pods ask for begin like this.
const PREFIX: &str = "devices.kubevirt.io/";
/// How long a kubelet may take.
const ANSWER: Duration = Duration::from_secs(10);

/// A device and how often it may be given away.
#[derive(Debug)]
pub(super) struct Plugin {
    name: String,
    device: PathBuf,
    slots: u32,
}

/// Why a kubelet does not know a device.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    #[error("connect to the kubelet")]
    Connect(#[source] tonic::transport::Error),
    #[error("the kubelet refused {name}")]
    Refused { name: String, source: Status },
    #[error("the kubelet did not answer in time")]
    Late,
}

impl Plugin {
    pub(super) fn new(name: &str, device: &Path, slots: u32) -> Self {
        Self { name: name.to_owned(), device: device.to_owned(), slots }
    }

    fn socket(&self) -> String {
        format!("kubevirt-{}.sock", self.name)
    }

    /// Listens beside the kubelet's socket; serves as long as the future lives.
    pub(super) fn serve(
        self: &Arc<Self>,
        folder: &Path,
    ) -> io::Result<impl Future<Output = Result<(), tonic::transport::Error>> + use<>> {
        let path = folder.join(self.socket());
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(Short::of(&path)?.path())?;
        let server = tonic::transport::Server::builder().add_service(DevicePluginServer::new(Served(self.clone())));
        Ok(server.serve_with_incoming(UnixListenerStream::new(listener)))
    }

    /// Makes the device known to the kubelet.
    pub(super) async fn register(&self, folder: &Path) -> Result<(), RegisterError> {
        let path = folder.join(device_plugin::SOCKET);
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(Short::of(&path)?.path()).await.map(TokioIo::new) }
        });
        let registration = async {
            let endpoint = Endpoint::from_static("http://kubelet");
            let channel = endpoint.connect_with_connector(connector).await.map_err(RegisterError::Connect)?;
            let request = RegisterRequest {
                version: VERSION.to_owned(),
                endpoint: self.socket(),
                resource_name: format!("{PREFIX}{}", self.name),
                options: Some(DevicePluginOptions::default()),
            };
            let answer = RegistrationClient::new(channel).register(request).await;
            answer.map(drop).map_err(|source| RegisterError::Refused { name: self.name.clone(), source })
        };
        tokio::time::timeout(ANSWER, registration).await.map_err(|_| RegisterError::Late)?
    }

    fn devices(&self, is_there: bool) -> ListAndWatchResponse {
        let health = if is_there { HEALTHY } else { UNHEALTHY };
        let device =
            |slot: u32| Device { id: format!("{}{slot}", self.name), health: health.to_owned(), topology: None };
        ListAndWatchResponse { devices: (0..self.slots).map(device).collect() }
    }
}

struct Served(Arc<Plugin>);

/// Where a list of devices is: what was told last, and what tells of changes.
struct Listing {
    plugin: Arc<Plugin>,
    watch: Watch,
    told: Option<bool>,
}

impl Listing {
    /// Waits for the next change of the device.
    async fn next(mut self) -> Option<(Result<ListAndWatchResponse, Status>, Self)> {
        loop {
            let is_there = self.plugin.device.exists();
            if self.told.replace(is_there) != Some(is_there) {
                return Some((Ok(self.plugin.devices(is_there)), self));
            }
            self.watch.changed().await.ok()?;
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for Served {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let folder = self.0.device.parent().unwrap_or(Path::new("/dev"));
        let watch = folders::open_own(folder).and_then(|folder| Watch::on(folder.as_fd()));
        let watch = watch.map_err(|error| Status::unavailable(error.to_string()))?;
        let listing = Listing { plugin: self.0.clone(), watch, told: None };
        Ok(Response::new(Box::pin(unfold(listing, Listing::next))))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("all devices are alike"))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let path = self.0.device.to_string_lossy().into_owned();
        let device = DeviceSpec { container_path: path.clone(), host_path: path, permissions: "mrw".to_owned() };
        let one = ContainerAllocateResponse { devices: vec![device], ..ContainerAllocateResponse::default() };
        let container_responses = request.into_inner().container_requests.iter().map(|_| one.clone()).collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
