//! The kubelet's side of the talk with one plugin.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use device_plugin::Short;
use device_plugin::v1beta1::device_plugin_client::DevicePluginClient;
use device_plugin::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse, Empty, PreStartContainerRequest,
};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// As long as a kubelet waits for a plugin that has just registered.
const PATIENCE: Duration = Duration::from_secs(10);

async fn connect(socket: &Path) -> Result<DevicePluginClient<Channel>, Status> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(Short::of(&socket)?.path()).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost").connect_timeout(PATIENCE);
    let channel = endpoint.connect_with_connector(connector).await;
    channel
        .map(DevicePluginClient::new)
        .map_err(|error| Status::unavailable(crate::agent::parts::Failure::of(&error).0))
}

/// Hands over every list that the plugin sends; returns when it sends no more.
pub(super) async fn watch(socket: &Path, mut take: impl FnMut(BTreeMap<String, bool>)) -> Result<(), Status> {
    let mut client = connect(socket).await?;
    let mut lists = client.list_and_watch(Empty {}).await?.into_inner();
    while let Some(list) = lists.message().await? {
        take(list.devices.into_iter().map(|device| (device.id, device.health == device_plugin::HEALTHY)).collect());
    }
    Ok(())
}

/// What a container needs to use these devices.
pub(super) async fn allocate(
    socket: &Path,
    ids: Vec<String>,
    pre_start: bool,
) -> Result<ContainerAllocateResponse, Status> {
    let mut client = connect(socket).await?;
    let request = ContainerAllocateRequest { devices_ids: ids.clone() };
    let mut request = tonic::Request::new(AllocateRequest { container_requests: vec![request] });
    request.set_timeout(PATIENCE);
    let answer = client.allocate(request).await?.into_inner();
    let answer = answer.container_responses.into_iter().next();
    let answer = answer.ok_or_else(|| Status::internal("it returned no answer for the container"))?;
    if !answer.cdi_devices.is_empty() {
        return Err(Status::unimplemented("devices of the Container Device Interface are not supported"));
    }
    if pre_start {
        client.pre_start_container(PreStartContainerRequest { devices_ids: ids }).await?;
    }
    Ok(answer)
}
