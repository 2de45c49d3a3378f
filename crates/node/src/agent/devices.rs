//! Devices that plugins offer: which there are, and who has which.
//!
//! A plugin registers on the kubelet's socket and is then followed for as long as it answers. What a container was given is
//! written down before the container starts, and stays its own until the pod is released.

mod plugin;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use device_plugin::Short;
use device_plugin::v1beta1::registration_server::{Registration, RegistrationServer};
use device_plugin::v1beta1::{ContainerAllocateResponse, Empty, RegisterRequest};
use k8s_openapi::api::core::v1::Container;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::parts::Failure;
use crate::runtime::spec::{Device, Mount, Propagation};
use table::Table;

const FILE: &str = "orlop-devices.json";
const PAUSE: Duration = Duration::from_secs(1);

/// What a container gets with its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Allocated {
    pub(super) devices: Vec<Device>,
    pub(super) mounts: Vec<Mount>,
    pub(super) env: Vec<(String, String)>,
}

/// All devices of the node. Clones are the same.
#[derive(Clone)]
pub(super) struct Devices {
    folder: PathBuf,
    state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    table: Table,
    plugins: BTreeMap<String, Plugin>,
}

struct Plugin {
    endpoint: PathBuf,
    pre_start: bool,
    task: AbortHandle,
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Devices {
    /// With what an earlier agent has given away.
    pub(super) fn new(root: &Path) -> Self {
        let folder = root.join(device_plugin::FOLDER);
        let table = std::fs::read(folder.join(FILE)).ok().and_then(|bytes| Table::read(&bytes)).unwrap_or_default();
        let state = State { table, plugins: BTreeMap::new() };
        Self { folder, state: Arc::new(Mutex::new(state)), changed: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever tells the cluster.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// By resource: all devices, and those that may be used.
    pub(super) fn amounts(&self) -> BTreeMap<String, (usize, usize)> {
        self.state().table.amounts()
    }

    /// Serves plugins for ever.
    pub(super) async fn serve(&self) {
        loop {
            if let Err(error) = self.listen().await {
                tracing::warn!(error = error.0, "device plugins cannot register");
            }
            sleep(PAUSE).await;
        }
    }

    /// A new socket each time: plugins take it for the sign of a new kubelet, and register again.
    async fn listen(&self) -> Result<(), Failure> {
        let path = self.folder.join(device_plugin::SOCKET);
        let io = |error: std::io::Error| Failure(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(&self.folder).map_err(io)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let listener = UnixListener::bind(Short::of(&path).map_err(io)?.path()).map_err(io)?;
        let served = tonic::transport::Server::builder()
            .add_service(RegistrationServer::new(self.clone()))
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await;
        served.map_err(|error| Failure::of(&error))
    }

    /// Gives a container what it asks for; one that has it already keeps it.
    pub(super) async fn allocate(&self, pod: &str, container: &Container) -> Result<Allocated, Failure> {
        let mut allocated = Allocated::default();
        for (resource, count) in asked(container) {
            let (ids, endpoint, pre_start) = self.choose(pod, &container.name, &resource, count)?;
            let answer = plugin::allocate(&endpoint, ids, pre_start).await;
            let answer = answer.map_err(|error| Failure(format!("plugin of {resource}: {}", error.message())))?;
            allocated.add(answer);
        }
        Ok(allocated)
    }

    fn choose(
        &self,
        pod: &str,
        container: &str,
        resource: &str,
        count: usize,
    ) -> Result<(Vec<String>, PathBuf, bool), Failure> {
        let mut state = self.state();
        let plugin = state.plugins.get(resource);
        let plugin = plugin.ok_or_else(|| Failure(format!("no device plugin for {resource} is registered")))?;
        let (endpoint, pre_start) = (plugin.endpoint.clone(), plugin.pre_start);
        let ids = state.table.take(pod, container, resource, count).map_err(|free| {
            Failure(format!(
                "requested number of devices unavailable for {resource}. Requested: {count}, Available: {free}"
            ))
        })?;
        self.write_down(&state)?;
        Ok((ids, endpoint, pre_start))
    }

    /// The pod needs nothing any more.
    pub(super) fn free(&self, pod: &str) {
        let mut state = self.state();
        if state.table.free(pod)
            && let Err(error) = self.write_down(&state)
        {
            // The next agent frees it again: the pod is not among the living then.
            tracing::warn!(error = error.0, "cannot save which devices are free");
        }
    }

    /// Frees what pods have that are not among these.
    pub(super) fn retain(&self, living: &BTreeSet<String>) {
        let gone: Vec<String> = self.state().table.pods().filter(|pod| !living.contains(*pod)).cloned().collect();
        gone.iter().for_each(|pod| self.free(pod));
    }

    fn write_down(&self, state: &State) -> Result<(), Failure> {
        let new = self.folder.join(format!(".{FILE}.new"));
        let written = std::fs::create_dir_all(&self.folder)
            .and_then(|()| std::fs::write(&new, state.table.written()))
            .and_then(|()| std::fs::rename(&new, self.folder.join(FILE)));
        written.map_err(|error| Failure(format!("{}: {error}", new.display())))
    }

    /// Follows a plugin until it is gone; its devices may not be used then.
    async fn follow(self, resource: String, endpoint: PathBuf) {
        let devices = self.clone();
        let name = resource.clone();
        let ended = plugin::watch(&endpoint, move |list| {
            devices.state().table.offer(&name, list);
            devices.changed.send_replace(());
        })
        .await;
        if let Err(error) = ended {
            tracing::info!(resource, error = error.message(), "a device plugin has disconnected");
        }
        self.state().table.withdraw(&resource);
        self.changed.send_replace(());
    }
}

#[tonic::async_trait]
impl Registration for Devices {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        if request.version != device_plugin::VERSION {
            let message = format!("version {:?} is not supported; use {:?}", request.version, device_plugin::VERSION);
            return Err(Status::invalid_argument(message));
        }
        let name = Path::new(&request.endpoint).file_name().filter(|name| *name == request.endpoint.as_str());
        let endpoint = name.map(|name| self.folder.join(name));
        let endpoint = endpoint.ok_or_else(|| Status::invalid_argument("the endpoint is not a valid socket name"))?;
        if !request.resource_name.contains('/') {
            return Err(Status::invalid_argument("the resource name has no domain"));
        }
        let pre_start = request.options.is_some_and(|options| options.pre_start_required);
        let task = tokio::spawn(self.clone().follow(request.resource_name.clone(), endpoint.clone())).abort_handle();
        tracing::info!(resource = request.resource_name, "a device plugin has registered");
        self.state().plugins.insert(request.resource_name, Plugin { endpoint, pre_start, task });
        Ok(Response::new(Empty {}))
    }
}

/// Resources that come from plugins: those with a domain that is not Kubernetes' own.
fn asked(container: &Container) -> Vec<(String, usize)> {
    let limits = container.resources.iter().flat_map(|resources| resources.limits.iter().flatten());
    let extended = limits.filter(|(name, _)| name.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io"));
    let counted = extended.filter_map(|(name, amount)| Some((name.clone(), amount.0.parse::<usize>().ok()?)));
    counted.filter(|(_, count)| *count > 0).collect()
}

impl Allocated {
    fn add(&mut self, answer: ContainerAllocateResponse) {
        self.devices.extend(answer.devices.into_iter().map(|device| Device {
            path: PathBuf::from(device.host_path),
            target: device.container_path,
            access: device.permissions,
        }));
        self.mounts.extend(answer.mounts.into_iter().map(|mount| Mount {
            source: PathBuf::from(mount.host_path),
            target: mount.container_path,
            read_only: mount.read_only,
            propagation: Propagation::Private,
        }));
        self.env.extend(answer.envs.into_iter().collect::<BTreeMap<_, _>>());
    }
}

#[cfg(test)]
mod tests;
