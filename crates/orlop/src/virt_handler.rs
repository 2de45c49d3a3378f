//! `orlop virt-handler`: runs the virtual machines of a node, or simulates those of hollow nodes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use hypervisor::accelerator::Choice;
use virt_handler::hollow::{Behaviour, HollowHandlers};
use virt_handler::{DoorSettings, Handler, Settings};

use crate::cluster::Cluster;
use crate::controller_program::duration;
use crate::{hollow, of_node};

/// Run the virtual machines of a node, or simulate those of many nodes.
#[derive(clap::Args)]
#[group(id = "virt-handler")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    door: DoorArguments,
    /// Simulate guests, on any number of nodes.
    #[arg(long, env = "ORLOP_VIRT_HANDLER_HOLLOW")]
    hollow: bool,
    /// Number of simulated nodes.
    #[arg(long, default_value_t = 1, env = "ORLOP_VIRT_HANDLER_COUNT")]
    count: u32,
    /// Prefix of the node names; a number follows.
    #[arg(long, default_value = "hollow", env = "ORLOP_VIRT_HANDLER_PREFIX")]
    prefix: String,
    /// Time that a simulated guest takes to start.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_VIRT_HANDLER_START_DELAY")]
    start_delay: Duration,
    /// Time that a simulated guest takes to shut down; it is killed if its grace period is shorter.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_VIRT_HANDLER_STOP_DELAY")]
    stop_delay: Duration,
    /// Time after which a simulated guest powers off by itself; never if unset.
    #[arg(long, value_parser = duration, env = "ORLOP_VIRT_HANDLER_RUN_FOR")]
    run_for: Option<Duration>,
    /// Fraction of simulated guests that crash, from 0 to 1.
    #[arg(long, default_value = "0", value_parser = share, env = "ORLOP_VIRT_HANDLER_CRASH_SHARE")]
    crash_share: f64,
    /// Fraction of simulated guests that fail to start, from 0 to 1.
    #[arg(long, default_value = "0", value_parser = share, env = "ORLOP_VIRT_HANDLER_START_FAILURE_SHARE")]
    start_failure_share: f64,
}

/// The node whose guests it runs.
#[derive(clap::Args)]
#[group(id = "virt-handler-node")]
struct NodeArguments {
    /// Name of the node. A pod can get it from `spec.nodeName`.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,
    /// Directory of the kubelet on this machine.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet", env = "ORLOP_KUBELET_DIR")]
    kubelet_dir: PathBuf,
    /// Directory for virt-handler's state; it must survive restarts.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/orlop/virt-handler",
        env = "ORLOP_VIRT_HANDLER_STATE_DIR"
    )]
    state_dir: PathBuf,
    /// QEMU program to query for supported features.
    #[arg(long, default_value = "qemu-system-x86_64", env = "ORLOP_QEMU")]
    qemu: PathBuf,
    /// Accelerator: auto (KVM if it works, otherwise emulation), kvm or tcg (emulation).
    #[arg(long, default_value_t = Choice::Auto, env = "ORLOP_ACCELERATOR")]
    accelerator: Choice,
    /// Number of instances to process at the same time.
    #[arg(long, default_value_t = 10, env = "ORLOP_VIRT_HANDLER_THREADS")]
    threads: usize,
}

/// How virt-api reaches the guests of this node. Without a certificate it cannot.
#[derive(clap::Args)]
#[group(id = "virt-handler-door")]
struct DoorArguments {
    /// Address to serve virt-api on.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8186", env = "ORLOP_VIRT_HANDLER_LISTEN")]
    listen: SocketAddr,
    /// Address that virt-api connects to, without the port. A pod can get it from `status.podIP`.
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    advertise_address: Option<String>,
    /// Serving certificate for virt-api; it must name this node. It is reloaded when the file changes.
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["tls_private_key_file", "client_ca_file", "advertise_address"],
        env = "ORLOP_VIRT_HANDLER_TLS_CERT_FILE"
    )]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the serving certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file", env = "ORLOP_VIRT_HANDLER_TLS_PRIVATE_KEY_FILE")]
    tls_private_key_file: Option<PathBuf>,
    /// Certificate authorities that virt-api's certificate is verified against.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file", env = "ORLOP_VIRT_HANDLER_CLIENT_CA_FILE")]
    client_ca_file: Option<PathBuf>,
    /// Common name of virt-api's certificate. Nobody else is let in.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "kubevirt.io:system:client:virt-api",
        env = "ORLOP_VIRT_HANDLER_CLIENT_NAME"
    )]
    client_name: String,
}

impl DoorArguments {
    fn settings(self) -> Option<DoorSettings> {
        let Self { listen, advertise_address, tls_cert_file, tls_private_key_file, client_ca_file, client_name } = self;
        Some(DoorSettings {
            listen,
            advertised: advertise_address?,
            certificate: tls_cert_file?,
            key: tls_private_key_file?,
            authorities: client_ca_file?,
            caller: client_name,
        })
    }
}

impl NodeArguments {
    fn settings(self) -> anyhow::Result<Settings> {
        let Self { node_name, kubelet_dir, state_dir, qemu, accelerator, threads } = self;
        let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        std::fs::create_dir_all(&state_dir).with_context(|| format!("create {}", state_dir.display()))?;
        let program = std::env::current_exe().context("find this program")?;
        let node = node_name.unwrap_or_else(host);
        let workers = threads;
        Ok(Settings {
            qemu,
            accelerator,
            workers,
            withdraw: true,
            ..Settings::of(&node, kubelet_dir, state_dir, program)
        })
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a number from 0 to 1"))
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments {
        cluster,
        node,
        door,
        hollow: is_hollow,
        count,
        prefix,
        start_delay,
        stop_delay,
        run_for,
        crash_share,
        start_failure_share,
    } = arguments;
    if !is_hollow {
        let settings = Settings { door: door.settings(), ..node.settings()? };
        return of_node::run(&cluster, "virt-handler", "virt-handler", |context| {
            let handler = Handler::new(context, settings);
            async move { handler.run().await }
        });
    }
    let behaviour = Behaviour { start_delay, stop_delay, run_for, crash_share, start_failure_share };
    let names = hollow::names(&prefix, count);
    of_node::run(&cluster, "virt-handler", "virt-handler", |context| {
        let handlers = HollowHandlers::new(context, names, behaviour);
        async move { handlers.run().await }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_between_none_and_all() {
        assert_eq!((share("0.25"), share("1")), (Ok(0.25), Ok(1.0)));
        assert!(share("1.5").is_err() && share("-0.1").is_err() && share("NaN").is_err() && share("some").is_err());
    }
}
