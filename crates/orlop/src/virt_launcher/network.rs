//! The pod's network, as virt-handler hands it over: taps for QEMU, sockets for the guest's DHCP and router advertisements.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use api::vmi::VirtualMachineInstance;
use hypervisor::wiring::Attachment;
use launcher_api::Outcome;
use network::attached::{AttachedInterface, Sockets};
use network::guest::{self, Settings};
use network::handover::{self, Taken};
use network::resolv;
use virt_launcher::server::Attach;

/// Where the pod's name servers are told.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The kernel carries packets of guests that have it.
const VHOST_NET: &str = "/dev/vhost-net";

/// Listens for virt-handler; the guest can start when the network has come.
pub(super) fn from_pod(path: &Path) -> anyhow::Result<Box<Attach>> {
    let listener = handover::listen(path).context("listen for the pod's network")?;
    let taken: Arc<Mutex<Taken>> = Arc::default();
    let filled = taken.clone();
    tokio::spawn(async move {
        // As long as the launcher lives: interfaces may come later.
        loop {
            match handover::receive(&listener).await {
                Ok(attached) => filled.lock().unwrap_or_else(PoisonError::into_inner).add(attached),
                Err(error) => tracing::warn!(%error, "virt-handler did not hand over the pod's network"),
            }
        }
    });
    Ok(Box::new(move |vmi| {
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        if vmi.spec.domain.devices.interfaces.iter().flatten().next().is_none() {
            return Ok(BTreeMap::new());
        }
        let taps = attach(vmi, taken.interfaces())?;
        serve(vmi, taken.unserved());
        Ok(taps)
    }))
}

/// A tap for each interface; its address is the one that the servers answer.
fn attach(
    vmi: &mut VirtualMachineInstance,
    attached: &[AttachedInterface],
) -> Result<BTreeMap<String, Attachment>, Outcome> {
    // A pod has the device only if it asked for it.
    let vhost = std::fs::File::options().read(true).write(true).open(VHOST_NET).is_ok();
    let mut taps = BTreeMap::new();
    for interface in vmi.spec.domain.devices.interfaces.iter_mut().flatten() {
        let found = attached.iter().find(|one| one.name == interface.name);
        let wait = || Outcome::retry(format!("waiting for the network of interface {:?}", interface.name));
        let found = found.ok_or_else(wait)?;
        interface.mac_address = Some(found.mac.to_string());
        taps.insert(interface.name.clone(), Attachment::Tap { device: found.tap.clone(), vhost });
    }
    Ok(taps)
}

fn serve(vmi: &VirtualMachineInstance, unserved: Vec<(AttachedInterface, Sockets)>) {
    if unserved.is_empty() {
        return;
    }
    let dns = resolv::parse(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default());
    for (interface, sockets) in unserved {
        let settings = Settings {
            hostname: hostname(vmi),
            search: dns.search.clone(),
            dns: dns.servers.clone(),
            ..Settings::default()
        };
        tokio::spawn(async move {
            let Err(error) = guest::serve(&interface, sockets, &settings).await;
            tracing::warn!(interface = interface.name, %error, "stopped serving addresses to the guest");
        });
    }
}

/// As Kubernetes names a pod: the first part of its name, unless it says otherwise.
fn hostname(vmi: &VirtualMachineInstance) -> String {
    let name = || vmi.metadata.name.as_deref().unwrap_or_default().split('.').next().unwrap_or_default().to_owned();
    vmi.spec.hostname.clone().unwrap_or_else(name)
}
