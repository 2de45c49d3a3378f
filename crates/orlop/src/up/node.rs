//! The node of `orlop up`: what it is found to have, and its components.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use hypervisor::accelerator::{self, Choice, Finding, Probe};
use manager::context::Started;
use manager::descriptor::Descriptor;
use network::cni::Cni;
use network::guest_network::Protocol;
use node::agent::{Agent, MachineImage};
use node::hollow::HollowNodes;
use node::provisioner::{MACHINE, Provisioner};
use node::runtime::{Runtime, RuntimePaths};
use storage::images::Images;
use storage::pull::{Limits, Registries};
use tokio::sync::watch;
use virt_handler::hollow::HollowHandlers;
use virt_handler::{Handler, NodeGuests, Relay};
use virt_server::{Component, LOCAL_VOLUMES};

use super::agents::Agents;
use super::components::Components;
use super::handlers::OfNode;
use super::home::{Home, Role};
use super::identity::{OfGuests, OfVms};
use super::pod_network::{NetworkArguments, has_ipv6};
use super::report::Less;
use super::storage::{Arguments as StorageArguments, Opened};
use super::{LOOK, MACHINE_IMAGE, install, paths, reach, vhost};
use crate::{hollow, workbench};

/// Where the program is inside launchers.
const PROGRAM: &str = "/usr/bin/orlop";
/// What the machine's own programs and `orlop up` keep.
const RESERVED_MEMORY: u64 = 512 << 20;

/// The node's flags.
#[derive(clap::Args)]
#[group(id = "up_node")]
pub(crate) struct Arguments {
    /// Name of the node. The default is the machine's host name.
    #[arg(long, value_name = "NAME", env = "ORLOP_NODE_NAME")]
    node_name: Option<String>,
    /// QEMU program to run guests with.
    #[arg(long, default_value = "qemu-system-x86_64", env = "ORLOP_QEMU")]
    pub(super) qemu: PathBuf,
    /// Accelerator: auto (KVM if it works, otherwise emulation), kvm or tcg (emulation).
    #[arg(long, default_value_t = Choice::Auto, env = "ORLOP_ACCELERATOR")]
    accelerator: Choice,
    /// Registry to access without TLS: HOST or HOST:PORT.
    #[arg(long = "insecure-registry", value_name = "HOST", env = "ORLOP_INSECURE_REGISTRY", value_delimiter = ',')]
    insecure_registries: Vec<String>,
    /// Directory on this machine that VMs may use images from, as `image: oci:DIR:TAG`. Everyone who may create VMs can
    /// read these images. The directory `oci` in the data directory is always allowed.
    #[arg(long = "image-dir", value_name = "DIR", env = "ORLOP_IMAGE_DIR", value_delimiter = ',')]
    image_dirs: Vec<PathBuf>,
    /// The earlier name of `--image-dir`.
    #[arg(long = "image-folder", value_name = "DIR", env = "ORLOP_IMAGE_FOLDER", value_delimiter = ',', hide = true)]
    image_folders: Vec<PathBuf>,
    /// File with the name servers that pods and guests use.
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf", env = "ORLOP_RESOLV_CONF")]
    resolv_conf: PathBuf,
    /// Port of this machine that pods and guests may connect to, on all its addresses: PORT, PORT/udp or PORT/sctp. By
    /// default, they can only reach the API, at their gateway, and their name servers.
    #[arg(long = "allow-host-port", value_name = "PORT", value_parser = reach::port, env = "ORLOP_ALLOW_HOST_PORT", value_delimiter = ',')]
    allowed_ports: Vec<(u16, Protocol)>,
    #[command(flatten)]
    network: NetworkArguments,
}

/// The OCI runtime of this machine, with the pods below a node's directory.
pub(crate) async fn runtime(data: &Path, root: &Path) -> anyhow::Result<Runtime> {
    let program = install::install(data)?;
    let paths = RuntimePaths { state: paths::shims(root), program };
    Runtime::find(paths, &["runc", "crun"]).await.context("find an OCI runtime that works")
}

