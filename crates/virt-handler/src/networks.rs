//! The guest's network, set up in the launcher's namespace before the guest starts.

use std::future::Future;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;

use api::networks;
use api::vmi::VirtualMachineInstance;
use launcher_api::Outcome;
use manager::errors::chain;
use network::guest_network::{self, AttachedInterface, Interface, Owner, Plan, Port, Protocol, SetUpError};
use network::handover;
use network::mac::Mac;

/// Where a guest's network is made.
#[derive(Debug)]
pub struct Place {
    /// The launcher's namespace.
    pub namespace: OwnedFd,
    /// The user and the group that the launcher runs as.
    pub owner: (u32, u32),
    /// The UID of who keeps its Ethernet address when it starts again, as [`crate::identity`] found it.
    pub identity: String,
    /// A file for what was made, kept until the pod is cleaned up.
    pub state: PathBuf,
    /// The socket on which the launcher takes what it needs.
    pub socket: PathBuf,
}

/// What was made for one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name in the instance.
    pub name: String,
    /// The guest's address on the wire.
    pub mac: String,
    /// The addresses at which the guest is reached.
    pub addresses: Vec<String>,
    /// Its name in the launcher's namespace.
    pub pod_link: String,
}

/// Why a network could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Not now, with all its causes.
    #[error("{0}")]
    Retry(String),
    /// Trying again cannot help.
    #[error("{0}")]
    Never(String),
}

impl NetworkError {
    /// What its caller does about it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Retry(why) => Outcome::retry(why),
            Self::Never(why) => Outcome::never("", why),
        }
    }
}

/// The result of [`Networks::connect`].
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Vec<Link>, NetworkError>> + Send + 'a>>;

/// Makes networks of guests.
pub trait Networks: Send + Sync {
    /// Makes the networks of an instance and hands them to its launcher. May be repeated: what is there stays.
    fn connect<'a>(&'a self, place: Place, vmi: &'a VirtualMachineInstance) -> Connecting<'a>;
}

/// The result of [`Addresses::claim`]; why not, in words.
pub type Claiming<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, String>> + Send + 'a>>;

/// Addresses that stay a guest's when it goes on in another pod. Where there are none, a guest that moved is reached at the address of
/// its new pod.
pub trait Addresses: std::fmt::Debug + Send + Sync {
    /// Gives a pod, by its UID, the addresses of the guest that it holds now, and takes them from the pod that held it before. Returns
    /// what the pod has then. May be repeated.
    fn claim<'a>(&'a self, pod: &'a str) -> Claiming<'a>;
}

/// The masquerade binding, made by a short-lived process of this program.
#[derive(Clone, Debug)]
pub(crate) struct Masquerade {
    program: PathBuf,
}

/// The pod's link to its network.
const POD_LINK: &str = "eth0";

impl Masquerade {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program }
    }
}

impl Networks for Masquerade {
    fn connect<'a>(&'a self, place: Place, vmi: &'a VirtualMachineInstance) -> Connecting<'a> {
        Box::pin(async move {
            let plan = plan(vmi, &place.identity, place.owner)?;
            let attached = guest_network::set_up(&self.program, place.namespace.as_fd(), &place.state, &plan)
                .await
                .map_err(|error| {
                    let why = chain(&error);
                    match error {
                        SetUpError::Final(_) => NetworkError::Never(why),
                        SetUpError::Retryable(_) => NetworkError::Retry(why),
                    }
                })?;
            let made: Vec<&str> = attached.interfaces.iter().map(|interface| interface.name.as_str()).collect();
            come_with_the_start(&plan, &made)?;
            let sent = handover::send(&place.socket, &attached).await;
            sent.map_err(|error| NetworkError::Retry(chain(&error)))?;
            Ok(attached.interfaces.iter().map(link).collect())
        })
    }
}

/// Refuses interfaces that the network of a guest lacks which has been made: it is made whole, before the guest starts.
fn come_with_the_start(plan: &Plan, made: &[&str]) -> Result<(), NetworkError> {
    let added = plan.interfaces.iter().position(|interface| !made.contains(&interface.name.as_str()));
    added.map_or(Ok(()), |index| {
        let path = format!("spec.domain.devices.interfaces[{index}]");
        Err(refused(format!("{path}: an interface cannot be added to a guest that runs; restart the VM")))
    })
}

fn link(made: &AttachedInterface) -> Link {
    Link {
        name: made.name.clone(),
        mac: made.mac.to_string(),
        addresses: made.pod_addresses.iter().map(ToString::to_string).collect(),
        pod_link: made.pod_link.clone(),
    }
}

