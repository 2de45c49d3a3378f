//! `orlop virt-handler`: a node's controller of virtual machines; so far hollow ones, whose guests exist only in the API.

use std::time::Duration;

use anyhow::bail;
use virt_handler::hollow::{Behaviour, HollowHandlers};

use crate::cluster::Cluster;
use crate::hollow;
use crate::program::duration;

/// Run the guests of a node, or of many.
#[derive(clap::Args)]
#[group(id = "virt-handler")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Pretend to run guests. A handler that really runs them does not exist yet.
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

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is not between 0 and 1"))
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments {
        cluster,
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
        bail!("only hollow handlers exist yet; use --hollow");
    }
    let behaviour = Behaviour { start_delay, stop_delay, run_for, crash_share, start_failure_share };
    let names = hollow::names(&prefix, count);
    hollow::run(&cluster, "virt-handler", "virt-handler", |context| {
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
