//! The pod's network, as virt-handler hands it over: taps for QEMU, sockets for the guest's DHCP and router advertisements.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use api::vmi::VirtualMachineInstance;
use hypervisor::wiring::Attachment;
use network::attached::{Attached, AttachedInterface, Sockets};
use network::guest::{self, Settings};
use network::{handover, resolv};
use virt_launcher::server::Attach;

/// Where the pod's name servers are told.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The kernel carries packets of guests that have it.
const VHOST_NET: &str = "/dev/vhost-net";

/// What came, and what is served of it.
#[derive(Default)]
struct Received {
    interfaces: Vec<AttachedInterface>,
    /// Taken when the guest starts.
    sockets: Vec<Sockets>,
}

/// Listens for virt-handler; the guest can start when the network has come.
pub(super) fn from_pod(path: &Path) -> anyhow::Result<Box<Attach>> {
    let listener = handover::listen(path).context("listen for the pod's network")?;
    let received: Arc<Mutex<Option<Received>>> = Arc::default();
    let filled = received.clone();
    tokio::spawn(async move {
        // The listener answers repetitions by itself; it stays as long as the launcher does.
        loop {
            match handover::receive(&listener).await {
                Ok(Attached { interfaces, sockets }) => {
                    let mut filled = filled.lock().unwrap_or_else(PoisonError::into_inner);
                    filled.get_or_insert(Received { interfaces, sockets });
                }
                Err(error) => tracing::warn!(%error, "the pod's network was not handed over"),
            }
        }
    });
    Ok(Box::new(move |vmi| {
        let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
        if vmi.spec.domain.devices.interfaces.iter().flatten().next().is_none() {
            return Ok(BTreeMap::new());
        }
        let received = received.as_mut().ok_or("the pod's network has not come yet")?;
        let taps = attach(vmi, &received.interfaces)?;
        serve(vmi, &received.interfaces, std::mem::take(&mut received.sockets));
        Ok(taps)
    }))
}

/// A tap for each interface; its address is the one that the servers answer.
fn attach(
    vmi: &mut VirtualMachineInstance,
    attached: &[AttachedInterface],
) -> Result<BTreeMap<String, Attachment>, String> {
    // A pod has the device only if it asked for it.
    let vhost = std::fs::File::options().read(true).write(true).open(VHOST_NET).is_ok();
    let mut taps = BTreeMap::new();
    for interface in vmi.spec.domain.devices.interfaces.iter_mut().flatten() {
        let found = attached.iter().find(|one| one.name == interface.name);
        let found = found.ok_or_else(|| format!("interface {:?} was not set up", interface.name))?;
        interface.mac_address = Some(found.mac.to_string());
        taps.insert(interface.name.clone(), Attachment::Tap { device: found.tap.clone(), vhost });
    }
    Ok(taps)
}

fn serve(vmi: &VirtualMachineInstance, interfaces: &[AttachedInterface], sockets: Vec<Sockets>) {
    let dns = resolv::parse(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default());
    for (interface, sockets) in interfaces.iter().cloned().zip(sockets) {
        let settings = Settings {
            hostname: hostname(vmi),
            search: dns.search.clone(),
            dns: dns.servers.clone(),
            ..Settings::default()
        };
        tokio::spawn(async move {
            let Err(error) = guest::serve(&interface, sockets, &settings).await;
            tracing::warn!(interface = interface.name, %error, "the guest's addresses are not served any more");
        });
    }
}

/// As Kubernetes names a pod: the first part of its name, unless it says otherwise.
fn hostname(vmi: &VirtualMachineInstance) -> String {
    let name = || vmi.metadata.name.as_deref().unwrap_or_default().split('.').next().unwrap_or_default().to_owned();
    vmi.spec.hostname.clone().unwrap_or_else(name)
}
