//! The node of `orlop up`: what it is found to have, and its parts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use hypervisor::accelerator::{self, Choice, Finding, Probe};
use manager::context::Started;
use manager::descriptor::Descriptor;
use network::cni::{self, Cni};
use network::phase1::Protocol;
use node::agent::{Agent, MachineImage};
use node::hollow::HollowNodes;
use node::provisioner::Provisioner;
use node::runtime::{Places, Runtime};
use storage::images::Images;
use storage::pull::{Limits, Registries};
use tokio::sync::watch;
use virt_handler::Handler;
use virt_handler::hollow::HollowHandlers;

use super::identity::OfVms;
use super::parts::Parts;
use super::report::Less;
use super::{HANDLER, MACHINE_IMAGE, places, preflight, program, reach, vhost};
use crate::{hollow, workbench};

/// Where the program is inside launchers.
const PROGRAM: &str = "/usr/bin/orlop";
/// Users of launchers: one per pod, beyond those of people, of containers' and of systemd's ranges.
const FIRST_USER: u32 = 0x4f52_0000;
const USERS: u32 = 0x1_0000;
/// What the machine's own programs and `orlop up` keep.
const RESERVED_MEMORY: u64 = 512 << 20;

/// The node's flags.
#[derive(clap::Args)]
#[group(id = "up_node")]
pub(crate) struct Arguments {
    /// The node's name; by default the machine's.
    #[arg(long, value_name = "NAME", env = "ORLOP_NODE_NAME")]
    node_name: Option<String>,
    /// The QEMU to run.
    #[arg(long, default_value = "qemu-system-x86_64", env = "ORLOP_QEMU")]
    pub(super) qemu: PathBuf,
    /// What runs guests: auto (KVM where it works, else emulation), kvm or tcg (emulation).
    #[arg(long, default_value_t = Choice::Auto, env = "ORLOP_ACCELERATOR")]
    accelerator: Choice,
    /// A registry that is spoken to without TLS: HOST or HOST:PORT.
    #[arg(long = "insecure-registry", value_name = "HOST", env = "ORLOP_INSECURE_REGISTRY", value_delimiter = ',')]
    insecure_registries: Vec<String>,
    /// A folder of this machine that images may come from, as `image: oci:FOLDER:TAG`: whoever may create VMs may read them.
    /// The folder `oci` below the data folder is always one.
    #[arg(long = "image-folder", value_name = "FOLDER", env = "ORLOP_IMAGE_FOLDER", value_delimiter = ',')]
    image_folders: Vec<PathBuf>,
    /// What pods and guests are told about name servers.
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf", env = "ORLOP_RESOLV_CONF")]
    resolv_conf: PathBuf,
    /// A port of this machine that pods and guests may reach, at all its addresses: PORT, PORT/udp or PORT/sctp. Without any,
    /// they reach the API at their gateway and the name servers that they are told of.
    #[arg(long = "allow-host-port", value_name = "PORT", value_parser = reach::port, env = "ORLOP_ALLOW_HOST_PORT", value_delimiter = ',')]
    allowed_ports: Vec<(u16, Protocol)>,
    #[command(flatten)]
    network: NetworkArguments,
}

/// The pods' network.
#[derive(clap::Args)]
#[group(id = "up_network")]
struct NetworkArguments {
    /// The bridge that connects pods.
    #[arg(long, value_name = "NAME", default_value = "orlop0", env = "ORLOP_BRIDGE")]
    bridge: String,
    /// Addresses of pods.
    #[arg(long, value_name = "CIDR", default_value = "10.219.0.0/16", value_parser = subnet::<Ipv4Addr>, env = "ORLOP_POD_CIDR")]
    pod_cidr: (Ipv4Addr, u8),
    /// Addresses of pods of the other family; "none" for none.
    #[arg(long, value_name = "CIDR", default_value = "fd21:9a5c::/64", value_parser = optional_subnet, env = "ORLOP_POD_CIDR6")]
    pod_cidr6: Subnet6,
}

/// A subnet, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Subnet6(Option<(Ipv6Addr, u8)>);