/// What was found out about the machine.
pub(crate) struct Found {
    home: Home,
    data: PathBuf,
    program: PathBuf,
    qemu: PathBuf,
    accelerator: Choice,
    /// What guests run with, now and whenever virt-handler finds out anew.
    findings: watch::Sender<Option<Finding>>,
    runtime: Runtime,
    network: Cni,
    registries: Registries,
    resolv_conf: PathBuf,
    allowed_ports: Vec<(u16, Protocol)>,
    /// Pods should have IPv6 addresses, and cannot.
    lacks_ipv6: bool,
    /// The machine's volumes, where this process keeps them.
    storage: Option<Opened>,
}

impl Arguments {
    /// Where a process of this role is, on this machine.
    pub(super) fn home(&self, role: Role, data: &Path) -> Home {
        let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        Home::new(role, &self.node_name.clone().unwrap_or_else(host), data)
    }

    /// Tries what is there.
    pub(super) async fn find(self, data: &Path, home: Home) -> anyhow::Result<Found> {
        let Self {
            node_name: _,
            qemu,
            accelerator,
            insecure_registries,
            image_dirs,
            image_folders,
            resolv_conf,
            allowed_ports,
            network,
        } = self;
        let Some(qemu) = hypervisor::programs::qemu(&qemu) else { bail!("{} was not found", qemu.display()) };
        for folder in [paths::shims(&home.root), paths::handler(&home.root)] {
            std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        }
        let lacks_ipv6 = network.pod_cidr6.0.is_some() && !has_ipv6();
        let network = network.cni(data, home.network_node())?;
        let hint = "prepare the pods' network (--bridge, --pod-cidr, --pod-cidr6)";
        let prepared = async { network.prepare().await.context(hint) };
        let program = install::install(data)?;
        // Where virt-handler finds the answer, too.
        let probe = Probe::new(Some(&program), &qemu, &paths::handler(&home.root));
        let probed = async { accelerator::find(accelerator, &probe).await.context("find out what runs guests here") };
        let (finding, runtime, ()) = tokio::try_join!(probed, runtime(data, &home.root), prepared)?;
        vhost::load().await;
        let mut registries = workbench::registries(&insecure_registries)?;
        // What is in the machine's own directory root has put there.
        let allowed = image_dirs.into_iter().chain(image_folders).chain([paths::own_images(data)]);
        registries.allow_directories(allowed.collect());
        Ok(Found {
            home,
            data: data.to_owned(),
            program,
            qemu,
            accelerator,
            findings: watch::Sender::new(Some(finding)),
            runtime,
            network,
            registries,
            resolv_conf,
            allowed_ports,
            lacks_ipv6,
            storage: None,
        })
    }
}

/// What launchers must see of a QEMU that is not below `/usr`, which they have: all below its prefix, where it has one.
fn of_qemu(qemu: &Path) -> Option<(PathBuf, PathBuf)> {
    let folder = qemu.parent().filter(|_| !qemu.starts_with("/usr"))?;
    let prefix = folder.parent().filter(|prefix| folder.ends_with("bin") && prefix.parent().is_some());
    let seen = prefix.unwrap_or(qemu).to_owned();
    Some((seen.clone(), seen))
}

/// What this process does of a node's work. The machine's volumes are made once for all its nodes.
#[derive(Default)]
struct Settings {
    agent: Option<node::agent::Settings>,
    volumes: Option<Volumes>,
}

struct Volumes {
    machine: String,
    opened: Opened,
}

const NODE: &[Descriptor<Settings>] = &[
    Descriptor::new("node-agent", &[], |context, Settings { agent, .. }| {
        let Some(settings) = agent.clone() else { return Ok(Started::until_stopped(context, pending())) };
        let agent = Agent::new(context, settings);
        Ok(Started::until_stopped(context, async move { agent.run().await }))
    }),
    Descriptor {
        account: LOCAL_VOLUMES,
        ..Descriptor::new("local-volumes", &[], |context, Settings { volumes, .. }| {
            let Some(volumes) = volumes else { return Ok(Started::until_stopped(context, pending())) };
            let Opened { volumes: storage, overcommit, .. } = &volumes.opened;
            let provisioner = Provisioner::new(context, &volumes.machine, storage.clone()).overcommitting(*overcommit);
            Ok(Started::until_stopped(context, async move { provisioner.run().await }))
        })
    },
];

