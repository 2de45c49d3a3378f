//! The steps that set up a namespace. Each of them may have been done before.

use std::io;
use std::net::IpAddr;

use super::layout::{BRIDGE_MAC, Layout, PlanError};
use super::{Attached, AttachedInterface, Interface, Plan, rules, sockets};
use crate::links::{Link, LinkError, Links};
use crate::nft::{self, NftError};
use crate::{kernel, sysctl};

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// The plan itself is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A link could not be made.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The rules could not be made.
    #[error(transparent)]
    Rules(#[from] NftError),
    /// Nothing to bind to.
    #[error("the pod has no link {0}")]
    NoPodLink(String),
    /// It was set up, says the record, and is not there.
    #[error("the bridge {0} was set up before, but no longer exists")]
    Gone(String),
    /// The tap could not be made.
    #[error("cannot create the tap {name}")]
    Tap { name: String, source: io::Error },
    /// A setting could not be made.
    #[error("cannot set {name}")]
    Sysctl { name: String, source: io::Error },
    /// A socket could not be opened.
    #[error("cannot open the sockets on {bridge}")]
    Sockets { bridge: String, source: io::Error },
}

/// Counts steps; tests end the process after one of them.
pub(super) struct Steps<F: FnMut(usize)> {
    done: usize,
    after: F,
}

impl<F: FnMut(usize)> Steps<F> {
    pub(super) fn new(after: F) -> Self {
        Self { done: 0, after }
    }

    fn done(&mut self) {
        self.done += 1;
        (self.after)(self.done);
    }
}

/// Makes everything, and the sockets.
pub(super) async fn set_up(plan: &Plan, mut steps: Steps<impl FnMut(usize)>) -> Result<Attached, StepError> {
    let links = Links::open()?;
    let mut made = Vec::new();
    for (index, interface) in plan.interfaces.iter().enumerate() {
        let layout = Layout::of(interface, index)?;
        let attached = one(&links, interface, &layout, &mut steps).await?;
        made.push((interface, layout, attached));
    }
    let with_six = made.iter().any(|(.., attached)| attached.guest6.is_some());
    sysctl("net/ipv4/ip_forward", "1")?;
    steps.done();
    if with_six {
        sysctl("net/ipv6/conf/all/forwarding", "1")?;
        steps.done();
    }
    let of_rules: Vec<_> =
        made.iter().map(|(interface, layout, attached)| (*interface, layout, attached.guest6.is_some())).collect();
    nft::apply(rules::rules(&of_rules)).await?;
    steps.done();
    reopen(made.into_iter().map(|(.., attached)| attached).collect()).await
}

/// Opens the sockets of what is there. The pod may have other addresses by now than when it was made.
pub(super) async fn reopen(mut interfaces: Vec<AttachedInterface>) -> Result<Attached, StepError> {
    let links = Links::open()?;
    let mut all = Vec::new();
    for AttachedInterface { bridge, guest6, pod_link, pod_addresses, .. } in &mut interfaces {
        if let Some(pod_link) = links.find(pod_link).await? {
            let now = links.addresses(&pod_link).await?;
            // A pod that has lost its addresses to another is about to end.
            if !now.is_empty() {
                *pod_addresses = now;
            }
        }
        let link = links.find(bridge).await?.ok_or_else(|| StepError::Gone(bridge.clone()))?;
        let opened = sockets::open(bridge, link.index, guest6.is_some());
        all.push(opened.map_err(|source| StepError::Sockets { bridge: bridge.clone(), source })?);
    }
    Ok(Attached { interfaces, sockets: all })
}

async fn one(
    links: &Links,
    interface: &Interface,
    layout: &Layout,
    steps: &mut Steps<impl FnMut(usize)>,
) -> Result<AttachedInterface, StepError> {
    let pod_link = links.find(&interface.pod_link).await?;
    let pod_link = pod_link.ok_or_else(|| StepError::NoPodLink(interface.pod_link.clone()))?;
    let pod_addresses = links.addresses(&pod_link).await?;
    let with_six = pod_addresses.iter().any(IpAddr::is_ipv6);
    let bridge = links.bridge(&layout.bridge, BRIDGE_MAC, Some(pod_link.mtu)).await?;
    steps.done();
    settings(&layout.bridge, with_six)?;
    steps.done();
    links.up(&bridge).await?;
    links.address(&bridge, layout.gateway4.into(), layout.prefix4).await?;
    steps.done();
    if with_six {
        links.address(&bridge, layout.gateway6.into(), layout.prefix6).await?;
        steps.done();
    }
    tap(links, interface, layout, &bridge, pod_link.mtu, steps).await?;
    Ok(AttachedInterface {
        name: interface.name.clone(),
        pod_link: interface.pod_link.clone(),
        tap: layout.tap.clone(),
        bridge: layout.bridge.clone(),
        mac: interface.mac,
        mtu: pod_link.mtu,
        queues: interface.queues,
        guest4: layout.guest4,
        gateway4: layout.gateway4,
        prefix4: layout.prefix4,
        guest6: with_six.then_some(layout.guest6),
        gateway6: with_six.then_some(layout.gateway6),
        prefix6: with_six.then_some(layout.prefix6),
        pod_addresses,
    })
}

/// The bridge's own settings, before it comes up.
fn settings(bridge: &str, with_six: bool) -> Result<(), StepError> {
    // Packets of the pod's own programs come from 127.0.0.1 until their source is translated.
    sysctl(&format!("net/ipv4/conf/{bridge}/route_localnet"), "1")?;
    if with_six {
        sysctl(&format!("net/ipv6/conf/{bridge}/disable_ipv6"), "0")?;
        // Nobody else is on this bridge, and the sockets need its addresses at once.
        sysctl(&format!("net/ipv6/conf/{bridge}/accept_dad"), "0")?;
        sysctl(&format!("net/ipv6/conf/{bridge}/dad_transmits"), "0")?;
        sysctl(&format!("net/ipv6/conf/{bridge}/accept_ra"), "0")?;
    }
    Ok(())
}

async fn tap(
    links: &Links,
    interface: &Interface,
    layout: &Layout,
    bridge: &Link,
    mtu: u32,
    steps: &mut Steps<impl FnMut(usize)>,
) -> Result<(), StepError> {
    let name = &layout.tap;
    let owner = interface.owner;
    let made = kernel::persistent_tap(name, interface.queues > 1, owner.uid, owner.gid);
    made.map_err(|source| StepError::Tap { name: name.clone(), source })?;
    steps.done();
    let link = links.find(name).await?;
    let link = link.ok_or_else(|| StepError::Tap { name: name.clone(), source: io::ErrorKind::NotFound.into() })?;
    links.join(&link, bridge, mtu).await?;
    steps.done();
    Ok(())
}

fn sysctl(name: &str, value: &str) -> Result<(), StepError> {
    sysctl::set(name, value).map_err(|source| StepError::Sysctl { name: name.to_owned(), source })
}