impl NetworkArguments {
    /// The network that they describe, in the folder of `orlop up`.
    fn cni(self, data: &Path) -> anyhow::Result<Cni> {
        let Self { bridge, pod_cidr: subnet4, pod_cidr6: Subnet6(subnet6) } = self;
        let subnet6 = subnet6.filter(|_| has_ipv6());
        let network = cni::Network { bridge, subnet4, subnet6, mtu: None };
        let settings = cni::Settings { network, plugins: preflight::plugins(), state: places::network(data) };
        Cni::new(settings).context("prepare the pods' network")
    }
}

/// Whether links of this machine get IPv6 addresses.
fn has_ipv6() -> bool {
    let off = std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    off.is_ok_and(|off| off.trim() == "0")
}

fn subnet<A: std::str::FromStr>(text: &str) -> Result<(A, u8), String> {
    let wrong = || format!("{text:?} is no subnet such as 10.219.0.0/16");
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    Ok((address.parse().map_err(|_| wrong())?, prefix.parse().map_err(|_| wrong())?))
}

fn optional_subnet(text: &str) -> Result<Subnet6, String> {
    if text == "none" { Ok(Subnet6(None)) } else { subnet(text).map(Some).map(Subnet6) }
}

/// The OCI runtime of this machine, with the pods of this folder.
pub(crate) async fn runtime(data: &Path) -> anyhow::Result<Runtime> {
    let program = program::install(data)?;
    let places = Places { state: places::shims(data), program };
    Runtime::find(places, &["runc", "crun"]).await.context("find an OCI runtime that works")
}

/// What was found out about the machine.
pub(crate) struct Found {
    name: String,
    data: PathBuf,
    program: PathBuf,
    qemu: PathBuf,
    accelerator: Choice,
    /// What guests run with, now and whenever virt-handler finds out anew.
    findings: watch::Sender<Option<Finding>>,
    runtime: Runtime,
    network: Cni,
    images: Images,
    registries: Registries,
    resolv_conf: PathBuf,
    allowed_ports: Vec<(u16, Protocol)>,
    /// Pods should have IPv6 addresses, and cannot.
    lacks_ipv6: bool,
}

