//! Carries out what a plan contains.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Resource as _};
use manager::events::Kind;

use super::{Entry, PodError, Worker, follow};
use crate::agent::container::resources;
use crate::agent::decide::{Action, Part, Trouble};
use crate::agent::parts::{Attachment, Failure, HostPort};
use crate::agent::record::{Record, Stopping};
use crate::agent::{backoff, dns, machine, record, view, volumes};
use crate::runtime::spec::Sandbox;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// What comes after an action.
pub(super) enum Flow {
    /// The next action.
    On,
    /// Another look: it did not work, or more changed than was planned.
    Look,
    /// Nothing, until something changes.
    Done,
}

impl Worker<'_> {
    pub(super) async fn act(&self, entry: &mut Entry, action: Action) -> Result<Flow, PodError> {
        match action {
            Action::Begin => self.begin(entry),
            Action::Fetch(key) => {
                self.fetch(&entry.fetches, &key);
                Ok(Flow::On)
            }
            Action::PrepareVolumes => {
                self.keep_images(entry)?;
                let prepared = self.prepare_volumes(entry).await;
                if prepared.is_ok() {
                    self.note_given(entry)?;
                }
                let failed = prepared.map_err(|error| Failure::of(&error).0);
                self.note(entry, Part::Volumes, "FailedMount", "MountVolume.SetUp failed", failed)
            }
            Action::MakeSandbox => {
                let made = self.make_sandbox(entry).await?;
                let failed = made.map_err(|error| error.0);
                self.note(entry, Part::Sandbox, "FailedCreatePodSandBox", "Failed to create pod sandbox", failed)
            }
            Action::Start { container, attempt } => self.start(entry, &container, attempt).await,
            Action::Stop { container, why, whole } => self.stop(entry, &container, &why, whole).await,
            Action::Kill { container, whole } => self.kill(entry, &container, whole).await,
            Action::Release => self.release(entry).await,
            Action::Delete => self.delete().await,
            Action::Forget => self.forget(entry),
        }
    }

    /// Remembers a failure, tells of it, and has it tried again later.
    fn note(
        &self,
        entry: &mut Entry,
        part: Part,
        reason: &'static str,
        what: &str,
        result: Result<(), String>,
    ) -> Result<Flow, PodError> {
        let Err(message) = result else {
            entry.troubles.remove(&part);
            return Ok(Flow::On);
        };
        tracing::warn!(reason, error = message, "the pod makes no progress");
        self.event(Kind::Warning, reason, format!("{what}: {message}"));
        let times = entry.troubles.get(&part).map_or(0, |trouble| trouble.times).saturating_add(1);
        let until = Some(self.now() + backoff::retry(times));
        entry.troubles.insert(part, Trouble { reason, message, times, until });
        Ok(Flow::Look)
    }

    pub(super) fn event(&self, kind: Kind, reason: &str, message: String) {
        if let Some(pod) = self.pod {
            self.shared.recorder.record_about(pod.object_ref(&()), kind, reason, message);
        }
    }

    fn begin(&self, entry: &mut Entry) -> Result<Flow, PodError> {
        let Some(pod) = self.pod else { return Ok(Flow::Look) };
        let machine::MachineImage { name, is_for, .. } = &self.shared.settings.machine;
        let mut user = None;
        if machine::is_asked_for(pod, name) {
            let refused =
                |message: String, until| Trouble { reason: "CreateContainerConfigError", message, times: 1, until };
            if !is_for(pod) {
                let message = format!("image {name:?} has this machine's own programs, which this pod may not use");
                self.event(Kind::Warning, "Failed", message.clone());
                entry.troubles.insert(Part::Begin, refused(message, None));
                return Ok(Flow::Look);
            }
            user = self.shared.users.take(&self.which.uid);
            if user.is_none() {
                let message = "all user IDs reserved for virtual machines are in use".to_owned();
                self.event(Kind::Warning, "Failed", message.clone());
                let until = Some(self.now() + backoff::retry(u32::MAX));
                entry.troubles.insert(Part::Begin, refused(message, until));
                return Ok(Flow::Look);
            }
        }
        entry.troubles.remove(&Part::Begin);
        entry.record = Some(Record {
            namespace: self.which.namespace.clone(),
            name: self.which.name.clone(),
            uid: self.which.uid.clone(),
            boot: self.shared.machine.boot_id.clone(),
            user,
            ..Record::default()
        });
        self.write_down(entry)?;
        Ok(Flow::Look)
    }

    /// The outer error is about the record, the inner one about runtime and network.
    async fn make_sandbox(&self, entry: &mut Entry) -> Result<Result<(), Failure>, PodError> {
        let Some(pod) = self.pod else { return Ok(Ok(())) };
        let Some(spec) = &pod.spec else { return Ok(Ok(())) };
        let lost = entry.shim.as_ref().is_none_or(|shim| shim.states().borrow().lost);
        if lost {
            let old = entry.shim.take();
            if let Some(old) = old
                && let Err(error) = old.end().await
            {
                entry.shim = Some(old);
                return Ok(Err(error));
            }
            if let Some(network) = &self.shared.settings.network
                && let Err(error) = network.remove(&self.which.uid).await
            {
                return Ok(Err(error));
            }
            let Some(record) = &mut entry.record else { return Ok(Ok(())) };
            if record.sandbox {
                let init: Vec<&str> = view::init_containers(spec).map(|one| one.name.as_str()).collect();
                record.renew(&init);
            }
            record.sandbox = true;
            record.addresses = None;
            self.shared.machine.boot_id.clone_into(&mut record.boot);
            self.write_down(entry)?;
            match self.shared.settings.runtime.sandbox(&self.sandbox(pod)).await {
                Ok(shim) => follow(self.shared, self.which, entry, shim),
                Err(error) => return Ok(Err(error)),
            }
        }
        let (addresses, identity) = match self.connect(entry, pod).await {
            Ok(connected) => connected,
            Err(error) => return Ok(Err(error)),
        };
        let identity = identity.unwrap_or_default();
        tracing::info!(addresses = %listed(&addresses), identity, "created the pod's sandbox");
        if let Some(record) = &mut entry.record {
            record.addresses = Some(addresses);
        }
        self.write_down(entry)?;
        Ok(self.write_files(entry, pod))
    }

    fn sandbox(&self, pod: &Pod) -> Sandbox {
        Sandbox {
            uid: self.which.uid.clone(),
            namespace: self.which.namespace.clone(),
            name: self.which.name.clone(),
            hostname: dns::hostname(pod, &self.shared.settings.node),
            host_network: pod.spec.as_ref().is_some_and(view::uses_host_network),
            logs: self.shared.logs_of(self.which),
            resources: pod.spec.as_ref().map(resources::of_pod).unwrap_or_default(),
        }
    }

    /// The pod's addresses, and who comes back to them.
    async fn connect(&self, entry: &Entry, pod: &Pod) -> Result<(Vec<std::net::IpAddr>, Option<String>), Failure> {
        let host = pod.spec.as_ref().is_some_and(view::uses_host_network);
        let (Some(network), Some(shim), false) = (&self.shared.settings.network, &entry.shim, host) else {
            return Ok((Vec::new(), None));
        };
        let identity = match &self.shared.settings.identities {
            Some(identities) => identities.of(pod).await?,
            None => None,
        };
        let attachment = Attachment {
            id: self.which.uid.clone(),
            netns: shim.netns(),
            namespace: self.which.namespace.clone(),
            name: self.which.name.clone(),
            identity,
            host_ports: host_ports(pod),
        };
        let addresses = network.add(&attachment).await?;
        // The machine may have another name server by now than when this process began.
        network.let_ask(&dns::name_servers(&self.shared.settings.resolv_conf)).await?;
        Ok((addresses, attachment.identity))
    }

    async fn stop(&self, entry: &mut Entry, container: &str, why: &str, whole: bool) -> Result<Flow, PodError> {
        let now = self.now();
        let Some(record) = &mut entry.record else { return Ok(Flow::Look) };
        if whole {
            record.stopping.get_or_insert(now);
        }
        let mut signal = SIGTERM;
        if let Some(kept) = record.containers.get_mut(container) {
            kept.stopping = Some(Stopping { since: now, killed: false });
            signal = if kept.stop_signal > 0 { kept.stop_signal } else { SIGTERM };
        }
        self.write_down(entry)?;
        self.event(Kind::Normal, "Killing", why.to_owned());
        self.signal(entry, container, signal).await?;
        tracing::info!(container, signal, why, "asked a container to end");
        Ok(Flow::On)
    }

    async fn kill(&self, entry: &mut Entry, container: &str, whole: bool) -> Result<Flow, PodError> {
        self.signal(entry, container, SIGKILL).await?;
        tracing::info!(container, "killed a container");
        let now = self.now();
        let Some(record) = &mut entry.record else { return Ok(Flow::Look) };
        if whole {
            record.stopping.get_or_insert(now);
        }
        if let Some(kept) = record.containers.get_mut(container) {
            kept.stopping.get_or_insert(Stopping { since: now, killed: true }).killed = true;
        }
        self.write_down(entry)?;
        Ok(Flow::On)
    }

    async fn signal(&self, entry: &Entry, container: &str, signal: i32) -> Result<(), PodError> {
        let Some(shim) = &entry.shim else { return Ok(()) };
        let sent = shim.signal(container, signal).await;
        sent.map_err(|source| PodError::Below { what: "cannot ask a container to end", source })
    }

    async fn release(&self, entry: &mut Entry) -> Result<Flow, PodError> {
        entry.probes.clear();
        if let Some(shim) = entry.shim.take()
            && let Err(source) = shim.end().await
        {
            entry.shim = Some(shim);
            return Err(PodError::Below { what: "cannot end the pod's sandbox", source });
        }
        entry.follower = None;
        if let Some(network) = &self.shared.settings.network {
            let removed = network.remove(&self.which.uid).await;
            removed.map_err(|source| PodError::Below { what: "cannot remove the pod's network", source })?;
        }
        let removed = volumes::remove(&self.shared.settings.root, &self.which.uid);
        removed.map_err(|error| PodError::Below {
            what: "cannot remove the pod's volumes",
            source: Failure::of(&error),
        })?;
        entry.volumes = None;
        entry.sources = None;
        entry.fetches.clear();
        entry.troubles.clear();
        if let Some(record) = &mut entry.record {
            record.released = true;
            record.images.clear();
            record.sandbox = false;
            record.user = None;
        }
        self.write_down(entry)?;
        self.shared.devices.free(&self.which.uid);
        self.shared.users.free(&self.which.uid);
        tracing::info!("stopped the pod and removed its sandbox, network and volumes");
        Ok(Flow::On)
    }

    async fn delete(&self) -> Result<Flow, PodError> {
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.which.namespace);
        let uid = Some(self.which.uid.as_str());
        match manager::writing::delete(&api, &self.which.name, uid, Some(0)).await {
            // Another of its name is there already: it is gone.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Flow::Done),
            deleted => deleted.map(|()| Flow::Done).map_err(PodError::Api),
        }
    }

    fn forget(&self, entry: &mut Entry) -> Result<Flow, PodError> {
        let below = |error: volumes::VolumeError| PodError::Below {
            what: "cannot remove the pod's directories",
            source: Failure::of(&error),
        };
        volumes::mounting::remove_folder(&self.shared.logs_of(self.which)).map_err(below)?;
        let folder = record::folder(&self.shared.settings.root, &self.which.uid);
        volumes::mounting::remove_folder(&folder).map_err(below)?;
        entry.record = None;
        Ok(Flow::Done)
    }
}

fn listed(addresses: &[std::net::IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let containers = pod.spec.iter().flat_map(view::containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let of = |port: &k8s_openapi::api::core::v1::ContainerPort| {
        Some(HostPort {
            host_ip: port.host_ip.as_deref().and_then(|ip| ip.parse().ok()),
            host_port: port.host_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?,
            container_port: u16::try_from(port.container_port).ok()?,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        })
    };
    ports.filter_map(of).collect()
}
