//! One container, from the pod's words to a running process.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec, Secret, VolumeMount};
use kube::Api;
use manager::events::Kind;
use tokio::time::timeout;

use super::act::Flow;
use super::{Entry, PodError, Worker};
use crate::agent::container::environment::{Sources, environment, references};
use crate::agent::container::{Making, Source, expand, make, stop_signal};
use crate::agent::decide::{NO_DEVICES, Part, Trouble};
use crate::agent::devices::Allocated;
use crate::agent::parts::Failure;
use crate::agent::record::{self, Kept};
use crate::agent::segment::Segment;
use crate::agent::volumes::{VolumeError, sub_path};
use crate::agent::{backoff, dns};
use crate::runtime::spec::{self, Device, Mount, Propagation};

/// A shim tells of a start at once; one that does not is not waited for.
const TOLD: Duration = Duration::from_secs(5);

/// Why a container was not started: the reason for the status, and the message.
struct NotStarted(&'static str, String);

impl NotStarted {
    fn config(error: &(dyn std::error::Error + 'static)) -> Self {
        Self("CreateContainerConfigError", Failure::of(error).0)
    }
}

impl Worker<'_> {
    pub(super) async fn start(&self, entry: &mut Entry, name: &str, attempt: u32) -> Result<Flow, PodError> {
        let Some(pod) = self.pod else { return Ok(Flow::Look) };
        let Some(spec) = &pod.spec else { return Ok(Flow::Look) };
        let Some(container) = crate::agent::view::containers(spec).find(|one| one.name == name) else {
            return Ok(Flow::Look);
        };
        let started = match self.made(entry, pod, spec, container, attempt).await {
            Ok(made) => {
                self.record_start(entry, spec, container, attempt)?;
                self.run(entry, &made).await
            }
            Err(error) => Err(error),
        };
        let part = Part::Container(name.to_owned());
        match started {
            Ok(()) => {
                tracing::info!(container = name, run = attempt, "started a container");
                entry.troubles.remove(&part);
                Ok(Flow::On)
            }
            Err(NotStarted(reason, message)) => {
                tracing::warn!(container = name, reason, error = message, "cannot start a container");
                self.event(Kind::Warning, "Failed", format!("Error: {message}"));
                let times = entry.troubles.get(&part).map_or(0, |trouble| trouble.times).saturating_add(1);
                let until = Some(self.now() + backoff::retry(times));
                entry.troubles.insert(part, Trouble { reason, message, times, until });
                Ok(Flow::Look)
            }
        }
    }

    fn record_start(
        &self,
        entry: &mut Entry,
        spec: &PodSpec,
        container: &Container,
        attempt: u32,
    ) -> Result<(), PodError> {
        let held = entry.held(&container.name);
        let image = container.image.clone().unwrap_or_default();
        let image_id = held.as_ref().map_or_else(|| image.clone(), |held| image_id(&image, &held.digest));
        let signal = held.as_ref().map_or(15, |held| stop_signal(&held.config));
        if let Some(record) = &mut entry.record {
            let content = held.map(|held| held.id).unwrap_or_default();
            let of = Kept { image, image_id, content, stop_signal: signal, ..Kept::default() };
            record.starts(&container.name, attempt, of);
            record.initialized |= spec.containers.iter().any(|one| one.name == container.name);
        }
        self.write_down(entry)
    }

    async fn run(&self, entry: &Entry, made: &spec::Container) -> Result<(), NotStarted> {
        let Some(shim) = &entry.shim else { return Ok(()) };
        let started = shim.start(made).await;
        started.map_err(|error| NotStarted("CreateContainerError", error.0))?;
        self.event(Kind::Normal, "Created", format!("Created container: {}", made.name));
        let mut states = shim.states();
        let told = states.wait_for(|state| {
            let known = state.containers.get(&made.name);
            state.lost || known.is_some_and(|known| known.attempt() >= made.attempt)
        });
        match timeout(TOLD, told).await {
            Ok(Ok(_)) => self.event(Kind::Normal, "Started", format!("Started container {}", made.name)),
            _ => return Err(NotStarted("CreateContainerError", "the shim did not report the start".to_owned())),
        }
        Ok(())
    }

    async fn made(
        &self,
        entry: &mut Entry,
        pod: &Pod,
        spec: &PodSpec,
        container: &Container,
        attempt: u32,
    ) -> Result<spec::Container, NotStarted> {
        let sources = self.sources(container).await?;
        let Some(record) = &entry.record else {
            return Err(NotStarted("CreateContainerError", "the pod has no record".to_owned()));
        };
        let mut env =
            environment(container, &sources, &self.facts(pod, record)).map_err(|error| NotStarted::config(&error))?;
        let machine = &self.shared.settings.machine;
        let held = entry.held(&container.name);
        let source = match (&held, record.user) {
            (_, Some(user)) if container.image.as_deref() == Some(&machine.name) => {
                Source::Machine { files: &machine.files, user }
            }
            (Some(held), _) => Source::Image(held),
            (None, _) => return Err(NotStarted("CreateContainerError", "its image does not exist".to_owned())),
        };
        let mut devices = self.block_devices(entry, container)?;
        let mut mounts = self.mounts(entry, container, &env).map_err(|error| NotStarted::config(&error))?;
        let allocated = self.shared.devices.allocate(&self.which.uid, container).await;
        let allocated: Allocated = allocated.map_err(|error| NotStarted(NO_DEVICES, error.0))?;
        devices.extend(allocated.devices);
        mounts.extend(allocated.mounts);
        env.extend(allocated.env);
        let termination = self.termination(container, attempt).map_err(|error| NotStarted::config(&error))?;
        mounts.push(Mount {
            source: termination.clone(),
            target: container.termination_message_path.clone().unwrap_or_else(|| "/dev/termination-log".to_owned()),
            read_only: false,
            propagation: Propagation::Private,
        });
        let making = Making {
            pod,
            spec,
            container,
            attempt,
            source,
            env,
            hostname: dns::hostname(pod, &self.shared.settings.node),
            mounts,
            devices,
            memory: self.shared.machine.memory,
            termination,
        };
        make(making).map_err(|error| NotStarted::config(&error))
    }

    /// Config maps and secrets that its variables come from.
    async fn sources(&self, container: &Container) -> Result<Sources, NotStarted> {
        let (maps, secrets) = references(container);
        let mut sources = Sources::default();
        let client = &self.shared.client;
        let unread = |error: kube::Error| NotStarted::config(&error);
        for name in maps {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), &self.which.namespace);
            sources.config_maps.extend(api.get_opt(&name).await.map_err(unread)?.map(|map| (name, map)));
        }
        for name in secrets {
            let api: Api<Secret> = Api::namespaced(client.clone(), &self.which.namespace);
            sources.secrets.extend(api.get_opt(&name).await.map_err(unread)?.map(|secret| (name, secret)));
        }
        Ok(sources)
    }

    fn mounts(
        &self,
        entry: &Entry,
        container: &Container,
        env: &[(String, String)],
    ) -> Result<Vec<Mount>, VolumeError> {
        let mut mounts = Vec::new();
        for (index, asked) in container.volume_mounts.iter().flatten().enumerate() {
            mounts.push(self.mount(entry, container, env, index, asked)?);
        }
        for (source, target) in self.given() {
            if mounts.iter().all(|mount| mount.target != target) {
                mounts.push(Mount {
                    source,
                    target: target.to_owned(),
                    read_only: false,
                    propagation: Propagation::Private,
                });
            }
        }
        Ok(mounts)
    }

    fn mount(
        &self,
        entry: &Entry,
        container: &Container,
        env: &[(String, String)],
        index: usize,
        asked: &VolumeMount,
    ) -> Result<Mount, VolumeError> {
        let volume = entry.volumes.as_ref().and_then(|all| all.volumes.get(&asked.name));
        let volume = volume.ok_or_else(|| VolumeError::Missing { kind: "volume", name: asked.name.clone() })?;
        let part = asked.sub_path.clone().filter(|part| !part.is_empty());
        let part = part.or_else(|| asked.sub_path_expr.as_ref().map(|text| expand::expand(text, env)));
        let read_only = volume.read_only || asked.read_only == Some(true);
        let source = match part.filter(|part| !part.is_empty()) {
            None => volume.path.clone(),
            Some(part) => {
                let folder = record::folder(&self.shared.settings.root, &self.which.uid);
                let target = folder.join("volume-subpaths");
                let target = target.join(Segment::new(&asked.name)?).join(Segment::new(&container.name)?);
                sub_path::show(&volume.path, &part, &target.join(index.to_string()), volume.read_only)?
            }
        };
        let propagation = match asked.mount_propagation.as_deref() {
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            _ => Propagation::Private,
        };
        Ok(Mount { source, target: asked.mount_path.clone(), read_only, propagation })
    }

    fn block_devices(&self, entry: &Entry, container: &Container) -> Result<Vec<Device>, NotStarted> {
        use std::os::unix::fs::FileTypeExt as _;
        let mut devices = Vec::new();
        for asked in container.volume_devices.iter().flatten() {
            let volume = entry.volumes.as_ref().and_then(|all| all.volumes.get(&asked.name));
            let missing = || VolumeError::Missing { kind: "volume", name: asked.name.clone() };
            let volume = volume.ok_or_else(missing).map_err(|error| NotStarted::config(&error))?;
            let kind = std::fs::metadata(&volume.path).map(|metadata| metadata.file_type());
            if !kind.is_ok_and(|kind| kind.is_block_device()) {
                let path = volume.path.display();
                let what =
                    format!("volume {:?} as a device: {path} is not a block device, and loop devices", asked.name);
                return Err(NotStarted::config(&VolumeError::Unsupported(what)));
            }
            let access = if volume.read_only { "rm" } else { "rwm" };
            devices.push(Device {
                path: volume.path.clone(),
                target: asked.device_path.clone(),
                access: access.to_owned(),
            });
        }
        Ok(devices)
    }

    /// The file of its last words: anybody in the container may write them.
    fn termination(&self, container: &Container, attempt: u32) -> Result<PathBuf, VolumeError> {
        let folder = record::folder(&self.shared.settings.root, &self.which.uid);
        let folder = folder.join("containers").join(Segment::new(&container.name)?);
        std::fs::create_dir_all(&folder).map_err(VolumeError::io(&folder))?;
        let path = folder.join(attempt.to_string());
        std::fs::File::create(&path).map_err(VolumeError::io(&path))?;
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&path, mode).map_err(VolumeError::io(&path))?;
        Ok(path)
    }
}

/// The image by its digest: `docker.io/library/debian@sha256:...`.
fn image_id(image: &str, digest: &str) -> String {
    use storage::image::Reference;
    match image.parse() {
        Ok(Reference::Registry { host, repository, .. }) => format!("{host}/{repository}@{digest}"),
        _ => digest.to_owned(),
    }
}
