//! Devices that guests need, offered to the kubelet: so that only pods that ask for one get it, on nodes that have it.

mod plugin;

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use manager::errors::chain;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::folders::{self, Watch};
use plugin::Plugin;

/// A device and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    name: &'static str,
    path: &'static str,
}

const KVM: Kind = Kind { name: "kvm", path: "/dev/kvm" };
const KINDS: [Kind; 3] =
    [KVM, Kind { name: "tun", path: "/dev/net/tun" }, Kind { name: "vhost-net", path: "/dev/vhost-net" }];
/// Between attempts to reach a kubelet that is there and does not answer.
const AGAIN: Duration = Duration::from_secs(5);

/// Those that exist on this node now: a module may be loaded at any time.
pub(crate) fn present() -> Vec<Kind> {
    present_below(Path::new("/"))
}

fn present_below(root: &Path) -> Vec<Kind> {
    KINDS.into_iter().filter(|kind| root.join(kind.path.trim_start_matches('/')).exists()).collect()
}

/// The devices that are offered; tells whether the kubelet knows them all.
#[derive(Clone, Debug)]
pub(crate) struct Devices {
    kubelet: PathBuf,
    plugins: Vec<Arc<Plugin>>,
    registered: watch::Sender<bool>,
}

impl Devices {
    /// These of this node, so many of each; KVM only where it works.
    pub(crate) fn new(kubelet: &Path, slots: u32, present: &[Kind], has_kvm: bool) -> Self {
        let kinds = present.iter().filter(|kind| has_kvm || **kind != KVM);
        let plugins = kinds.map(|kind| Arc::new(Plugin::new(kind.name, Path::new(kind.path), slots))).collect();
        let folder = kubelet.join(device_plugin::FOLDER);
        Self { kubelet: folder, plugins, registered: watch::Sender::new(false) }
    }

    /// Whether the kubelet knows all devices, now and after every change.
    pub(crate) fn registered(&self) -> watch::Receiver<bool> {
        self.registered.subscribe()
    }

    /// Offers the devices for ever, to each kubelet that comes.
    pub(crate) async fn run(&self) {
        loop {
            if let Err(error) = self.session().await {
                tracing::warn!(error = chain(&error), "cannot offer devices");
                sleep(AGAIN).await;
            }
            self.registered.send_replace(false);
        }
    }

    /// Offers the devices to one kubelet, until it is another's turn.
    async fn session(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.kubelet)?;
        let folder = folders::open_own(&self.kubelet)?;
        let watch = Watch::on(folder.as_fd())?;
        let Some(kubelet) = identity(&self.kubelet) else { return watch.changed().await };
        let serving = self.plugins.iter().map(|plugin| plugin.serve(&self.kubelet)).collect::<Result<Vec<_>, _>>()?;
        let registering = async {
            for plugin in &self.plugins {
                plugin.register(&self.kubelet).await.map_err(std::io::Error::other)?;
            }
            self.registered.send_replace(true);
            std::future::pending::<std::io::Result<()>>().await
        };
        let replaced = async {
            // Our own sockets come and go there, too.
            while identity(&self.kubelet) == Some(kubelet) {
                watch.changed().await?;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            replaced = replaced => replaced,
            failed = registering => failed,
            ended = join_all(serving) => ended.into_iter().collect::<Result<(), _>>().map_err(std::io::Error::other),
        }
    }
}

/// Which socket a kubelet listens on; another one, if it was made anew.
fn identity(folder: &Path) -> Option<(u64, u64, i64)> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(folder.join(device_plugin::SOCKET)).ok()?;
    Some((found.dev(), found.ino(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests;