/// What is to be made for an instance. What cannot be made is refused by its path; trying again does not help.
fn plan(vmi: &VirtualMachineInstance, identity: &str, (uid, gid): (u32, u32)) -> Result<Plan, NetworkError> {
    let interfaces = vmi.spec.domain.devices.interfaces.iter().flatten().enumerate();
    let interfaces = interfaces.map(|(index, interface)| {
        let path = format!("spec.domain.devices.interfaces[{index}]");
        let pod =
            vmi.spec.networks.iter().flatten().find(|one| one.name == interface.name).and_then(|one| one.pod.as_ref());
        let Some(pod) = pod.filter(|_| interface.masquerade.is_some()) else {
            return Err(refused(format!("{path}: only masquerade on the pod's network is supported")));
        };
        let mac = match interface.mac_address.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => Mac::from_str(text).map_err(|error| refused(format!("{path}.macAddress: {error}")))?,
            None => Mac::stable(identity, &interface.name),
        };
        let ports = interface.ports.iter().flatten().map(|one| port(&path, one)).collect::<Result<_, _>>()?;
        Ok(Interface {
            name: interface.name.clone(),
            pod_link: POD_LINK.to_owned(),
            mac,
            ports,
            owner: Owner { uid, gid },
            cidr4: subnet(pod.vm_network_cidr.as_deref())?,
            cidr6: subnet(pod.vm_i_pv6_network_cidr.as_deref())?,
            queues: 1,
        })
    });
    Ok(Plan { interfaces: interfaces.collect::<Result<_, _>>()? })
}

fn port(path: &str, wanted: &networks::Port) -> Result<Port, NetworkError> {
    let port = u16::try_from(wanted.port)
        .map_err(|_| refused(format!("{path}.ports: {} is not a valid port", wanted.port)))?;
    let protocol = match wanted.protocol.as_deref().unwrap_or_default().to_ascii_uppercase().as_str() {
        "" | "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        other => return Err(refused(format!("{path}.ports: {other:?} is not valid; use TCP, UDP or SCTP"))),
    };
    Ok(Port { protocol, port })
}

fn subnet<T: FromStr>(text: Option<&str>) -> Result<Option<(T, u8)>, NetworkError> {
    let Some(text) = text else { return Ok(None) };
    let parts = text.split_once('/').and_then(|(address, length)| Some((address.parse().ok()?, length.parse().ok()?)));
    parts.map(Some).ok_or_else(|| refused(format!("{text:?} is not a valid network")))
}

fn refused(message: String) -> NetworkError {
    NetworkError::Never(message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(interface: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": { "uid": "u" },
            "spec": {
                "domain": { "devices": { "interfaces": [interface] } },
                "networks": [{ "name": "default", "pod": { "vmNetworkCIDR": "10.1.0.0/24" } }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn an_interface_becomes_a_plan() {
        let ports = json!([{ "port": 80 }, { "port": 53, "protocol": "udp" }]);
        let wanted = vmi(&json!({ "name": "default", "masquerade": {}, "ports": ports }));
        let plan = plan(&wanted, "vm", (107, 108)).unwrap();
        let one = &plan.interfaces[0];
        assert_eq!(one.mac, Mac::stable("vm", "default"));
        assert_eq!(one.cidr4, Some(([10, 1, 0, 0].into(), 24)));
        let ports: Vec<_> = one.ports.iter().map(|one| (one.protocol, one.port)).collect();
        assert_eq!(ports, [(Protocol::Tcp, 80), (Protocol::Udp, 53)]);
        assert_eq!((one.owner.uid, one.owner.gid), (107, 108));
    }

    #[test]
    fn an_interface_that_is_added_to_a_network_that_was_made_is_refused_by_its_path() {
        let plan = plan(&vmi(&json!({ "name": "default", "masquerade": {} })), "vm", (0, 0)).unwrap();
        assert!(come_with_the_start(&plan, &["default", "gone"]).is_ok());
        let refused = come_with_the_start(&plan, &["gone"]).unwrap_err();
        assert!(matches!(&refused, NetworkError::Never(why) if why.starts_with("spec.domain.devices.interfaces[0]: ")));
    }

    #[test]
    fn what_cannot_be_made_is_refused_for_good() {
        for interface in [
            json!({ "name": "default", "bridge": {} }),
            json!({ "name": "other", "masquerade": {} }),
            json!({ "name": "default", "masquerade": {}, "macAddress": "xx" }),
            json!({ "name": "default", "masquerade": {}, "ports": [{ "port": 70000 }] }),
            json!({ "name": "default", "masquerade": {}, "ports": [{ "port": 1, "protocol": "icmp" }] }),
        ] {
            let refused = plan(&vmi(&interface), "vm", (0, 0)).unwrap_err();
            assert!(matches!(refused, NetworkError::Never(_)), "{interface}");
        }
    }
}