impl Arguments {
    /// Tries what is there.
    pub(super) async fn find(self, data: &Path) -> anyhow::Result<Found> {
        let Self {
            node_name,
            qemu,
            accelerator,
            insecure_registries,
            image_folders,
            resolv_conf,
            allowed_ports,
            network,
        } = self;
        let Some(qemu) = hypervisor::programs::qemu(&qemu) else { bail!("{} was not found", qemu.display()) };
        let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        for folder in [places::shims(data), places::kubelet(data), places::handler(data)] {
            std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        }
        node::agent::share_pods(&places::kubelet(data)).context("share the mounts of pods")?;
        let lacks_ipv6 = network.pod_cidr6.0.is_some() && !has_ipv6();
        let network = network.cni(data)?;
        let hint = "prepare the pods' network (--bridge, --pod-cidr, --pod-cidr6)";
        let prepared = async { network.prepare().await.context(hint) };
        let program = program::install(data)?;
        // Where virt-handler finds the answer, too.
        let probe = Probe::new(Some(&program), &qemu, &places::handler(data));
        let probed = async { accelerator::find(accelerator, &probe).await.context("find out what runs guests here") };
        let (finding, runtime, ()) = tokio::try_join!(probed, runtime(data), prepared)?;
        vhost::load();
        let mut registries = workbench::registries(&insecure_registries)?;
        // What is in the machine's own folder root has put there.
        registries.set_folders(image_folders.into_iter().chain([places::own_images(data)]).collect());
        Ok(Found {
            name: node_name.unwrap_or_else(host),
            data: data.to_owned(),
            program,
            qemu,
            accelerator,
            findings: watch::Sender::new(Some(finding)),
            runtime,
            network,
            images: Images::open(&places::images(data), Limits::default()).context("open the images")?,
            registries,
            resolv_conf,
            allowed_ports,
            lacks_ipv6,
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

/// What the parts of a node are made with.
struct Settings {
    agent: node::agent::Settings,
    volumes: PathBuf,
}

const NODE: &[Descriptor<Settings>] = &[
    Descriptor::new("node-agent", &[], |context, settings| {
        let agent = Agent::new(context, settings.agent.clone());
        Ok(Started::until_stopped(context, async move { agent.run().await }))
    }),
    Descriptor::new("local-volumes", &[], |context, settings| {
        let provisioner = Provisioner::new(context, &settings.agent.node, &settings.volumes);
        Ok(Started::until_stopped(context, async move { provisioner.run().await }))
    }),
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
        self.network.let_reach(services).await.context("open to pods what they may use of this machine")
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
            why: "pods and guests have IPv4 addresses alone: IPv6 is off on this machine".to_owned(),
            remedy: "`sysctl net.ipv6.conf.default.disable_ipv6=0` and start again, or say `--pod-cidr6 none`"
                .to_owned(),
        };
        let open = self.network.unguarded().map(|why| Less {
            what: "no firewall".to_owned(),
            why: format!("pods and guests reach every service of this machine and a cloud's metadata: {why}"),
            remedy: "use a kernel with nft_ct and nft_reject, or let a firewall in front of it do that".to_owned(),
        });
        let forgeable = self.network.forgeable().map(|why| Less {
            what: "no guard".to_owned(),
            why: format!("containers can send in the name of other pods: {why}"),
            remedy: "use a kernel with nf_tables for bridges (CONFIG_NF_TABLES_BRIDGE)".to_owned(),
        });
        self.lacks_ipv6.then(ipv6).into_iter().chain(open).chain(forgeable).collect()
    }

    /// What `orlop status` tells of the machine.
    pub(super) fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("node".to_owned(), self.name.clone()),
            ("runtime".to_owned(), format!("{} {}", self.runtime.name(), self.runtime.version())),
            ("data".to_owned(), self.data.display().to_string()),
        ])
    }

    /// Starts the node's parts.
    pub(super) fn start(self, parts: &mut Parts, api_port: u16) {
        let Self {
            name,
            data,
            program,
            qemu,
            accelerator,
            findings,
            runtime,
            network,
            images,
            registries,
            resolv_conf,
            allowed_ports: _,
            lacks_ipv6: _,
        } = self;
        let addresses = network.gateways();
        let api_server = addresses.first().map(|gateway| SocketAddr::new(*gateway, api_port));
        let agent = node::agent::Settings {
            node: name.clone(),
            root: places::kubelet(&data),
            logs: places::logs(&data),
            runtime: Arc::new(runtime),
            images: Arc::new(images),
            registries,
            network: Some(Arc::new(network)),
            identities: Some(Arc::new(OfVms { client: parts.client(HANDLER), image: MACHINE_IMAGE })),
            machine: MachineImage {
                name: MACHINE_IMAGE.to_owned(),
                files: [(program.clone(), PROGRAM.into())].into_iter().chain(of_qemu(&qemu)).collect(),
                users: FIRST_USER..FIRST_USER + USERS,
            },
            resolv_conf,
            reserved_memory: RESERVED_MEMORY,
            addresses,
            api_server,
            labels: BTreeMap::new(),
        };
        parts.start("node", &format!("system:node:{name}"), NODE, Settings { agent, volumes: places::volumes(&data) });
        let mut handler = virt_handler::Settings::of(&name, places::kubelet(&data), places::handler(&data), program);
        handler.qemu = qemu;
        handler.accelerator = accelerator;
        handler.findings = findings;
        parts.start("virt-handler", HANDLER, VIRT_HANDLER, handler);
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

/// Starts nodes that only pretend.
pub(super) fn start_hollow(parts: &mut Parts, count: u32) {
    parts.start("node", "system:node:hollow", HOLLOW_NODES, count);
    parts.start("virt-handler", HANDLER, HOLLOW_HANDLERS, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_read_and_mistakes_are_told() {
        assert_eq!(subnet::<Ipv4Addr>("10.1.0.0/24"), Ok((Ipv4Addr::new(10, 1, 0, 0), 24)));
        assert_eq!(optional_subnet("none"), Ok(Subnet6(None)));
        for text in ["10.1.0.0", "10.1.0/24", "fd00::/x", ""] {
            assert!(subnet::<Ipv4Addr>(text).is_err() && optional_subnet(text).is_err(), "{text:?}");
        }
    }
}