const VIRT_HANDLER: &[Descriptor<virt_handler::Settings>] =
    &[Descriptor::new("virt-handler", &[], |context, settings| {
        let handler = Handler::new(context, settings.clone());
        let asked = handler.clone();
        let health = move || asked.trouble().map_or(Ok(()), Err);
        Ok(Started::until_stopped(context, async move { handler.run().await }).health(health))
    })];

impl Found {
    /// The addresses of the pods' bridge.
    pub(super) fn gateways(&self) -> Vec<IpAddr> {
        self.network.gateways()
    }

    /// Opens to pods what they may use of this machine, now that the API has a port.
    pub(super) async fn let_pods_reach(&self, api_port: u16) -> anyhow::Result<()> {
        let name_servers = node::agent::name_servers(&self.resolv_conf);
        let services = reach::services(&self.network.gateways(), api_port, &name_servers, &self.allowed_ports);
        self.network.let_reach(services).await.context("open the ports that pods may reach")
    }

    /// What guests run with, now and after every change.
    pub(super) fn findings(&self) -> watch::Receiver<Option<Finding>> {
        self.findings.subscribe()
    }

    /// The QEMU that guests are to run with, unless launchers find it by themselves.
    pub(super) fn own_qemu(&self) -> Option<String> {
        let usual = hypervisor::programs::qemu(Path::new(hypervisor::programs::QEMU));
        (usual.as_ref() != Some(&self.qemu)).then(|| self.qemu.display().to_string())
    }

    /// What pods do without, as long as this process runs.
    pub(super) fn less(&self) -> Vec<Less> {
        let ipv6 = || Less {
            what: "no IPv6".to_owned(),
            why: "pods and guests only have IPv4 addresses: IPv6 is disabled on this machine".to_owned(),
            remedy: "run `sysctl net.ipv6.conf.default.disable_ipv6=0` and restart, or use `--pod-cidr6 none`"
                .to_owned(),
        };
        let open = self.network.unguarded().map(|why| Less {
            what: "no firewall".to_owned(),
            why: format!("pods and guests can reach every service of this machine and the cloud's metadata: {why}"),
            remedy: "use a kernel with nft_ct and nft_reject, or another firewall".to_owned(),
        });
        let forgeable = self.network.forgeable().map(|why| Less {
            what: "no guard".to_owned(),
            why: format!("containers can spoof the addresses of other pods: {why}"),
            remedy: "use a kernel with nf_tables for bridges (CONFIG_NF_TABLES_BRIDGE)".to_owned(),
        });
        self.lacks_ipv6.then(ipv6).into_iter().chain(open).chain(forgeable).collect()
    }

