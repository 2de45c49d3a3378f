//! Executing CNI plugins (specification 1.0.0).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::addresses::Pool;
use super::{HostPort, Settings};
use crate::mac::Mac;

pub(super) const VERSION: &str = "1.0.0";

/// The link that a pod gets.
pub(super) const LINK: &str = "eth0";

/// A plugin takes a tenth of a second, and longer when it waits for others' locks.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why a plugin did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// It is not there.
    #[error("CNI plugin {name} was not found in {searched:?}")]
    Missing {
        name: String,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// It could not be run.
    #[error("cannot run the CNI plugin {name}")]
    Run { name: &'static str, source: std::io::Error },
    /// It did not come to an end.
    #[error("the CNI plugin {0} did not answer in time")]
    TimedOut(&'static str),
    /// It said no.
    #[error("the CNI plugin {name} failed: {message}")]
    Failed {
        name: &'static str,
        /// Its words.
        message: String,
    },
    /// Its answer is not one.
    #[error("the CNI plugin {name} returned an invalid answer")]
    Answer { name: &'static str, source: serde_json::Error },
}

/// What to do with a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action<'a> {
    Add(&'a Path),
    /// Without a namespace when it is gone.
    Remove(Option<&'a Path>),
}

/// The answer to an addition, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(super) struct Added {
    #[serde(default)]
    interfaces: Vec<AddedLink>,
    #[serde(default)]
    ips: Vec<AddedAddress>,
}

#[derive(Debug, Deserialize)]
struct AddedLink {
    name: String,
    #[serde(default)]
    sandbox: String,
    #[serde(default)]
    mac: String,
}

#[derive(Debug, Deserialize)]
struct AddedAddress {
    address: String,
}

impl Added {
    /// The pod's link's other end.
    pub(super) fn host_link(&self, bridge: &str) -> Option<String> {
        let other = self.interfaces.iter().find(|link| link.sandbox.is_empty() && link.name != bridge);
        other.map(|link| link.name.clone())
    }

    /// The Ethernet address of the pod's own end.
    pub(super) fn mac(&self) -> Option<Mac> {
        self.interfaces.iter().find(|link| !link.sandbox.is_empty())?.mac.parse().ok()
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let address = |added: &AddedAddress| added.address.split('/').next().and_then(|address| address.parse().ok());
        self.ips.iter().filter_map(address).collect()
    }
}

/// Where a plugin is.
pub(super) fn find(folders: &[PathBuf], name: &str) -> Result<PathBuf, PluginError> {
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| PluginError::Missing { name: name.to_owned(), searched: folders.to_vec() })
}

/// Runs one; what it wrote.
pub(super) async fn run(
    folders: &[PathBuf],
    name: &'static str,
    id: &str,
    action: Action<'_>,
    configuration: &Value,
) -> Result<Vec<u8>, PluginError> {
    let failed = |source| PluginError::Run { name, source };
    let (verb, netns) = match action {
        Action::Add(netns) => ("ADD", Some(netns)),
        Action::Remove(netns) => ("DEL", netns),
    };
    let path = std::env::join_paths(folders).map_err(|error| failed(std::io::Error::other(error)))?;
    let mut command = Command::new(find(folders, name)?);
    command.env("CNI_COMMAND", verb).env("CNI_CONTAINERID", id).env("CNI_PATH", path);
    command.env("CNI_IFNAME", LINK);
    command.env("CNI_NETNS", netns.map(Path::as_os_str).unwrap_or_default());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let input = configuration.to_string();
    let whole = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // If it ends without reading, its own words say more than a broken pipe.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(TIMEOUT, whole).await.map_err(|_| PluginError::TimedOut(name))?;
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(PluginError::Failed { name, message: complaint(&output.stdout, &output.stderr) })
}

/// A plugin's error in its own words.
fn complaint(stdout: &[u8], stderr: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Complaint {
        msg: String,
        #[serde(default)]
        details: String,
    }
    match serde_json::from_slice::<Complaint>(stdout) {
        Ok(Complaint { msg, details }) if details.is_empty() => msg,
        Ok(Complaint { msg, details }) => format!("{msg}: {details}"),
        Err(_) => String::from_utf8_lossy(if stderr.is_empty() { stdout } else { stderr }).trim().to_owned(),
    }
}

/// The name that plugins know the network by.
pub(super) fn network(settings: &Settings) -> String {
    format!("orlop-{}", settings.network.bridge)
}

/// Where `host-local` keeps who has which address.
pub(super) fn address_files(settings: &Settings) -> PathBuf {
    settings.state.join("ipam")
}

/// A pod's link in the bridge, with these addresses.
pub(super) fn bridge(settings: &Settings, pools: &[Pool], addresses: &[IpAddr]) -> Value {
    let range =
        |pool: &Pool| json!([{ "subnet": format!("{}/{}", pool.network(), pool.prefix), "gateway": pool.gateway() }]);
    let mut configuration = json!({
        "cniVersion": VERSION,
        "name": network(settings),
        "type": "bridge",
        "bridge": settings.network.bridge,
        "isGateway": true,
        "isDefaultGateway": true,
        "hairpinMode": true,
        "ipMasq": false,
        "ipam": {
            "type": "host-local",
            "dataDir": address_files(settings),
            "ranges": pools.iter().map(range).collect::<Vec<_>>(),
        },
        "args": { "cni": { "ips": addresses } },
    });
    if let (Some(mtu), Some(fields)) = (settings.network.mtu, configuration.as_object_mut()) {
        fields.insert("mtu".to_owned(), mtu.into());
    }
    configuration
}

/// Ports of the machine that lead to a pod.
pub(super) fn portmap(settings: &Settings, ports: &[HostPort], added: Option<&Value>) -> Value {
    let mapping = |port: &HostPort| {
        let mut mapping = json!({
            "hostPort": port.host_port,
            "containerPort": port.container_port,
            "protocol": port.protocol.to_lowercase(),
        });
        if let (Some(ip), Some(fields)) = (port.host_ip, mapping.as_object_mut()) {
            fields.insert("hostIP".to_owned(), json!(ip));
        }
        mapping
    };
    let mut configuration = json!({
        "cniVersion": VERSION,
        "name": network(settings),
        "type": "portmap",
        "snat": true,
        "capabilities": { "portMappings": true },
        "runtimeConfig": { "portMappings": ports.iter().map(mapping).collect::<Vec<_>>() },
    });
    if let (Some(added), Some(fields)) = (added, configuration.as_object_mut()) {
        fields.insert("prevResult".to_owned(), added.clone());
    }
    configuration
}
