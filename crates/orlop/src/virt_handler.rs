//! `orlop virt-handler`: a node's controller of virtual machines; or hollow ones, whose guests exist only in the API.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use hypervisor::accelerator::Choice;
use virt_handler::hollow::{Behaviour, HollowHandlers};
use virt_handler::{Handler, Settings};

use crate::cluster::Cluster;
use crate::program::duration;
use crate::{hollow, of_node};

/// Run the guests of a node, or of many.
#[derive(clap::Args)]
#[group(id = "virt-handler")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    node: NodeArguments,
    /// Pretend to run guests, of as many nodes as wanted.
    #[arg(long, env = "ORLOP_VIRT_HANDLER_HOLLOW")]
    hollow: bool,
    /// Of how many nodes.
    #[arg(long, default_value_t = 1, env = "ORLOP_VIRT_HANDLER_COUNT")]
    count: u32,
    /// What the nodes are called, before their number.
    #[arg(long, default_value = "hollow", env = "ORLOP_VIRT_HANDLER_PREFIX")]
    prefix: String,
    /// How long from the hand-over of an instance until it runs.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_VIRT_HANDLER_START_DELAY")]
    start_delay: Duration,
    /// How long a guest takes to shut down; it is killed if its grace period is shorter.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_VIRT_HANDLER_STOP_DELAY")]
    stop_delay: Duration,
    /// How long a guest runs before it powers off by itself; for ever if unset.
    #[arg(long, value_parser = duration, env = "ORLOP_VIRT_HANDLER_RUN_FOR")]
    run_for: Option<Duration>,
    /// Of all guests, how many crash: between 0 and 1.
    #[arg(long, default_value = "0", value_parser = share, env = "ORLOP_VIRT_HANDLER_CRASH_SHARE")]
    crash_share: f64,
    /// Of all guests, how many fail to start: between 0 and 1.
    #[arg(long, default_value = "0", value_parser = share, env = "ORLOP_VIRT_HANDLER_START_FAILURE_SHARE")]
    start_failure_share: f64,
}

/// The node whose guests it runs.
#[derive(clap::Args)]
#[group(id = "virt-handler-node")]
struct NodeArguments {
    /// The node's name; a pod gets it from its own spec.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,
    /// The kubelet's folder on this machine.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet", env = "ORLOP_KUBELET_DIR")]
    kubelet_dir: PathBuf,
    /// A folder of its own, which must outlive it.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/orlop/virt-handler",
        env = "ORLOP_VIRT_HANDLER_STATE_DIR"
    )]
    state_dir: PathBuf,
    /// The QEMU that is asked what it offers.
    #[arg(long, default_value = "qemu-system-x86_64", env = "ORLOP_QEMU")]
    qemu: PathBuf,
    /// What runs guests: auto (KVM where it works, else emulation), kvm or tcg (emulation).
    #[arg(long, default_value_t = Choice::Auto, env = "ORLOP_ACCELERATOR")]
    accelerator: Choice,
    /// Instances that are looked at at the same time.
    #[arg(long, default_value_t = 10, env = "ORLOP_VIRT_HANDLER_THREADS")]
    threads: usize,
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
    share.ok_or_else(|| format!("{text:?} is not between 0 and 1"))
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments {
        cluster,
        node,
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
        let settings = node.settings()?;
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
