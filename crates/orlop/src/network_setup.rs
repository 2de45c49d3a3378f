//! `orlop network-setup`: the child that enters a pod's network namespace; see `network::phase1`.

use anyhow::Context as _;

pub(crate) fn run() -> anyhow::Result<()> {
    network::phase1::child().context("set up a pod's network")
}
