//! `orlop node`: nodes for a control plane; so far hollow ones, which only pretend to run pods.

use std::time::Duration;

use anyhow::bail;
use node::hollow::{Behaviour, HollowNodes};

use crate::cluster::Cluster;
use crate::program::duration;
use crate::{hollow, of_node};

/// Be a node, or many.
#[derive(clap::Args)]
#[group(id = "node")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Pretend to run pods. Nodes that really run them do not exist yet.
    #[arg(long, env = "ORLOP_NODE_HOLLOW")]
    hollow: bool,
    /// How many nodes.
    #[arg(long, default_value_t = 1, env = "ORLOP_NODE_COUNT")]
    count: u32,
    /// What the nodes are called, before their number.
    #[arg(long, default_value = "hollow", env = "ORLOP_NODE_PREFIX")]
    prefix: String,
    /// How long from the binding of a pod until it runs.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_NODE_START_DELAY")]
    start_delay: Duration,
    /// How long from the deletion of a pod to its end, if its grace period is not shorter.
    #[arg(long, default_value = "0s", value_parser = duration, env = "ORLOP_NODE_STOP_DELAY")]
    stop_delay: Duration,
    /// Pods with one of these labels fail instead of running, such as app=broken.
    #[arg(long, value_delimiter = ',', value_name = "NAME=VALUE", value_parser = label, env = "ORLOP_NODE_FAILING")]
    failing: Vec<(String, String)>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { cluster, hollow: is_hollow, count, prefix, start_delay, stop_delay, failing } = arguments;
    if !is_hollow {
        bail!("only hollow nodes exist yet; use --hollow");
    }
    let behaviour = Behaviour { start_delay, stop_delay, failing: failing.into_iter().collect() };
    let names = hollow::names(&prefix, count);
    of_node::run(&cluster, "orlop-node", "kubelet", |context| {
        let nodes = HollowNodes::new(context, names, behaviour);
        async move { nodes.run().await }
    })
}
