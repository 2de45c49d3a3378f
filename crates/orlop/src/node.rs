//! `orlop node`: stops, starts and cuts off the nodes of `orlop up --nodes`; and hollow nodes for another control plane, which
//! only pretend to run pods.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use node::hollow::{Behaviour, HollowNodes};

use crate::cluster::Cluster;
use crate::controller_program::duration;
use crate::target::Data;
use crate::up::agents::{self, Partition, Request};
use crate::{hollow, of_node};

/// Stop or start a node of `orlop up --nodes`, or run hollow nodes.
#[derive(clap::Args)]
#[group(id = "node")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    hollow: HollowArguments,
}

/// What to do with one of several nodes on this machine.
#[derive(clap::Subcommand)]
enum Verb {
    /// Stop the agent of a node, or cut it off. Its pods and VMs go on running.
    Stop(StopArguments),
    /// Start the agent of a node again, and connect it.
    Start(StartArguments),
}

#[derive(clap::Args)]
#[group(id = "node-stop")]
struct StopArguments {
    /// The node.
    node: String,
    /// Leave the agent running and cut it off instead: nothing passes in either direction, and neither side is told.
    #[arg(long, value_enum, value_name = "FROM", conflicts_with = "kill")]
    partition: Option<Partition>,
    /// Kill the agent, without a chance to finish anything.
    #[arg(long)]
    kill: bool,
    #[command(flatten)]
    data: Data,
}

#[derive(clap::Args)]
#[group(id = "node-start")]
struct StartArguments {
    /// The node.
    node: String,
    #[command(flatten)]
    data: Data,
}

#[derive(clap::Args)]
#[group(id = "node-hollow")]
struct HollowArguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Pretend to run pods. Nodes that really run them are those of `orlop up`.
    #[arg(long, env = "ORLOP_NODE_HOLLOW")]
    hollow: bool,
    /// Number of nodes.
    #[arg(long, default_value_t = 1, env = "ORLOP_NODE_COUNT")]
    count: u32,
    /// Prefix of the node names; a number follows.
    #[arg(long, default_value = "hollow", env = "ORLOP_NODE_PREFIX")]
    prefix: String,
    /// Time from the binding of a pod until it runs.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_NODE_START_DELAY")]
    start_delay: Duration,
    /// Time that a deleted pod takes to end, unless its grace period is shorter.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_NODE_STOP_DELAY")]
    stop_delay: Duration,
    /// Labels of pods that fail instead of running, such as app=broken.
    #[arg(long, value_delimiter = ',', value_name = "NAME=VALUE", value_parser = label, env = "ORLOP_NODE_FAILING")]
    failing: Vec<(String, String)>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not a valid label; use NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Arguments {
    /// Whether this is a process that runs for long.
    pub(crate) fn serves(&self) -> bool {
        self.verb.is_none()
    }
}

pub(crate) fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let (request, data, done) = match arguments.verb {
        None => return run_hollow(arguments.hollow),
        Some(Verb::Start(StartArguments { node, data })) => {
            let done = format!("the agent of {node} runs");
            (Request::Start { node }, data, done)
        }
        Some(Verb::Stop(StopArguments { node, partition: Some(from), kill: _, data })) => {
            let done = format!("the agent of {node} is cut off; `orlop node start {node}` connects it again");
            (Request::Partition { node, from }, data, done)
        }
        Some(Verb::Stop(StopArguments { node, partition: None, kill, data })) => {
            let done = format!("the agent of {node} has ended, its pods go on; `orlop node start {node}` starts it");
            (Request::Stop { node, kill }, data, done)
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(agents::ask(&data.folder()?, &request))?;
    writeln!(out, "{done}").context("write to standard output")
}

fn run_hollow(arguments: HollowArguments) -> anyhow::Result<()> {
    let HollowArguments { cluster, hollow: is_hollow, count, prefix, start_delay, stop_delay, failing } = arguments;
    if !is_hollow {
        bail!("only hollow nodes join another control plane; use --hollow");
    }
    let behaviour = Behaviour { start_delay, stop_delay, failing: failing.into_iter().collect() };
    let names = hollow::names(&prefix, count);
    of_node::run(&cluster, "orlop-node", "kubelet", |context| {
        let nodes = HollowNodes::new(context, names, behaviour);
        async move { nodes.run().await }
    })
}