    /// What `orlop status` tells of the machine.
    pub(super) fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("node".to_owned(), self.home.described()),
            ("runtime".to_owned(), format!("{} {}", self.runtime.name(), self.runtime.version())),
            ("data".to_owned(), self.data.display().to_string()),
        ])
    }

    /// The program that everything of this machine is run with.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Where this process is.
    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    /// Opens the machine's volumes, which only one process keeps.
    pub(super) async fn keep_volumes(mut self, asked: StorageArguments, data: &Path) -> anyhow::Result<Self> {
        let data = data.to_owned();
        let opened = tokio::task::spawn_blocking(move || asked.open(&data)).await.context("prepare the storage")?;
        self.storage = Some(opened?);
        Ok(self)
    }

    /// The machine's volumes, if this process keeps them.
    pub(super) fn storage(&self) -> Option<Opened> {
        self.storage.clone()
    }

    fn volumes(&self) -> Option<Volumes> {
        self.storage().map(|opened| Volumes { machine: self.home.machine.clone(), opened })
    }

    /// Starts what several nodes have in common.
    pub(super) fn start_common(&self, components: &mut Components) {
        let settings = Settings { volumes: self.volumes(), ..Settings::default() };
        components.start("node", Component::Node(self.home.node.clone()), NODE, settings);
        self.follow_machine();
    }

    /// Starts the node: its agent, and its virt-handler.
    pub(super) fn start(self, components: &mut Components, api_port: u16, guests: NodeGuests) -> anyhow::Result<()> {
        let volumes = self.volumes();
        let Self {
            home,
            data,
            program,
            qemu,
            accelerator,
            findings,
            runtime,
            network,
            registries,
            resolv_conf,
            allowed_ports: _,
            lacks_ipv6: _,
            storage: _,
        } = self;
        let kubelet = paths::kubelet(&home.root);
        std::fs::create_dir_all(&kubelet).with_context(|| format!("create {}", kubelet.display()))?;
        node::agent::share_pods(&kubelet).context("share the mounts of pods")?;
        let images = Images::open(&paths::images(&home.root), Limits::default()).context("open the images")?;
        let addresses = network.gateways();
        let network = Arc::new(network);
        let api_server = addresses.first().map(|gateway| SocketAddr::new(*gateway, api_port));
        let agent = node::agent::Settings {
            node: home.node.clone(),
            root: kubelet.clone(),
            logs: paths::logs(&data),
            runtime: Arc::new(runtime),
            images: Arc::new(images),
            registries,
            network: Some(network.clone()),
            identities: Some(Arc::new(OfVms {
                client: components.client(&Component::VirtHandler)?,
                image: MACHINE_IMAGE,
            })),
            machine: MachineImage {
                name: MACHINE_IMAGE.to_owned(),
                files: [(program.clone(), PROGRAM.into())].into_iter().chain(of_qemu(&qemu)).collect(),
                users: home.users(),
                is_for: |pod| {
                    virt_controller::is_launcher(pod)
                        || data_volumes::is_importer(pod)
                        || virt_controller::export::is_exporter(pod)
                },
            },
            resolv_conf,
            reserved_memory: RESERVED_MEMORY,
            nodes: home.nodes(),
            addresses,
            api_server,
            labels: BTreeMap::from([(MACHINE.to_owned(), home.machine.clone())]),
        };
        let settings = Settings { agent: Some(agent), volumes };
        components.start("node", Component::Node(home.node.clone()), NODE, settings);
        let mut handler = virt_handler::Settings::of(&home.node, kubelet, paths::handler(&home.root), program);
        handler.qemu = qemu;
        handler.accelerator = accelerator;
        handler.findings = findings;
        handler.guests = guests;
        // Nodes of one machine reach each other at its own address.
        let relay =
            || Relay { address: Ipv4Addr::LOCALHOST.into(), port: 0, credentials: OfNode::new(&data, &home.node) };
        handler.relay = (!home.is_sole()).then(relay);
        handler.addresses = Some(Arc::new(OfGuests(network)));
        handler.isolates_claims = true;
        components.start("virt-handler", Component::VirtHandler, VIRT_HANDLER, handler);
        Ok(())
    }

    /// Goes on finding out what guests run with, where the nodes that run them are processes of their own. What was found is
    /// remembered: a look costs nothing while the machine stays as it is.
    fn follow_machine(&self) {
        let (findings, choice) = (self.findings.clone(), self.accelerator);
        let probe = Probe::new(Some(&self.program), &self.qemu, &paths::handler(&self.home.root));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                match accelerator::find(choice, &probe).await {
                    Ok(finding) => drop(findings.send_if_modified(|known| {
                        let differs = known.as_ref() != Some(&finding);
                        *known = Some(finding);
                        differs
                    })),
                    Err(error) => tracing::warn!(%error, "what runs guests on this machine could not be found out"),
                }
            }
        });
    }
}

const HOLLOW_NODES: &[Descriptor<u32>] = &[Descriptor::new("hollow-nodes", &[], |context, count| {
    let nodes = HollowNodes::new(context, hollow::names("hollow", *count), node::hollow::Behaviour::default());
    Ok(Started::until_stopped(context, async move { nodes.run().await }))
})];

const HOLLOW_HANDLERS: &[Descriptor<u32>] = &[Descriptor::new("hollow-handlers", &[], |context, count| {
    let names = hollow::names("hollow", *count);
    let handlers = HollowHandlers::new(context, names, virt_handler::hollow::Behaviour::default());
    Ok(Started::until_stopped(context, async move { handlers.run().await }))
})];

/// Starts nodes that only pretend; they have no agents.
pub(super) fn start_hollow(components: &mut Components, count: u32) -> Agents {
    components.start("node", Component::Node("hollow".to_owned()), HOLLOW_NODES, count);
    components.start("virt-handler", Component::HollowHandlers, HOLLOW_HANDLERS, count);
    Agents::default()
}
